"""Why a rate is low: facts that the machine or its driver reports. Nothing is guessed.

What a healthy GPU does, too, is no cause: at its power limit an H200 multiplies at seven tenths of its
highest clock, and a GeForce card does not hold the highest. So a low clock explains a low rate only where no
GPU could be fast enough at it, or where the driver gives a reason beside the power limit.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from overlap.book.recording import disturbed
from overlap.book.statistic import show
from overlap.run import hardware, noise
from overlap.run.text import plural

OK, LOW, NONE = "ok", "LOW", "no verdict"
#: More MiB of a GPU's memory, or per cent of its time, in use before a snippet runs: others work there.
OTHERS_MIB, OTHERS_BUSY = 1000, 10
#: How long one looks at the CPU while nothing of ours runs.
LOOK_S = 0.5
#: Seconds between two looks at a GPU while something runs.
_EVERY_S = 0.3
#: A CPU that takes so many times as long for a small call is a slow one.
SLOW_CPU = 1.5
#: A clock below this share of its maximum is told.
SLOWED = 0.95
#: The reason that drivers give for the clock of healthy GPUs, too.
_USUAL = "power limit"
#: What nvidia-smi is asked, beside the reasons that hold the clock down; two of it are recorded, too.
_FIELDS = {name: hardware.FIELDS[name] for name in ("clock_max_mhz", "power_limit_w")} | {
    "clock_mhz": "clocks.sm",
    "power_default_w": "power.default_limit",
    "memory_used_mib": "memory.used",
    "utilization": "utilization.gpu",
}
#: Bits of the reasons, by NVIDIA's NVML documentation; an idle GPU's is none of them.
_REASONS = {
    0x02: "clocks set by an application",
    0x04: _USUAL,
    0x08: "hardware slowdown",
    0x10: "sync boost with other GPUs",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
    0x100: "clocks set for the display",
}


class Fact(NamedTuple):
    """A fact of this machine, and the kind of rates that it can lower.

    `host`, `link`, `clock`, `gpu`; `pace`, a clock at `share` of its maximum, which may be normal; `none`.
    """

    text: str
    kind: str
    share: float = 1.0

    def explains(self, headline: dict) -> bool:
        """Whether it can hold a headline of `verify` down."""
        bound_by = headline["bound_by"]
        if self.kind == "host":
            return bound_by is None or hardware.is_cpu(headline["machine"])
        if self.kind == "link":
            return bound_by == "pcie"
        if self.kind == "clock":
            return needs_clock(headline)
        if self.kind == "pace":
            return bound_by == "arithmetic" and self.share * headline["ceiling"] < headline["bound"]
        return self.kind == "gpu" and bound_by is not None


def needs_clock(headline: dict) -> bool:
    """Whether the GPU's clock can hold a headline of `verify` down."""
    return headline["bound_by"] in ("arithmetic", "memory")


# The GPU


def _gpu_state() -> dict:
    """What the driver says of the first visible GPU: the fields that it knows, and `reasons` in words."""
    answers = hardware.query(["clocks_event_reasons.active", *_FIELDS.values()])
    first = next(iter(hardware.cuda_gpus().values()), {})
    reasons, *cells = answers.get(first.get("uuid"), [""])
    numbers = zip(_FIELDS, map(hardware.number, cells), strict=False)
    return {"reasons": _in_words(reasons)} | {key: value for key, value in numbers if value is not None}


def _in_words(reasons: str) -> list[str]:
    try:
        bits = int(reasons, 16)
    except ValueError:  # [N/A]
        return []
    return [words for bit, words in _REASONS.items() if bits & bit]


@contextlib.contextmanager
def watched_gpu() -> Iterator[dict]:
    """The state of the first GPU meanwhile: the largest of each number, all `reasons`."""
    most: dict = {"reasons": []}
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            for key, value in _gpu_state().items():
                if key == "reasons":
                    most[key] = sorted({*most[key], *value})
                else:
                    most[key] = max(most.get(key, value), value)
            over.wait(_EVERY_S)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def of_gpu(gpus: list[dict], state: dict, clocks: dict[str, dict]) -> Iterator[Fact]:
    """What the first GPU is, as recorded; what its driver said before anything ran, and as snippets ran."""
    if not gpus:
        return
    width = gpus[0].get("pcie_width", 0)
    widest = gpus[0].get("pcie_width_max", 0)
    if 0 < width < widest:
        yield Fact(f"the GPU uses {width} of its {widest} PCIe lanes", "link")
    limit = state.get("power_limit_w", 0)
    usual = state.get("power_default_w", 0)
    if limit < usual:
        yield Fact(f"the power limit of the GPU is {limit:g} W, by default it is {usual:g} W", "clock")
    memory = state.get("memory_used_mib", 0)
    busy = state.get("utilization", 0)
    if memory > OTHERS_MIB or busy > OTHERS_BUSY:
        used = f"{memory:,.0f} MiB of its memory were in use and it was busy {busy:.0f}% of the time"
        kind = "gpu" if busy > OTHERS_BUSY else "none"  # memory that is held makes nothing slow
        yield Fact(f"others use the GPU: before anything ran here, {used}", kind)
    for name, state in clocks.items():
        yield from _of_clock(name, state)


def _of_clock(name: str, state: dict) -> Iterator[Fact]:
    """What the driver said of the clock while a snippet ran."""
    clock = state.get("clock_mhz", 0)
    fastest = state.get("clock_max_mhz", 0)
    reasons = " and ".join(state["reasons"])
    why = f"; the driver's reason: {reasons}" if reasons else ""
    unusual = any(reason != _USUAL for reason in state["reasons"])
    if 0 < clock < SLOWED * fastest:
        text = f"while {name} ran, the clock was at most {clock:,.0f} of {fastest:,.0f} MHz{why}"
        yield Fact(text, "clock" if unusual else "pace", clock / fastest)
    elif unusual:
        yield Fact(f"while {name} ran, the driver held the clock down at times{why}", "clock")


# The host


class Look(NamedTuple):
    """The machine while nothing of ours runs: share of CPU time in use, load, what the first GPU says."""

    share: float
    load: float
    gpu: dict


def look() -> Look:
    """Look at the machine for a moment."""
    return Look(_busy_share(), os.getloadavg()[0], _gpu_state())


def _busy_share() -> float:
    """The share of CPU time that is used just now."""
    idle, _, total = noise.jiffies()
    time.sleep(LOOK_S)
    now_idle, _, now_total = noise.jiffies()
    return 1 - (now_idle - idle) / (now_total - total) if now_total > total else 0.0


def other_work(before: Look, after: Look, runs: list[dict]) -> str:
    """What other work did to the host before, after and during these runs; nothing where it was calm.

    Behind our runs the load is their own.
    """
    facts = []
    share = max([before.share, after.share, *_noise(runs, "others")])
    if share > noise.OTHERS:
        facts.append(f"other processes took up to {share:.0%} of the CPU's time")
    cores = os.cpu_count()
    if before.load > cores:
        facts.append(f"the load was {before.load:.1f} on {plural(cores, 'core')} before anything ran here")
    count = disturbed(runs)
    if count:
        facts.append(f"other work disturbed the CPU in {count} of {plural(len(runs), 'run')}")
    return ", ".join(facts)


def of_host(before: Look, after: Look, runs: list[dict], recorded: list[dict]) -> Iterator[Fact]:
    """Facts of the host: other work on it, and what it has less of than the hosts of the recorded runs."""
    busy = other_work(before, after, runs)
    if busy:
        yield Fact(busy, "host")
    costs = _noise(runs, "least_us")
    usual = _noise(recorded, "least_us")
    if costs and usual and min(costs) > SLOW_CPU * max(usual):
        here = f"a small PyTorch call costs the CPU {show(min(costs))} µs"
        yield Fact(f"{here}, where it is recorded at most {show(max(usual))}", "host")
    stolen = max(_noise(runs, "steal"), default=0)
    if stolen > noise.STEAL:
        yield Fact(f"other virtual machines took up to {stolen:.0%} of the CPU's time", "host")
    cores = min((run["machine"]["cores"] for run in runs), default=0)
    recorded_cores = min((run["machine"]["cores"] for run in recorded), default=0)
    if cores < recorded_cores:
        there = "is 1 CPU core" if cores == 1 else f"are {cores} CPU cores"
        yield Fact(f"there {there}, where it is recorded at least {recorded_cores}", "host")


def _noise(runs: list[dict], key: str) -> list[float]:
    values = [(run["run"].get("noise") or {}).get(key) for run in runs]
    return [value for value in values if value]


# What they explain


def explained(headlines: list[dict], facts: list[Fact]) -> Iterator[dict]:
    """Each fact with the LOW headlines that it can hold down; then those without a fact."""
    low = [line for line in headlines if line["state"] == LOW]
    for fact in facts:
        yield {"fact": fact.text, "explains": [line["label"] for line in low if fact.explains(line)]}
    left = [line["label"] for line in low if not any(fact.explains(line) for fact in facts)]
    if left:
        yield {"fact": None, "explains": left}
