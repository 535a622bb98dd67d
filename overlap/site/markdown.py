"""Python-Markdown extension: snippet blocks, values in sentences and claims become what was recorded."""

import re
import xml.etree.ElementTree as etree
from pathlib import Path

from markdown import Extension, Markdown
from markdown.extensions.toc import slugify
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.util import AtomicString

from overlap import OverlapError, find_root
from overlap.book.book import Book, Run, page
from overlap.book.claim import Claim
from overlap.run import machine, recording
from overlap.run.snippet import Snippet
from overlap.site import html, svg

_NOT_PROSE = re.compile(
    r"(^ *```.*?^ *```|`[^`\n]+`|\[[^\]\n]*\]\([^)\n]*\)|\{[^}\n]*\}|<[^>\n]+>|^(?:#|\||!!!|\?\?\?| *\[).*?$)",
    re.M | re.S,
)


class OverlapExtension(Extension):
    """`book` is handed in by the MkDocs plugin; elsewhere the book is found from the working directory."""

    def __init__(self, book: Book | None = None, **options):
        self._book = book
        self.config = {"execute": ["auto", "auto or never; where there is no plugin to say it"]}
        super().__init__(**options)

    @property
    def book(self) -> Book:
        """The book, opened when the first page needs it."""
        self._book = self._book or Book(find_root(), self.getConfig("execute"))
        return self._book

    def extendMarkdown(self, md: Markdown) -> None:
        """Register the preprocessor for blocks and the inline processor for values."""
        md.preprocessors.register(_Blocks(md, self), "overlap", 27)
        md.inlinePatterns.register(_Values(page.VALUE.pattern, md, self), "overlap", 185)
        md.inlinePatterns.register(_Printed(page.PRINTED.pattern, md), "overlap-printed", 184)


def makeExtension(**options) -> OverlapExtension:
    """Entry point of Python-Markdown."""
    return OverlapExtension(**options)


class _Values(InlineProcessor):
    def __init__(self, pattern: str, md: Markdown, extension: OverlapExtension):
        super().__init__(pattern, md)
        self.extension = extension

    @property
    def book(self) -> Book:
        return self.extension.book

    def handleMatch(self, match: re.Match, data: str):
        value = page.Value.parse(match)
        texts = self.book.value(value)
        element = etree.Element("span", {"class": "ov-value"})
        for profile, text, first in html.value(texts, self.book.default(value.snippet)):
            title = f"{value.snippet} on {machine.label(profile)}"
            part = etree.SubElement(
                element, "span", {"data-machine": profile, "title": title} | ({"class": "ov-on"} if first else {})
            )
            part.text = AtomicString(text)
        return element, match.start(0), match.end(0)


class _Printed(InlineProcessor):
    """A figure that a source printed: shown as such, so that nobody takes it for one of ours."""

    def handleMatch(self, match: re.Match, data: str):
        title = "printed by a source, not measured here"
        element = etree.Element("span", {"class": "ov-printed", "title": title})
        element.text = AtomicString(match["text"])
        return element, match.start(0), match.end(0)


class _Blocks(Preprocessor):
    def __init__(self, md: Markdown, extension: OverlapExtension):
        super().__init__(md)
        self.extension = extension

    @property
    def book(self) -> Book:
        return self.extension.book

    def run(self, lines: list[str]) -> list[str]:
        rendered, self.anchored, self.terms = [], set(), self.glossary()
        for part in page.parse("\n".join(lines), self.book.page):
            if isinstance(part, page.Text):
                rendered.append(self.link_terms(part.text))
            elif isinstance(part, Claim):
                rendered.append(self.claim(part))
            elif isinstance(part, page.Insert):
                rendered.append(getattr(self, part.kind)(part))
            else:
                rendered.append(self.block(part))
        if self.anchored:
            rendered.append(f"\n\n{self.measured()}\n{{ .ov-measured }}")
        return "\n".join(rendered).splitlines()

    def glossary(self) -> dict[str, str]:
        """Terms of docs/glossary.md that this page has not linked yet, with their anchors; longest first."""
        path = self.book.docs / "glossary.md"
        if self.book.page in ("", "glossary.md", "contributing.md") or not path.exists():
            return {}
        found = re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), flags=re.M)
        return {term: slugify(term, "-") for term in sorted(found, key=len, reverse=True)}

    def link_terms(self, text: str) -> str:
        """Link the first use of each term; code, links, values, headings, tables and titles are left alone."""
        pieces = _NOT_PROSE.split(text)
        for i in range(0, len(pieces), 2):
            for term, anchor in list(self.terms.items()):
                pattern = rf"(?<![\w/-]){re.escape(term)}s?(?![\w-])"
                linked, count = re.subn(
                    pattern, lambda m, a=anchor: f"[{m[0]}](glossary.md#{a})", pieces[i], count=1, flags=re.I
                )
                if count:
                    del self.terms[term]
                    pieces[i : i + 1] = _NOT_PROSE.split(linked)
                    return self.link_terms("".join(pieces))
        return "".join(pieces)

    def block(self, block: page.Block) -> str:
        """Markdown for a snippet: its code, then one tab per machine, then the way to take it home."""
        snippet = self.book.snippet(block.snippet)
        parts = [self.mark(snippet.name)] if block.output else []
        if block.code:
            parts.append(f'```python title="{snippet.path}"\n{snippet.show(list(block.show))}\n```')
        if block.output:
            runs = self.book.runs(snippet.name)
            if not runs:
                raise OverlapError(
                    f"{snippet.path}: nothing recorded and this machine cannot run it; run `overlap record {snippet.name}`"
                )
            first = self.book.default(snippet.name)
            parts += [self.tab(snippet.name, run, block.plot, run.profile == first) for run in runs.values()]
            for count, why in snippet.options["missing"].items():
                parts.append(f"{count} GPUs: not recorded, because {why}.\n{{ .ov-missing }}")
            parts.append(self.borrow(snippet))
        return "\n\n".join(["", *parts, ""])

    def mark(self, name: str) -> str:
        """Where links to a snippet lead: above the first place of the page that shows it with its output."""
        if name in self.anchored:
            return ""
        self.anchored.add(name)
        return f"&#8203;\n{{ .ov-here #{_anchor(name)} }}"

    def borrow(self, snippet: Snippet) -> str:
        """How to take a snippet home: the file, the command, what it needs and how long it took."""
        file, uri = Path(snippet.path).name, f"downloads/{snippet.name}.py"
        link = f"[Download `{file}`]({uri}){{ download }}" if uri in self.book.published else f"`{snippet.path}`"
        command = (
            f"torchrun --nproc-per-node gpu {file}" if snippet.options["launcher"] == "torchrun" else f"python {file}"
        )
        times = (
            f"{machine.label(p)} {r.data['run']['seconds']:.1f} s" for p, r in self.book.runs(snippet.name).items()
        )
        alone = f"`{command}`, `uv run {file}` or `pipx run {file}`"
        return f"{link} · runs alone: {alone} · {_needs(snippet)} · took {', '.join(times)}\n{{ .ov-borrow }}"

    def measured(self) -> str:
        """When and on what the snippets of this page ran."""
        days: dict[str, set[str]] = {}
        for name in self.anchored:
            for profile, run in self.book.runs(name).items():
                days.setdefault(profile, set()).add(run.data["run"]["started"][:10])
        spans = (
            f"{machine.label(profile)}, {' and '.join(sorted(days[profile]))}"
            for profile in sorted(days, key=machine.order)
        )
        text, name = "Measured on this page: " + " · ".join(spans) + ".", self.book.page.removesuffix(".md")
        if f"downloads/{name}.ipynb" in self.book.published:
            text += (
                f" This page as a notebook: [read it](notebooks/{name}.ipynb), [download it](downloads/{name}.ipynb)."
            )
        return text

    def tab(self, name: str, run: Run, plot: bool, first: bool) -> str:
        content = html.outputs(run) + (self.figure(name, run) if plot else "")
        raw = f"live/{run.profile}/{name}.json" if run.live else run.path.removeprefix("docs/")
        link = f" · [raw recording]({raw})" if not run.live or raw in self.book.published else ""
        trace = f"traces/{run.profile}/{name}.json"
        link += f" · [trace]({trace}){{ download }} for Perfetto" if trace in self.book.published else ""
        head = f'==={"+" if first else ""} "{machine.label(run.profile)}"'
        rows = [
            self.md.htmlStash.store(f'<div class="ov-run" data-machine="{run.profile}">{content}</div>'),
            f"{html.provenance(run)}{link}\n{{ .ov-provenance }}",
        ]
        return head + "\n\n" + "\n\n".join("    " + row.replace("\n", "\n    ") for row in rows)

    def figure(self, name: str, run: Run) -> str:
        """A run's picture; where no plugin publishes it as a file, the page carries it."""
        pictures = self.book.plot(name, run)
        uris = {variant: f"pictures/{run.profile}/{name}-{variant}.svg" for variant in ("wide", "narrow")}
        sources = {
            variant: self.book.up + uri if uri in self.book.published else svg.data_uri(svg.in_file(pictures[variant]))
            for variant, uri in uris.items()
            if pictures
        }
        title = f"{self.book.snippets[name].summary} Measured on {machine.label(run.profile)}."
        return html.figure(pictures, sources, title) if pictures else ""

    def claim(self, claim: Claim) -> str:
        verdicts = self.book.verdicts(claim)
        for verdict in verdicts:
            if verdict.holds is False and (verdict.live or self.book.serving):
                self.book.false_live.append(self.book.falsehood(claim, verdict))
            elif verdict.holds is False:
                raise OverlapError(self.book.falsehood(claim, verdict))
        worst = "false" if any(verdict.holds is False for verdict in verdicts) else "holds"
        rows = self.md.htmlStash.store(html.verdicts(verdicts))
        sentence = f"{claim.text}\n{{ #{claim.anchor} .ov-sentence }}"
        return f'\n<div class="ov-claim ov-{worst}" markdown="block">\n\n{sentence}\n\n{rows}\n\n</div>\n'

    def diagram(self, part: page.Insert) -> str:
        """An SVG of docs/assets/diagrams, inlined so that it takes the page's colours."""
        try:
            path = self.book.diagram(part.name)
        except OverlapError as error:
            raise OverlapError(f"docs/{self.book.page}:{part.line}: {error}") from None
        return "\n" + self.md.htmlStash.store(f'<figure class="ov-diagram">{path.read_text()}</figure>') + "\n"

    def scoreboard(self, part: page.Insert) -> str:
        """Bars on one logarithmic scale: printed by a source, measured here, the physical limit."""
        rows = []
        for score in page.scores(part, self.book.page):
            default = self.book.default(score.here.snippet)
            here, limit = (self.book.numbers(value) if value else {} for value in (score.here, score.limit))
            rows.append((score.label, score.printed, html.value(here, default), limit))
        return "\n" + self.md.htmlStash.store(html.scoreboard(rows)) + "\n"

    def snippets(self, part: page.Insert) -> str:
        """All snippets: what each is, where it is shown and how long it took; a table per chapter."""
        sections: dict[str, list[str]] = {}
        for name, snippet in self.book.snippets.items():
            runs, uri = self.book.runs(name), f"downloads/{name}.py"
            times = (
                _together(f"{machine.label(p)} {r.data['run']['seconds']:.1f} s") + f", {_freshness(r)}"
                for p, r in runs.items()
            )
            link = f"[download]({uri}){{ download }}" if uri in self.book.published else ""
            shown = _together(f"[`{name.split('/')[1]}`]({snippet.chapter}.md#{_anchor(name)})")
            rows = sections.setdefault(
                snippet.chapter,
                ["| snippet | what it shows | needs | run time, freshness | file |", "|---|---|---|---|---|"],
            )
            cells = (shown, _wide(snippet.summary), _needs(snippet), "<br>".join(times), link)
            rows.append(f"| {' | '.join(cells)} |")
        return "\n\n".join(
            ["", *(f"## {title.capitalize()}\n\n" + "\n".join(rows) for title, rows in sections.items()), ""]
        )

    def claims(self, part: page.Insert) -> str:
        """All claims of the book: a table per chapter."""
        sections = []
        for path, parts in self.book.pages.items():
            found = [part for part in parts if isinstance(part, Claim)]
            if not found:
                continue
            rows = ["| claim | expression | verdict |", "|---|---|---|"]
            for claim in found:
                marks = [_together(f"{machine.label(v.profile)} {_mark(v.holds)}") for v in self.book.verdicts(claim)]
                expression = claim.expression + (f" for {claim.condition}" if claim.condition else "")
                cells = (f"[{claim.text}]({path}#{claim.anchor})", _wide(f"`{expression}`"), "<br>".join(marks))
                rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
            sections.append(f"## {path.removesuffix('.md').capitalize()}\n\n" + "\n".join(rows))
        return "\n\n".join(["", *sections, ""])


def _needs(snippet: Snippet) -> str:
    least = min(snippet.options["gpus"])
    return "a CPU is enough" if least == 0 else "needs a GPU" if least == 1 else f"needs {least} GPUs"


def _freshness(run: Run) -> str:
    return "this build" if run.live else recording.FRESH if run.grade == recording.OTHER else run.grade


def _anchor(name: str) -> str:
    return f"snippet-{name.replace('/', '-')}"


def _together(text: str) -> str:
    """A line of a table cell that is not broken."""
    return f'<span class="ov-together">{text}</span>'


def _wide(text: str) -> str:
    """The content of a table cell that is not squeezed on a narrow page."""
    return f'<span class="ov-wide">{text}</span>'


def _mark(holds: bool | None) -> str:
    return {True: "✓ holds", False: "✗ false", None: "– open"}[holds]
