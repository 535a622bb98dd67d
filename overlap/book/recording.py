"""What a snippet gave on one machine, in one run or several, and what a page says beside its output."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date

from overlap.book.statistic import counted, show
from overlap.run import noise
from overlap.run.recording import FRESH, OTHER, all_runs
from overlap.run.text import plural


@dataclass(frozen=True)
class Recording:
    """The runs of a snippet on one machine: `data`, as they stand in the file `path`, and how fresh they are.

    It is local where it comes from this machine's cache, else it is committed.
    """

    data: dict
    path: str
    is_local: bool
    grade: str

    @property
    def snippet(self) -> str:
        """Name of the snippet."""
        return self.data["snippet"]

    @property
    def profile(self) -> str:
        """Name of the machine."""
        return self.data["profile"]

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
        """`3 runs, 2 of them disturbed`; nothing of a single calm one."""
        count, other_work = len(self.runs), disturbed(self.runs)
        if count == 1:
            return "disturbed" if other_work else ""
        return f"{count} runs, {other_work} of them disturbed" if other_work else f"{count} runs"

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
        if len(self.runs) > 1:
            when += f", one of {counted(len(self.runs), hosts(self.runs), disturbed(self.runs))}"
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
    if not measured.get("disturbed"):
        return ""
    facts = []
    if (measured.get("others") or 0) > noise.OTHERS:
        facts.append(f"other processes took {measured['others']:.0%} of the CPU's time")
    if (measured["steal"] or 0) > noise.STEAL:
        facts.append(f"other virtual machines took {measured['steal']:.0%} of the CPU's time")
    before_after = measured.get("dispatch_us")
    if before_after and max(before_after) > noise.FACTOR * measured["least_us"]:
        before, after = map(show, before_after)
        least = show(measured["least_us"])
        facts.append(f"a small call cost {before} µs before and {after} µs after, {least} µs at best")
    load = measured["load"]
    cores = run["machine"]["cores"]
    if load and (load > cores or not facts):
        facts.append(f"load {load:.1f} on {plural(cores, 'core')}")
    return ", ".join(facts)


def hosts(runs: list[dict]) -> int:
    """How many hosts these runs name; those that name none count as one."""
    return len({run["machine"]["host"] for run in runs if run["machine"].get("host")}) or 1


def disturbed(runs: Iterable[dict]) -> int:
    """How many of these runs other work disturbed."""
    return sum(bool(busy(run)) for run in runs)


def has_trials(value) -> bool:
    """Whether something in a result was tried several times."""
    if isinstance(value, dict):
        return any(key.endswith("_trials") or has_trials(inner) for key, inner in value.items())
    return isinstance(value, list) and any(map(has_trials, value))
