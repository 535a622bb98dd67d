"""Python-Markdown extension: snippet blocks, values in sentences and claims become what was recorded."""

import re
import xml.etree.ElementTree as etree
from pathlib import Path

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.util import AtomicString

from overlap import OverlapError, find_root, html, machine, page
from overlap.book import Book, Run
from overlap.claim import Claim


class OverlapExtension(Extension):
    """`book` is handed in by the MkDocs plugin; elsewhere the book is found from the working directory."""

    def __init__(self, book: Book | None = None, **options):
        self.book = book
        self.config = {"execute": ["auto", "auto or never; where there is no plugin to say it"]}
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        """Register the preprocessor for blocks and the inline processor for values."""
        book = self.book or Book(find_root(), self.getConfig("execute"))
        md.preprocessors.register(_Blocks(md, book), "overlap", 27)
        md.inlinePatterns.register(_Values(page.VALUE.pattern, md, book), "overlap", 185)


def makeExtension(**options) -> OverlapExtension:
    """Entry point of Python-Markdown."""
    return OverlapExtension(**options)


class _Values(InlineProcessor):
    def __init__(self, pattern: str, md: Markdown, book: Book):
        super().__init__(pattern, md)
        self.book = book

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


class _Blocks(Preprocessor):
    def __init__(self, md: Markdown, book: Book):
        super().__init__(md)
        self.book = book

    def run(self, lines: list[str]) -> list[str]:
        rendered = []
        for part in page.parse("\n".join(lines), self.book.page):
            if isinstance(part, page.Text):
                rendered.append(part.text)
            elif isinstance(part, Claim):
                rendered.append(self.claim(part))
            elif isinstance(part, page.Table):
                rendered.append(self.claims())
            else:
                rendered.append(self.block(part))
        return "\n".join(rendered).splitlines()

    def block(self, block: page.Block) -> str:
        """Markdown for a snippet: its code, then one tab per machine, then the way to take it home."""
        snippet = self.book.snippet(block.snippet)
        parts = []
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
        download = f"downloads/{snippet.name}.py"
        if download in self.book.published:
            parts.append(
                f"[Download `{Path(snippet.path).name}`]({download}){{ .ov-download download }}: it runs alone, with `python {Path(snippet.path).name}`.\n{{ .ov-borrow }}"
            )
        return "\n\n".join(["", *parts, ""])

    def tab(self, name: str, run: Run, plot: bool, first: bool) -> str:
        pictures = self.book.plot(name, run) if plot else {}
        title = f"{self.book.snippets[name].summary} Measured on {machine.label(run.profile)}."
        content = html.outputs(run) + html.figure(pictures, title)
        raw = f"live/{run.profile}/{name}.json" if run.live else run.path.removeprefix("docs/")
        link = f" · [raw recording]({raw})" if not run.live or raw in self.book.published else ""
        head = f'==={"+" if first else ""} "{machine.label(run.profile)}"'
        rows = [
            self.md.htmlStash.store(f'<div class="ov-run" data-machine="{run.profile}">{content}</div>'),
            f"{html.provenance(run)}{link}\n{{ .ov-provenance }}",
        ]
        return head + "\n\n" + "\n\n".join("    " + row.replace("\n", "\n    ") for row in rows)

    def claim(self, claim: Claim) -> str:
        verdicts = self.book.verdicts(claim)
        for verdict in verdicts:
            if verdict.holds is False:
                message = f"docs/{claim.page}:{claim.line}: claim is false: {claim.text} `{claim.expression}`: {verdict.figures}, in {verdict.path}"
                if not verdict.live:
                    raise OverlapError(message)
                self.book.false_live.append(message)
        worst = "false" if any(verdict.holds is False for verdict in verdicts) else "holds"
        rows = self.md.htmlStash.store(html.verdicts(verdicts))
        sentence = f"{claim.text}\n{{ #{claim.anchor} .ov-sentence }}"
        return f'\n<div class="ov-claim ov-{worst}" markdown="block">\n\n{sentence}\n\n{rows}\n\n</div>\n'

    def claims(self) -> str:
        """All claims of the book: a table per chapter, a column per machine."""
        rows = ["| claim | verdict |", "|---|---|"]
        sections = []
        for path, parts in self.book.pages.items():
            found = [part for part in parts if isinstance(part, Claim)]
            if not found:
                continue
            rows = ["| claim | expression | verdict |", "|---|---|---|"]
            for claim in found:
                marks = [f"{machine.label(v.profile)} {_mark(v.holds)}" for v in self.book.verdicts(claim)]
                expression = claim.expression + (f" for {claim.condition}" if claim.condition else "")
                cells = (f"[{claim.text}]({path}#{claim.anchor})", f"`{expression}`", "<br>".join(marks))
                rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
            sections.append(f"## {path.removesuffix('.md').capitalize()}\n\n" + "\n".join(rows))
        return "\n\n".join(["", *sections, ""])


def _mark(holds: bool | None) -> str:
    return {True: "✓ holds", False: "✗ false", None: "– open"}[holds]
