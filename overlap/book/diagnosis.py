"""What explains what is low: facts that a machine or its driver tells. Nothing is guessed."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from overlap.book.book import Book
from overlap.book.runs import Run
from overlap.book.statistic import show
from overlap.run import machine, noise, recording

#: MiB of a GPU's memory, and per cent of its time, in use before anything of ours runs: others work there.
OTHERS_MIB, OTHERS_BUSY = 1000, 10
#: A clock below this share of its maximum is a slow one.
SLOWED = 0.95
OK, LOW, UNKNOWN = "ok", "LOW", "unknown"


class Fact(NamedTuple):
    """Something that is so on this machine.

    `touches` is the kind of headlines that it can hold down, `leaves` the share of what they could be.
    """

    text: str
    touches: str = ""
    leaves: float | None = None


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
    return [number for number, this in enumerate(run.all) if run.gpus or this["machine"]["cpu"] == cpu]


def is_calm(run: dict) -> bool:
    """Whether the host was calm during a run, as far as the run tells."""
    return not (run["run"].get("noise") or {}).get("disturbed", False)


def before() -> list[Fact]:
    """What is so before anything of ours runs: other processes keep the CPU cores busy."""
    cores = machine.here()["cores"]
    try:
        load = os.getloadavg()[0]
    except OSError:
        return []
    if load <= cores:
        return []
    text = f"before anything ran here, the load was {load:.1f} on {cores} cores"
    return [Fact(f"other processes keep the CPU busy: {text}", "host")]


def of_gpus(probed: dict, states: list[dict], watched: dict[str, dict]) -> Iterator[Fact]:
    """What this machine's GPUs are and said: `states` before anything ran, `watched` while a snippet ran."""
    for number, gpu in enumerate(probed["gpus"]):
        state = states[number] if number < len(states) else {}
        for text, kind, leaves in _of_gpu(f"GPU {number}" if number else "the GPU", gpu, state):
            # headlines are of the first GPU: what is so of another explains nothing
            yield Fact(text, "" if number else kind, leaves)
    for name, state in watched.items():
        clock = state.get("clock_mhz", 0)
        fastest = state.get("clock_max_mhz", 0)
        reasons = " and ".join(state.get("reasons", ()))
        why = f"; the driver's reason: {reasons}" if reasons else ""
        if 0 < clock < SLOWED * fastest:
            text = f"while {name} ran, the clock was at most {clock:,.0f} of {fastest:,.0f} MHz{why}"
            yield Fact(text, "clock", clock / fastest)
        elif reasons:
            yield Fact(f"while {name} ran, the driver held the clock down at times{why}", "clock")


def _of_gpu(name: str, gpu: dict, state: dict) -> Iterator[Fact]:
    width = gpu.get("pcie_width", 0)
    widest = gpu.get("pcie_width_max", 0)
    if 0 < width < widest:
        yield Fact(f"{name} uses {width} of its {widest} PCIe lanes", "link", width / widest)
    limit = state.get("power_limit_w", 0)
    usual = state.get("power_default_w", 0)
    if limit < usual:
        yield Fact(f"the power limit of {name} is {limit:g} W, by default it is {usual:g} W", "clock")
    memory = state.get("memory_used_mib", 0)
    busy = state.get("utilization", 0)
    if memory > OTHERS_MIB or busy > OTHERS_BUSY:
        used = f"{memory:,.0f} MiB of its memory were in use and it was busy {busy:.0f}% of the time"
        yield Fact(f"others use {name}: before anything ran here, {used}", "gpu")


def of_host(committed: Book, made: dict[str, dict[str, Run]]) -> Iterator[Fact]:
    """How busy the host was, and what it is less than where the recordings were made."""
    mine = []
    recorded = []
    for name, runs in made.items():
        for profile, run in runs.items():
            mine.append(run.data)
            if there := committed.runs(name).get(profile):
                recorded += [there.all[number] for number in alike(there, run)]
    costs = _noise(mine, "least_us")
    usual = _noise(recorded, "least_us")
    if costs and usual and min(costs) > noise.FACTOR * max(usual):
        here = f"a small PyTorch call costs the CPU {show(min(costs))} µs"
        text = f"{here}, where it is recorded at most {show(max(usual))}"
        yield Fact(text, "host", max(usual) / min(costs))
    stolen = max(_noise(mine, "steal"), default=0)
    if stolen > noise.STEAL:
        yield Fact(f"other virtual machines took up to {stolen:.0%} of the CPU's time", "host")
    busy = sum(not is_calm(run) for run in mine)
    if busy:
        yield Fact(f"other work disturbed the CPU in {busy} of {len(mine)} runs", "host")
    cores = min((run["machine"]["cores"] for run in mine), default=0)
    recorded_cores = min((run["machine"]["cores"] for run in recorded), default=0)
    if cores < recorded_cores:
        yield Fact(f"there are {cores} CPU cores, where it is recorded at least {recorded_cores}", "host")


def _noise(runs: list[dict], key: str) -> list[float]:
    values = [(run["run"].get("noise") or {}).get(key) for run in runs]
    return [value for value in values if value]


def explained(headlines: list[dict], facts: list[Fact]) -> Iterator[dict]:
    """Each fact with the LOW headlines that it explains, whole or in part; then those without a fact."""
    low = [line for line in headlines if line["state"] == LOW]
    left = {line["label"] for line in low}
    for fact in facts:
        whole = []
        part = []
        for line in low:
            if touches(fact.touches, line):
                left.discard(line["label"])
                labels = part if fact.leaves and _still_low(line, fact.leaves) else whole
                labels.append(line["label"])
        yield {"fact": fact.text, "leaves": fact.leaves, "explains": whole, "in_part": part}
    if left:
        labels = [line["label"] for line in low if line["label"] in left]
        yield {"fact": None, "leaves": None, "explains": labels, "in_part": []}


def _still_low(line: dict, leaves: float) -> bool:
    """Whether a headline would be LOW without what holds it down."""
    if line["smaller_is_better"]:
        return line["value"] * leaves > line["bound"]
    return line["value"] / leaves < line["bound"]


def as_text(item: dict) -> str:
    """One line of the diagnosis."""
    whole = " and ".join(item["explains"])
    part = " and ".join(item["in_part"])
    if item["fact"] is None:
        return f"Low, and the cause is not known: {whole}."
    text = item["fact"][0].upper() + item["fact"][1:]
    if whole and item["leaves"]:
        text += f" ({item['leaves']:.0%}), which explains: {whole}"
    elif whole:
        text += f", which can hold down: {whole}"
    if part:
        text += f"; it explains a part only of: {part}"
    return f"{text}."
