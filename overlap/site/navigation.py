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


def urls(files) -> dict[str, str]:
    """The address of each page by its path, in the navigation or not; these `files` are MkDocs' own."""
    return {file.src_uri: file.url for file in files.documentation_pages()}


def lead_on(page, files) -> None:
    """Let the page that the front matter names come `next`."""
    if following := page.meta.get("next"):
        page.next_page = files.src_uris[following].page


class _Loader(yaml.SafeLoader):
    """Reads a file whose tags, as `!ENV`, mean something to MkDocs alone."""


_Loader.add_multi_constructor("", lambda loader, tag, node: None)
