"""Which machine is shown: by the book, by a page and of a snippet, before a reader picks one.

All that shows data of one machine first asks here.
"""

from collections import Counter
from collections.abc import Iterable

from overlap.book.records import Records
from overlap.run.hardware import is_cpu, is_one_gpu, unlike


def of_book(book: Records) -> str:
    """The machine that the picker stands on, and the first page shows; empty where nothing ran."""
    gpus = {}
    for name in book.snippets:
        gpus |= _gpus(book, name)
    return _first(gpus, book.references) or ""


def of_page(book: Records, names: Iterable[str]) -> str:
    """The machine that a page shows, by the snippets whose output stands there.

    It is the book's, if all of them ran on it; else the one that most of them are shown on.
    """
    names = sorted(name for name in names if name in book.snippets)  # a wrong name is its block's error
    machines = [set(book.recordings(name)) for name in names if book.recordings(name)]
    first = of_book(book)
    if all(first in ran_on or ran_on == {"cpu"} for ran_on in machines):
        return first
    counts = Counter(filter(None, [of_snippet(book, name) for name in names]))
    return counts.most_common(1)[0][0]


def of_snippet(book: Records, name: str) -> str | None:
    """The machine that a snippet is shown on; of two GPUs where the snippet is for many."""
    best = 2 if 4 in book.snippets[name].options["gpus"] else 1
    return _first(_gpus(book, name), book.references, best)


def of_values(book: Records, by_machine: dict, name: str, wanted: str = "") -> str:
    """Of the machines that have a value of a snippet: what stands for the `wanted` one, else its own."""
    for machine in (stand_in(wanted, book.recordings(name)), of_snippet(book, name)):
        if machine in by_machine:
            return machine
    return next(iter(by_machine))


def stand_in(wanted: str, machines: Iterable[str]) -> str | None:
    """Of the machines where something ran, the one that gave what the wanted one would give; or none.

    That is itself. Of what ran on one GPU at most: a single GPU of its model; on CPUs alone: their first.
    """
    machines = list(machines)
    if wanted in machines:
        return wanted
    if machines and all(map(is_cpu, machines)):
        return machines[0]
    if all(is_cpu(machine) or is_one_gpu(machine) for machine in machines):
        return next((machine for machine in machines if wanted.startswith(f"{machine}-x")), None)
    return None


def nearest(wanted: str, machines: Iterable[str]) -> str | None:
    """Of the machines where something ran, the one that is shown in the place of the wanted one.

    That is what stands for it; else the machine most like it, a CPU last. None is near to a CPU but a CPU.
    """
    machines = [machine for machine in machines if is_cpu(machine) or not is_cpu(wanted)]
    return stand_in(wanted, machines) or min(
        machines, key=lambda machine: unlike(wanted, machine), default=None
    )


def _gpus(book: Records, name: str) -> dict[str, int]:
    """How many GPUs each machine has that a snippet ran on."""
    return {machine: recording.gpus for machine, recording in book.recordings(name).items()}


def _first(gpus: dict[str, int], references: dict[str, int], best: int = 1) -> str | None:
    """The machine that is shown first, of these with their GPU counts.

    A reference machine comes first; then one of `best` GPUs, else of the fewest, and the CPU last. A machine
    with `best` GPUs of a reference machine's model counts as one, too. Of equals, the one that
    `home` names first.
    """
    named = list(references)

    def order(machine: str) -> tuple[bool, bool, bool, int, int]:
        count = gpus[machine]
        model = machine.removesuffix(f"-x{count}")
        name = machine if machine in references or count != best else model
        place = named.index(name) if name in references else len(named)
        is_reference = not references or name in references
        return not is_reference, count == 0, count != best, count, place

    return min(gpus, key=order, default=None)
