"""The navigation of a site: its pages in reading order, and what each is called there."""

from pathlib import Path

import yaml


def titles(nav: list | None) -> dict[str, str]:
    """The title of each page by its path, empty for a page without one; `nav` is what a configuration has."""
    found: dict[str, str] = {}
    for item in nav or []:
        for title, place in (item if isinstance(item, dict) else {"": item}).items():
            found |= titles(place) if isinstance(place, list) else {place: title}
    return found


def read_nav(root: Path) -> list | None:
    """`nav` of mkdocs.yml, for a builder that hands nothing over."""
    file = root / "mkdocs.yml"
    config = yaml.load(file.read_bytes(), _Loader) if file.exists() else None
    return (config or {}).get("nav")


def urls(nav) -> dict[str, str]:
    """The address of each page by its path; this `nav` is MkDocs' own."""
    return {page.file.src_uri: page.url for page in nav.pages}


def lead_on(page, nav) -> None:
    """Let the page that the front matter names come `next`."""
    if following := page.meta.get("next"):
        page.next_page = next(other for other in nav.pages if other.file.src_uri == following)


class _Loader(yaml.SafeLoader):
    """Reads a file whose tags, as `!ENV`, mean something to MkDocs alone."""


_Loader.add_multi_constructor("", lambda loader, tag, node: None)
