"""The language menu in a site's header: each page in the other language, or else the guide."""

from typing import NamedTuple

from overlap.blocks.language import FOLDER, GUIDE, is_chinese, original


class Language(NamedTuple):
    """A language of the site, and the address of the page that its entry in the menu leads to."""

    name: str
    code: str
    url: str
    #: Whether that page says the same as the one that the menu stands on.
    is_same: bool


def languages(path: str, urls: dict[str, str]) -> list[Language]:
    """The entries of the menu on a page, by the addresses of all pages by path."""
    english = original(path) if path != GUIDE else "index.md"
    chinese = path if is_chinese(path) else f"{FOLDER}{path}"
    is_same = {english, chinese} <= urls.keys() and chinese != GUIDE
    return [
        Language("English", "en", urls.get(english, "."), is_same),
        Language("中文", "zh", urls.get(chinese, urls.get(GUIDE, ".")), is_same),
    ]
