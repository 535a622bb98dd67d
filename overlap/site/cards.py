"""Cards: the picture that a link to a page is shown with, where somebody shares it.

The first page has an entry for each chapter: title, question, answer, one number. A chapter's card and its
description are made of it. Other pages say in their front matter what they are: their card has their title
and that sentence. A page without one, or in Chinese, shares the first page's card. A card is drawn once, and
kept in the cache.
"""

import io
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from overlap.book import select
from overlap.book.book import Book
from overlap.book.statistic import show
from overlap.book.value import CITED, Value, replace_values
from overlap.cache import Cache, write
from overlap.run import machine
from overlap.site.svg import INK, SERIES

#: Of a card, in pixels: what most hosts ask for.
SIZE = (1200, 630)
_GREY = "#57606a"
#: The page whose card other pages share.
FIRST = "index.md"
#: A chapter's entry on the first page.
_ENTRY = re.compile(
    r"^- \*\*\[(?P<title>[^\]\n]+)\]\((?P<page>[\w/]+\.md)\)\*\* (?P<question>.+)\n\n {4}(?P<answer>.+)\n\n"
    r" {4}\*\*(?P<number>.+?)\*\*(?P<words>.*)$",
    re.M,
)
#: The title of any other page.
_TITLE = re.compile(r"^# (.+?)(?: \{.*)?$", re.M)
#: The first page's title, and the bold sentence behind it.
_PROMISE = re.compile(r"^# (?P<title>.+)\n(?:[^*]*\n)?\*\*(?P<promise>.+?)\*\*", re.M)


class Cards:
    """The cards of a book, by page."""

    def __init__(self, book: Book):
        self.book = book
        self._cache = Cache(book.cache)

    @cached_property
    def entries(self) -> dict[str, dict[str, str]]:
        """By page: `title`, `question`, `answer`, `number`, `words`, what stands `above`, and `where`.

        The first page has the number of the last chapter, the clinic, whose bars it shows.
        """
        first = self.book.pages.get(FIRST)
        promise = _PROMISE.search(first.text) if first else None
        entries: dict[str, dict[str, str]] = {}
        if not promise:
            return entries
        for match in _ENTRY.finditer(first.text):
            machines: list[str] = []
            entry = {key: self._plain(part, machines) for key, part in match.groupdict().items()}
            entry["where"] = machine.label(machines[0]) if machines else ""
            entry["above"] = f"Overlap · {promise['title']}"
            entries[entry.pop("page")] = entry
        if entries:
            *_, last = entries.values()
            names = {"title": promise["title"], "question": self._plain(promise["promise"], []), "answer": ""}
            entries[FIRST] = last | names | {"above": "Overlap · an executable book"}
            for name, page in self.book.pages.items():
                title = _TITLE.search(page.text)
                if name not in entries and title and page.description and title[1].isascii():
                    above = f"Overlap · {promise['title']}"
                    empty = dict.fromkeys(("answer", "number", "words", "where"), "")
                    entries[name] = empty | {"title": title[1], "question": page.description, "above": above}
        return entries

    def description(self, page: str) -> str:
        """A chapter's question and answer; empty for other pages."""
        entry = self.entries.get(page)
        return f"{entry['question']} {entry['answer']}".strip() if entry else ""

    def of(self, page: str) -> str:
        """The address of a page's card below the site's root; empty in a book without entries."""
        shared = page if page in self.entries else FIRST
        return f"generated/{_file(shared)}" if shared in self.entries else ""

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Each card with its path below the generated files; what is not in the cache is drawn."""
        code = Path(__file__).read_text(encoding="utf-8")
        for page, entry in self.entries.items():
            inputs = [entry, code, version("matplotlib")]
            path = self._cache.path("cards", page.removesuffix(".md"), inputs, ".png")
            if not path.exists():
                write(path, _draw(entry))
            yield _file(page), path.read_bytes()

    def _plain(self, text: str, machines: list[str]) -> str:
        """Text without marks; its values on the machine that the first page opens on, if it has them.

        The machines of the values join `machines`.
        """

        def render(value: Value) -> str:
            numbers = self.book.numbers(value)
            profile = select.of_values(self.book, numbers, value.snippet, select.of_book(self.book))
            machines.append(profile)
            return show(numbers[profile], value.spec)

        text = replace_values(CITED.sub("", text), render)
        return re.sub(r"[*`]", "", text).strip()


def _file(page: str) -> str:
    return f"cards/{page.removesuffix('.md')}.png"


def _draw(entry: dict[str, str]) -> bytes:
    """A card as PNG, the same bytes each time."""
    # here, as a build whose cards are in the cache needs no matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    dpi = 100
    width, height = SIZE
    figure = Figure(figsize=(width / dpi, height / dpi), dpi=dpi, facecolor="white")
    canvas = FigureCanvasAgg(figure)

    def add_text(x: float, y: float, text: str, size: float, **look) -> None:
        """Text whose top left corner stands at these pixels; its height is in pixels, too."""
        points = size * 72 / dpi
        names = {"color": INK, "va": "top", "parse_math": False} | look
        figure.text(x / width, 1 - y / height, text, size=points, **names)

    figure.add_artist(Rectangle((0, 0), 16 / width, 1, color=SERIES[0], transform=figure.transFigure))
    add_text(72, 52, entry["above"], 26, color=_GREY)
    title = textwrap.wrap(entry["title"], 26)
    add_text(72, 112, "\n".join(title), 64, weight="bold", linespacing=1.15)
    question = textwrap.fill(entry["question"], 58)
    add_text(72, 130 + 78 * len(title), question, 34, linespacing=1.3)
    add_text(72, 398, entry["number"], 84, color=SERIES[0], weight="bold")
    add_text(72, 512, textwrap.shorten(entry["words"], 72, placeholder=" …"), 28)
    if entry["where"]:
        add_text(72, 566, f"Measured on {entry['where']}.", 22, color=_GREY)
    file = io.BytesIO()
    canvas.print_png(file, metadata={"Software": None})
    return file.getvalue()
