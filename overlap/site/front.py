"""The first page's bars as a picture that is committed, for the README on a code host.

`python -m overlap.site.front` draws it anew from the recordings; a test says when that is due. A code host
takes no styles from the book: the picture has letters, a background and colours of its own, light or dark
as the reader's system is.
"""

from html import escape

from overlap import find_root
from overlap.book import select
from overlap.book.blocks.bars import Bars
from overlap.book.book import Book
from overlap.book.page import FIRST
from overlap.cache import write
from overlap.run import machine

#: Below docs/.
PICTURE = "assets/first-page.svg"
_WIDTH = 760
_LONGEST = 660  # of the bars; beside it stands its length
_ROW = 50
_TOP = 14
_STYLE = """
svg { --paper: #fff; --ink: #1f2328; --pale: #57606a; --works: #0a6cb0; --waits: #f0d3c2; --on: #fff }
@media (prefers-color-scheme: dark) {
svg { --paper: #14171b; --ink: #e3e7eb; --pale: #a5aeb8; --works: #5aaef0; --waits: #5f3e2c; --on: #14171b }
}
text { fill: var(--ink); font: 14px sans-serif }
.b { font-weight: bold }
.on { fill: var(--on) }
.pale { fill: var(--pale) }
.works { fill: var(--works) }
.waits { fill: var(--waits) }
.paper { fill: var(--paper) }
"""


def draw(book: Book) -> str:
    """The bars of the first page on the machine that it opens on, as SVG."""
    bars = next(block for block in book.pages[FIRST].blocks if isinstance(block, Bars))
    profile = select.of_book(book)
    rows = bars.lengths(book)[profile]
    longest = max(length for _, length, _ in rows)
    parts = []
    for number, (label, length, share) in enumerate(rows):
        top = _TOP + number * _ROW
        width = length / longest * _LONGEST
        filled = width * share
        look = ' class="b"' if number in (0, len(rows) - 1) else ""
        parts += [
            f'<text x="12" y="{top + 12}"{look}>{escape(label)}</text>',
            f'<rect class="waits" x="12" y="{top + 18}" width="{width:.1f}" height="24" rx="2"/>',
            f'<rect class="works" x="12" y="{top + 18}" width="{filled:.1f}" height="24" rx="2"/>',
            f'<text class="b" x="{22 + width:.1f}" y="{top + 35}">{length:.0f} {escape(bars.unit)}</text>',
        ]
        if number == 0:
            works = f"{bars.filled} {length * share:.0f} {bars.unit}"
            waits = f"{bars.empty} {length - length * share:.0f} {bars.unit}"
            parts.append(f'<text class="on" x="20" y="{top + 35}">{escape(works)}</text>')
            parts.append(f'<text x="{20 + filled:.1f}" y="{top + 35}">{escape(waits)}</text>')
    height = _TOP + len(rows) * _ROW + 24
    where = f"Measured on {machine.label(profile)}."
    parts.append(f'<text class="pale" x="12" y="{height - 12}">{where}</text>')
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    title = f"<title>{escape(describe(rows, bars))}</title>"
    paper = f'<rect class="paper" width="{_WIDTH}" height="{height}"/>'
    return "\n".join([opening, title, f"<style>{_STYLE}</style>", paper, *parts, "</svg>", ""])


def describe(rows: list[tuple[str, float, float]], bars: Bars) -> str:
    """The picture in words, for who does not see it."""
    words = [f"{label}: {length:.0f} {bars.unit}" for label, length, _ in rows]
    return "; ".join(words) + "."


if __name__ == "__main__":
    root = find_root()
    write(root / "docs" / PICTURE, draw(Book(root, "never")))
