# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["fork_join"]
# ///
"""Score three models on three streams, forked and joined: eager and in a graph."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TypeVar

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from snippets.pictures import Axis, Bars, Panel, Picture, Rule, Spans
from snippets.streams.kernels_side_by_side import on_gpu
from snippets.timing.kernel_time import captured
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import ratios, recorded, take_turns

Result = TypeVar("Result")
SHOWN = ("serial", "forked", "serial_graph", "forked_graph")


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


def three_models() -> dict[str, nn.Module]:
    """Images (batch, 3, 16, 16) to features (batch, 256); repeated layers share."""
    conv = partial(nn.Conv2d, kernel_size=3, padding=1)
    linear = [nn.ReLU(), nn.Linear(256, 256)]
    block = Residual(nn.ReLU(), conv(16, 16), nn.ReLU(), conv(16, 16))
    head = [nn.AdaptiveAvgPool2d(4), nn.Flatten()]
    return {
        "mlp": nn.Sequential(nn.Flatten(), nn.Linear(768, 256), *linear * 6),
        "cnn": nn.Sequential(conv(3, 16), *[nn.ReLU(), conv(16, 16)] * 4, *head),
        "resnet": nn.Sequential(conv(3, 16), block, block, *head),
    }


@torch.no_grad()
def similarity(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Linear CKA, 0 to 1, of a model's features of x and y; a number on the device."""
    a, b = (features - features.mean(0) for features in (model(x), model(y)))
    return (a.T @ b).square().sum() / ((a.T @ a).norm() * (b.T @ b).norm())


def fork_join(
    branches: Sequence[Callable[[], Result]], streams: Sequence[torch.cuda.Stream]
) -> list[Result]:
    """What the branches return, each launched on a stream of its own.

    Tensors, or lists, tuples and dicts of them: use them at once, on the stream that is
    current on their GPU. Those in another object must live until that stream has used
    them. If a branch raises, what was launched is joined all the same. ValueError,
    before anything is launched, if there is not one stream for each branch.
    """
    if len(branches) != len(streams):
        raise ValueError(f"{len(branches)} branches on {len(streams)} streams")
    results: list[Result] = []
    mains: list[torch.cuda.Stream] = []
    try:
        for branch, stream in zip(branches, streams, strict=True):
            main = torch.cuda.current_stream(stream.device)
            stream.wait_stream(main)  # fork: what the branch reads was written on main
            mains.append(main)
            with torch.cuda.stream(stream):
                results.append(branch())
    finally:
        for main, stream in zip(mains, streams, strict=False):
            main.wait_stream(stream)  # join: main reads the result next
    for result, main, stream in zip(results, mains, streams, strict=True):
        for part in tree_leaves(result):
            if isinstance(part, torch.Tensor) and part.device == stream.device:
                part.record_stream(main)  # its memory may be reused only after that
    return results


def main() -> dict:
    x, noise = torch.rand(2, 64, 3, 16, 16, device="cuda")
    models = {name: model.cuda() for name, model in three_models().items()}
    alone = {name: partial(similarity, m, x, x + noise) for name, m in models.items()}
    branches, streams = list(alone.values()), [torch.cuda.Stream() for _ in alone]
    works = alone | {
        "serial": lambda: torch.stack([branch() for branch in branches]),
        "forked": lambda: torch.stack(fork_join(branches, streams)),
    }
    works |= {f"{name}_graph": captured(work) for name, work in works.items()}
    scores = {name: works[name]().tolist() for name in SHOWN}
    timings = take_turns(works, trials=21, calls=10)
    results = recorded(timings, "ms") | {"scores": scores}
    for name, ms in results["ms"].items():
        print(f"{name:<13}{ms:7.3f} ms")
    faster = ratios(timings["serial"], timings["forked"])
    results |= {"speedup": median(faster), "speedup_trials": faster}
    traces = {name: [lanes(works[name]) for _ in range(3)] for name in SHOWN}
    trials = {n: [on_gpu(e)["kernel_us"] for e in each] for n, each in traces.items()}
    results["kernel_us"] = {name: median(each) for name, each in trials.items()}
    results["kernel_us_trials"] = trials
    return results | {"timelines": {name: traces[name][-1] for name in SHOWN}}


def derive(results: dict) -> dict:
    """In how many lanes kernels ran, and how early a model began."""
    if "timelines" not in results:
        return {}
    lanes = {
        name: len({lane for lane, *_ in events})
        for name, events in results["timelines"].items()
    }
    begins, ends = {}, {}
    for lane, start, us, _ in results["timelines"]["forked"]:
        begins[lane] = min(start, begins.get(lane, start))
        ends[lane] = max(start + us, ends.get(lane, start + us))
    models = ["stream 13", "stream 17", "stream 21"]
    early = [ends[lane] - begins[later] for lane, later in pairwise(models)]
    return {"lanes": lanes, "early_us": early}


def plot(results: dict, ceilings: dict):
    titles = {"serial": "from Python, one stream"}
    titles |= {"forked": "from Python, three streams"}
    titles |= {"serial_graph": "CUDA graph, one stream"}
    titles |= {"forked_graph": "CUDA graph, three streams"}
    ms = {way: results["ms"][way] for way in titles}
    longest = max(ms.values())
    short = {"serial": "Python, 1 stream", "forked": "Python, 3 streams"}
    short |= {"serial_graph": "graph, 1 stream", "forked_graph": "graph, 3 streams"}
    # Python is the limit of the first two; the others are of one launch and the GPU
    kinds = {"from Python": ("python", "serial", "forked")}
    kinds["in a graph"] = ("gpu", "serial_graph", "forked_graph")
    marks = []
    for kind, (color, *ways) in kinds.items():
        lengths = {short[way]: ms[way] for way in ways}
        texts = {name: f"{length:.2f}" for name, length in lengths.items()}
        starts = dict.fromkeys(lengths, 0.0)
        marks.append(Bars(lengths, kind, starts, texts, color=color))
    # room for what stands behind a bar, also on a phone
    whole = Axis("ms", low=0.0, high=longest * 1.18)
    title = "Three small models: streams help only in a graph"
    drawn = [Panel(marks, whole, title=title)]
    branches = {}  # lanes of the forked run, in order
    for lane, _, _, name in results["timelines"]["forked"]:
        if lane != "CPU" and "CatArray" not in name:
            branches.setdefault(lane, []).append(name)
    names = "MLP's stream", "CNN's stream", "ResNet's stream"
    models = dict(zip(map(len, branches.values()), names, strict=False))
    rows = ["CPU", "CPU waits", *models.values()]
    panels = {"forked": ("The second bar", whole)}
    # the book draws other machines' times on this scale, too: so no factor is known here
    zoomed = Axis("ms", low=0.0, high=ms["forked_graph"] * 1.18)
    panels |= {"forked_graph": ("Zoom into the last bar, drawn longer", zoomed)}
    for way, (what, axis) in panels.items():
        spans = {row: [] for row in rows}
        streams = {}
        timeline = results["timelines"][way]
        launches = [row[1] for row in timeline if "GraphLaunch" in row[3]]
        begin = min(launches, default=0.0)  # of a graph, what came before is no part
        for lane, at, us, name in timeline:
            start = at - begin
            if start < 0:
                continue
            if lane == "CPU":
                row = "CPU waits" if "Synchronize" in name else lane
                spans[row].append((start / 1e3, us / 1e3, name))
            elif "CatArray" not in name:
                kernel = (start / 1e3, us / 1e3, name)
                streams.setdefault(lane, []).append(kernel)
        for kernels in streams.values():
            alike = min(models, key=lambda count: abs(count - len(kernels)))
            spans[models[alike]] = kernels
        marks = []
        ends = [start + length for row in rows for start, length, _ in spans[row]]
        scale = ms[way] / max(ends)  # as long as without the profiler
        for row in rows:
            parts = [(start * scale, length * scale) for start, length, _ in spans[row]]
            names = [name for _, _, name in spans[row]]
            lane = "CPU" if row == "CPU waits" else row
            color = "gpu" if row in models.values() else None
            marks.append(Spans(lane, parts, row, color=color, names=names))
        # in both panels: until here the lower one shows it longer
        marks.append(Rule("x", ms["forked_graph"], "end of the last bar"))
        title = f"{what} · {titles[way]}"
        drawn.append(Panel(marks, axis, title=title))
    return Picture(drawn, opens=1)


if __name__ == "__main__":
    main()
