"""What a snippet gave on one machine, in one run or several, and what a page says beside its output."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from statistics import median

from overlap.book.statistic import counted
from overlap.run import hardware, noise
from overlap.run.recording import FRESH, OTHER, all_runs, without_raw
from overlap.run.text import plural


@dataclass(frozen=True)
class Recording:
    """The runs of a snippet on one machine: `data`, as they stand in the file `path`.

    It is local where it comes from this machine's cache, else it is committed. `graded` says how fresh it is;
    it is asked once, and only if somebody wants to know, since it reads what the code means.
    """

    data: dict
    path: str
    is_local: bool
    graded: Callable[[], str] = lambda: FRESH

    @property
    def snippet(self) -> str:
        """Name of the snippet."""
        return self.data["snippet"]

    @property
    def machine(self) -> str:
        """Name of the machine."""
        return self.data[hardware.MACHINE]

    @property
    def gpus(self) -> int:
        """How many GPUs its runs could see."""
        return len(self.data["machine"]["gpus"])

    @property
    def result(self) -> dict:
        """What `main()` returned in the run that is shown."""
        return self.data["result"]

    @property
    def runs(self) -> list[dict]:
        """`run`, `machine`, `software` and `result` of each run; the one that is shown is the first."""
        return all_runs(self.data)

    @property
    def day(self) -> str:
        """When the run that is shown ran."""
        return self.data["run"]["started"][:10]

    @property
    def seconds(self) -> float:
        """How long that took."""
        return self.data["run"]["seconds"]

    @property
    def runs_in_words(self) -> str:
        """`3 runs on one host, 1 disturbed; the runs differ by about 4%`; nothing of a single calm one."""
        other_work = disturbed(self.runs)
        if len(self.runs) == 1:
            return "disturbed" if other_work else ""
        return counted(len(self.runs), hosts(self.runs), other_work) + self._spread_in_words

    @property
    def _spread_in_words(self) -> str:
        """`; the runs differ by about 4%`; nothing where no number differs."""
        apart = spread(self.runs)
        if apart is None:
            return ""
        digits = 0 if apart >= 0.01 else 1
        return f"; the runs differ by about {apart:.{digits}%}"

    @cached_property
    def grade(self) -> str:
        """How fresh it is: see `overlap.run.recording.grade`."""
        return self.graded()

    @property
    def freshness(self) -> str:
        """The grade, in the words of the index."""
        if self.is_local:
            return "this build"
        return FRESH if self.grade == OTHER else self.grade

    @property
    def provenance(self) -> str:
        """One line: which machine, which software, when, how long."""
        software = self.data["software"]
        verb = "run by this build" if self.is_local else "recorded"
        when = f"{verb} {self.day} in {self.seconds:.1f} s"
        parts = [self._device, f"torch {software['torch']}, Python {software['python']}", when]
        if self.grade not in (FRESH, OTHER):
            parts.append(self.grade)
        if busy(self.data):
            parts.append(f"host disturbed: {busy(self.data)}")
        return " · ".join(parts)

    @property
    def _device(self) -> str:
        here = self.data["machine"]
        cpu = f"{here['cpu']}, {plural(here['cores'], 'core')}"
        if here.get("virtual"):
            cpu += ", virtual machine"
        if not here["gpus"]:
            return cpu
        names = " and ".join(dict.fromkeys(gpu["name"] for gpu in here["gpus"]))
        host = f" (of {here['host_gpus']} in the host)" if here["host_gpus"] > self.gpus else ""
        return f"{self.gpus} × {names}{host}, driver {here['driver']} · {cpu}"


def span(days: Collection[str]) -> str:
    """`22–25 Nov 2026`, of days such as 2026-11-22."""
    first, last = (date.fromisoformat(day) for day in (min(days), max(days)))
    end = f"{last.day} {last:%b %Y}"
    if first == last:
        return end
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day}–{end}"
    return f"{first.day} {first:%b %Y} – {end}"


def busy(run: dict) -> str:
    """What other work did to the host of a run, in figures; empty where it was calm."""
    measured = run["run"].get("noise") or {}
    cores = run["machine"]["cores"]
    if not noise.is_disturbed(measured, cores):
        return ""
    facts = []
    if (measured.get("others") or 0) > noise.OTHERS:
        facts.append(f"other processes took {measured['others']:.0%} of the CPU's time")
    if (measured.get("steal") or 0) > noise.STEAL:
        facts.append(f"other virtual machines took {measured['steal']:.0%} of the CPU's time")
    if not facts:
        facts.append(f"load {measured['load']:.1f} on {plural(cores, 'core')}")
    return ", ".join(facts)


def hosts(runs: list[dict]) -> int:
    """How many hosts these runs name; those that name none count as one."""
    return len({run["machine"]["host"] for run in runs if run["machine"].get("host")}) or 1


def disturbed(runs: Iterable[dict]) -> int:
    """How many of these runs other work disturbed."""
    return sum(bool(busy(run)) for run in runs)


def spread(runs: Sequence[dict]) -> float | None:
    """How far runs are apart, typically: highest less lowest, the median of this over their numbers.

    It is a share of each number's median. Counted are numbers with a fraction that all runs have and that are
    not the same in all; None without any.
    """
    first, *others = [dict(_fractions(run["result"])) for run in runs]
    shares = []
    for place, number in first.items():
        numbers = [number, *(other[place] for other in others if place in other)]
        middle = abs(median(numbers))
        if len(numbers) == len(runs) and middle and min(numbers) < max(numbers):
            shares.append((max(numbers) - min(numbers)) / middle)
    return median(shares) if shares else None


def _fractions(value: object, place: tuple = ()) -> Iterator[tuple[tuple, float]]:
    """The numbers with a fraction in a result, each with its keys; raw trials and timelines left out."""
    if isinstance(value, float):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in without_raw(value).items():
            yield from _fractions(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _fractions(inner, (*place, index))


def has_trials(value) -> bool:
    """Whether something in a result was tried several times."""
    if isinstance(value, dict):
        return any(key.endswith("_trials") or has_trials(inner) for key, inner in value.items())
    return isinstance(value, list) and any(map(has_trials, value))
