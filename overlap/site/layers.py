"""Two layers of a chapter: the answer, and below the heading *Evidence* one closed row for each section."""

import xml.etree.ElementTree as etree

from markdown.treeprocessors import Treeprocessor

from overlap.blocks.block import Block
from overlap.blocks.page import Page

#: The id of the heading below which sections are closed.
EVIDENCE = "evidence"
#: The id of a section below it that stays open: the end of the chapter.
OPEN = "you-can-now"


def closed(blocks: list[Block]) -> set[int]:
    """The lines of the blocks that stand in a closed row."""
    lines = set()
    is_evidence = is_row = False
    for block in blocks:
        if is_row:
            lines.add(block.line)
        text = block.prose.text if block.prose and not block.kind else ""
        for section in Page(block.page, text, []).sections:
            if section.depth <= 2:
                is_row = is_evidence and section.depth == 2 and section.anchor != OPEN
                is_evidence |= section.anchor == EVIDENCE
    return lines


class Layers(Treeprocessor):
    """Each second-level section behind *Evidence* becomes a row that opens; find and links open it, too."""

    def run(self, root: etree.Element) -> None:
        """Fold the sections. Headings have their ids already."""
        children = list(root)
        starts = [at for at, child in enumerate(children) if child.get("id") == EVIDENCE]
        if not starts:
            return
        row = None
        for child in children[starts[0] + 1 :]:
            if child.tag == "h2":
                row = None if child.get("id") == OPEN else self._row(root, child)
            elif row is not None:
                root.remove(child)
                row.append(child)

    @staticmethod
    def _row(root: etree.Element, heading: etree.Element) -> etree.Element:
        row = etree.Element("details", {"class": "ov-row"})
        row.tail = "\n"
        root[list(root).index(heading)] = row
        for link in heading.findall("a[@class='headerlink']"):  # no link within what one clicks to open
            heading.remove(link)
        etree.SubElement(row, "summary").append(heading)
        return row
