"""A chapter as a notebook: the same text, snippets and outputs. What was recorded is text there, too."""

import html
import json
import re

from overlap.blocks.inline import CITED, PRINTED, VALUE, VERDICT, read_value, replace_values
from overlap.blocks.page import Page
from overlap.blocks.pages import Pages
from overlap.book import select
from overlap.book.recording import Recording
from overlap.book.value import Value
from overlap.run import hardware
from overlap.run.snippet import Snippet
from overlap.run.text import plain, printable
from overlap.site import colors, svg
from overlap.site.pictures import Pictures

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_HARMLESS = re.compile(r"[\w ,.;:%+/()×·≥≤≠–-]")


class Notebook:
    """What a block draws itself with in a notebook."""

    def __init__(self, pages: Pages, pictures: Pictures):
        self.pages = pages
        self.book = pages.book
        self.pictures = pictures
        self._page = ""

    def build(self, page: Page) -> str:
        """The notebook of one page as JSON text; the same input gives the same bytes."""
        self._page = page.name
        cells = []
        for number, block in enumerate(page.blocks):
            for i, cell in enumerate(block.cells(self)):
                cells.append(cell | {"id": f"cell-{number}-{i}"})
        metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
        content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
        return json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n"

    @staticmethod
    def label(machine: str) -> str:
        """How a machine is called."""
        return hardware.label(machine)

    @staticmethod
    def text(text: str) -> str:
        """Text as Markdown that shows just this: what could be markup or a formula is written as a number."""
        line = plain(text).replace("\n", " ")
        return "".join(c if _HARMLESS.fullmatch(c) else f"&#{ord(c)};" for c in line)

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
        """A cell of the page's own Markdown, with values and printed numbers in their places."""
        text = replace_values(re.sub(rf"\s*{CITED.pattern}", "", text), self._value)
        text = PRINTED.sub(lambda match: self.text(match["text"]), text)
        text = VERDICT.sub(lambda match: f"**{match['words']}**", text)
        return self.markdown(_as_notebooks_render(self._page, text))

    def _value(self, value: Value) -> str:
        machine = select.of_values(self.book, self.book.numbers(value), value.snippet)
        return self.text(self.book.statistics(value)[machine].text)

    def with_values(self, drawing: str) -> str:
        """An SVG with its values in their places."""
        return VALUE.sub(lambda match: html.escape(self._value(read_value(match))), drawing)

    @staticmethod
    def drawing(picture: str, name: str) -> str:
        """An SVG of the book itself, as an image that a cell of Markdown shows."""
        source = svg.data_uri(svg.by_itself(picture))
        return (
            f'<img alt="{html.escape(name)}" style="background:{colors.LIGHT["--ov-paper"]}" src="{source}">'
        )

    def outputs(self, snippet: Snippet, recording: Recording) -> list[dict]:
        """What a snippet printed and drew."""
        outputs = []
        for output in recording.data["outputs"]:
            text = printable("".join(output["text"]))
            outputs.append({"output_type": "stream", "name": output["name"], "text": text})
        if self.pictures.of(recording):
            summary = plain(snippet.summary)
            source = svg.data_uri(svg.on_paper(self.pictures.svg(recording, "", "wide")))
            tag = f'<img alt="{html.escape(summary)}" src="{source}">'
            data = {"text/html": tag, "text/plain": summary}
            outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        return outputs


def _as_notebooks_render(page: str, text: str) -> str:
    """Markdown as a notebook renders it.

    Admonitions become quotes, links lead to the pages of the site, attribute lists and boxes go.
    """
    text = re.sub(r"\]\(#", f"]({page}.md#", text)
    lines = []
    quoted = False
    for line in text.splitlines():
        opened = re.match(r'^(?:!!!|\?\?\?\+?) \w+(?: "(.*)")?', line)
        if opened:
            lines.append(f"> **{opened[1] or 'Note'}**\n>")
            quoted = True
        elif quoted and line.startswith("    "):
            lines.append(f"> {line[4:]}")
        elif quoted and not line.strip():
            lines.append(">")
        else:
            if quoted and lines[-1] == ">":
                lines[-1] = ""
            quoted = False
            lines.append(line)
    text = re.sub(r"^#+ .*`.*$", lambda match: match[0].replace("`", ""), "\n".join(lines), flags=re.M)
    text = re.sub(
        r"\{ ?[.#:][^{}\n]*\}|^</?(?:div|details)[^>\n]*>$|</?summary[^>\n]*>", "", text, flags=re.M
    )
    return re.sub(r"\]\((\w+)\.md(#[\w-]+)?\)", r"](../../../\1/\2)", text).strip()
