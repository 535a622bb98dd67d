"""How recordings come into a book: what `record` has to run, what `import` takes and refuses."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from overlap import OverlapError
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.book.recording import busy
from overlap.book.verdict import State
from overlap.run import hardware, recording
from overlap.run.progress import Item
from overlap.run.recording import Bundle
from overlap.run.scrub import scrubbed
from overlap.run.snippet import Snippet
from overlap.run.text import plural

#: State and text of a claim, by where it stands and on which machine.
Verdicts = dict[tuple[str, str], tuple[State, str]]


class Recorder:
    """Takes runs into the recordings of a book, or into a bundle; `tell` gets a line for each."""

    def __init__(self, book: Book, bundle: Bundle | None, tell: Callable[[str], None]):
        self.book = book
        self.bundle = bundle
        self.tell = tell
        #: How many it took, and how many of these while other work used the machine.
        self.count = 0
        self.disturbed = 0

    def lacking_runs(self, item: Item, runs: int | None, named: bool) -> int:
        """How many more runs to make: up to `runs` of a measurement, or what pyproject.toml wants.

        One more of what was named; but into a bundle as many as that, whatever is recorded.
        """
        if named and not self.bundle and runs is None:
            return 1
        snippet, gpus = item
        machine = self.book.library.machines_here[gpus]
        wanted = self.book.runs_wanted(snippet.name, machine)
        if runs is not None and self.book.measures(snippet.name):
            wanted = runs
        recorded = set()
        committed = self.book.committed.get(snippet.name, {}).get(machine)
        if committed is not None and committed.grade == recording.FRESH:
            recorded = recording.run_digests(committed.data)
        if not self.bundle:
            return max(0, wanted - len(recorded))
        bundled = self.bundle.runs(snippet, machine)
        if named:
            return max(0, wanted - len(bundled - recorded))
        return max(0, wanted - len(bundled | recorded))

    def keep(self, snippet: Snippet, gpus: int, data: dict) -> None:
        """Write one run without what names a person, and say so."""
        data = recording.sealed(scrubbed(data, snippet.text))
        recording.parse(json.dumps(data), snippet.path, "let what records it and overlap/run/schema.py agree")
        if self.bundle:
            self.bundle.add(data)
        else:
            _, data = recording.add(path_of(self.book, data), data)
        self.book.keep(snippet, gpus, data)
        self.count += 1
        line = f"{snippet.name} on {data[hardware.MACHINE]}: {data['run']['seconds']:.1f} s"
        runs = len(recording.all_runs(data))
        if runs > 1:
            line += f", run {runs}"
        if busy(data):
            self.disturbed += 1
            line += f", while the machine was busy: {busy(data)}"
        self.tell(line)

    def remarks(self) -> Iterator[str]:
        """What to know of the runs that it took."""
        if self.disturbed:
            runs = f"{self.disturbed} of {plural(self.count, 'run')}"
            where = self.bundle.path if self.bundle else "their recordings"
            remedy = f"when it is calm, remove {where} and repeat them: a busy run counts beside calm ones"
            yield f"This machine was busy in {runs}; {remedy}"
        if "cpu" not in self.book.library.machines_here:
            yield "This CPU is a machine of its own: the book's is another, or has other cores"


def round_robin(lacking: dict[Item, int]) -> list[Item]:
    """The items in turns, each as often as it lacks runs."""
    items = []
    for turn in range(max(lacking.values())):
        items += [item for item, count in lacking.items() if count > turn]
    return items


def _fitting(book: Book, line: bytes, where: str) -> dict:
    """The recording of one line of a bundle, if it is intact and of the code in this checkout."""
    data = recording.parse(line, where, "record it again")
    snippet = book.snippet(data["snippet"])
    if not recording.is_intact(data):
        raise OverlapError("its digest does not match its content; record it again")
    if recording.grade(data, snippet, hardware.here(), []) == recording.CODE:
        raise OverlapError(f"{snippet.path} has changed since it was recorded; record it again")
    known = book.library.recordings.get(snippet.name, {}).values()  # those that can be read
    recorded = [set(item.result) for item in known if item.grade != recording.CODE]
    lacking = set.intersection(*recorded) - set(data["result"]) if recorded else set()
    if lacking or not data["result"]:
        what = f"no {', '.join(sorted(lacking))}" if lacking else "nothing"
        raise OverlapError(f"its result has {what}; record it again")
    machine = recording.machine_of(book.root, data["machine"])
    if machine != data[hardware.MACHINE]:  # it was recorded where the book's processor was not known
        data = recording.sealed(data | {hardware.MACHINE: machine})
    return data


def path_of(book: Book, data: dict) -> Path:
    """Where a recording stands in the book."""
    return book.docs / "recordings" / data[hardware.MACHINE] / f"{data['snippet']}.json"


def take(book: Book, line: bytes, where: str) -> str:
    """Write the recording of one line to where it belongs, and say what it is."""
    data = _fitting(book, line, where)
    path = path_of(book, data)
    existed = path.exists()
    old, data = recording.add(path, data)
    count = len(recording.all_runs(data))
    if not existed:
        kind = "new"
    elif old is None:
        kind = "replaced"
    elif old["digest"] == data["digest"]:
        kind = "unchanged"
    elif count > len(recording.all_runs(old)):
        kind = "another run"
    else:
        kind = f"replaced ({old['run']['started']} before)"
    text = f"{kind}: {data['snippet']} on {data[hardware.MACHINE]}, {data['run']['started']}"
    if count > 1:
        text += f", {count} runs"
    if data[hardware.MACHINE].startswith("cpu-"):
        text += " (not the book's processor and number of cores)"
    return text


def verdicts(root: Path) -> Verdicts:
    """The verdict on each claim that can be decided, and its text; why, where it does not hold."""
    by_place: Verdicts = {}
    with contextlib.suppress(OverlapError):
        book = Book(root, "never")
        for claim in Pages(book).claims:
            with contextlib.suppress(OverlapError):
                for verdict in book.verdicts(claim):
                    text = claim.text
                    if verdict.state is not State.HOLDS:
                        text += f" {verdict.reason}"
                    by_place[claim.where, verdict.machine] = (verdict.state, text)
    return by_place


def turned(before: Verdicts, after: Verdicts) -> list[str]:
    """Claims whose verdict has changed; for new machines how many claims hold, and which do not."""
    lines = []
    for key in before | after:
        where = " on ".join(key)
        if key not in before:
            new, text = after[key]
            if new is not State.HOLDS:
                lines.append(f"{where}: new: {new.word}: {text}")
            continue
        old, old_text = before[key]
        new, text = after.get(key, (State.OPEN, old_text))  # nothing decides it any more
        if new is not old:
            lines.append(f"{where}: {old.word} -> {new.word}: {text}")
    known = {machine for _, machine in before}
    holds = Counter(machine for (_, machine), (state, _) in after.items() if state is State.HOLDS)
    for machine in sorted({machine for _, machine in after} - known):
        count = f"{plural(holds[machine], 'claim')} {State.HOLDS.counted(holds[machine])}"
        lines.append(f"{hardware.label(machine)} is new: {count}")
    return lines
