# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Score three models on three streams, forked and joined right, and look at the timeline before you believe in it."""

from functools import partial

import torch
from torch import nn

from snippets.timing.benchmark import measure

SHOWN = ("serial", "forked", "forked_graph")


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


def three_models() -> list[nn.Module]:
    """An MLP, a CNN, a ResNet: images (batch, 3, 16, 16) to features (batch, 256). Repeated layers share weights."""
    conv, tail = partial(nn.Conv2d, kernel_size=3, padding=1), [nn.AdaptiveAvgPool2d(4), nn.Flatten()]
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(768, 256), *[nn.ReLU(), nn.Linear(256, 256)] * 6)
    cnn = nn.Sequential(conv(3, 16), *[nn.ReLU(), conv(16, 16)] * 4, *tail)
    resnet = nn.Sequential(conv(3, 16), *[Residual(nn.ReLU(), conv(16, 16), nn.ReLU(), conv(16, 16))] * 2, *tail)
    return [model.requires_grad_(False) for model in (mlp, cnn, resnet)]


def similarity(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Linear CKA, 0 to 1, of a model's features of two batches of images: one number, left on the device."""
    a, b = (features - features.mean(0) for features in (model(x), model(y)))
    return (a.T @ b).square().sum() / ((a.T @ a).norm() * (b.T @ b).norm())


def fork_join(branches: list, streams: list) -> torch.Tensor:
    """The scores of the branches, each launched on a stream of its own."""
    main, scores = torch.cuda.current_stream(), []
    for branch, stream in zip(branches, streams, strict=True):
        stream.wait_stream(main)  # fork: what the branch reads was written on main
        with torch.cuda.stream(stream):
            scores.append(branch())
    for score, stream in zip(scores, streams, strict=True):
        main.wait_stream(stream)  # join: main reads the score next
        score.record_stream(main)  # its own stream must not reuse this memory before main has read it
    return torch.stack(scores)


def captured(work):
    """A call that replays all that `work` launches, and returns the tensor into which the replay writes."""
    work()
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        scores = work()
    return lambda: graph.replay() or scores


def timeline(work) -> list[list]:
    """[lane, start_us, duration_us, name] of each launch, in lane CPU, and of each kernel, one lane per stream."""
    with torch.profiler.profile(acc_events=True) as profiler:
        measure(work, warmup=0, trials=1)
    es = [e for e in profiler.events() if e.device_type.name == "CUDA" or "Launch" in e.name]
    rows = [("CPU" if e.device_type.name == "CPU" else f"stream {e.device_resource_id:>3}", e) for e in es]
    return [[at, e.time_range.start - es[0].time_range.start, e.time_range.elapsed_us(), e.name[:40]] for at, e in rows]


def main() -> dict:
    x, noise = torch.rand(2, 64, 3, 16, 16, device="cuda")
    mlp, cnn, resnet = branches = [partial(similarity, model.cuda(), x, x + noise) for model in three_models()]
    runs = {"mlp": mlp, "cnn": cnn, "resnet": resnet, "serial": lambda: torch.stack([run() for run in branches])}
    runs |= {"forked": partial(fork_join, branches, [torch.cuda.Stream() for _ in branches])}
    runs |= {f"{name}_graph": captured(run) for name, run in runs.items()}
    scores = {name: runs[name]().tolist() for name in SHOWN}
    torch.testing.assert_close([scores[name] for name in SHOWN], 3 * [scores["serial"]], rtol=1e-4, atol=0)
    ten = {name: lambda run=run: [run() for _ in range(10)] for name, run in runs.items()}
    rounds = [{name: measure(ten[name], warmup=0, trials=1).ms()[0] / 10 for name in runs} for _ in range(23)][2:]
    trials = {name: [each[name] for each in rounds] for name in runs}
    ms = {name: sorted(trials[name])[10] for name in runs}  # the median
    print(*(f"{name:<13}{ms[name]:7.3f} ms" for name in runs), sep="\n")
    timelines = {name: timeline(runs[name]) for name in ("serial", *SHOWN)}  # the first profile starts the profiler
    faster = {name: [each["serial"] / each[name] for each in rounds] for name in runs}
    return {"ms": ms, "ms_trials": trials, "speedup_trials": faster, "scores": scores, "timelines": timelines}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    lanes = [sorted({event[0] for event in results["timelines"][run]}) for run in SHOWN]
    figure, axes = plt.subplots(3, layout="constrained", height_ratios=[*map(len, lanes)], subplot_kw={"xlabel": "µs"})
    for ax, run, names in zip(axes, SHOWN, lanes, strict=True):
        for row, lane in enumerate(names):
            ax.broken_barh([e[1:3] for e in results["timelines"][run] if e[0] == lane], (row - 0.4, 0.8), label=lane)
        ax.set(title=run.replace("_", " in a "), yticks=range(len(names)), yticklabels=names, ylim=(len(names), -1))
    return figure


if __name__ == "__main__":
    main()
