"""Tables of a page: rows of symptoms and of what the sources say become entries.

Headings of statements and of terms may end in Chinese words. A symptom may end in other words for it, also
Chinese ones: the search finds them, and the page does not show them.
"""

import re
import xml.etree.ElementTree as etree

from markdown.extensions.toc import slugify, unique
from markdown.treeprocessors import Treeprocessor

#: Headings of the second column of a table of what the sources say, whose first column has ids.
_STATEMENTS = ("what it says", "文章的说法")
#: A heading in English, its Chinese words, and its anchor.
_CHINESE = re.compile(r"([^\u4e00-\u9fff]+) · ([^·{]*[\u4e00-\u9fff][^·{]*?)(\s*\{.*)?$")
_HAN = re.compile("[\u4e00-\u9fff]")
#: Where a link in Markdown leads.
_LINK = re.compile(r"\]\(([^)]+)\)")


def heading_cells(columns: list[str]) -> int:
    """How many cells head the entry that a row becomes; 0 in a table that stays one."""
    if columns[0] == "symptom":
        return 1
    return 2 if len(columns) > 1 and columns[1] in _STATEMENTS else 0


class Tables(Treeprocessor):
    """An entry is a place to link to and to find: a heading, and a paragraph for each further cell."""

    def run(self, root: etree.Element) -> None:
        """Replace tables whose rows are entries."""
        taken: set[str] = set()
        for parent in list(root.iter()):
            for at, table in enumerate(list(parent)):
                if table.tag != "table":
                    continue
                columns = [heading.text or "" for heading in table.iter("th")]
                corner = table.find("thead/tr/th")
                if not columns[0] and not len(corner):
                    corner.tag = "td"  # it heads nothing
                cells = heading_cells(columns)
                if cells == 1:
                    parent[at] = self._symptoms(table, columns, taken)
                elif cells == 2:
                    parent[at] = self._statements(table, columns)
        for heading in root.iter():
            if heading.tag in ("h2", "h3"):
                _mark_chinese(heading)

    def _symptoms(self, table: etree.Element, columns: list[str], taken: set[str]) -> etree.Element:
        """Headed by the first cell, whose first words are the anchor."""
        entries = etree.Element("div", {"class": "ov-symptoms"})
        for row in table.find("tbody"):
            symptom, *cells = row
            anchor = unique(slugify(re.split(r" · |; |, ", symptom.text)[0], "-"), taken)
            entry = _entry(anchor, columns[0], "")
            target = _LINK.search(cells[0].text)
            # where the next cell leads, too; there the Tab key stops
            link = etree.SubElement(entry[0], "a", {"href": target[1], "tabindex": "-1"})
            link.text, *others = symptom.text.split(" · ")
            for words in others:
                attributes = {"class": "ov-words"} | ({"lang": "zh"} if _HAN.search(words) else {})
                etree.SubElement(link, "span", attributes).text = f" · {words}"
            _add_cells(entry, columns[1:], cells)
            entries.append(entry)
        return entries

    def _statements(self, table: etree.Element, columns: list[str]) -> etree.Element:
        """Headed by id and statement."""
        entries = etree.Element("div", {"class": "ov-symptoms ov-statements"})
        for row in table.find("tbody"):
            name, statement, *cells = row
            entry = _entry(name.text.lower(), columns[1], f"{name.text} · {statement.text}")
            _add_cells(entry, columns[2:], cells)
            entries.append(entry)
        return entries


def _entry(anchor: str, column: str, text: str) -> etree.Element:
    entry = etree.Element("div", {"class": "ov-symptom"})
    heading = etree.SubElement(entry, "h3", {"id": anchor, "data-label": column})
    heading.text = text
    return entry


def _mark_chinese(heading: etree.Element) -> None:
    """Say which words are Chinese; the contents of an English page do without them."""
    place = next(iter(heading), heading)  # a link
    match = _CHINESE.match(place.text or "")
    if match:
        heading.set("data-toc-label", match[1].replace("`", ""))
        place.text = f"{match[1]} · "
        words = etree.SubElement(place, "span", {"lang": "zh"})
        words.text = match[2]
        words.tail = match[3]


def _add_cells(entry: etree.Element, columns: list[str], cells: list[etree.Element]) -> None:
    for column, cell in zip(columns, cells, strict=True):
        paragraph = etree.SubElement(entry, "p", {"data-label": column})
        paragraph.text = cell.text
