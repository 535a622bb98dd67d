"""What explains what is low: facts that a machine or its driver tells, and which headlines each can hold down. Nothing is guessed."""

from collections.abc import Iterator
from typing import NamedTuple

from overlap.book.book import Book, Run
from overlap.book.statistic import show
from overlap.run import noise, recording

#: MiB of a GPU's memory, and per cent of its time, that are in use before anything of ours runs: others work there.
OTHERS_MIB, OTHERS_BUSY = 1000, 10
#: A clock below this share of its maximum is a slow one.
SLOWED = 0.95
OK, LOW, UNKNOWN = "ok", "LOW", "unknown"


class Fact(NamedTuple):
    """Something that is so on this machine: in words, the headlines that it can hold down, and to which share of what they could be."""

    text: str
    touches: str = ""
    leaves: float | None = None


def alike(run: Run, here: Run) -> list[int]:
    """Numbers of the runs of a recording that can be compared: of this code, and of the same CPU where that is all there is."""
    if run.grade == recording.CODE:
        return []
    cpu = here.data["machine"]["cpu"]
    return [number for number, each in enumerate(run.all) if run.gpus or each["machine"]["cpu"] == cpu]


def touches(what: str, line: dict) -> bool:
    """Whether a fact of this kind can hold a headline down."""
    bound_by = line["bound_by"]
    return {
        "link": bound_by == "pcie",
        "clock": bound_by in ("arithmetic", "memory"),
        "gpu": bound_by is not None,
        "host": bound_by is None,
    }.get(what, False)


def facts(book: Book, probed: dict, made: dict, before: list[dict], seen: dict[str, dict]) -> Iterator[Fact]:
    """All that is known of this machine and can make it slow."""
    for number, gpu in enumerate(probed["gpus"]):
        name, mine = (
            f"GPU {number}" if number else "the GPU",
            lambda kind, number=number: "" if number else kind,
        )
        width, widest = gpu.get("pcie_width", 0), gpu.get("pcie_width_max", 0)
        if 0 < width < widest:
            yield Fact(f"{name} uses {width} of its {widest} PCIe lanes", mine("link"), width / widest)
        now = before[number] if number < len(before) else {}
        limit, usual = now.get("power_limit_w", 0), now.get("power_default_w", 0)
        if limit < usual:
            yield Fact(
                f"the power limit of {name} is {limit:g} W, by default it is {usual:g} W", mine("clock")
            )
        memory, busy = now.get("memory_used_mib", 0), now.get("utilization", 0)
        if memory > OTHERS_MIB or busy > OTHERS_BUSY:
            used = f"{memory:,.0f} MiB of its memory were in use and it was busy {busy:.0f}% of the time"
            yield Fact(f"others use {name}: before anything ran here, {used}", mine("gpu"))
    for name, now in seen.items():
        clock, fastest, reasons = (
            now.get("clock_mhz", 0),
            now.get("clock_max_mhz", 0),
            " and ".join(now.get("reasons", ())),
        )
        why = f"; the driver's reason: {reasons}" if reasons else ""
        if 0 < clock < SLOWED * fastest:
            yield Fact(
                f"while {name} ran, the clock was at most {clock:,.0f} of {fastest:,.0f} MHz{why}",
                "clock",
                clock / fastest,
            )
        elif reasons:
            yield Fact(f"while {name} ran, the driver held the clock down at times{why}", "clock")
    yield from _host_facts(book, made)


def _host_facts(book: Book, made: dict) -> Iterator[Fact]:
    """How busy the host was, and what it is less than where the recordings were made."""
    mine, theirs = [], []
    for name, runs in made.items():
        for profile, run in runs.items():
            recorded = book.as_committed.runs(name).get(profile)
            mine.append(run.data)
            theirs += [recorded.all[number] for number in alike(recorded, run)] if recorded else []
    costs, usual = (
        [cost for each in runs if (cost := (each["run"].get("noise") or {}).get("least_us"))]
        for runs in (mine, theirs)
    )
    if costs and usual and min(costs) > noise.FACTOR * max(usual):
        text = f"a small PyTorch call costs the CPU {show(min(costs))} µs, where it is recorded at most {show(max(usual))}"
        yield Fact(text, "host", max(usual) / min(costs))
    stolen = max(((each["run"].get("noise") or {}).get("steal") or 0 for each in mine), default=0)
    if stolen > noise.STEAL:
        yield Fact(f"other virtual machines took up to {stolen:.0%} of the CPU's time", "host")
    busy = sum(bool((each["run"].get("noise") or {}).get("disturbed")) for each in mine)
    if busy:
        yield Fact(f"other work disturbed the CPU in {busy} of {len(mine)} runs", "host")
    have, had = ({each["machine"]["cores"] for each in runs} for runs in (mine, theirs))
    if have and had and min(have) < min(had):
        yield Fact(f"there are {min(have)} CPU cores, where it is recorded at least {min(had)}", "host")


def diagnosis(headlines: list[dict], facts: Iterator[Fact]) -> Iterator[dict]:
    """Each fact with the LOW headlines that it explains, whole or in part; then those that nothing explains."""
    low, explained = [line for line in headlines if line["state"] == LOW], set()
    for fact in facts:
        held = [line for line in low if touches(fact.touches, line)]
        part = [line["label"] for line in held if fact.leaves and _still_low(line, fact.leaves)]
        labels = [line["label"] for line in held if line["label"] not in part]
        explained |= {*labels, *part}
        yield {"fact": fact.text, "leaves": fact.leaves, "explains": labels, "in_part": part}
    if left := [line["label"] for line in low if line["label"] not in explained]:
        yield {"fact": None, "leaves": None, "explains": left, "in_part": []}


def _still_low(line: dict, leaves: float) -> bool:
    """Whether a headline would be LOW without what holds it down."""
    if line["smaller_is_better"]:
        return line["value"] * leaves > line["bound"]
    return line["value"] / leaves < line["bound"]
