"""Tables of a page: symptoms become entries, cells say what their column is called, verdicts have a mark."""

import re
import xml.etree.ElementTree as etree

from markdown.extensions.toc import slugify
from markdown.treeprocessors import Treeprocessor

from overlap.run.text import plain


class Symptoms(Treeprocessor):
    """A table whose first column is headed `symptom` becomes entries, each with a place to link to."""

    def run(self, root: etree.Element) -> None:
        """Replace such tables."""
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


class Cards(Treeprocessor):
    """Cells say what their column is called: on a phone a row is a card. Verdicts begin with a mark."""

    def run(self, root: etree.Element) -> None:
        """Label the cells, and mark the verdicts."""
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
