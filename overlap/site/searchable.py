"""What search reads of a page: prose, code and what it printed, without pictures, other machines' values and what stands at every snippet."""

from html import escape
from html.parser import HTMLParser

_LEFT_OUT = {
    "ov-figure",
    "ov-diagram",
    "ov-calculator",
    "ov-provenance",
    "ov-borrow",
    "ov-missing",
    "ov-measured",
}
_LEFT_OUT |= {"tabbed-labels", "filename", "ov-rank", "headerlink"}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


def searchable(html: str) -> str:
    """The part of a page's HTML that is worth finding."""
    prose = _Prose()
    prose.feed(html)
    prose.close()
    return "".join(prose.parts)


class _Prose(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []
        self._open: list[tuple[str, bool, bool]] = []  # tag, whether it is left out, whether its own tag is

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        classes = set((dict(attributes).get("class") or "").split())
        out = (
            self._out
            or bool(classes & _LEFT_OUT)
            or ("data-machine" in dict(attributes) and tag == "span" and "ov-on" not in classes)
        )
        bare = out or (tag == "span" and not classes & {"ov-value"})
        if not bare:
            told = "".join(f' {name}="{escape(value or "")}"' for name, value in attributes if name in ("id", "class"))
            self.parts.append(f"<{tag}{told}>")
        if tag not in _VOID:
            self._open.append((tag, out, bare))

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            name, _, bare = self._open.pop()
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
