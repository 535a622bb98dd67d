# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1, 2, 4, 8]
# timeout = 240
# launcher = "torchrun"
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""A training step with six faults: take out one after the other, and look."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from snippets.clinic.one_fault import FAULTS, first_losses, loaders, training
from snippets.clinic.patient import SIZES
from snippets.clinic.where_time_goes import account, joined
from snippets.pictures import (
    Axis,
    Note,
    Panel,
    Picture,
    Spans,
    fitted,
    stacked,
    timelines,
)
from snippets.timing.benchmark import wall_clock
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import ratios, recorded, take_turns


def slowest_s(work: Callable[[], object], calls: int) -> float:
    """Seconds of one call in the rank that takes longest; all begin together."""
    seconds = [None] * dist.get_world_size()
    dist.barrier()
    dist.all_gather_object(seconds, wall_clock(work, calls))
    return max(seconds)


def treated(rank: int, ranks: int) -> dict[str, Callable[[], object]]:
    """Steps: with "all" faults, then under the name of the fault just taken out."""
    torch.manual_seed(rank)  # other photos for each rank
    sources, wrap = loaders(SIZES, pin=True), None
    if ranks > 1:
        nccl = dist.new_group(backend="nccl")
        wrap = partial(DistributedDataParallel, process_group=nccl)
    device, steps = torch.device("cuda", rank), {}
    for i, name in enumerate(("all", *FAULTS)):
        faults = set(FAULTS[i:])
        if rank < ranks - 1:
            faults -= {"straggler"}  # the last rank is the one that lags
        steps[name] = training(faults, sources, SIZES, device, wrap)
    return steps


def two_steps(step: Callable[[], object]) -> list[list[Any]]:
    """`lanes` of two steps, which all ranks begin together.

    `lanes` profiles twice and gives the second. The first profile is left empty: with
    steps in it, too, the whole run took nearly twice as long on an H100.
    """
    turns = iter([list, lambda: [dist.barrier(), step(), step()]])
    return lanes(lambda: next(turns)())


def kernels_ms(rows: list[list[Any]]) -> float:
    """Milliseconds, in one of two steps, of kernels that are no all-reduces."""
    return account(rows)["compute"] / 2


def main() -> dict:
    dist.init_process_group("gloo")  # a rank that waits in NCCL keeps its GPU spinning
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)  # on one node; else LOCAL_RANK
    steps = treated(rank, ranks)
    result = {"ranks": ranks, "faults": list(FAULTS), "loss": first_losses(steps)}
    # DDP itself waits in its first ten steps, for its statistics: so it is warmed up
    times = take_turns(steps, warmup=4, trials=9, calls=2, clock=slowest_s)
    result |= recorded(times)
    result |= {name: {} for name in ("account", "busy", "busy_trials", "timelines")}
    for name, step in steps.items():
        profiles = sorted((two_steps(step) for _ in range(3)), key=kernels_ms)
        ms = result["ms"][name]
        busy = [kernels_ms(rows) / ms for rows in profiles]
        result["busy"][name], result["busy_trials"][name] = median(busy), busy
        parts = {key: value / 2 for key, value in account(profiles[1]).items()}
        result["account"][name], result["timelines"][name] = parts, joined(profiles[1])
        if rank == 0:
            print(f"{name:<10}{ms:7.2f} ms a step, kernels run {median(busy):4.0%}")
    speedups = ratios(times["all"], times[FAULTS[-1]])
    dist.destroy_process_group()
    return result | {"speedup": median(speedups), "speedup_trials": speedups}


def derive(results: dict) -> dict:
    """Of a step with `item()`: when the GPU ends, and how long it computes.

    Of the second of two profiled steps, by what was repaired last: how long it is,
    and how long the GPU computes or copies in it.
    And of small kernels in the last step that has them: the share of the GPU's idle time.
    """

    def second(name: str) -> tuple[float, float]:
        """How long the second step is, from the end of the first; how long the GPU works."""
        on_gpu = [row for row in results["timelines"][name] if "CPU" not in row[0]]
        copies = sorted(
            (row for row in on_gpu if row[0] == "copies"), key=lambda r: r[2]
        )
        sent = max(start for _, start, *_ in copies[-2:])
        first = max(start + us for _, start, us, *_ in on_gpu if start < sent)
        last = max(start + us for _, start, us, *_ in on_gpu)
        works = end = 0.0
        for lane, start, us, *_ in sorted(on_gpu, key=lambda row: row[1]):
            if lane != "all-reduce" and start + us > first:
                works += max(0.0, start + us - max(start, end, first))
                end = max(end, start + us)
        return (last - first) / 1e3, works / 1e3

    ms, late = results["ms"], {}
    if results["ranks"] > 1:  # one GPU waits for no other
        late = {
            "with": ms["kernels"],
            "without": ms["straggler"],
            "healthy": ms["item"],
        }
        late = {"late_rank_ms": late}
    if "timelines" not in results:
        return late
    events = results["timelines"]["item"]
    on_gpu = [start + us for lane, start, us, *_ in events if "CPU" not in lane]
    computing = [us for lane, _, us, *_ in events if lane == "compute"]
    found = {"item_ms": {"ends": max(on_gpu) / 2e3, "computes": sum(computing) / 2e3}}
    steps = {name: second(name) for name in ms}
    found["profiled_ms"] = {name: whole for name, (whole, _) in steps.items()}
    found["works_ms"] = {name: works for name, (_, works) in steps.items()}
    rows = sorted(results["timelines"]["copy"], key=lambda row: row[1])
    copies = sorted((row for row in rows if row[0] == "copies"), key=lambda row: row[2])
    sent = max(start for _, start, *_ in copies[-2:])  # the longest send pixels
    kernels = [row for row in rows if row[0] == "compute" and row[1] >= sent]
    large = min(start for _, start, us, *_ in kernels if us >= 1000)
    small = [(start, us) for _, start, us, *_ in kernels if start < large]
    span = sum(small[-1]) - small[0][0]
    found["small_kernels"] = {"idle": 1 - sum(us for _, us in small) / span}
    return found | late


def plot(results: dict, ceilings: dict):
    def steps():
        """A bar for each step: with all faults, then with one more repaired.

        A wait has the colour of what is waited for: data, where the first two repairs
        end it; and of one GPU that has its data, Python. A profile of several GPUs does
        not say how long kernels run. There the fourth repair tells how long the other
        GPUs wait for the late one, and the rest has no colour.
        """
        names = {"all": "six common faults", "loader": "+ 1: workers load data ahead"}
        names |= {
            "copy": "+ 2: sends bytes, not floats",
            "kernels": "+ 3: normalises all images at once",
        }
        names |= {
            "straggler": "+ 4: no validation in each step",
            "item": "+ 5, 6: no wait for numbers",
        }
        ms = {title: results["ms"][name] for name, title in names.items()}
        titles = list(ms)
        waits = ms
        if results["ranks"] == 1:
            busy = {title: results["busy"][name] for name, title in names.items()}
            waits = {title: ms[title] * (1 - busy[title]) for title in ms}
        until = waits[titles[2]]
        data = {title: max(0.0, waits[title] - until) for title in titles[:2]}
        others = {title: waits[title] - data.get(title, 0.0) for title in titles}
        if results["ranks"] == 1:
            works = {title: ms[title] - waits[title] for title in titles}
            parts = {"the GPU works": works, "the GPU waits for Python": others}
            colors = ("gpu", "python", "data")
        else:
            late = max(0.0, ms[titles[3]] - ms[titles[4]])
            peer = dict.fromkeys(titles[:4], late)
            rest = {title: others[title] - peer.get(title, 0.0) for title in titles}
            parts = {"Python and the GPU": rest, "the GPU waits for another GPU": peer}
            colors = ("muted", "peer", "data")
        parts["the GPU waits for data"] = data
        texts = {title: f"{each:.0f} ms" for title, each in ms.items()}
        picture = stacked(parts, "ms per step", texts)
        for mark, color in zip(picture.panels[0].marks, colors, strict=True):
            mark.color = color
        return picture

    def last_step(rows: list[list[Any]]) -> list[list[Any]]:
        """The second of two steps: what follows the GPU's last work of the first."""
        gpu = [row for row in rows if not row[0].startswith("CPU")]
        copies = sorted((row for row in gpu if row[0] == "copies"), key=lambda r: r[2])
        sent = max(start for _, start, _, _ in copies[-2:])  # the longest send pixels
        begin = max(start + us for _, start, us, _ in gpu if start < sent)
        found = []
        for lane, start, us, name in rows:
            cut = max(0.0, begin - start)
            if us > cut + 1e-6:
                ms = (start + cut - begin) / 1e3, (us - cut) / 1e3
                found.append([lane, *ms, name])
        return found

    def idle(rows: list[list[Any]]) -> list[tuple[Any, ...]]:
        """[start, ms] of a millisecond and more in which no kernel computes."""
        gaps, end = [], 0.0
        computing = [row for row in rows if row[0] == "compute"]
        for _, start, ms, _ in sorted(computing, key=lambda row: row[1]):
            if start - end >= 1:
                gaps.append((end, start - end))
            end = max(end, start + ms)
        return gaps

    def longest_of(spans: list[tuple[float, float]]) -> tuple[float, float]:
        return max(spans, key=lambda span: span[1], default=(0.0, 0.0))

    def framed(name: str, rows: list[list[Any]]) -> tuple[float, float]:
        """(start, ms) of the longest gap, or of what the next repair takes away.

        The first two repairs close a gap. The others take away short kernels, a
        validation or an all-reduce that waits for it, and waits of Python.
        """
        order = ["all", *faults]
        fault = order[order.index(name) + 1]
        on_gpu = sorted(
            (start / 1e3, us / 1e3) for lane, start, us, _ in rows if "CPU" not in lane
        )
        if fault == "loader":
            return longest_of(gaps_between(on_gpu))
        if fault == "copy":  # up to the kernel that has waited for it
            kernels = [row[1:3] for row in rows if row[0] == "compute"]
            gaps = gaps_between(sorted((at / 1e3, us / 1e3) for at, us in kernels))
            return longest_of(gaps)
        step = last_step(rows)
        ends = max(start + ms for lane, start, ms, _ in step if "CPU" not in lane)
        begin = max(map(sum, on_gpu)) - ends
        waits = [(start, ms) for lane, start, ms, _ in step if lane == "CPU waits"]
        asks = waits[:-2] or [(0.0, 0.0)]  # the last two are the profiler's
        if fault == "kernels":
            first, last = small_kernels(step)["GPU"]
            at, ms = first, last - first
        elif fault == "straggler" and results["ranks"] > 1:
            (_, alone, _), _ = for_others(step)
            at, ms = longest_of(alone)
        elif fault == "straggler":  # the last kernels of the step
            compute = {key: results["account"][key]["compute"] for key in order[3:5]}
            left = compute["kernels"] - compute["straggler"]
            kernels = [(start, ms) for lane, start, ms, _ in step if lane == "compute"]
            at = ends
            for start, ms in sorted(kernels, reverse=True):
                if left <= 0:
                    break
                at, left = max(start, start + ms - left), left - ms
            ms = ends - at
        else:
            at, ms = longest_of(asks[:-1]) if fault == "mask" else asks[-1]
        return begin + at, ms

    def both_steps() -> Picture:
        """All that was profiled, for the game of the page, in the lanes of its drawings.

        Pale are milliseconds in which Python calls nothing of CUDA. "frame" is what
        the game frames: the GPU's longest gap, or what the next repair takes away.
        "second" is the second of the two steps.
        """
        calls = {"CPU": "calls of CUDA", "CPU copies": "copies"}
        calls |= {"CPU waits": "waits for the GPU"}
        lanes = {"copies": ("copies", "data"), "compute": ("GPU", "gpu")}
        lanes |= {"all-reduce": ("all-reduce", "peer")}
        panels = []
        for title, rows in results["timelines"].items():
            spans = {kind: [] for kind in (*calls, *lanes)}
            for kind, start, us, _ in sorted(rows, key=lambda row: row[1]):
                if kind in spans:
                    spans[kind].append((start / 1e3, us / 1e3))
            python = sorted(span for kind in calls for span in spans[kind])
            marks: list[Any] = [
                Spans("Python", gaps_between(python), "Python", "python", hollow=True)
            ]
            for kind, words in calls.items():
                waits = kind == "CPU waits"
                color = "gpu" if waits else "python"
                names = [words] * len(spans[kind])
                marks.append(
                    Spans("Python", spans[kind], words, color, light=waits, names=names)
                )
            for kind, (lane, color) in lanes.items():
                waits = awaited(spans[kind]) if kind == "all-reduce" else []
                works = without(spans[kind], waits)
                names = [lane] * len(works)
                if names:
                    marks.append(Spans(lane, works, lane, color, names=names))
                told, names = "waits for a rank", [f"{lane}, waits"] * len(waits)
                if names:
                    marks.append(
                        Spans(lane, waits, told, color, light=True, names=names)
                    )
            on_gpu = [sum(row[1:3]) / 1e3 for row in rows if "CPU" not in row[0]]
            ends = max(
                start + ms
                for lane, start, ms, _ in last_step(rows)
                if "CPU" not in lane
            )
            marks.append(Spans("GPU", [(max(on_gpu) - ends, ends)], "second", "ink"))
            if title != faults[-1]:
                frame = framed(title, rows)
                if title in ("all", "loader"):
                    marks.append(
                        Spans("GPU", [frame], "it waits", "ceiling", light=True)
                    )
                marks.append(Spans("GPU", [frame], "frame", "ink"))
            last = max(sum(span) for kind in spans for span in spans[kind])
            panels.append(Panel(marks, Axis("ms", high=-(-last // 1)), title=title))
        return Picture(panels)

    def gaps_between(spans: list[Any], least: float = 1.0) -> list[tuple[float, float]]:
        """[start, ms] of the gaps of so many milliseconds and more between spans."""
        gaps, end = [], sum(spans[0]) if spans else 0.0
        for start, ms in spans:
            if start - end >= least:
                gaps.append((end, start - end))
            end = max(end, start + ms)
        return gaps

    def lanes_of(rows: list[list[Any]]) -> dict[str, list[tuple[float, float]]]:
        """What ran in the four lanes of a strip, [start, ms]; neighbours are joined."""
        names = {"CPU": "Python", "CPU copies": "Python", "copies": "copies"}
        names |= {"compute": "GPU", "all-reduce": "all-reduce"}
        found = {name: [] for name in dict.fromkeys(names.values())}
        for lane, start, ms, _ in sorted(rows, key=lambda row: row[1]):
            spans = found.get(names.get(lane, ""))
            if spans and start <= sum(spans[-1]) + 0.1:
                first = spans[-1][0]
                spans[-1] = first, max(sum(spans[-1]), start + ms) - first
            elif spans is not None:
                spans.append((start, ms))
        return {name: spans for name, spans in found.items() if spans}

    def between(
        spans: list[Any], begin: float, end: float
    ) -> list[tuple[float, float]]:
        """The parts of spans that lie between two times."""
        cut = [(max(at, begin), min(at + ms, end)) for at, ms in spans]
        return [(at, until - at) for at, until in cut if until > at]

    def of_program(name: str) -> list[list[Any]]:
        """The last step without its last two waits: of `lanes` and of the profiler."""
        rows = last_step(results["timelines"][name])
        closing = [row for row in rows if row[0] == "CPU waits"][-2:]
        return [row for row in rows if row not in closing]

    told = {  # what waits, and the colour of what it waits for
        "data": ("the GPU waits for data", "data"),
        "copy": ("the GPU waits for the copy", "data"),
        "calls": ("the GPU waits for Python", "python"),
        "gpu": ("Python waits for the GPU", "gpu"),
        "peer": ("waits for another GPU", "peer"),
        "reads": ("reads", "python"),
    }

    def strip(*steps: tuple[str, str, Callable[..., Any], Callable[..., Any]]):
        """Steps beside each other, (title, name, wait, dark); pale is what is not meant.

        `wait(rows)` gives a lane, its spans in which something waits, and a key of
        `told`; `dark(rows)` from when to when these lanes are dark. The lanes are from a
        profile, which delays Python: kernels and copies are drawn as long as there, and
        the gaps between so short that the step takes the time in its title, which is
        without a profiler.
        """
        colors = {"Python": "python", "copies": "data", "GPU": "gpu"}
        colors |= {"all-reduce": "peer"}
        panels, longest = [], 0.0
        for title, name, wait, dark in steps:
            rows = of_program(name)
            marks, meant, waits = [], dark(rows), wait(rows)
            for lane, spans in lanes_of(rows).items():
                for waits_in, waiting, _ in waits:
                    spans = without(spans, waiting) if waits_in == lane else spans
                begin, end = meant.get(lane, (0.0, 0.0))
                pale = between(spans, 0.0, begin) + between(spans, end, 1e9)
                color = colors[lane]
                marks.append(Spans(lane, pale, lane, color, light=True))
                marks.append(Spans(lane, between(spans, begin, end), lane, color))
            for lane, spans, cause in waits:
                reads = cause == "reads"
                mark = Spans(lane, spans, *told[cause], light=not reads, hollow=reads)
                marks.append(mark)
                if reads:
                    marks.append(Note(spans[0][0], lane, "reads", dx=4))
            end = max(start + ms for lane, start, ms, _ in rows if "CPU" not in lane)
            ms = results["ms"][name]
            longest = max(longest, ms)
            works = [row[1:3] for row in rows if row[0] in ("compute", "copies")]
            place = fitted(works, end, ms)
            for mark in marks:
                if isinstance(mark, Spans):
                    spans = [(place(at), place(at + long)) for at, long in mark.spans]
                    mark.spans = [(at, until - at) for at, until in spans]
                elif isinstance(mark, Note):
                    mark.x = place(mark.x)
            time = f"{title}: {ms:.1f} ms"
            panels.append(Panel(marks, title=time))
        for panel in panels:
            panel.x = Axis("ms", low=0.0, high=longest)
        return Picture(panels, columns=len(panels), low=True)

    def clocked() -> Picture:
        """The healthy step as a profile has it, and how long it is with and without one."""
        rows = last_step(results["timelines"]["item"])
        end = max(start + ms for lane, start, ms, _ in rows if "CPU" not in lane)
        ms, colors = results["ms"]["item"], {"Python": "python", "GPU": "gpu"}
        marks: list[Any] = [
            Spans(lane, between(spans, 0.0, end), lane, colors[lane])
            for lane, spans in lanes_of(rows).items()
            if lane in colors
        ]
        for row, long in {"with profiler": end, "without": ms}.items():
            marks.append(Spans(row, [(0.0, long)], row, "muted"))
            marks.append(Note(long, row, f"{long:.1f} ms", dx=4))
        axis = Axis("ms", low=0.0, high=1.3 * max(end, ms))
        title = "the same step, with the profiler and without"
        return Picture([Panel(marks, axis, title=title)], low=True)

    def with_zoom(
        title: str,
        name: str,
        wait: Callable[..., Any],
        window: Callable[..., Any],
        near: Callable[..., Any],
        closer: str,
        axis: Axis,
    ) -> Picture:
        """A step, dark in a window; beside it so much of it as the axis shows, as profiled.

        Both have the lanes of Python and of the GPU. `window(rows)` is (start, ms, from
        where the axis shows it); `near(rows)` are the waits of the zoom, as `wait(rows)`.
        """
        rows = of_program(name)
        begin, long, first = window(rows)
        dark = dict.fromkeys(("Python", "GPU"), (begin, begin + long))
        (panel,) = strip((title, name, wait, lambda _: dark)).panels
        panel.marks = [mark for mark in panel.marks if mark.row in dark]
        marks: list[Any] = []
        for kind, lane, color in (
            ("CPU", "Python", "python"),
            ("CPU copies", "Python", "python"),
            ("compute", "GPU", "gpu"),
        ):
            spans = [(start, ms) for of, start, ms, _ in rows if of == kind]
            marks.append(Spans(lane, spans, lane, color))
        for lane, spans, cause in near(rows):
            marks.append(Spans(lane, spans, *told[cause], light=True))
        for mark in marks:
            parts = between(mark.spans, first, first + (axis.high or 0.0))
            mark.spans = [(at - first, ms) for at, ms in parts]
        return Picture([panel, Panel(marks, axis, title=closer)], columns=2, low=True)

    def first_ms(rows: list[list[Any]], least: float = 0.0) -> float:
        """When the first kernel starts, or the first that takes at least so many ms."""
        computing = [row for row in rows if row[0] == "compute" and row[2] >= least]
        return min(start for _, start, _, _ in computing)

    def no_wait(rows: list[list[Any]]) -> list[tuple]:
        return []

    def for_data(rows: list[list[Any]]) -> list[tuple]:
        return [("GPU", [(0.0, first_ms(rows))], "data")]

    def for_reading(rows: list[list[Any]]) -> list[tuple]:
        """As for data; in the longest pause of its calls, the process that trains reads."""
        calls = lanes_of(rows).get("Python", [])
        starts = [0.0, *(start + ms for start, ms in calls)]
        pauses = [
            (begin, end - begin)
            for begin, (end, _) in zip(starts, calls, strict=False)
            if end <= first_ms(rows)
        ]
        reads = [max(pauses, key=lambda pause: pause[1], default=(0.0, 0.0))]
        reads = [pause for pause in reads if pause[1] >= 1]
        return [*for_data(rows), *([("Python", reads, "reads")] if reads else [])]

    def for_copy(rows: list[list[Any]]) -> list[tuple]:
        """As for data: while the copies run that are sent first, and before and after."""
        first = first_ms(rows)
        copies = [row[1:3] for row in rows if row[0] == "copies"]
        copies = between(copies, 0.0, first)
        rest = without([(0.0, first)], copies)
        return [("GPU", copies, "copy"), ("GPU", rest, "calls")]

    def for_numbers(rows: list[list[Any]]) -> list[tuple]:
        waits = [(start, ms) for lane, start, ms, _ in rows if lane == "CPU waits"]
        return [("Python", waits, "gpu")]

    def for_numbers_and_python(rows: list[list[Any]]) -> list[tuple]:
        """As for numbers; the GPU, which then has nothing to do, waits for Python."""
        works = [row[1:3] for row in rows if "CPU" not in row[0]]
        gaps = gaps_between(sorted(works), least=0.05)  # shorter ones are not seen
        return [*for_numbers(rows), ("GPU", gaps, "calls")]

    def awaited(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
        """Where an all-reduce waits for a rank: all but its last part.

        It has this part, too, in the healthy step: as long as the longest there.
        """
        rows = results["timelines"]["item"]
        own = max(
            (us / 1e3 for lane, _, us, _ in rows if lane == "all-reduce"), default=0
        )
        return [(start, ms - own) for start, ms in spans if ms > 2 * own]

    def without(spans: list[Any], waits: list[Any]) -> list[tuple[float, float]]:
        """The parts of spans in which nothing waits."""
        for begin, ms in waits:
            before, after = between(spans, 0.0, begin), between(spans, begin + ms, 1e9)
            spans = before + after
        return spans

    def for_others(rows: list[list[Any]]) -> list[tuple]:
        """Where an all-reduce runs, and nothing else; where it waits for a late rank."""
        there = lanes_of(rows)
        exchanges = [row[1:3] for row in rows if row[0] == "all-reduce"]
        alone = []
        for start, ms in there.get("all-reduce", []):
            begin, end = start, start + ms
            for at, long in there["GPU"]:
                if at < end and at + long > begin:
                    alone.append((begin, at - begin))
                    begin = max(begin, at + long)
            alone.append((begin, end - begin))
        on_gpu = [(at, ms) for at, ms in alone if ms > 0]
        return [("GPU", on_gpu, "peer"), ("all-reduce", awaited(exchanges), "peer")]

    def until_work(rows: list[list[Any]]) -> dict[str, tuple[float, float]]:
        return dict.fromkeys(("Python", "copies"), (0.0, first_ms(rows)))

    def amid_small_kernels(rows: list[list[Any]]) -> tuple[float, float, float]:
        """All of them; 200 µs in which the GPU is idle for the same share as in all."""
        begin, end = small_kernels(rows)["GPU"]
        kernels = [row[1:3] for row in rows if row[0] == "compute"]

        def busy(start: float, until: float) -> float:
            spans = between(kernels, start, until)
            return sum(ms for _, ms in spans) / (until - start or 1.0)

        starts = [start for start, _ in kernels if begin <= start <= end - 0.2]
        whole = busy(begin, end)
        near = min(
            starts, key=lambda at: abs(busy(at, at + 0.2) - whole), default=begin
        )
        return begin, end - begin, near

    def around_wait(rows: list[list[Any]]) -> tuple[float, float, float]:
        """Six milliseconds, from shortly before Python's longest wait but the last.

        The last is for the loss, when all of the step is launched.
        """
        start, _ = longest_of(for_numbers(rows)[0][1][:-1])
        begin = max(0.0, start - 0.5)
        return begin, 6.0, begin

    def small_kernels(rows: list[list[Any]]) -> dict[str, tuple[float, float]]:
        return dict.fromkeys(("Python", "GPU"), (first_ms(rows), first_ms(rows, 1.0)))

    def whole(*names: str) -> Callable[..., Any]:
        return lambda rows: dict.fromkeys(names, (0.0, 1e9))

    def strips() -> dict[str, Any]:
        """By part of the step: with its fault and without, or the healthy step.

        Those about other GPUs exist only where there are several.
        """
        alone = ("nobody reads ahead", "all", for_reading, until_work)
        ahead = ("workers do", "loader", for_data, until_work)
        floats = ("pageable floats", "loader", for_copy, until_work)
        sent = ("pinned bytes", "copy", for_copy, until_work)
        small = ("many small kernels", "copy", no_wait, amid_small_kernels)
        few_us = {0.0: "0", 0.1: "100 µs", 0.2: "200"}
        late = ("one rank comes late", "kernels", for_others, whole("all-reduce"))
        equal = ("on time", "straggler", for_others, whole("all-reduce"))
        asks = ("Python asks for numbers", "straggler", for_numbers, around_wait)
        healthy_step = "the step on {machine}"
        drawn = {
            "loader": strip(alone, ahead),
            "copy": strip(floats, sent),
            "kernels": with_zoom(
                *small,
                no_wait,
                "zoom, as profiled",
                Axis("ms", low=0.0, high=0.2, ticks=few_us),
            ),
            "waits": with_zoom(
                *asks,
                for_numbers_and_python,
                "zoom, as profiled",
                Axis("ms", low=0.0, high=6.0),
            ),
            "clock": clocked(),
        }
        ms = results["ms"]["item"]
        whole_step = drawn["waits"].panels[0]
        whole_step.marks.append(Spans("repaired", [(0.0, ms)], "repaired", "muted"))
        inside = Note(ms, "repaired", f"{ms:.1f} ms", "right", dx=-4, color="paper")
        whole_step.marks.append(inside)
        for name in ("Python", "GPU"):
            drawn[name] = strip((healthy_step, "item", no_wait, whole(name)))
        if results["ranks"] > 1:
            drawn["straggler"] = strip(late, equal)
        return {f"strip-{name}": picture for name, picture in drawn.items()}

    faults = results["faults"]
    words = {"loader": "nobody reads ahead", "copy": "pageable floats"}
    words |= {"kernels": "many small kernels", "straggler": "validation in each step"}
    words |= {"mask": "a boolean mask", "item": ".item()"}
    shown = {"all": "six faults", "loader": "workers read ahead"}
    shown |= {"copy": "pinned bytes", "kernels": "few large kernels"}
    shown[faults[-1]] = "healthy"
    panels, notes = {}, []
    for name, title in shown.items():
        rows = last_step(results["timelines"][name])
        # the last two waits are of `lanes` and of the profiler, not of the step
        closing = [row for row in rows if row[0] == "CPU waits"][-2:]
        # the CPU's lane of copies says when
        left_out = [row for row in rows if row[0] == "copies" or row in closing]
        rows = [row for row in rows if row not in left_out]
        end = max(start + ms for lane, start, ms, _ in rows if "CPU" not in lane)
        ms = results["ms"][name]
        unprofiled = ["unprofiled", 0.0, ms]  # the step without a profiler
        panels[f"{title}: {ms:.0f} ms, profiled {end:.0f}"] = [*rows, unprofiled]
        here = faults.index(name) + 1 if name in faults else 0
        cured = here + 1 if here < 3 else len(faults)  # the last three in one panel
        notes.append((idle(rows), end, [words[each] for each in faults[here:cured]]))
    picture = timelines(panels, "ms")
    longest = max(end for _, end, _ in notes)
    for panel, (gaps, end, names) in zip(picture.panels, notes, strict=True):
        panel.marks.append(Spans("compute", gaps, "compute waits", light=True))
        first, ms = gaps[0] if gaps else (0.0, 0.0)
        if len(names) == 1 and ms > longest / 3:
            panel.marks.append(Note(first + ms / 2, "compute", names[0], "center"))
        elif len(names) == 1:
            panel.marks.append(Note(end, "compute", f"fault: {names[0]}", dx=8))
        elif names:
            text = "faults:\n" + ",\n".join(names)
            panel.marks.append(Note(end, "compute", text, dx=8, dy=-26))
    parts = {"steps": steps(), "faults": both_steps()}
    return picture, parts | strips()


if __name__ == "__main__":
    main()
