"""The file `mine.json`: what ran on a reader's machine, and what the book says of it there.

The site takes it for one more machine, `overlap import` takes its runs. It is plain JSON:

    overlap     the number of this form
    edition     fingerprint of the book: its snippets, and all that pages compute
    machines    by profile: `label`; by key, made by `overlap.book.value.key`, `values` [text, range, note],
                `claims` [state, figures], `headlines` [text, range, share, origin] and
                `calculators` {input: number}; by name `snippets` with `provenance`,
                `outputs` [[rank, stream, text], …], `tables` and `more` of their pictures
    lacks       by name, why a snippet did not run
    recordings  the runs, each as in a recording

Recordings are without what names a person. The file is written after each run, without `machines`; these are
added when all have run, or when it is stopped.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from overlap import OverlapError
from overlap.book import evaluation
from overlap.book.blocks import Calculator, Claim
from overlap.book.blocks.headlines import all_headlines
from overlap.book.book import Book
from overlap.book.recording import Recording
from overlap.book.value import Value, values
from overlap.book.verdict import State
from overlap.cache import digest, write
from overlap.run import machine
from overlap.run.progress import Item
from overlap.run.recording import FRESH, bundled, grade, parse, plain_json, sealed
from overlap.run.scrub import scrubbed
from overlap.run.snippet import Snippet
from overlap.run.text import plain, printable

FORM = 1
NAME = "mine.json"
#: Characters that are kept of an output.
_LONGEST_OUTPUT = 20_000

#: Recordings of what was measured here, by snippet and profile.
Measured = dict[str, dict[str, Recording]]
#: Numbers of the pictures that recordings give, by snippet and profile; `tables` and `more` each.
Tables = Callable[[list[Recording]], dict[tuple[str, str], dict]]


class Mine:
    """What was measured on this machine; with a `path` it is kept in such a file, and goes on from there.

    What the file has of this code on this machine need not run again.
    """

    def __init__(self, book: Book, path: Path | None = None):
        self.book = book
        self.path = path
        self.recordings: Measured = {}
        #: Why snippets are not among them, by name.
        self.lacks = dict.fromkeys(book.snippets, "it has not run there yet")
        if path:
            self._read(path)

    def _read(self, path: Path) -> None:
        book = self.book
        here = machine.here()
        for where, data in _recordings(path):
            name = data["snippet"]
            if data["profile"] not in book.library.profiles_here:
                reason = f"has runs of another machine, {machine.label(data['profile'])}"
                raise OverlapError(f"{where}: {reason}; move it away, or start in another folder")
            if name not in book.snippets:
                continue
            if grade(data, book.snippets[name], here, book.library.profiles_here) == FRESH:
                self.put(data)

    def put(self, data: dict) -> None:
        """Take a recording."""
        name = data["snippet"]
        profile = data["profile"]
        recording = Recording(data, f"{NAME}:{profile}/{name}", is_local=False, grade=FRESH)
        self.recordings.setdefault(name, {})[profile] = recording

    def lacking(self, items: list[Item]) -> list[Item]:
        """Those of these items that it does not have."""
        profiles = self.book.library.profiles_here
        return [item for item in items if profiles[item[1]] not in self.recordings.get(item[0].name, {})]

    def add(self, snippet: Snippet, data: dict) -> None:
        """Take one more run, without what names a person, and write the file."""
        self.put(sealed(scrubbed(data, snippet.text)))
        if self.path:
            self._write({})

    def finish(self, tables: Tables) -> None:
        """Write the file with what the book says of its runs."""
        self._write(self._machines(tables))

    @property
    def all_recordings(self) -> list[Recording]:
        """Its recordings."""
        recordings = []
        for by_profile in self.recordings.values():
            recordings += by_profile.values()
        return recordings

    def _write(self, machines: dict) -> None:
        data = {
            "overlap": FORM,
            "edition": edition(self.book),
            "machines": machines,
            "lacks": {name: why for name, why in self.lacks.items() if name not in self.recordings},
            "recordings": [recording.data for recording in self.all_recordings],
        }
        write(self.path, json.dumps(data, allow_nan=False) + "\n")

    def _machines(self, tables: Tables) -> dict[str, dict]:
        """What the book says of each profile of this machine."""
        now = self.book.with_recordings(self.recordings)
        pictured = tables(self.all_recordings)
        machines = {}
        for profile in sorted({recording.profile for recording in self.all_recordings}, key=machine.order):
            snippets = {}
            for recording in self.all_recordings:
                if recording.profile == profile:
                    name = recording.snippet
                    picture = pictured.get((name, profile), {"tables": [], "more": 0})
                    snippets[name] = _of_snippet(recording) | picture
            machines[profile] = _of_machine(now, profile) | {"snippets": snippets}
        return machines


def edition(book: Book) -> str:
    """Fingerprint of the book: a file of another one has other snippets, or lacks what pages ask for."""
    parts = []
    for name, snippet in book.snippets.items():
        parts.append(f"{name} {snippet.hash} {snippet.input_hashes} {snippet.derive_hash}")
    parts += [value.key for value in _asked(book)]
    keyed = [*all_headlines(book), *book.of_kind(Calculator), *book.claims]
    parts += [item.key for item in keyed]
    return digest(sorted(parts))[:16]


def lines(path: Path) -> list[tuple[str, bytes]]:
    """(place, text) of each recording in such a file, or in a bundle."""
    data = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        data = plain_json(path.read_bytes())
    found = _lines(path, data) if _is_mine(data) else bundled(path)
    if not any(text.lstrip().startswith(b"{") for _, text in found):
        raise OverlapError(f"{path}: holds no recording; copy the file here again, or record it again")
    return found


def _lines(path: Path, data: dict) -> list[tuple[str, bytes]]:
    items = enumerate(data["recordings"], 1)
    return [(f"{path}: recording {number}", json.dumps(item).encode()) for number, item in items]


def _is_mine(data: object) -> bool:
    """Whether these data have the form of such a file."""
    return isinstance(data, dict) and data.get("overlap") is FORM and isinstance(data.get("recordings"), list)


def _recordings(path: Path) -> Iterator[tuple[str, dict]]:
    """The recordings of a file, each with its place; there are none where there is no file."""
    remedy = "move it away, and run again"
    if not path.exists():
        return
    try:
        data = plain_json(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise OverlapError(f"{path}: cannot be read ({error}); {remedy}") from None
    if not _is_mine(data):
        raise OverlapError(f"{path}: is not what `verify --all` writes; {remedy}")
    for where, line in _lines(path, data):
        yield where, parse(line, where, remedy)


# What the book says of one machine


def _asked(book: Book) -> set[Value]:
    """The values in sentences, without those that are pinned to one machine."""
    asked = set()
    for block in book.blocks:
        if block.prose:
            asked |= {value for _, value in values(block.prose.text) if not value.profile}
    return asked


def _of_machine(now: Book, profile: str) -> dict:
    """What sentences, claims and tables say of one profile."""
    return {
        "label": machine.label(profile),
        "values": _known(sorted(_asked(now), key=str), lambda value: _value(now, profile, value)),
        "claims": _known(now.claims, lambda claim: _claim(now, profile, claim)),
        "headlines": _known(all_headlines(now), lambda row: row.by_machine(now).get(profile)),
        "calculators": _known(now.of_kind(Calculator), lambda block: _start(now, profile, block)),
    }


def _known(items: Iterable, of: Callable[[Any], Any]) -> dict[str, Any]:
    """The content of each item that this machine has data for, by the item's key."""
    known = {}
    for item in items:
        with contextlib.suppress(OverlapError):
            content = of(item)
            if content:
                known[item.key] = content
    return known


def _value(now: Book, profile: str, value: Value) -> list[str] | None:
    item = now.statistics(value).get(profile)
    if not item or not item.values:
        return None
    note = f"{value.snippet} on your {machine.label(profile)}"
    if item.note:
        note += f": {item.note}"
    return [plain(item.text), plain(item.wide_range), plain(note)]


def _claim(now: Book, profile: str, claim: Claim) -> list[str] | None:
    recording = now.recordings(claim.snippet).get(profile)
    verdict = recording and evaluation.verdict(now, claim, recording)
    if not verdict:
        return None
    figures = verdict.figures
    if verdict.state is State.FALSE and verdict.advice:
        figures += f" · {verdict.advice}"
    return [verdict.state.word, plain(figures)]


def _start(now: Book, profile: str, calculator: Calculator) -> dict[str, float] | None:
    """Where a calculator's inputs begin, if it can begin there."""
    start = calculator.starts(now).get(profile)
    if start and all(item.low <= start[item.name] <= item.high for item in calculator.inputs):
        return start
    return None


def _of_snippet(recording: Recording) -> dict:
    """What a page shows of a recording beside its picture."""
    outputs = []
    for output in recording.data["outputs"]:
        text = printable("".join(output["text"]))
        if len(text) > _LONGEST_OUTPUT:
            text = text[:_LONGEST_OUTPUT] + "\n[… the rest is left out …]\n"
        outputs.append([output["rank"], output["name"], text])
    return {"provenance": plain(recording.provenance), "outputs": outputs}
