"""A chapter as a notebook: the same text, the same snippets, the same outputs. What was recorded is text there, too."""

import html
import re

import nbformat

from overlap.book.book import Book, Run
from overlap.book.page import Page
from overlap.book.value import CITED, PRINTED, Value, replace_values
from overlap.run import machine
from overlap.run.snippet import Snippet
from overlap.run.text import plain
from overlap.site import svg
from overlap.site.pictures import Pictures
from overlap.site.terminal import printable

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_HARMLESS = re.compile(r"[\w ,.;:%+/()×·≥≤≠–-]")


class Notebook:
    """What a block draws itself with in a notebook."""

    def __init__(self, book: Book, pictures: Pictures):
        self.book, self.pictures, self._page = book, pictures, ""

    def build(self, page: Page) -> str:
        """The notebook of one page as JSON text; the same input gives the same bytes."""
        self._page, cells = page.name, []
        for number, block in enumerate(page.blocks):
            cells += [cell | {"id": f"cell-{number}-{i}"} for i, cell in enumerate(block.cells(self))]
        metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
        made = nbformat.from_dict({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})
        nbformat.validate(made)
        return nbformat.writes(made)

    @staticmethod
    def label(profile: str) -> str:
        """How a machine is called."""
        return machine.label(profile)

    @staticmethod
    def text(said: str) -> str:
        """Text as Markdown that shows just this: whatever could be markup or a formula is a character reference."""
        return "".join(
            c if _HARMLESS.fullmatch(c) else f"&#{ord(c)};" for c in plain(said).replace("\n", " ")
        )

    @staticmethod
    def markdown(source: str) -> dict:
        """A cell of Markdown."""
        return {"cell_type": "markdown", "metadata": {}, "source": source}

    @staticmethod
    def code(source: str, outputs: list[dict], tags: list[str]) -> dict:
        """A cell of code. Those that need a GPU are tagged, so that a tool can leave them out."""
        metadata = {"tags": tags} if tags else {}
        cell = {"cell_type": "code", "metadata": metadata, "source": source, "outputs": outputs}
        return cell | {"execution_count": None}

    def prose(self, text: str) -> dict:
        """A cell of the page's own Markdown, with values and printed figures in their places."""
        with_values = replace_values(re.sub(rf"\s*{CITED.pattern}", "", text), self._value)
        return self.markdown(
            _as_notebooks_render(self._page, PRINTED.sub(lambda match: self.text(match["text"]), with_values))
        )

    def _value(self, value: Value) -> str:
        profile = self.book.first(self.book.numbers(value), value.snippet)
        return self.text(self.book.statistics(value)[profile].text)

    @staticmethod
    def drawing(picture: str, name: str) -> str:
        """An SVG of the book itself, as an image that a cell of Markdown shows."""
        return f'<img alt="{html.escape(name)}" style="background:#fff" src="{svg.data_uri(svg.by_itself(picture))}">'

    def outputs(self, snippet: Snippet, run: Run) -> list[dict]:
        """What a run printed and drew."""
        found = [
            {"output_type": "stream", "name": output["name"], "text": printable("".join(output["text"]))}
            for output in run.data["outputs"]
        ]
        picture = self.pictures.of(snippet.name, run)
        if picture:
            summary, source = plain(snippet.summary), svg.data_uri(svg.on_paper(picture["wide"]))
            tag = f'<img alt="{html.escape(summary)}" src="{source}">'
            found.append(
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {"text/html": tag, "text/plain": summary},
                }
            )
        return found


def _as_notebooks_render(page: str, text: str) -> str:
    """Markdown as a notebook renders it: admonitions become quotes, links lead to the pages of the site, attribute lists and boxes go."""
    text = re.sub(r"\]\(#", f"]({page}.md#", text)
    lines, quoted = [], False
    for line in text.splitlines():
        opened = re.match(r'^(?:!!!|\?\?\?\+?) \w+(?: "(.*)")?', line)
        if opened:
            lines.append(f"> **{opened[1] or 'Note'}**\n>")
            quoted = True
        elif quoted and (line.startswith("    ") or not line.strip()):
            lines.append("> " + line[4:] if line.strip() else ">")
        else:
            if quoted and lines[-1] == ">":
                lines[-1] = ""
            quoted = False
            lines.append(line)
    text = re.sub(r"^#+ .*`.*$", lambda match: match[0].replace("`", ""), "\n".join(lines), flags=re.M)
    text = re.sub(r"\{ ?[.#:][^{}\n]*\}|^</?div[^>\n]*>$", "", text, flags=re.M)
    return re.sub(r"\]\((\w+)\.md(#[\w-]+)?\)", r"](../../../\1/\2)", text).strip()
