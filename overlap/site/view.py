"""What a block draws itself with on a page: templates that escape, addresses of what the site publishes, code, outputs, pictures."""

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

from overlap.book.blocks import Claim
from overlap.book.book import Book, Run
from overlap.book.statistic import show
from overlap.book.verdict import Verdict
from overlap.run import machine
from overlap.run.text import plain
from overlap.site import svg, terminal
from overlap.site.build import FOLDER
from overlap.site.pictures import Pictures

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass
class Site:
    """What one build knows beside the book: its pictures, the addresses of pages and of published files."""

    book: Book
    pictures: Pictures
    #: Where GitHub has the files of the published site, as `owner/repository/blob/branch`, for Colab.
    colab: str = ""
    #: Whether the builder makes pages of notebooks.
    notebook_pages: bool = False
    #: The ids that blocks gave to places, by page.
    anchors: dict[str, set[str]] = field(default_factory=dict)
    #: What a served page says of the runs behind it.
    status: str = ""


@dataclass
class View:
    """One page while it is rendered. `anchors` are the ids it has given, `measured` the snippets whose output it shows, `claims` the
    verdicts of each of its claims.
    """

    site: Site
    path: str = ""
    md: Markdown | None = None
    anchors: set[str] = field(default_factory=set)
    measured: list[str] = field(default_factory=list)
    claims: list[list[Verdict]] = field(default_factory=list)
    #: Claims of the page by their names, and the names whose marks stand in the prose.
    named: dict[str, Claim] = field(default_factory=dict)
    cited: set[str] = field(default_factory=set)
    #: The machine that the page shows before a reader picks one.
    opens_on: str = ""
    _numbered: int = 0
    _figures: int = 0

    @property
    def book(self) -> Book:
        """The book as read."""
        return self.site.book

    @property
    def up(self) -> str:
        """The way from the page to the root of the site: a page is a folder, `index.md` is the folder it lies in."""
        parts = Path(self.path or "page.md").with_suffix("").parts
        if parts[-1] == "index":
            parts = parts[:-1]
        return "../" * len(parts)

    def first(self, by_profile: dict, name: str) -> str:
        """Of the machines that have something of a snippet, the one that the page shows first."""
        return self.opens_on if self.opens_on in by_profile else self.book.first(by_profile, name)

    def put(self, html: str) -> str:
        """Keep HTML out of Markdown's way; return what stands for it."""
        return self.md.htmlStash.store(html.strip())

    def render(self, template: str, **names) -> Markup:
        """A template's HTML; every text in it is escaped."""
        return Markup(_template(template).render(names))

    @cached_property
    def _sentences(self) -> Markdown:
        return Markdown(extensions=["pymdownx.inlinehilite"])

    def inline(self, text: str) -> Markup:
        """HTML of one sentence of Markdown, which the page's author wrote."""
        html = self._sentences.reset().convert(text)
        return Markup(html.removeprefix("<p>").removesuffix("</p>"))

    def tabs(self, contents: dict[str, str], first: str) -> Markup:
        """One tab per machine with its HTML, by profile; `first` is open."""
        self._numbered += 1
        return Markup(_file("tabs.html").render(set=self._numbered, contents=contents, first=first))

    def captioned(self, name: str, caption: str, href: str = "") -> str:
        """Markdown of the caption of the next figure. Its anchor is made of the snippet's name; without one it links to where the code is."""
        self._figures += 1
        anchor = f"figure-{name.replace('/', '-')}" if name else f"figure-{self._figures}"
        self.anchors.add(anchor)
        code = f' <a class="ov-how" href="{href}">How it was measured</a>' if href else ""
        link = f'<a class="headerlink" href="#{anchor}" title="Link to this figure">¶</a>'
        return f"\n**Figure {self._figures}.** {caption}{code} {link}\n{{: .ov-caption #{anchor} }}\n"

    def link(self, uri: str) -> str:
        """Address of a generated file; empty where there is none."""
        there = (self.book.docs / FOLDER / uri).exists()
        return f"{self.up}{FOLDER}/{uri}" if there else ""

    def page(self, path: str, anchor: str) -> str:
        """Address of a place on another page."""
        address = path.removesuffix("index.md").removesuffix(".md")
        folder = f"{address}/" if address and not address.endswith("/") else address
        return f"{self.up}{folder}#{anchor}"

    def how(self, name: str) -> str:
        """Address of the place that shows how a snippet was measured; empty where no page does."""
        place = self.book.places.get(name)
        if not place:
            return ""
        return f"#{place.anchor}" if place.page == self.path else self.page(place.page, place.anchor)

    def raw(self, run: Run) -> str:
        """Address of a recording."""
        if run.live:
            return self.link(f"live/{run.profile}/{run.data['snippet']}.json")
        return self.up + run.path.removeprefix("docs/")

    def trace(self, run: Run) -> str:
        """Address of a run's timelines."""
        return self.link(f"traces/{run.profile}/{run.data['snippet']}.json")

    def code(self, text: str, title: str, anchor: str = "") -> Markup:
        """Highlighted Python under its path, which links to its place, as the theme shows code."""
        return self.render(
            '<div class="language-python highlight">{% if title %}<span class="filename">{{ title }}{% if anchor %} <a class="headerlink" href="#{{ anchor }}" title="Link to this snippet">¶</a>{% endif %}</span>{% endif %}<pre data-search-exclude><span></span><code>{{ code }}</code></pre></div>',
            title=title,
            anchor=anchor,
            code=Markup(highlighted(text)),
        )

    def outputs(self, run: Run) -> Markup:
        """What the snippet printed, per stream and per rank."""
        found = run.data["outputs"]
        return Markup(
            _file("outputs.html").render(outputs=found, ranks=len({output["rank"] for output in found}))
        )

    def figure(self, run: Run, at_once: bool = False, numbers: str = "folded") -> Markup:
        """A run's picture with its numbers; empty where the snippet draws none.

        `at_once`: it is in the first view, so nothing waits for it. `numbers` are folded, or `chosen` in a row of views.
        """
        name = run.data["snippet"]
        pictures = self.site.pictures
        picture = pictures.of(name, run)
        if not picture and pictures.has(name):
            return Markup('<figure class="ov-figure"><p>This picture is being drawn.</p></figure>')
        if not picture:
            return Markup("")
        variants = {}
        for variant, (width, height) in picture["sizes"].items():
            uri = f"pictures/{run.profile}/{name}-{variant}.svg"
            source = self.link(uri) or svg.data_uri(svg.in_file(picture[variant]))
            variants[variant] = {"source": source, "width": width, "height": height}
        title = f"{self.book.snippets[name].summary} Measured on {machine.label(run.profile)}."
        names = {**variants, "tables": picture["tables"], "more": picture["more"]}
        names |= {"title": title, "at_once": at_once, "view_of_its_own": numbers == "chosen"}
        return Markup(_file("figure.html").render(**names))


class _Colourless(Filter):
    """Names, spaces and punctuation have no colour of their own; their marks were a third of the bytes of a page's code."""

    def filter(self, lexer, stream):
        for kind, text in stream:
            yield (Token if kind in (Name, Punctuation, Text.Whitespace, Text) else kind), text


@cache
def _highlighter() -> tuple:
    lexer = PythonLexer()
    lexer.add_filter(_Colourless())
    return lexer, HtmlFormatter(nowrap=True)


def highlighted(text: str) -> str:
    """Python as HTML with the theme's classes."""
    return highlight(text, *_highlighter()).rstrip("\n")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            value if isinstance(value, Markup) or not isinstance(value, str) else plain(value)
        ),
    )
    environment.globals |= {"label": machine.label, "show": show, "number": number}
    environment.globals["terminal"] = lambda text: Markup(terminal.to_html(text))
    return environment


@cache
def _template(source: str) -> jinja2.Template:
    return _environment().from_string(source)


def _file(name: str) -> jinja2.Template:
    return _environment().get_template(name)


def number(value: float | str) -> str:
    """A coordinate as text."""
    return value if isinstance(value, str) else f"{value:,g}"
