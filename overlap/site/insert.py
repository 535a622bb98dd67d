"""A page's Markdown with all that was recorded inserted: its blocks, values, marks and first terms as HTML.

It is Markdown for any builder.
"""

import re
from html import escape
from pathlib import Path

from overlap import OverlapError
from overlap.blocks import language
from overlap.blocks.block import Block
from overlap.blocks.inline import CITED, PRINTED, VALUE, VERDICT, VERDICTS, read_value, replace
from overlap.blocks.page import parse
from overlap.blocks.paste import Paste
from overlap.book import select
from overlap.book.verdict import Counts
from overlap.run import hardware
from overlap.site.glossary import Glossary
from overlap.site.layers import EVIDENCE, folded
from overlap.site.view import Site, View

#: A mark with the end of the word before it, which may be a value or code, and the sign behind it.
#: Chinese has no spaces between words: there a mark follows the last character, which is enough.
_BEFORE = r"(?P<before>(?:(?<!`)`[^`\n]+`(?!`))?[^\s*_`\[\]()<>\u3000-\u9fff\uff00-\uffef]{0,20})"
_MARK = rf"{_BEFORE}[^\S\n]*{CITED.pattern}(?P<after>[.,;:)。，；：）]*)"
#: What else stands in braces.
_IN_BRACES = f"{VALUE.pattern}|{PRINTED.pattern}|{VERDICT.pattern}"
#: The title of a page.
_TITLE = re.compile(r"\A\s*# .*$", re.M)
#: The heading of a page's evidence.
_EVIDENCE = re.compile(rf"^## .*\{{ #{EVIDENCE} \}}$", re.M)
#: Words a minute, of technical prose and of captions.
_PACE = 130
#: Lines to paste a minute.
_LINES = 30
#: Minutes for what one looks at: a picture, or a program with its output.
_LOOK = 0.25
_PICTURES = {"figure", "diagram", "snippet", "pair"}
#: A word; two characters of Chinese take about as long to read.
_WORD = re.compile(r"[\u3400-\u9fff]{1,2}|[^\s\u3000-\u9fff\uff00-\uffef]+")


def insert(site: Site, path: str, text: str) -> str:
    """The Markdown of a page, by its path below docs/, with everything in its place."""
    page = site.pages.by_path.get(path)
    as_read = page and page.text.strip() == text.strip()
    blocks = page.blocks if as_read else parse(text, path)
    view = View(site, path)
    view.open(blocks)
    parts = [block.markdown(view) for block in blocks]
    if view.measured or view.borrowed or site.status:
        at = next((i for i, part in enumerate(parts) if _EVIDENCE.search(part)), None)
        head = _of_head(view, blocks, at is not None)
        name = "_zh" if language.is_chinese(path) else ""
        top = view.stash(view.file(f"head{name}", **head))
        parts[0] = _TITLE.sub(lambda title: f"{title[0]}\n\n{top}\n", parts[0], count=1)
        if at is not None and head["has_runs"]:
            lent = view.stash(view.file(f"lent{name}", **head))
            parts[at] = _EVIDENCE.sub(lambda heading: f"{heading[0]}\n\n{lent}\n", parts[at], count=1)
    if view.measured:
        parts.append(f"\n\n{view.stash(_measured(view))}\n")
    if view.elsewhere:
        parts.append(f"\n\n{view.stash(view.parts)}\n")
    return view.filled(folded(_in_sentences(view, "\n".join(parts))))


def _in_sentences(view: View, text: str) -> str:
    """Text with what stands in its sentences; code has nothing of this."""
    text = replace(_IN_BRACES, text, lambda match: _in_braces(view, match))
    text = replace(_MARK, text, lambda match: _mark(view, match))
    return Glossary(view).linked(text)


def _in_braces(view: View, match: re.Match) -> str:
    """A value, what a source printed, or what the book says of its statement."""
    if match["expression"]:
        return _value(view, match)
    return _printed(view, match) if match["text"] else _verdict(view, match)


def _value(view: View, match: re.Match) -> str:
    """A value on the page's machine, with its range; by its key the page's script finds where it is from."""
    shown = view.value(read_value(match))
    attributes = {"value": shown.key} | shown.attributes
    small = f'<small class="ov-range">{escape(shown.wide_range)}</small>' if shown.wide_range else ""
    written = " ".join(f'{name}="{escape(text)}"' for name, text in attributes.items())
    return view.put(f"<data {written}>{escape(shown.text)}{small}</data>")


def _printed(view: View, match: re.Match) -> str:
    """A number that a source printed: shown as such, so that nobody takes it for one of ours."""
    title = "printed by a source, not measured here"
    return view.put(f'<span class="ov-printed" title="{title}">{escape(match["text"])}</span>')


def _verdict(view: View, match: re.Match) -> str:
    """What the book says of a source's statement, as a mark."""
    words = match["words"]
    if words not in VERDICTS:
        raise OverlapError(f"docs/{view.path}: {words!r} is no verdict; write one of {', '.join(VERDICTS)}")
    return view.put(f'<span class="ov-chip ov-{words.split()[-1]}">{words}</span>')


def _mark(view: View, match: re.Match) -> str:
    """The mark of a claim, which opens its evidence; it stays with the word before and the sign behind it."""
    claim = view.named.get(match["claim"])
    if claim is None:
        reason = f"no claim of this page is named {match['claim']!r}"
        raise OverlapError(f"docs/{view.path}: {reason}; name it, or take the mark away")
    return f"{match['before']}\u00a0{view.put(claim.mark(view))}{match['after']}"


def _of_head(view: View, blocks: list[Block], at_evidence: bool) -> dict:
    """What stands below the title, and at the head of the evidence.

    Below the title: minutes to read, and the machine shown; claims, if not all hold. `at_evidence`: which
    outputs are from other machines is said there, where a reader meets outputs.
    """
    answer, evidence = reading_minutes(view.book.root, blocks)
    return dict(
        status=view.site.status,
        first=view.opens_on,
        minutes=max(1, round(answer)),
        evidence=round(evidence),
        has_runs=bool(_days(view)),
        is_first=view.opens_on == select.of_book(view.book),
        elsewhere=list(filter(None, view.elsewhere)),
        outputs=len(view.elsewhere),
        at_evidence=at_evidence,
        counts=Counts.of(view.claims),
        marks=view.legend,
        notebook=view.link(f"downloads/{view.path.removesuffix('.md')}.ipynb"),
        boxes=view.link(f"downloads/{view.path.removesuffix('.md')}_boxes.py"),
    )


def reading_minutes(root: Path, blocks: list[Block]) -> tuple[float, float]:
    """How many minutes the answer of a page takes to read, and how many its evidence.

    Words of prose and of captions count, where a value is one word and a mark is none; so do lines to paste,
    and pictures. The lines of a program and of its output do not: they are looked at, as a picture is.
    """
    minutes = [0.0, 0.0]
    part = 0
    for block in blocks:
        text = block.prose.text if block.prose else ""
        before, heading, after = text.partition(f"{{ #{EVIDENCE} }}")
        minutes[part] += _words(before) / _PACE
        if heading:
            part = 1
        minutes[part] += _words(after) / _PACE
        if isinstance(block, Paste):
            code = block.code(root)
            minutes[part] += sum(bool(line.strip()) for line in code.split("\n")) / _LINES
        elif block.kind in _PICTURES:
            minutes[part] += _LOOK
    return minutes[0], minutes[1]


def _words(text: str) -> int:
    """How many words a reader sees in Markdown."""
    return len(_WORD.findall(VALUE.sub("0", CITED.sub("", text))))


def _measured(view: View) -> str:
    """When and on what the snippets of a page ran, how many claims hold, and the page as a notebook."""
    counts = Counts.of(view.claims)
    held = sorted(counts.by, key=hardware.order)
    name = view.path.removesuffix(".md")
    is_page = name == view.site.notebook_page
    return view.file(
        "measured",
        spans=[f"{hardware.label(p)}, {' and '.join(sorted(days))}" for p, days in _days(view).items()],
        counts=counts,
        held=[f"{hardware.label(machine)}: {counts.on(machine)}" for machine in held],
        file=view.link(f"downloads/{name}.ipynb"),
        page=f"{view.up}generated/notebooks/{name}/" if is_page else "",
    )


def _days(view: View) -> dict[str, set[str]]:
    """The days when the page's snippets ran, by machine."""
    days: dict[str, set[str]] = {}
    for name in view.measured:
        for machine, recording in view.book.recordings(name).items():
            days.setdefault(machine, set()).add(recording.day)
    return {machine: days[machine] for machine in sorted(days, key=hardware.order)}
