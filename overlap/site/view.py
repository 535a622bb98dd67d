"""What a block draws itself with on a page: templates that escape, addresses, code, outputs, pictures."""

import re
from collections.abc import Container
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import jinja2
from markdown import Markdown
from markupsafe import Markup
from pygments import highlight
from pygments.filter import Filter
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.token import Name, Operator, Punctuation, Text, Token

from overlap import OverlapError
from overlap.blocks import language
from overlap.blocks.block import Block
from overlap.blocks.claim import Claim
from overlap.blocks.inline import cited
from overlap.blocks.page import FIRST
from overlap.blocks.pages import Pages
from overlap.book import select
from overlap.book.book import Book
from overlap.book.statistic import show
from overlap.book.value import Value
from overlap.book.verdict import MARKS, Verdict
from overlap.run import hardware
from overlap.run.text import plain
from overlap.site import FOLDER, layers, machines, raw, svg
from overlap.site.draw import NARROW, WIDTHS
from overlap.site.pictures import Pictures
from overlap.site.unbroken import unbroken

#: What stands for HTML in a page's Markdown, until all sentences are read.
_STANDS_FOR = re.compile("\ue000(\\d+)\ue001")


@dataclass
class Site:
    """What one build knows beside the book."""

    pages: Pages
    pictures: Pictures
    #: The chapter whose notebook the builder makes a page of.
    notebook_page: str = ""
    #: What the navigation calls each page, by its path; in reading order.
    titles: dict[str, str] = field(default_factory=dict)
    #: What a served page says of the runs behind it.
    status: str = ""
    #: A digest of all files but pages, before the book was read.
    files: str = ""
    #: Paths of generated files that are made when a reader asks for them.
    later: Container[str] = ()

    @property
    def book(self) -> Book:
        """The data that the pages show."""
        return self.pages.book


@dataclass
class View:
    """One page while it is rendered.

    `anchors` are the places that links to snippets lead to, `measured` the snippets whose output it shows,
    `claims` the verdicts of each of its claims, `named` its claims by name, `borrowed` those of the page it
    translates whose marks it sets, `cited` the names whose marks stand in the prose, `closed` the lines of
    the blocks in closed rows.
    """

    site: Site
    path: str = ""
    anchors: set[str] = field(default_factory=set)
    measured: list[str] = field(default_factory=list)
    claims: list[list[Verdict]] = field(default_factory=list)
    named: dict[str, Claim] = field(default_factory=dict)
    borrowed: list[Claim] = field(default_factory=list)
    cited: set[str] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    #: The machine that the page shows before a reader picks one.
    opens_on: str = ""
    #: Of each output, which other machine gave it, or "".
    elsewhere: list[str] = field(default_factory=list)
    _figures: int = 0
    #: Whether it writes the file of what the page opens.
    _is_fold: bool = False
    _html: list[str] = field(default_factory=list)

    @property
    def book(self) -> Book:
        """The book as read."""
        return self.site.book

    @property
    def pages(self) -> Pages:
        """All pages."""
        return self.site.pages

    @property
    def titles(self) -> dict[str, str]:
        """What the navigation calls each page."""
        return self.site.titles

    @property
    def up(self) -> str:
        """The way from the page to the root of the site: a page is a folder, but for `index.md`."""
        parts = Path(self.path or "page.md").with_suffix("").parts
        depth = len(parts) - (parts[-1] == "index")
        return "../" * depth

    def first(self, by_machine: dict, name: str) -> str:
        """Of the machines that have something of a snippet, the one that the page shows."""
        return select.of_values(self.book, by_machine, name, self.opens_on)

    def is_elsewhere(self, machine: str, name: str) -> bool:
        """Whether the page's machine would give something else of a snippet than this one."""
        return machine != select.stand_in(self.opens_on, self.book.recordings(name))

    def stash(self, html: str) -> str:
        """Keep the HTML of a block out of Markdown's way; return what stands for it."""
        self._html.append(raw.block(html))
        return f"\ue000{len(self._html) - 1}\ue001"

    def put(self, html: str) -> str:
        """The same for HTML within a sentence."""
        self._html.append(raw.sentence(html))
        return f"\ue000{len(self._html) - 1}\ue001"

    def filled(self, text: str) -> str:
        """Markdown with the HTML in its places."""
        return _STANDS_FOR.sub(lambda match: self._html[int(match[1])], text)

    def render(self, template: str, **names) -> Markup:
        """The HTML of a template's text; every text in it is escaped."""
        return Markup(_template(template).render(names))

    def file(self, template: str, **names) -> Markup:
        """The HTML of a template of this package."""
        return Markup(_environment().get_template(f"{template}.html").render(names))

    @cached_property
    def _sentences(self) -> Markdown:
        return Markdown(extensions=["pymdownx.inlinehilite"])

    def inline(self, text: str) -> Markup:
        """HTML of one sentence of Markdown, which the page's author wrote."""
        html = self._sentences.reset().convert(text)
        return Markup(html.removeprefix("<p>").removesuffix("</p>"))

    def captioned(self, name: str, caption: str, href: str = "") -> str:
        """Markdown of the caption of the next figure, with a link to where its code is.

        Its anchor is made of the snippet's name, where it has one.
        """
        self._figures += 1
        anchor = f"figure-{name.replace('/', '-')}" if name else f"figure-{self._figures}"
        code = f' <a class="ov-how" href="{href}">{self.say("How it was measured")}</a>' if href else ""
        link = f'<a class="headerlink" href="#{anchor}" title="{self.say("Link to this figure")}">¶</a>'
        name = f"{self.say('Figure')} {self._figures}."
        return f"\n**{name}** {caption}{code} {link}\n{{: .ov-caption #{anchor} }}\n"

    def link(self, uri: str) -> str:
        """Address of a generated file; empty where there is none."""
        return self.address(f"{FOLDER}/{uri}")

    def page(self, path: str, anchor: str) -> str:
        """Address of a place on another page."""
        return f"{self.up}{_folder(path)}#{anchor}"

    def fold(self, name: str) -> str:
        """Address of what a mark or a fold of the page opens; empty where no build has written it."""
        file = f"folds/{self.path.removesuffix('.md')}.html"
        address = f"{self.up}{FOLDER}/{file}" if self._is_fold else self.link(file)
        return f"{address}#{name}" if address else ""

    def folds(self, blocks: list[Block]) -> str:
        """A file of all that marks and folds of the page open; empty where there is nothing to open."""
        self._is_fold = True
        self.open(blocks)
        opened = [block.fold(self) for block in [*blocks, *self.borrowed]]
        if not any(opened):
            return ""
        html = Markup(unbroken("".join(opened)))
        return self.file("folds", view=self, address=_folder(self.path), opened=html)

    def open(self, blocks: list[Block]) -> None:
        """Look for the claims of a page, and decide which machine it shows before a reader picks one."""
        self.named = {block.name: block for block in blocks if isinstance(block, Claim) and block.name}
        self.cited = {name for block in blocks if block.prose for _, name in cited(block.prose.text)}
        self.closed = layers.closed(blocks)
        original = language.original(self.path)
        if original != self.path:
            others = self.pages.named(original).items()
            self.borrowed = [claim for name, claim in others if name in self.cited - self.named.keys()]
            self.named |= {claim.name: claim for claim in self.borrowed}
            page = self.pages.by_path.get(original)
            blocks = page.blocks if page else blocks
        outputs = {shown.snippet for block in blocks for shown in block.snippets if shown.output}
        self.opens_on = select.of_page(self.book, outputs)

    @property
    def legend(self) -> str:
        """Address of the place on the first page that explains marks; empty where it has none."""
        index = self.pages.by_path.get(FIRST)
        explained = index and any(section.anchor == "marks" for section in index.sections)
        return self.page(FIRST, "marks") if explained else ""

    def how(self, name: str) -> str:
        """Address of the place that shows how a snippet was measured; empty where no page does."""
        place = self.pages.places.get(name)
        if not place:
            return ""
        return f"#{place.anchor}" if place.page == self.path else self.page(place.page, place.anchor)

    def say(self, words: str) -> str:
        """Words of the book itself in the page's language."""
        return language.say(words, self.path)

    def picture(self, run: dict, part: str) -> dict:
        """A picture of a run in the page's language, with the address of the timelines to explore."""
        picture = {"timelines": run["timelines"]} | run["pictures"][part]
        return picture | picture.get("zh", {}) if language.is_chinese(self.path) else picture

    def address(self, path: str) -> str:
        """The way to a file below the root of the site; empty where there is none."""
        is_there = (self.book.docs / path).exists() or path.removeprefix(f"{FOLDER}/") in self.site.later
        return self.up + path if path and is_there else ""

    def verdict(self, verdict: Verdict) -> list[str]:
        """What its evidence shows: state, figures, advice, address of the recording."""
        return machines.verdict(verdict)

    def code(self, text: str, title: str, anchor: str = "") -> Markup:
        """Highlighted Python under its path, which links to its place."""
        return self.file("code", title=title, anchor=anchor, code=Markup(highlighted(text)))

    def lines(self, code: str) -> list[Markup]:
        """The lines of highlighted Python, each whole by itself."""
        return [Markup(line) for line in highlighted(code).split("\n")]

    def output(self, names: list[str], part: str = "") -> "Output":
        """What these snippets gave on the machine that the page shows.

        With `part`, on a machine that has this picture.
        """
        recordings = [self.book.recordings(name) for name in names]
        having = [machine for machine in recordings[0] if all(machine in known for known in recordings)]
        ran = having
        if part:
            drawn = {machine: self.site.pictures.of(recordings[0][machine])["parts"] for machine in having}
            having = [machine for machine in having if part in drawn[machine]] or having
        if not having:
            reason = f"no machine has recordings of {' and '.join(names)}"
            raise OverlapError(f"{self.path}: {reason}; run `overlap record {' '.join(names)}` on one")
        machine = self.first(dict.fromkeys(having), names[0])
        is_elsewhere = self.is_elsewhere(machine, names[0])
        self.elsewhere.append(machine if is_elsewhere else "")
        runs = {}
        for name, known in zip(names, recordings, strict=True):
            runs[name] = machines.run(self.site.pictures, known[machine])
        return Output(machine, having, is_elsewhere, is_elsewhere and self.opens_on in ran, runs)

    def value(self, value: Value) -> "ShownValue":
        """A value on the page's machine."""
        machine = self.first(self.book.numbers(value), value.snippet)
        text, wide_range, note = machines.value(self.book, value, machine)
        # a value that is of one machine only stands in a sentence that names it, but for the first page
        is_pinned = bool(value.machine and self.path != FIRST)
        key = "" if value.machine else value.key
        attributes = {"data-note": note} if value.machine else {}
        if value.machine and language.is_chinese(self.path):
            attributes = {"data-note": machines.note(self.book, value, machine, say=language.in_chinese)}
        if is_pinned:
            key = f"@{machine}"
        elif machine != self.opens_on:
            attributes["data-on"] = hardware.label(machine)
        return ShownValue(text, wide_range, key, attributes)

    def run(self, output: "Output", **options) -> Markup:
        """An output on the page.

        `picture`: with its picture; `alone`: only that, or a `part`, at once: it is in the first view.
        """
        options = {"picture": True, "alone": False, "part": ""} | options
        return self.file("run", view=self, **output._asdict(), **options)

    def pictures(self, machine: str, name: str, part: str, sizes: dict) -> dict[str, dict]:
        """Address, width and height of both forms of a picture."""
        variants = {}
        in_chinese = language.is_chinese(self.path)
        end = ".zh.svg" if in_chinese else ".svg"
        file = f"{name}-{part}" if part else name
        for variant in WIDTHS:
            width, height = sizes[variant]
            source = self.link(f"pictures/{machine}/{file}-{variant}{end}")
            if not source:
                drawn = self.site.pictures.svg(self.book.recordings(name)[machine], part, variant, in_chinese)
                source = svg.data_uri(svg.in_file(drawn))
            variants[variant] = {"source": source, "width": width, "height": height}
        return variants

    @property
    def parts(self) -> Markup:
        """What the page's script makes outputs and tables of numbers of."""
        table = {"headings": ["", ""], "rows": [[""], ["", ""]]}
        empty = {"wanted": "", "here": "", "ran": False, "outputs": [["rank", "", ""]], "tables": [table]}
        return self.file("parts", view=self, **empty)


class ShownValue(NamedTuple):
    """A value: its text, its range where it is wide, and what scripts ask.

    By its `key` scripts find what another machine gave; `@h200` is of that machine alone, and named by its
    sentence.
    """

    text: str
    wide_range: str
    key: str
    attributes: dict[str, str]


def _folder(path: str) -> str:
    """Address of a page below the root of the site."""
    address = path.removesuffix("index.md").removesuffix(".md")
    return f"{address}/" if address and not address.endswith("/") else address


class Output(NamedTuple):
    """What snippets gave on one of the machines that have them all, as data by snippet.

    `is_elsewhere`: the page's machine would give something else. `ran`: it ran, without that picture.
    """

    machine: str
    machines: list[str]
    is_elsewhere: bool
    ran: bool
    runs: dict[str, dict]


_PLAIN = (Name, Operator, Punctuation, Text.Whitespace, Text)


class _Colourless(Filter):
    """Names, spaces, signs and punctuation have no colour, and need no marks: half of the bytes of code."""

    def filter(self, lexer, stream):
        for kind, text in stream:
            yield (Token if kind in _PLAIN else kind), text


@cache
def highlighted(text: str) -> str:
    """Python as HTML with the theme's classes, on the shortest tag there is."""
    html = highlight(text, _LEXER, HtmlFormatter(nowrap=True)).rstrip("\n")
    return html.replace("<span ", "<i ").replace("</span>", "</i>")


_LEXER = PythonLexer()
_LEXER.add_filter(_Colourless())


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    environment.globals |= {"label": hardware.label, "marks": MARKS}
    environment.globals |= {"show": show, "narrow": NARROW}
    return environment


@cache
def _template(source: str) -> jinja2.Template:
    return _environment().from_string(source)


def _finalized(value):
    """Text from outside without what a page should not get."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return plain(value) if is_text else value
