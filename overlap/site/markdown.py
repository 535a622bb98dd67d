"""Python-Markdown extension: blocks, values in sentences and printed figures become what was recorded."""

import re
import xml.etree.ElementTree as etree
from collections import Counter
from functools import cache
from pathlib import Path

from markdown import Extension, Markdown
from markdown.extensions.toc import slugify
from markdown.inlinepatterns import InlineProcessor
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

from overlap import OverlapError, find_root
from overlap.book.blocks import Block, Claim
from overlap.book.book import Book
from overlap.book.page import parse
from overlap.book.value import CITED, PRINTED, VALUE, Value, cited
from overlap.book.verdict import Counts
from overlap.run import machine
from overlap.run.text import plain
from overlap.site.glossary import Glossary
from overlap.site.pictures import Pictures
from overlap.site.view import Site, View


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
        return self._given or _found_site(find_root(), self.getConfig("execute"))

    @property
    def view(self) -> View:
        """The page being rendered."""
        if self._view is None:
            self._view = View(self.site)
        return self._view

    def turn_to(self, text: str) -> View:
        """Begin a page. Builders do not say which it is, so it is known by its text; else it is one of its own."""
        path = self._path_of(text)
        if not path and not self._given:
            _found_site.cache_clear()  # a page that was edited since
            path = self._path_of(text)
        lost = self.site.book.library.lost_pages
        if not path and lost:
            raise OverlapError("\n".join(lost))
        self._view = View(self.site, path)
        self.site.anchors[path] = self._view.anchors
        return self._view

    def _path_of(self, text: str) -> str:
        for path, page in self.site.book.pages.items():
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
        md.inlinePatterns.register(
            _Marks(_MARK, md, self), "overlap-marks", 183
        )  # when values are in their places
        md.inlinePatterns.register(_Printed(PRINTED.pattern, md), "overlap-printed", 184)
        md.treeprocessors.register(_Symptoms(md), "overlap-symptoms", 26)
        md.treeprocessors.register(_Cards(md), "overlap-cards", 25)  # before sentences are taken apart, at 20
        md.postprocessors.register(_Code(md), "overlap-code", 5)  # when raw HTML is in its place
        glossary = Glossary(md, lambda: self.view.book.docs, lambda: self.view.path)
        md.treeprocessors.register(glossary, "overlap-glossary", 1)  # before MkDocs resolves links, at 0


@cache
def _found_site(root: Path, execute: str) -> Site:
    """The book in a folder, read once for all pages of a builder that has no plugin of ours."""
    book = Book(root, execute)
    return Site(book, Pictures(book))


#: A mark with the end of the word before it, which may be a value, and the sign behind it.
_MARK = rf"(?P<before>[^\s*_`\[\]()<>]{{0,20}})\s*{CITED.pattern}(?P<after>[.,;:)]*)"
#: The title of a page.
_TITLE = re.compile(r"\A\s*# .*$", re.M)


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
        blocks = view.book.pages[view.path].blocks if view.path else parse(text, view.path)
        view.named = {block.name: block for block in blocks if isinstance(block, Claim) and block.name}
        view.cited = {name for block in blocks if block.prose for _, name in cited(block.prose.text)}
        view.opens_on = opens_on(view.book, blocks)
        rendered = [block.markdown(view) for block in blocks]
        if view.measured:
            top = view.put(head(view, blocks))
            rendered[0] = _TITLE.sub(lambda title: f"{title[0]}\n\n{top}\n", rendered[0], count=1)
            rendered.append(f"\n\n{view.put(measured(view))}\n")
        if view.site.status and view.path:
            status = f'<p class="ov-status" role="status" data-search-exclude>{view.site.status}</p>'
            rendered[0] = _TITLE.sub(
                lambda title: f"{title[0]}\n\n{view.put(status)}\n", rendered[0], count=1
            )
        return "\n".join(rendered).rstrip("\n").splitlines()  # else the last block is put into a paragraph


class _Values(InlineProcessor):
    """All machines' values of an expression; one is shown."""

    def __init__(self, pattern: str, md: Markdown, extension: OverlapExtension):
        super().__init__(pattern, md)
        self.extension = extension

    def handleMatch(self, match: re.Match, data: str):
        value = Value.parse(match)
        view = self.extension.view
        statistics = view.book.statistics(value)
        first = view.first(view.book.numbers(value), value.snippet)
        # a value that is of one machine only stands in a sentence that names it
        look = "ov-value ov-pinned" if value.profile else "ov-value"
        element = etree.Element("span", {"class": look})
        # the Tab key stops where there is more to tell than where the number comes from
        more = any(item.wide_range or not item.values for item in statistics.values())
        element.set("tabindex", "0" if more else "-1")
        for profile, item in statistics.items():
            note = f"{value.snippet} on {machine.label(profile)}"
            if item.note:
                note += f": {item.note}"
            shown = {"class": "ov-on"} if profile == first else {"data-search-exclude": ""}
            part = etree.SubElement(
                element, "span", {"data-machine": profile, "data-note": plain(note)} | shown
            )
            part.text = AtomicString(plain(item.text))
            if item.wide_range:
                span = etree.SubElement(part, "small", {"class": "ov-range"})
                span.text = AtomicString(plain(f" ({item.wide_range})"))
        return element, match.start(0), match.end(0)


class _Marks(InlineProcessor):
    """The mark of a claim, which opens its evidence; it stays with the word before it and the sign behind it."""

    def __init__(self, pattern: str, md: Markdown, extension: OverlapExtension):
        super().__init__(pattern, md)
        self.extension = extension

    def handleMatch(self, match: re.Match, data: str):
        view = self.extension.view
        claim = view.named.get(match["claim"])
        if claim is None:
            raise OverlapError(
                f"docs/{view.path}: no claim of this page is named {match['claim']!r}; name it, or take the mark away"
            )
        together = etree.Element("span", {"class": "ov-together"})
        together.text = f"{match['before']}\u00a0{self.md.htmlStash.store(claim.mark(view))}{match['after']}"
        return together, match.start(0), match.end(0)


class _Code(Postprocessor):
    """Code keeps its language when a browser translates the page."""

    def run(self, text: str) -> str:
        return re.sub(r"<code(?=[ >])", '<code translate="no"', text)


class _Printed(InlineProcessor):
    """A figure that a source printed: shown as such, so that nobody takes it for one of ours."""

    def handleMatch(self, match: re.Match, data: str):
        title = "printed by a source, not measured here"
        element = etree.Element("span", {"class": "ov-printed", "title": title})
        element.text = AtomicString(match["text"])
        return element, match.start(0), match.end(0)


class _Symptoms(Treeprocessor):
    """A table whose first column is headed `symptom` becomes entries: a place to link to, and one for search, each."""

    def run(self, root: etree.Element) -> None:
        taken = set()
        for parent in list(root.iter()):
            for at, table in enumerate(list(parent)):
                if table.tag == "table" and [th.text for th in table.iter("th")][:1] == ["symptom"]:
                    parent[at] = self._entries(table, taken)

    def _entries(self, table: etree.Element, taken: set[str]) -> etree.Element:
        """A block for each row: its first cell as a heading, the others as paragraphs."""
        _, *names = [th.text for th in table.iter("th")]
        entries = etree.Element("div", {"class": "ov-symptoms"})
        for row in table.find("tbody"):
            first, *others = row
            entry = etree.SubElement(entries, "div", {"class": "ov-symptom"})
            heading = etree.SubElement(
                entry, "h3", {"id": self._anchor(first.text, taken), "data-label": "symptom"}
            )
            heading.text = first.text
            for name, cell in zip(names, others, strict=True):
                etree.SubElement(entry, "p", {"data-label": name}).text = cell.text
        return entries

    def _anchor(self, text: str, taken: set[str]) -> str:
        """Made of the first words of a symptom."""
        words = slugify(re.split(r" · |; |, ", text)[0], "-")
        anchor = next(name for name in (words, *(f"{words}-{i}" for i in range(2, 99))) if name not in taken)
        taken.add(anchor)
        return anchor


#: How a verdict on a source begins.
_VERDICT = re.compile(r"(holds with limits|holds|dated|wrong)(?![\w-])[:;,]?\s*")


class _Cards(Treeprocessor):
    """Cells say what their column is called: on a phone a row is a card. Verdicts begin with a mark."""

    def run(self, root: etree.Element) -> None:
        for table in root.iter("table"):
            headings = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", th.text or "") for th in table.iter("th")]
            for row in table.iter("tr"):
                for heading, cell in zip(headings, row.findall("td"), strict=False):
                    cell.set("data-label", plain(heading))
                    verdict = _VERDICT.match(cell.text or "") if heading == "verdict" else None
                    if verdict:
                        chip = etree.Element("span", {"class": f"ov-chip ov-{verdict[1].split()[-1]}"})
                        chip.text, chip.tail = verdict[1], cell.text[verdict.end() :]
                        cell.text = ""
                        cell.insert(0, chip)


def opens_on(book: Book, blocks: list[Block]) -> str:
    """The machine that a page shows before a reader picks one: the book's first, if all of the page ran on it.

    Else the one that is the default of most snippets whose output stands on the page.
    """
    names = {block.snippet for block in blocks if block.kind == "snippet" and block.output}
    runs = [set(book.runs(name)) for name in names if book.runs(name)]
    first = next((machine["profile"] for machine in book.machines() if machine["first"]), "")
    if not runs or all(first in profiles or profiles == {"cpu"} for profiles in runs):
        return first
    return Counter(filter(None, map(book.default, sorted(names)))).most_common(1)[0][0]


#: Words a minute, of prose that has to be thought about.
_PACE = 200


def head(view: View, blocks: list[Block]) -> str:
    """A line below the title: minutes to read, machines, dates, how many claims hold; and the machine that most of the page is about."""
    words = sum(len(block.prose.text.split()) for block in blocks if block.prose)
    runs = [run for name in view.measured for run in view.book.runs(name).values()]
    days, counts = sorted({run.day for run in runs}), Counts.of(view.claims)
    template = """<p class="ov-head" data-search-exclude data-first="{{ first }}">{{ minutes }} min · {{ machines|join(", ") }} · {{ days|join(" to ") }}
{%- if counts.claims %} · {% if marks %}<a href="{{ marks }}" title="What the marks of this page say">{% endif %}
{{- counts.holds }} of {{ counts.claims }} claims {{ "hold" if counts.holds != 1 else "holds" }}{% if marks %}</a>{% endif %}{% endif %}
{%- if notebook %} · <a href="{{ notebook }}" download>Notebook</a>{% endif %}</p>"""
    index = view.book.pages.get("index.md")
    marks = view.page("index.md", "marks") if index and "{ #marks }" in index.text else ""
    machines = sorted({run.profile for run in runs}, key=machine.order)
    return view.render(
        template,
        first=view.opens_on,
        minutes=max(1, round(words / _PACE)),
        machines=[machine.label(profile) for profile in machines],
        days=sorted({days[0], days[-1]}),
        counts=counts,
        marks=marks,
        notebook=view.link(f"downloads/{view.path.removesuffix('.md')}.ipynb"),
    )


def measured(view: View) -> str:
    """When and on what the snippets of a page ran, how many of its claims hold, and the page as a notebook."""
    days: dict[str, set[str]] = {}
    for name in view.measured:
        for profile, run in view.book.runs(name).items():
            days.setdefault(profile, set()).add(run.day)
    spans = [
        f"{machine.label(profile)}, {' and '.join(sorted(days[profile]))}"
        for profile in sorted(days, key=machine.order)
    ]
    name = view.path.removesuffix(".md")
    file = view.link(f"downloads/{name}.ipynb")
    template = """<details class="ov-fold ov-measured" data-search-exclude><summary>Versions, dates, notebook</summary>
<p>Measured on this page: {{ spans|join(" · ") }}.
{%- if counts.claims %} {{ counts.summary }} ({{ held|join(" · ") }}).{% endif %}{% if file %} This page as a notebook:
{% if page %}<a href="{{ page }}">read it</a>, {% endif %}<a href="{{ file }}" download>download it</a>{% if colab %}, <a href="{{ colab }}">open it in Colab</a>{% endif %}.{% endif %}</p></details>"""
    counts = Counts.of(view.claims)
    held = [
        f"{machine.label(profile)}: {counts.on(profile)}" for profile in sorted(counts.by, key=machine.order)
    ]
    page = f"{view.up}generated/notebooks/{name}/" if view.site.notebook_pages else ""
    colab = ""
    if view.site.colab:
        place = f"{view.site.colab}/generated/downloads/{name}.ipynb"
        colab = f"https://colab.research.google.com/github/{place}"
    return view.render(template, spans=spans, file=file, page=page, colab=colab, counts=counts, held=held)
