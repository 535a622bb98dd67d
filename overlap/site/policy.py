"""The Content-Security-Policy of the site: a page runs the site's own files and the theme's inline scripts, known by their hashes, and nothing else.

It is the same on all pages, because a change of page without a reload keeps what the first page said. What mkdocs-jupyter puts inline into
each notebook page goes: its scripts, and its style into a file.
"""

import hashlib
import re
from base64 import b64encode
from pathlib import Path
from urllib.parse import urlsplit

from mkdocs.utils import get_relative_url

#: Where the theme has its inline scripts, and which of them this site's pages have.
_THEME, _SCRIPTS = "partials/javascripts", ("base", "palette", "content")
_SCRIPT = re.compile(r"<script\b[^>]*>(.*?)</script>", re.S)
_STYLE = re.compile(r"<style\b[^>]*>(.*?)</style>", re.S)


def policy(env, files, config) -> str:
    """The policy of a site whose theme is Material; empty for another theme, whose scripts are not known."""
    bases = {get_relative_url(".", file.url) for file in files.documentation_pages()}
    bases.add(urlsplit(config.site_url or "/").path)  # that of 404.html
    context, hashes = {"config": config, "features": config.theme.get("features", [])}, set()
    names = [f"{_THEME}/{name}.html" for name in _SCRIPTS]
    for name in names if any(Path(top, _THEME).is_dir() for top in config.theme.dirs) else ():
        for base in bases:
            text = env.get_template(name).render(context, base_url=base)
            hashes |= {b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in _SCRIPT.findall(text)}
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(["'self'", *(f"'sha256-{digest}'" for digest in sorted(hashes))]),
        "worker-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "font-src": "'self'",
        "style-src": "'self'",
        "style-src-attr": "'unsafe-inline'",  # the lengths of bars, and what the theme sets; an address in one is held to img-src
        "form-action": "'self'",
        "base-uri": "'none'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in rules.items()) if hashes else ""


def without_inline(content: str) -> tuple[str, str]:
    """A notebook page without its scripts and styles; and the styles as one text."""
    style = "\n".join(_STYLE.findall(content))
    return _STYLE.sub("", _SCRIPT.sub("", content)), style
