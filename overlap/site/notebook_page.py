"""The notebook that is a page of the site, made by mkdocs-jupyter of a generated file."""

import re

from overlap.site import FOLDER

_SCRIPT = re.compile(r"<script\b[^>]*>.*?</script>", re.S)


def is_one(page) -> bool:
    """Whether this page of MkDocs is a notebook."""
    return page.file.src_uri.startswith(f"{FOLDER}/notebooks/")


def with_way_back(html: str, page) -> str:
    """The content of a page; a notebook's links to its chapter, and loads no scripts from other hosts."""
    if not is_one(page):
        return html
    up = "../" * page.url.count("/")
    back = f'<p class="ov-back"><a href="{up}{page.file.name}/">Back to the chapter</a></p>'
    return f"{back}\n{_SCRIPT.sub('', html)}"


def describe(page, nav) -> None:
    """A notebook has title and description of its chapter, and search leaves it out: it is what that is."""
    if not is_one(page):
        return
    page.meta["search"] = {"exclude": True}
    for chapter in nav.pages:
        if chapter.file.src_uri == f"{page.file.name}.md":
            page.meta["title"] = f"{chapter.title}: the notebook"
            page.meta["description"] = chapter.meta.get("description")
