"""The notebook that is a page of the site, made by mkdocs-jupyter of a generated file."""

import re

from overlap.site import FOLDER

_SCRIPT = re.compile(r"<script\b[^>]*>.*?</script>", re.S)


def is_one(page) -> bool:
    """Whether this page of MkDocs is a notebook."""
    return page.file.src_uri.startswith(f"{FOLDER}/notebooks/")


def with_way_back(html: str, page) -> str:
    """Its content, with a link to the chapter; it loads no scripts from other hosts."""
    up = "../" * page.url.count("/")
    back = f'<p class="ov-back"><a href="{up}{page.file.name}/">Back to the chapter</a></p>'
    return f"{back}\n{_SCRIPT.sub('', html)}"


def describe(page, nav) -> None:
    """Title and description are those of the chapter, and search leaves it out: it is what its chapter is."""
    page.meta["search"] = {"exclude": True}
    for chapter in nav.pages:
        if chapter.file.src_uri == f"{page.file.name}.md":
            page.meta["title"] = f"{chapter.title}: the notebook"
            page.meta["description"] = chapter.meta.get("description")
