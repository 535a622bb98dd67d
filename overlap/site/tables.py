"""Tables of a page: rows become entries, cells say what their column is called, verdicts have a mark."""

import re
import xml.etree.ElementTree as etree
from collections.abc import Iterable

from markdown.extensions.toc import slugify
from markdown.treeprocessors import Treeprocessor

from overlap.run.text import plain

#: Headings of the second column of a table of what the sources say, whose first column has ids.
_STATEMENTS = ("what it says", "文章的说法")


class Entries(Treeprocessor):
    """Rows of symptoms, and of what the sources say, become entries: each is a place to link to and find."""

    def run(self, root: etree.Element) -> None:
        """Replace such tables."""
        taken: set[str] = set()
        for parent in list(root.iter()):
            for at, table in enumerate(list(parent)):
                names = [th.text or "" for th in table.iter("th")] if table.tag == "table" else []
                if names[:1] == ["symptom"]:
                    parent[at] = self._symptoms(table, names, taken)
                elif len(names) > 1 and names[1] in _STATEMENTS:
                    parent[at] = self._statements(table, names)

    def _symptoms(self, table: etree.Element, names: list[str], taken: set[str]) -> etree.Element:
        """Headed by the first cell; the other cells are paragraphs beside it."""
        entries = etree.Element("div", {"class": "ov-symptoms"})
        for row in table.find("tbody"):
            first, *others = row
            self._add(
                entries,
                self._anchor(first.text, taken),
                first.text,
                names[0],
                zip(names[1:], others, strict=True),
            )
        return entries

    def _statements(self, table: etree.Element, names: list[str]) -> etree.Element:
        """Headed by id and statement; the other cells are paragraphs below it."""
        entries = etree.Element("div", {"class": "ov-symptoms ov-statements"})
        for row in table.find("tbody"):
            name, said, *others = row
            heading = f"{name.text} · {said.text}"
            self._add(entries, name.text.lower(), heading, names[1], zip(names[2:], others, strict=True))
        return entries

    def _add(
        self,
        entries: etree.Element,
        anchor: str,
        text: str,
        label: str,
        cells: Iterable[tuple[str, etree.Element]],
    ) -> None:
        """One more entry: a heading, and a paragraph for each cell, labelled by its column."""
        entry = etree.SubElement(entries, "div", {"class": "ov-symptom"})
        heading = etree.SubElement(entry, "h3", {"id": anchor, "data-label": label})
        heading.text = text
        for name, cell in cells:
            paragraph = etree.SubElement(entry, "p", {"data-label": name})
            paragraph.text = cell.text
            if name == "verdict":
                mark_verdict(paragraph)

    def _anchor(self, text: str, taken: set[str]) -> str:
        """Made of the first words of a symptom."""
        words = slugify(re.split(r" · |; |, ", text)[0], "-")
        anchor = next(name for name in (words, *(f"{words}-{i}" for i in range(2, 99))) if name not in taken)
        taken.add(anchor)
        return anchor


#: How a verdict on a source begins.
_VERDICT = re.compile(r"(holds with limits|holds|dated|wrong)(?![\w-])[:;,]?\s*")


def mark_verdict(cell: etree.Element) -> None:
    """Let a verdict begin with a mark."""
    verdict = _VERDICT.match(cell.text or "")
    if verdict and cell.text:
        chip = etree.Element("span", {"class": f"ov-chip ov-{verdict[1].split()[-1]}"})
        chip.text, chip.tail = verdict[1], f" {cell.text[verdict.end() :]}"
        cell.text = ""
        cell.insert(0, chip)


class Cards(Treeprocessor):
    """Cells say what their column is called: on a phone a row is a card. Verdicts begin with a mark."""

    def run(self, root: etree.Element) -> None:
        """Label the cells, and mark the verdicts."""
        for table in root.iter("table"):
            headings = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", th.text or "") for th in table.iter("th")]
            for row in table.iter("tr"):
                for heading, cell in zip(headings, row.findall("td"), strict=False):
                    cell.set("data-label", plain(heading))
                    if heading == "verdict":
                        mark_verdict(cell)
