"""What a block draws itself with on a page: templates that escape, addresses, code, outputs, pictures."""

import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import jinja2
from markdown import Markdown
from markupsafe import Markup
from pygments import highlight
from pygments.filter import Filter
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.token import Name, Punctuation, Text, Token

from overlap import OverlapError
from overlap.book import select
from overlap.book.blocks import Claim
from overlap.book.book import Book
from overlap.book.page import FIRST
from overlap.book.recording import Recording, span
from overlap.book.statistic import show
from overlap.book.verdict import Verdict
from overlap.run import machine
from overlap.run.text import plain, printable
from overlap.site import svg
from overlap.site.build import FOLDER
from overlap.site.pictures import Pictures


@dataclass
class Site:
    """What one build knows beside the book."""

    book: Book
    pictures: Pictures
    #: The chapter whose notebook the builder makes a page of.
    notebook_page: str = ""
    #: What the navigation calls each page, by its path; in reading order.
    titles: dict[str, str] = field(default_factory=dict)
    #: The ids that blocks gave to places, by page.
    anchors: dict[str, set[str]] = field(default_factory=dict)
    #: What a served page says of the runs behind it.
    status: str = ""


@dataclass
class View:
    """One page while it is rendered.

    `anchors` are the ids it has given, `measured` the snippets whose output it shows, `claims` the verdicts
    of each of its claims, `named` its claims by name, `cited` the names whose marks stand in the prose.
    """

    site: Site
    path: str = ""
    md: Markdown | None = None
    anchors: set[str] = field(default_factory=set)
    measured: list[str] = field(default_factory=list)
    claims: list[list[Verdict]] = field(default_factory=list)
    named: dict[str, Claim] = field(default_factory=dict)
    cited: set[str] = field(default_factory=set)
    #: The machine that the page shows before a reader picks one; of each set of tabs, whether it ran there.
    opens_on: str = ""
    ran: list[bool] = field(default_factory=list)
    _sets: int = 0
    _figures: int = 0

    @property
    def book(self) -> Book:
        """The book as read."""
        return self.site.book

    @property
    def up(self) -> str:
        """The way from the page to the root of the site: a page is a folder, but for `index.md`."""
        parts = Path(self.path or "page.md").with_suffix("").parts
        depth = len(parts) - (parts[-1] == "index")
        return "../" * depth

    def first(self, by_profile: dict, name: str) -> str:
        """Of the machines that have something of a snippet, the one that the page shows first."""
        return select.of_values(self.book, by_profile, name, self.opens_on)

    def stash(self, html: str) -> str:
        """Keep HTML out of Markdown's way; return what stands for it."""
        return self.md.htmlStash.store(html.strip())

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

    def tabs(self, contents: dict[str, str], first: str) -> Markup:
        """One tab per machine with its HTML, by profile; `first` is open."""
        self._sets += 1
        self.ran.append(select.counts_for(self.opens_on, first, contents))
        return self.file("tabs", set=self._sets, contents=contents, first=first)

    def captioned(self, name: str, caption: str, href: str = "") -> str:
        """Markdown of the caption of the next figure, with a link to where its code is.

        Its anchor is made of the snippet's name, where it has one.
        """
        self._figures += 1
        anchor = f"figure-{name.replace('/', '-')}" if name else f"figure-{self._figures}"
        self.anchors.add(anchor)
        code = f' <a class="ov-how" href="{href}">How it was measured</a>' if href else ""
        link = f'<a class="headerlink" href="#{anchor}" title="Link to this figure">¶</a>'
        return f"\n**Figure {self._figures}.** {caption}{code} {link}\n{{: .ov-caption #{anchor} }}\n"

    def link(self, uri: str) -> str:
        """Address of a generated file; empty where there is none."""
        exists = (self.book.docs / FOLDER / uri).exists()
        return f"{self.up}{FOLDER}/{uri}" if exists else ""

    def page(self, path: str, anchor: str) -> str:
        """Address of a place on another page."""
        address = path.removesuffix("index.md").removesuffix(".md")
        folder = f"{address}/" if address and not address.endswith("/") else address
        return f"{self.up}{folder}#{anchor}"

    @property
    def legend(self) -> str:
        """Address of the place on the first page that explains marks; empty where it has none."""
        index = self.book.pages.get(FIRST)
        explained = index and any(section.anchor == "marks" for section in index.sections)
        return self.page(FIRST, "marks") if explained else ""

    def how(self, name: str) -> str:
        """Address of the place that shows how a snippet was measured; empty where no page does."""
        place = self.book.places.get(name)
        if not place:
            return ""
        return f"#{place.anchor}" if place.page == self.path else self.page(place.page, place.anchor)

    def raw(self, recording: Recording) -> str:
        """Address of a recording."""
        if recording.is_local:
            return self.link(f"local/{recording.profile}/{recording.snippet}.json")
        return self.up + recording.path.removeprefix("docs/")

    def trace(self, recording: Recording) -> str:
        """Address of a recording's timelines."""
        return self.link(f"traces/{recording.profile}/{recording.snippet}.json")

    def code(self, text: str, title: str, anchor: str = "") -> Markup:
        """Highlighted Python under its path, which links to its place."""
        return self.file("code", title=title, anchor=anchor, code=Markup(highlighted(text)))

    def lines(self, code: str) -> list[Markup]:
        """The lines of highlighted Python, each whole by itself."""
        return [Markup(line) for line in highlighted(code).split("\n")]

    def outputs(self, recording: Recording) -> Markup:
        """What the snippet printed, per stream and per rank."""
        outputs = recording.data["outputs"]
        return self.file("outputs", outputs=outputs, ranks=len({output["rank"] for output in outputs}))

    def figure(
        self, recording: Recording, at_once: bool = False, numbers: bool = False, part: str = ""
    ) -> Markup:
        """A recording's picture, or a part that stands beside it; empty where the snippet draws none.

        `at_once`: it is in the first view, so nothing waits for it. With its `numbers`, but for a timeline's:
        those have their names where it is explored.
        """
        name = recording.snippet
        picture = self.site.pictures.of(recording)
        if not picture:
            return Markup("")
        file = f"{recording.profile}/{name}"
        if part:
            if part not in picture["parts"]:
                known = ", ".join(picture["parts"]) or "none yet"
                raise OverlapError(f"snippets/{name}.py: plot() returns no part {part!r}; there are {known}")
            picture = picture["parts"][part]
            file = f"{file}-{part}"
        variants = {}
        for variant, (width, height) in picture["sizes"].items():
            uri = f"pictures/{file}-{variant}.svg"
            source = self.link(uri) or svg.data_uri(svg.in_file(picture[variant]))
            variants[variant] = {"source": source, "width": width, "height": height}
        title = f"{self.book.snippets[name].summary} Measured on {machine.label(recording.profile)}."
        names = {"title": title, "at_once": at_once, "trace": not part and self.trace(recording)}
        names["tables"] = picture["tables"] if numbers and not names["trace"] else []
        names["more"] = picture["more"]
        return self.file("figure", **variants, **names)


class _Colourless(Filter):
    """Names, spaces and punctuation have no colour, and so need no marks: a third of the bytes of code."""

    def filter(self, lexer, stream):
        for kind, text in stream:
            yield (Token if kind in (Name, Punctuation, Text.Whitespace, Text) else kind), text


@cache
def highlighted(text: str) -> str:
    """Python as HTML with the theme's classes."""
    return highlight(text, _LEXER, HtmlFormatter(nowrap=True)).rstrip("\n")


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
    environment.globals |= {"label": machine.label, "show": show, "number": number, "printable": printable}
    environment.globals |= {"in_columns": in_columns, "short": machine.short, "span": span}
    return environment


@cache
def _template(source: str) -> jinja2.Template:
    return _environment().from_string(source)


def _finalized(value):
    """Text from outside without what a page should not get."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return plain(value) if is_text else value


def in_columns(text: str) -> bool:
    """Whether most lines of an output are rows of a table, whose columns a wrapped line would break."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    rows = [line for line in lines if re.search(r"\S {2,}\S", line)]
    return len(rows) >= 3 and 2 * len(rows) > len(lines)


def number(value: float | str | None) -> str:
    """A coordinate as text; what was not measured, or is not drawn, has none."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:,g}"
