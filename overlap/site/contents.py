"""The contents of a page, as its margin shows them."""

from collections.abc import Iterable
from typing import Protocol

from overlap.site.layers import EVIDENCE, OPEN, ROWS


class Heading(Protocol):
    """A heading in the contents, with those below it."""

    id: str
    children: list["Heading"]


def shorten(titles: Iterable[Heading], html: str) -> None:
    """Leave out entries, but for their groups; and what is within a section of a chapter of two layers."""
    for title in titles:
        if 'class="ov-symptom"' in html:
            for group in title.children:
                group.children.clear()
        _layer(title)


def _layer(title: Heading) -> None:
    """One level behind the answer, which keeps its own; below *Evidence* its sections, or their groups."""
    sections = {section.id: section for section in title.children}
    if EVIDENCE not in sections:
        return
    evidence = sections[EVIDENCE]
    at = title.children.index(evidence) + 1
    behind = title.children[at:]
    for section in behind:
        section.children.clear()
    group = evidence
    for section in behind:
        if section.id.startswith(ROWS):
            group = section
            evidence.children.append(section)
        elif section.id != OPEN:
            group.children.append(section)
    title.children[at:] = [section for section in behind if section.id == OPEN]
