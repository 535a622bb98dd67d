"""Python-Markdown extension: blocks, values in sentences and printed figures become what was recorded."""

import re
import xml.etree.ElementTree as etree
from functools import cache
from pathlib import Path

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.util import AtomicString

from overlap import OverlapError, find_root
from overlap.blocks.block import Block
from overlap.blocks.claim import Claim
from overlap.blocks.inline import CITED, PRINTED, VALUE, VERDICT, VERDICTS, cited, read_value
from overlap.blocks.page import parse
from overlap.blocks.pages import Pages
from overlap.book import select
from overlap.book.book import Book
from overlap.book.verdict import Counts
from overlap.run import hardware
from overlap.site.glossary import Glossary
from overlap.site.layers import EVIDENCE, Layers
from overlap.site.navigation import read_nav, titles
from overlap.site.pictures import Pictures
from overlap.site.tables import Tables
from overlap.site.view import Site, View

#: A mark with the end of the word before it, which may be a value, and the sign behind it.
_MARK = rf"(?P<before>[^\s*_`\[\]()<>]{{0,20}})\s*{CITED.pattern}(?P<after>[.,;:)]*)"
#: The title of a page.
_TITLE = re.compile(r"\A\s*# .*$", re.M)
#: Words a minute, of prose that has to be thought about.
_PACE = 200


class OverlapExtension(Extension):
    """`site` is handed in by the MkDocs plugin; elsewhere the book is found from the working directory."""

    def __init__(self, site: Site | None = None, **options):
        self.config = {"execute": ["auto", "auto or never; where there is no plugin to say it"]}
        self._given = site
        self._view = None
        super().__init__(**options)

    @property
    def site(self) -> Site:
        """The book; it is opened when the first page needs it."""
        return self._given or _site_here(find_root(), self.getConfig("execute"))

    @property
    def view(self) -> View:
        """The page being rendered."""
        if self._view is None:
            self._view = View(self.site)
        return self._view

    def turn_to(self, text: str) -> View:
        """Begin a page. Builders do not say which it is: it is known by its text, or is one of its own."""
        path = self._path_of(text)
        if not path and not self._given:
            _site_here.cache_clear()  # a page that was edited since
            path = self._path_of(text)
        if not path and self.site.pages.unreadable:
            raise OverlapError("\n".join(self.site.pages.unreadable))
        self._view = View(self.site, path)
        self.site.anchors[path] = self._view.anchors
        return self._view

    def _path_of(self, text: str) -> str:
        for path, page in self.site.pages.by_path.items():
            if page.text.strip() == text.strip():
                return path
        return ""

    def reset(self) -> None:
        """The next text is another page."""
        self._view = None

    def extendMarkdown(self, md: Markdown) -> None:
        """Register what takes blocks, values, printed figures and terms."""
        md.registerExtension(self)
        md.preprocessors.register(_Blocks(md, self), "overlap", 27)
        md.inlinePatterns.register(_Values(VALUE.pattern, md, self), "overlap", 185)
        md.inlinePatterns.register(_Printed(PRINTED.pattern, md), "overlap-printed", 184)
        md.inlinePatterns.register(_Verdict(VERDICT.pattern, md, self), "overlap-verdict", 182)
        # before sentences are taken apart, at 20
        md.treeprocessors.register(Tables(md), "overlap-tables", 25)
        md.inlinePatterns.register(_Marks(_MARK, md, self), "overlap-marks", 183)  # after values
        md.treeprocessors.register(Layers(md), "overlap-layers", 4)  # behind ids and contents, at 5
        glossary = Glossary(md, lambda: self.view.pages, lambda: self.view.path)
        md.treeprocessors.register(glossary, "overlap-glossary", 1)  # before MkDocs resolves links, at 0


@cache
def _site_here(root: Path, execute: str) -> Site:
    """The book in a folder, read once for all pages of a builder that has no plugin of ours."""
    book = Book(root, execute)
    return Site(Pages(book), Pictures(book), titles=titles(read_nav(root)))


def makeExtension(**options) -> OverlapExtension:
    """Entry point of Python-Markdown."""
    return OverlapExtension(**options)


class _Blocks(Preprocessor):
    def __init__(self, md: Markdown, extension: OverlapExtension):
        super().__init__(md)
        self.extension = extension

    def run(self, lines: list[str]) -> list[str]:
        text = "\n".join(lines)
        view = self.extension.turn_to(text)
        view.md = self.md
        blocks = view.pages.on(view.path) if view.path else parse(text, view.path)
        view.named = {block.name: block for block in blocks if isinstance(block, Claim) and block.name}
        view.cited = {name for block in blocks if block.prose for _, name in cited(block.prose.text)}
        view.open(blocks)
        rendered = [block.markdown(view) for block in blocks]
        status = view.site.status if view.path else ""
        if view.measured or status:
            top = view.stash(head(view, blocks, status))
            rendered[0] = _TITLE.sub(lambda title: f"{title[0]}\n\n{top}\n", rendered[0], count=1)
        if view.measured:
            rendered.append(f"\n\n{view.stash(measured(view))}\n")
        if view.elsewhere:
            rendered.append(f"\n\n{view.stash(view.parts)}\n")
        return "\n".join(rendered).rstrip("\n").splitlines()  # else the last block is put into a paragraph


class _Values(InlineProcessor):
    """A value becomes what it is on the page's machine, with its provenance and its range."""

    def __init__(self, pattern: str, md: Markdown, extension: OverlapExtension):
        super().__init__(pattern, md)
        self.extension = extension

    def handleMatch(self, match: re.Match, data: str):
        shown = self.extension.view.value(read_value(match))
        name = "ov-value ov-pinned" if shown.is_pinned else "ov-value"
        element = etree.Element("span", {"class": name, "tabindex": "-1"} | shown.attributes)
        element.text = AtomicString(shown.text)
        if shown.wide_range:
            small = etree.SubElement(element, "small", {"class": "ov-range"})
            small.text = AtomicString(shown.wide_range)
        return element, match.start(0), match.end(0)


class _Marks(InlineProcessor):
    """The mark of a claim, which opens its evidence; it stays with the word before and the sign behind it."""

    def __init__(self, pattern: str, md: Markdown, extension: OverlapExtension):
        super().__init__(pattern, md)
        self.extension = extension

    def handleMatch(self, match: re.Match, data: str):
        view = self.extension.view
        claim = view.named.get(match["claim"])
        if claim is None:
            reason = f"no claim of this page is named {match['claim']!r}"
            raise OverlapError(f"docs/{view.path}: {reason}; name it, or take the mark away")
        mark = self.md.htmlStash.store(claim.mark(view))
        together = etree.Element("span", {"class": "ov-together"})
        together.text = f"{match['before']}\u00a0{mark}{match['after']}"
        return together, match.start(0), match.end(0)


class _Printed(InlineProcessor):
    """A number that a source printed: shown as such, so that nobody takes it for one of ours."""

    def handleMatch(self, match: re.Match, data: str):
        title = "printed by a source, not measured here"
        element = etree.Element("span", {"class": "ov-printed", "title": title})
        element.text = AtomicString(match["text"])
        return element, match.start(0), match.end(0)


class _Verdict(InlineProcessor):
    """What the book says of a source's statement, as a mark."""

    def __init__(self, pattern: str, md: Markdown, extension: OverlapExtension):
        super().__init__(pattern, md)
        self.extension = extension

    def handleMatch(self, match: re.Match, data: str):
        words = match["words"]
        if words not in VERDICTS:
            reason = f"{words!r} is no verdict; write one of {', '.join(VERDICTS)}"
            raise OverlapError(f"docs/{self.extension.view.path}: {reason}")
        element = etree.Element("span", {"class": f"ov-chip ov-{words.split()[-1]}"})
        element.text = words
        return element, match.start(0), match.end(0)


def head(view: View, blocks: list[Block], status: str) -> str:
    """Below the title: minutes to read, the machine shown, all machines, dates, how many claims hold."""
    answer, evidence = _words(blocks)
    days = _days(view)
    return view.file(
        "head",
        status=status,
        first=view.opens_on,
        minutes=max(1, round(answer / _PACE)),
        evidence=round(evidence / _PACE),
        models=list(dict.fromkeys(hardware.label(machine).rpartition(" × ")[2] for machine in days)),
        days=sorted(day for days_there in days.values() for day in days_there),
        is_first=view.opens_on == select.of_book(view.book),
        elsewhere=view.elsewhere.count(True),
        outputs=len(view.elsewhere),
        counts=Counts.of(view.claims),
        marks=view.legend,
        notebook=view.link(f"downloads/{view.path.removesuffix('.md')}.ipynb"),
    )


def _words(blocks: list[Block]) -> tuple[int, int]:
    """How many words the answer of a page has, and how many its evidence."""
    text = "\n".join(block.prose.text for block in blocks if block.prose)
    answer, _, evidence = text.partition(f"{{ #{EVIDENCE} }}")
    return len(answer.split()), len(evidence.split())


def measured(view: View) -> str:
    """When and on what the snippets of a page ran, how many claims hold, and the page as a notebook."""
    counts = Counts.of(view.claims)
    held = sorted(counts.by, key=hardware.order)
    name = view.path.removesuffix(".md")
    is_page = name == view.site.notebook_page
    return view.file(
        "measured",
        spans=[f"{hardware.label(p)}, {' and '.join(sorted(days))}" for p, days in _days(view).items()],
        counts=counts,
        held=[f"{hardware.label(machine)}: {counts.on(machine)}" for machine in held],
        file=view.link(f"downloads/{name}.ipynb"),
        page=f"{view.up}generated/notebooks/{name}/" if is_page else "",
    )


def _days(view: View) -> dict[str, set[str]]:
    """The days when the page's snippets ran, by machine."""
    days: dict[str, set[str]] = {}
    for name in view.measured:
        for machine, recording in view.book.recordings(name).items():
            days.setdefault(machine, set()).add(recording.day)
    return {machine: days[machine] for machine in sorted(days, key=hardware.order)}
