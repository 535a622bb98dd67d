"""The file `mine.json`: what ran on a reader's machine, and what the book says of it there.

The site takes it for one more machine, `overlap import` takes its runs. It is plain JSON:

    overlap     the number of this form
    digest      that of the book: its snippets, all that pages compute, and the form
    machines    by machine: all that pages show of it, see `overlap.site.machines`; pictures are in there, too
    lacks       by name, why a snippet did not run
    recordings  the runs, each as in a recording

Recordings are without what names a person. The file is written after each run, without `machines`; these are
added when all have run, or when it is stopped.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from overlap import OverlapError
from overlap.blocks.pages import Pages
from overlap.book.recording import Recording
from overlap.cache import digest, write
from overlap.run import hardware
from overlap.run.progress import Item
from overlap.run.recording import FRESH, bundled, grade, parse, plain_json, sealed
from overlap.run.scrub import scrubbed
from overlap.run.snippet import Snippet

#: Another number where what pages show of a machine has other parts. Scripts ask for their digest alone.
FORM = 6
NAME = "mine.json"

#: Recordings of what was measured here, by snippet and machine.
Measured = dict[str, dict[str, Recording]]
#: What pages show of one machine of a book.
Shown = Callable[[Pages, str], dict]


class Mine:
    """What was measured on this machine; with a `path` it is kept in such a file, and goes on from there.

    What the file has of this code on this machine need not run again.
    """

    def __init__(self, pages: Pages, path: Path | None = None):
        self.pages = pages
        self.book = pages.book
        self.path = path
        self.recordings: Measured = {}
        #: Why snippets are not among them, by name.
        self.lacks = dict.fromkeys(self.book.snippets, "it has not run there yet")
        if path:
            self._read(path)

    def _read(self, path: Path) -> None:
        book = self.book
        here = hardware.here()
        for where, data in _recordings(path):
            name = data["snippet"]
            if data[hardware.MACHINE] not in book.library.machines_here:
                reason = f"has runs of another machine, {hardware.label(data[hardware.MACHINE])}"
                raise OverlapError(f"{where}: {reason}; move it away, or start in another folder")
            if name not in book.snippets:
                continue
            if grade(data, book.snippets[name], here, book.library.machines_here) == FRESH:
                self.put(data)

    def put(self, data: dict) -> None:
        """Take a recording."""
        name = data["snippet"]
        machine = data[hardware.MACHINE]
        recording = Recording(data, f"{NAME}:{machine}/{name}", is_local=False)
        self.recordings.setdefault(name, {})[machine] = recording

    def lacking(self, items: list[Item]) -> list[Item]:
        """Those of these items that it does not have."""
        machines = self.book.library.machines_here
        return [item for item in items if machines[item[1]] not in self.recordings.get(item[0].name, {})]

    def add(self, snippet: Snippet, data: dict) -> None:
        """Take one more run, without what names a person, and write the file."""
        self.put(sealed(scrubbed(data, snippet.text)))
        if self.path:
            self._write({})

    def finish(self, shown: Shown) -> None:
        """Write the file with what the book shows of its runs."""
        now = self.pages.over(self.book.with_recordings(self.recordings))
        machines = sorted({recording.machine for recording in self.all_recordings}, key=hardware.order)
        self._write({machine: shown(now, machine) for machine in machines})

    @property
    def all_recordings(self) -> list[Recording]:
        """Its recordings."""
        recordings = []
        for by_machine in self.recordings.values():
            recordings += by_machine.values()
        return recordings

    def _write(self, machines: dict) -> None:
        data = {
            "overlap": FORM,
            "digest": digest_of_book(self.pages),
            "machines": machines,
            "lacks": {name: why for name, why in self.lacks.items() if name not in self.recordings},
            "recordings": [recording.data for recording in self.all_recordings],
        }
        write(self.path, json.dumps(data, allow_nan=False) + "\n")


def digest_of_book(pages: Pages) -> str:
    """Digest of the book and the form: another file has other snippets, or lacks what pages ask for."""
    parts = [f"form {FORM}"]
    for name, snippet in pages.book.snippets.items():
        parts.append(f"{name} {snippet.digest} {snippet.input_digests} {snippet.derive_digest}")
    parts += [value.key for value in pages.values]
    parts += [item.key for item in [*pages.of_machines, *pages.claims]]
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
    is_form = isinstance(data, dict) and type(data.get("overlap")) is int
    return is_form and isinstance(data.get("recordings"), list)


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
