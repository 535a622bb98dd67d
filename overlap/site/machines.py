"""All that pages show of one machine, as data: a file for each machine, and in a reader's `mine.json`.

A page is made with what one machine gave; its script puts what another one gave in the same places, by key:

    label         how the machine is called
    values        numbers in sentences, by key: [text, range, note], and of another machine's its label
    zh            the notes of those that stand on pages in Chinese, by key, in Chinese
    claims        by key: [state, figures, advice, address of the recording]
    blocks        by key, what `of_machine` in a block gives: of headline rates [text, range and share,
                  origin], of calculators where their inputs begin
    tally         how many claims hold, in words
    counts        the same by page, and of all pages under "": [[state, words], …]
    snippets      by name: a run (see `run`), or the machine whose run is what this one would give, too
    nearest       by name of what is not there: the machine that is shown instead; a reader's has none

Keys are made by `overlap.book.value.key`. Addresses begin at the root of the site. Pictures are files of
their own, whose addresses follow from machine and snippet; a reader's machine has their text instead.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from overlap import OverlapError
from overlap.blocks.claim import Claim
from overlap.blocks.language import in_chinese
from overlap.blocks.pages import Pages
from overlap.book import select
from overlap.book.book import Book
from overlap.book.recording import Recording, span
from overlap.book.value import Value
from overlap.book.verdict import Counts, State, Verdict
from overlap.run import hardware
from overlap.run.text import plain, printable
from overlap.site import numbers, svg, trace
from overlap.site.pictures import Pictures

#: The parts that are maps, by key; scripts refuse a file that lacks one.
PARTS = ("values", "zh", "claims", "blocks", "counts", "snippets")
#: What stands before the name of a reader's own machine.
YOUR = "your "
#: Characters that are kept of an output of a reader's machine.
_LONGEST_OUTPUT = 20_000


def shown(pages: Pages, pictures: Pictures, machine: str, whose: str = "") -> dict:
    """What pages show of one machine; `whose` is `YOUR` where it is a reader's own."""
    book = pages.book
    verdicts = {claim: _verdicts(book, claim) for claim in pages.claims}
    return {
        "label": whose + hardware.label(machine),
        "values": _known(sorted(pages.values, key=str), lambda value: _value(book, machine, value, whose)),
        "zh": _known(
            sorted(pages.values_in_chinese, key=str),
            lambda value: _note_in_chinese(book, machine, value, whose),
        ),
        "claims": _known(pages.claims, lambda claim: _claim(verdicts[claim], machine, whose)),
        "blocks": _known(pages.of_machines, lambda item: item.of_machine(book, machine)),
        **_counted(verdicts, machine),
        "snippets": dict(_snippets(pictures, machine, whose)),
        **({} if whose else {"nearest": dict(_nearest(book, machine))}),
    }


def run(pictures: Pictures, recording: Recording, whose: str = "") -> dict:
    """What a page shows of a recording.

    `line` and `provenance` say where it is from, `runs` how many it has. `outputs` are [rank in words where
    there are several, CSS class, text]. `pictures` have, by part and "" for the whole, `alt`, `sizes`, the
    ends of `axes`, the numbers (`tables`, and how many `more` there are), and of a reader's machine the SVG
    texts; `zh` has what is other on a page in Chinese. `trace`, `timelines` and `raw` are addresses, empty
    where there are no such files.
    """
    name = recording.snippet
    label = whose + hardware.label(recording.machine)
    is_timeline = bool(trace.timelines(recording.result))
    shown = _pictures(pictures, recording, whose, is_timeline)
    can_explore = bool(shown) and not whose and "" in pictures.of(recording)["explored"]
    if can_explore and "zh" in shown[""]:
        shown[""]["zh"]["timelines"] = f"generated/timelines/{recording.machine}/{name}.zh.json"
    place = f"{recording.machine}/{name}.json"
    parts = [label, span([recording.day]), recording.runs_in_words]
    return {
        "line": " · ".join(filter(None, parts)),
        "provenance": plain(recording.provenance),
        "runs": len(recording.runs),
        "outputs": _outputs(recording.data["outputs"], whose),
        "raw": "" if whose else address(recording),
        "trace": f"generated/traces/{place}" if is_timeline and not whose else "",
        "timelines": f"generated/timelines/{place}" if can_explore else "",
        "pictures": shown,
    }


def address(recording: Recording) -> str:
    """Where a recording is published."""
    if recording.is_local:
        return f"generated/local/{recording.machine}/{recording.snippet}.json"
    return recording.path.removeprefix("docs/")


def verdict(of_machine: Verdict, whose: str = "") -> list[str]:
    """What a page shows of a verdict: state, figures, what else there is to say, address of the recording."""
    said = ["this build"] if of_machine.recording.is_local and not whose else []
    if of_machine.state is State.FALSE and of_machine.advice:
        said.append(of_machine.advice)
    raw = "" if whose else address(of_machine.recording)
    return [of_machine.state.word, plain(of_machine.figures), plain("; ".join(said)), raw]


def value(book: Book, asked: Value, machine: str, whose: str = "") -> list[str]:
    """What a page shows of a value on a machine: text, range where it is wide, and where it is from."""
    item = book.statistics(asked)[machine]
    wide_range = f" ({item.wide_range})" if item.wide_range else ""
    return [plain(item.text), plain(wide_range), note(book, asked, machine, whose)]


def note(book: Book, asked: Value, machine: str, whose: str = "", say: Callable[[str], str] = str) -> str:
    """Where a value is from, in the language that `say` speaks."""
    told = book.statistics(asked)[machine].told(say)
    place = say("{0} on {1}").format(asked.snippet, _called(machine, whose, say))
    return plain(say("{0}: {1}").format(place, told) if told else place)


def in_columns(text: str) -> bool:
    """Whether most lines of an output are rows of a table, whose columns a wrapped line would break."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    rows = [line for line in lines if re.search(r"\S {2,}\S", line)]
    return len(rows) >= 3 and 2 * len(rows) > len(lines)


def _known(items: Iterable, of: Callable[[Any], Any]) -> dict[str, Any]:
    """The content of each item that this machine has data for, by the item's key."""
    known = {}
    for item in items:
        with contextlib.suppress(OverlapError):
            content = of(item)
            if content:
                known[item.key] = content
    return known


def _called(machine: str, whose: str, say: Callable[[str], str]) -> str:
    label = hardware.label(machine)
    return say("your {0}").format(label) if whose else label


def _source(book: Book, machine: str, asked: Value, whose: str) -> str:
    """The machine whose value is shown for this one; empty where there is none."""
    statistics = book.statistics(asked)
    having = [each for each in statistics if statistics[each].values]
    source = select.stand_in(machine, book.recordings(asked.snippet))
    if source is None and not whose:
        source = select.nearest(machine, having)
    return source if source in having else ""


def _value(book: Book, machine: str, asked: Value, whose: str) -> list[str] | None:
    source = _source(book, machine, asked, whose)
    if not source:
        return None
    other = [] if source == machine else [whose + hardware.label(source)]
    return value(book, asked, source, whose) + other


def _note_in_chinese(book: Book, machine: str, asked: Value, whose: str) -> str:
    source = _source(book, machine, asked, whose)
    return note(book, asked, source, whose, in_chinese) if source else ""


def _verdicts(book: Book, claim: Claim) -> list[Verdict]:
    """What each machine's data say of a claim, also where they decide it nowhere."""
    try:
        return book.verdicts(claim)
    except OverlapError:
        recordings = book.recordings(claim.snippet).values()
        return list(filter(None, (book.verdict(claim, each) for each in recordings)))


def _claim(verdicts: list[Verdict], machine: str, whose: str) -> list[str] | None:
    return next((verdict(each, whose) for each in verdicts if each.machine == machine), None)


def _counted(verdicts: dict[Claim, list[Verdict]], machine: str) -> dict:
    """How many claims this machine decides, and how."""
    pages: dict[str, list[list[Verdict]]] = {"": []}
    for claim, of_claim in verdicts.items():
        for page in ("", claim.page):
            pages.setdefault(page, []).append(of_claim)
    counts = {}
    for page, of_page in pages.items():
        states = Counts.of(of_page).by.get(machine)
        if states:
            counted = [(state, states[state]) for state in State if states[state]]
            counts[page] = [[state.word, f"{count} {state.counted(count)}"] for state, count in counted]
    tally = Counts.of(verdicts.values()).on(machine) if counts else ""
    return {"tally": tally, "counts": counts}


def _snippets(pictures: Pictures, machine: str, whose: str) -> Iterator[tuple[str, dict | str]]:
    for name in pictures.book.snippets:
        recordings = pictures.book.recordings(name)
        source = select.stand_in(machine, recordings)
        if source == machine:
            yield name, run(pictures, recordings[machine], whose)
        elif source:
            yield name, source


def _nearest(book: Book, machine: str) -> Iterator[tuple[str, str]]:
    for name in book.snippets:
        recordings = book.recordings(name)
        near = select.nearest(machine, recordings)
        if near and select.stand_in(machine, recordings) is None:
            yield name, near


def _outputs(outputs: list[dict], whose: str) -> list[list[str]]:
    several = len({output["rank"] for output in outputs}) > 1
    shown = []
    for output in outputs:
        text = printable("".join(output["text"])).rstrip()
        if whose and len(text) > _LONGEST_OUTPUT:
            text = f"{text[:_LONGEST_OUTPUT]}\n[… the rest is left out …]"
        looks = {"ov-stderr": output["name"] == "stderr", "ov-columns": in_columns(text)}
        look = " ".join(name for name, is_so in looks.items() if is_so)
        shown.append([f"rank {output['rank']}" if several else "", look, text])
    return shown


def _pictures(pictures: Pictures, recording: Recording, whose: str, is_timeline: bool) -> dict[str, dict]:
    """By part. A timeline has no table: it has its names where it is explored."""
    try:
        picture = pictures.of(recording)
        translated = pictures.in_chinese(recording)
    except OverlapError:
        if not whose:
            raise
        picture = translated = {}
    if not picture:
        return {}
    summary = plain(pictures.book.snippets[recording.snippet].summary)

    def told(part: str, drawn: dict, say: Callable[[str], str], is_chinese: bool) -> dict:
        template = say("{summary} Measured on {machine}. {words}")
        machine = _called(recording.machine, whose, say)
        one = {
            "alt": template.format(summary=summary, machine=machine, words=drawn["words"]),
            "sizes": drawn["sizes"],
            "axes": drawn["axes"],
            "tables": [] if is_timeline else list(map(_table, drawn["tables"])),
            "more": drawn["more"],
        }
        if whose:
            for variant in drawn["sizes"]:
                one[variant] = svg.in_file(pictures.svg(recording, part, variant, is_chinese))
        return one

    shown = {}
    for part, drawn in {"": picture, **picture["parts"]}.items():
        shown[part] = told(part, drawn, str, False)
    for part, drawn in translated.items():
        shown[part]["zh"] = told(part, drawn, in_chinese, True)
    return shown


def _table(table: dict) -> dict:
    """Headings, and rows of texts; a row of one text is the name of those below it."""
    rows = []
    for series in table["series"]:
        if series["name"] and series["name"] not in table["headings"]:
            rows.append([series["name"]])
        rows += [[numbers.text(cell) for cell in point] for point in series["points"]]
    return {"headings": table["headings"], "rows": rows}
