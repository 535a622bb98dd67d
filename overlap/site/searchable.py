"""What search reads of a page: prose, what code printed and the names it defines; no pictures, other machines' values, evidence, and what stands
at every snippet. Code fills a result without saying where something is explained.
"""

from html import escape
from html.parser import HTMLParser

_LEFT_OUT = {
    "ov-figure",
    "ov-diagram",
    "ov-calculator",
    "ov-evidence",
    "ov-head",
    "ov-mark",
    "ov-provenance",
    "ov-borrow",
    "ov-missing",
    "ov-measured",
}
_LEFT_OUT |= {"tabbed-labels", "filename", "ov-rank", "headerlink"}
#: Names of functions and classes where they are defined.
_DEFINED = {"nf", "nc"}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


def searchable(html: str) -> str:
    """The part of a page's HTML that is worth finding."""
    prose = _Prose()
    prose.feed(html)
    prose.close()
    return "".join(prose.parts)


class Found:
    """What search found on pages that have not changed since an author last saved: taking pages apart is a third of a build."""

    def __init__(self):
        self._entries: dict[str, tuple[str, list]] = {}

    def begin(self, page, config) -> None:
        """Give search what it found on this page, or note what it is about to find. It must come before search."""
        plugin = next((plugin for plugin in config.plugins.values() if hasattr(plugin, "search_index")), None)
        self._index, self._said = plugin and plugin.search_index.entries, page.meta.get("search")
        if self._index is None:
            return
        self._key = repr((page.url, page.title, page.content, self._said))
        kept = self._entries.get(page.url)
        self._known = kept is not None and kept[0] == self._key
        self._before = len(self._index)
        if self._known:
            self._index.extend(map(dict, kept[1]))
            page.meta["search"] = {"exclude": True}

    def end(self, page) -> None:
        """Keep what search found. It must come after search."""
        if self._index is None:
            return
        if not self._known:
            self._entries[page.url] = (self._key, list(map(dict, self._index[self._before :])))
        elif self._said is None:
            del page.meta["search"]
        else:
            page.meta["search"] = self._said


class _Prose(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []
        self._open: list[
            tuple[str, bool, bool, bool]
        ] = []  # tag, whether it is left out, whether its own tag is, whether it is code

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        classes = set((dict(attributes).get("class") or "").split())
        code = self._code or "highlight" in classes
        defined = code and bool(classes & _DEFINED)
        out = (
            ((self._out or code) and not defined)
            or bool(classes & _LEFT_OUT)
            or ("data-machine" in dict(attributes) and tag == "span" and "ov-on" not in classes)
        )
        if defined:
            self.parts.append(" ")
        bare = out or (tag == "span" and not classes & {"ov-value"})
        if not bare:
            told = "".join(f' {name}="{escape(value or "")}"' for name, value in attributes if name in ("id", "class"))
            self.parts.append(f"<{tag}{told}>")
        if tag not in _VOID:
            self._open.append((tag, out, bare, code))

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            name, _, bare, _ = self._open.pop()
            if not bare:
                self.parts.append(f"</{name}>")
            if name == tag:
                return

    def handle_data(self, data: str) -> None:
        if not self._out:
            self.parts.append(data)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")

    @property
    def _out(self) -> bool:
        return bool(self._open) and self._open[-1][1]

    @property
    def _code(self) -> bool:
        return bool(self._open) and self._open[-1][3]
