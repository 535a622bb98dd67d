"""What holds down what is low: facts that a machine or its driver tells. Nothing is guessed."""

import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from overlap.book.runs import Run, disturbed
from overlap.book.statistic import plural, show
from overlap.run import machine, noise, recording

#: MiB of a GPU's memory, and per cent of its time, in use before anything of ours runs: others work there.
OTHERS_MIB, OTHERS_BUSY = 1000, 10
#: How long one looks at the CPU while nothing of ours runs.
LOOK_S = 0.5
#: A clock below this share of its maximum is a slow one.
SLOWED = 0.95
OK, LOW, UNKNOWN = "ok", "LOW", "unknown"


class Fact(NamedTuple):
    """Something that is so on this machine, and the kind of headlines that it can hold down."""

    text: str
    touches: str


def touches(kind: str, line: dict) -> bool:
    """Whether a fact of this kind can hold a headline down."""
    bound_by = line["bound_by"]
    if kind == "host":
        return bound_by is None or machine.is_cpu(line["profile"])
    if kind == "link":
        return bound_by == "pcie"
    if kind == "clock":
        return bound_by in ("arithmetic", "memory")
    return kind == "gpu" and bound_by is not None


def alike(run: Run, here: Run) -> list[int]:
    """Numbers of a recording's runs that can be compared: of this code, and without a GPU of the same CPU."""
    if run.grade == recording.CODE:
        return []
    cpu = here.data["machine"]["cpu"]
    return [number for number, data in enumerate(run.all) if run.gpus or data["machine"]["cpu"] == cpu]


class Look(NamedTuple):
    """How busy the host is while nothing of ours runs: the share of CPU time that is used, and the load."""

    share: float
    load: float


def look() -> Look:
    """Look at the host for a moment."""
    load = 0.0
    with contextlib.suppress(OSError):
        load = os.getloadavg()[0]
    return Look(_busy_share(), load)


def of_others(before: Look, after: Look, mine: list[dict]) -> str:
    """What others did to the host before, after and, by our runs, meanwhile; nothing where it was calm.

    Behind our runs the load is their own.
    """
    facts = []
    share = max([before.share, after.share, *_noise(mine, "others")])
    if share > noise.OTHERS:
        facts.append(f"other processes took up to {share:.0%} of the CPU's time")
    cores = os.cpu_count()
    if before.load > cores:
        facts.append(f"the load was {before.load:.1f} on {plural(cores, 'core')} before anything ran here")
    count = disturbed(mine)
    if count:
        facts.append(f"other work disturbed the CPU in {count} of {plural(len(mine), 'run')}")
    return ", ".join(facts)


def _busy_share() -> float:
    """The share of CPU time that is used just now, by whomever."""
    idle, _, total = noise.jiffies()
    time.sleep(LOOK_S)
    now_idle, _, now_total = noise.jiffies()
    return 1 - (now_idle - idle) / (now_total - total) if now_total > total else 0.0


def of_gpus(probed: dict, states: list[dict], watched: dict[str, dict]) -> Iterator[Fact]:
    """What this machine's GPUs are and said: `states` before anything ran, `watched` while a snippet ran."""
    for number, gpu in enumerate(probed["gpus"]):
        state = states[number] if number < len(states) else {}
        for fact in _of_gpu(f"GPU {number}" if number else "the GPU", gpu, state):
            # headlines are of the first GPU: what is so of another explains nothing
            yield fact._replace(touches="") if number else fact
    for name, state in watched.items():
        clock = state.get("clock_mhz", 0)
        fastest = state.get("clock_max_mhz", 0)
        reasons = " and ".join(state.get("reasons", ()))
        why = f"; the driver's reason: {reasons}" if reasons else ""
        if 0 < clock < SLOWED * fastest:
            slow = f"the clock was at most {clock:,.0f} of {fastest:,.0f} MHz"
            yield Fact(f"while {name} ran, {slow}{why}", "clock")
        elif reasons:
            yield Fact(f"while {name} ran, the driver held the clock down at times{why}", "clock")


def _of_gpu(name: str, gpu: dict, state: dict) -> Iterator[Fact]:
    width = gpu.get("pcie_width", 0)
    widest = gpu.get("pcie_width_max", 0)
    if 0 < width < widest:
        yield Fact(f"{name} uses {width} of its {widest} PCIe lanes", "link")
    limit = state.get("power_limit_w", 0)
    usual = state.get("power_default_w", 0)
    if limit < usual:
        yield Fact(f"the power limit of {name} is {limit:g} W, by default it is {usual:g} W", "clock")
    memory = state.get("memory_used_mib", 0)
    used = state.get("utilization", 0)
    if memory > OTHERS_MIB or used > OTHERS_BUSY:
        used = f"{memory:,.0f} MiB of its memory were in use and it was busy {used:.0f}% of the time"
        yield Fact(f"others use {name}: before anything ran here, {used}", "gpu")


def of_host(mine: list[dict], recorded: list[dict]) -> Iterator[Fact]:
    """What the host of these runs is less than where the recorded ones were made."""
    costs = _noise(mine, "least_us")
    usual = _noise(recorded, "least_us")
    if costs and usual and min(costs) > noise.FACTOR * max(usual):
        here = f"a small PyTorch call costs the CPU {show(min(costs))} µs"
        yield Fact(f"{here}, where it is recorded at most {show(max(usual))}", "host")
    stolen = max(_noise(mine, "steal"), default=0)
    if stolen > noise.STEAL:
        yield Fact(f"other virtual machines took up to {stolen:.0%} of the CPU's time", "host")
    cores = min((run["machine"]["cores"] for run in mine), default=0)
    recorded_cores = min((run["machine"]["cores"] for run in recorded), default=0)
    if cores < recorded_cores:
        there = "is 1 CPU core" if cores == 1 else f"are {cores} CPU cores"
        yield Fact(f"there {there}, where it is recorded at least {recorded_cores}", "host")


def _noise(runs: list[dict], key: str) -> list[float]:
    values = [(run["run"].get("noise") or {}).get(key) for run in runs]
    return [value for value in values if value]


def explained(headlines: list[dict], facts: list[Fact]) -> Iterator[dict]:
    """Each fact with the LOW headlines that it can hold down; then those without a fact."""
    low = [line for line in headlines if line["state"] == LOW]
    for fact in facts:
        labels = [line["label"] for line in low if touches(fact.touches, line)]
        yield {"fact": fact.text, "explains": labels}
    left = [line["label"] for line in low if not any(touches(fact.touches, line) for fact in facts)]
    if left:
        yield {"fact": None, "explains": left}


def as_text(item: dict) -> str:
    """One line of the diagnosis."""
    labels = " and ".join(item["explains"])
    if item["fact"] is None:
        return f"Low, and the cause is not known: {labels}."
    text = item["fact"][0].upper() + item["fact"][1:]
    return f"{text}, which can hold down: {labels}." if labels else f"{text}."
