"""Two layers of a chapter: the answer, and below the heading *Evidence* one closed row for each section."""

from overlap.blocks.block import Block
from overlap.blocks.page import Page, Section, heading, outside_code

#: The id of the heading below which sections are closed.
EVIDENCE = "evidence"
#: The id of a section below it that stays open: the end of the chapter.
OPEN = "you-can-now"
#: What the id of a heading begins with that stays open because it heads the rows below it.
ROWS = "rows-"
#: A row, and where it ends.
_ROW = """
<details class="ov-row" markdown="1">
<summary markdown="block">

{heading}

</summary>
"""
_END = "</details>"


def _is_closed(section: Section) -> bool:
    """Whether this section, behind *Evidence*, is a row that opens."""
    return section.depth == 2 and section.anchor != OPEN and not section.anchor.startswith(ROWS)


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
                is_row = is_evidence and _is_closed(section)
                is_evidence |= section.anchor == EVIDENCE
    return lines


def folded(text: str) -> str:
    """A page with each second-level section behind *Evidence* in a row that opens, as Markdown in HTML.

    Its heading is that of the row. Find and links open it, too.
    """
    lines = text.split("\n")
    is_evidence = is_row = False
    for i in outside_code(lines):
        section = heading(lines[i])
        if section and section.depth == 2:
            end = f"\n{_END}\n\n" if is_row else ""
            is_row = is_evidence and _is_closed(section)
            is_evidence |= section.anchor == EVIDENCE
            lines[i] = end + (_ROW.format(heading=lines[i]) if is_row else lines[i])
    return "\n".join([*lines, "", _END, ""] if is_row else lines)
