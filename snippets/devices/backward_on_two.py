# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 360
# ///
"""One `backward()` over models on two GPUs: autograd has a thread for each of them."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from snippets.devices.two_gpus_broken import two_devices
from snippets.pictures import Axis, Bars, Panel, Picture, Rule
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import both_orders, ratios, recorded
from snippets.timing.wait_for import wait_for

#: of each network: layers, their width, rows, and steps between two waits
SIZES = {
    "small": (100, 64, 64, 5),
    "transformer": (12, 256, 256, 5),
    "large": (8, 8192, 4096, 2),
}
LANES_LAYERS = 12  # of the small network in the profile
TRIALS = 7  # and as many in the other order


def network(name: str, layers: int, device: str) -> nn.Sequential:
    """Small or large Linear layers, each with a ReLU, or blocks of a transformer."""
    _, width, _, _ = SIZES[name]
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for _ in range(layers):
        if name == "transformer":
            shape = {"dropout": 0.0, "batch_first": True, "norm_first": True}
            wide = 4 * width
            parts.append(nn.TransformerEncoderLayer(width, 4, wide, **shape))  # type: ignore
        else:
            linear = nn.Linear(width, width)
            nn.init.kaiming_normal_(
                linear.weight
            )  # no gradient vanishes in many layers
            parts += [linear, nn.ReLU()]
    return nn.Sequential(*parts).to(device)


class OneGpu:
    """A network and its rows on one device."""

    def __init__(self, name: str, device: str, layers: int | None = None):
        depth, width, rows, _ = SIZES[name]
        self.net = network(name, layers or depth, device)
        shape = (2, rows // 2, width) if name == "transformer" else (rows, width)
        torch.manual_seed(1)
        self.x = torch.randn(shape, device=device)

    def loss(self) -> Tensor:
        """The loss, with what its backward pass needs; the old gradients are gone."""
        self.net.zero_grad()
        return self.net(self.x).square().mean()

    def step(self) -> None:
        """Forward and backward pass on this device alone."""
        self.loss().backward()

    def gradients(self) -> list[Tensor]:
        return [parameter.grad.cpu() for parameter in self.net.parameters()]  # type: ignore


def one_loss(parts: list[OneGpu]) -> Tensor:
    """The sum of all losses, on the first device: the forward passes of one thread."""
    losses = [part.loss() for part in parts]
    return torch.stack([loss.to(losses[0].device) for loss in losses]).sum()


def together(parts: list[OneGpu]) -> None:
    """One `backward()` for all: each GPU's part runs in a thread of autograd."""
    one_loss(parts).backward()


def in_one_thread(parts: list[OneGpu]) -> None:
    """The same in the thread that calls `backward()`, for all GPUs."""
    with torch.autograd.set_multithreading_enabled(False):
        one_loss(parts).backward()


def in_a_row(parts: list[OneGpu]) -> None:
    """A step of one GPU, and then a step of the next."""
    for part in parts:
        part.step()


def in_threads(parts: list[OneGpu], pool: ThreadPoolExecutor) -> None:
    """A step of each GPU in a Python thread of its own."""
    for job in [pool.submit(part.step) for part in parts]:
        job.result()


def only_backward(work: Callable[[], Tensor], multithreading: bool) -> float:
    """Seconds of `backward()` alone, until all GPUs have finished; they begin idle."""
    loss = work()
    wait_for()
    with torch.autograd.set_multithreading_enabled(multithreading):
        start = time.perf_counter()
        loss.backward()
        wait_for()
        return time.perf_counter() - start


def backward_clock(
    works: Callable[[], tuple[Callable[[], Tensor], bool]], calls: int
) -> float:
    """For `take_turns`: the work says of which loss, and in how many threads."""
    return only_backward(*works())


def differ_by(
    way: Callable[[], None], parts: list[OneGpu], alone: list[list[Tensor]]
) -> float:
    """How far gradients of this way are from those of one GPU at a time.

    As a share of the largest gradient of each parameter; ValueError above a hundredth.
    """
    for part in parts:
        part.net.zero_grad()
    way()
    wait_for()
    shares = []
    for part, expected in zip(parts, alone, strict=True):
        for mine, right in zip(part.gradients(), expected, strict=True):
            shares.append(float((mine - right).abs().max() / right.abs().max()))
    if not max(shares) <= 0.01:
        raise ValueError(f"gradients differ by {max(shares):.1e} of the largest")
    return max(shares)


def measured(name: str) -> dict:
    """Times of a step over both GPUs in all ways, and of its backward pass alone."""
    *_, calls = SIZES[name]
    parts = [OneGpu(name, device) for device in two_devices()]
    alone = []
    for part in parts:
        part.step()
        alone.append(part.gradients())
    pool = ThreadPoolExecutor(len(parts))
    ways: dict[str, Callable[[], None]] = {
        "in a row": partial(in_a_row, parts),
        "one thread": partial(in_one_thread, parts),
        "autograd": partial(together, parts),
        "threads": partial(in_threads, parts, pool),
    }
    differ = {name: differ_by(way, parts, alone) for name, way in ways.items()}
    one: dict[str, Callable[[], None]] = {"one gpu": parts[0].step}
    times = both_orders(one | ways, warmup=1, trials=TRIALS, calls=calls)
    losses = {
        "one gpu": (parts[0].loss, True),
        "one thread": (partial(one_loss, parts), False),
        "autograd": (partial(one_loss, parts), True),
    }
    backward = both_orders(
        {key: lambda each=each: each for key, each in losses.items()},
        warmup=1,
        trials=TRIALS,
        clock=backward_clock,  # type: ignore
    )
    pool.shutdown()
    result = {"step": recorded(times), "backward": recorded(backward)}
    gains = {way: ratios(times["in a row"], times[way]) for way in ways}
    of_backward = ratios(backward["one thread"], backward["autograd"])
    gains["backward"] = of_backward
    result |= {"differ_by": differ, "gain_trials": gains}
    return result | {"gain": {way: median(each) for way, each in gains.items()}}


def profiled_lanes(multithreading: bool) -> list[list[Any]]:
    """Lanes of one `backward()` of a few small layers on each GPU."""
    parts = [OneGpu("small", device, LANES_LAYERS) for device in two_devices()]
    together(parts)
    waiting: list[Tensor] = []

    def work() -> None:
        with torch.autograd.set_multithreading_enabled(multithreading):
            waiting.pop().backward()

    waiting += [one_loss(parts) for _ in range(2)]  # lanes calls work twice
    wait_for()
    return lanes(work)


def main() -> dict:
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")  # TF32
    result: dict = {}
    for name in SIZES:
        result[name] = measured(name)
        ms, gain = result[name]["step"]["ms"], result[name]["gain"]
        for way, each in ms.items():
            more = f"{gain[way]:6.2f}×" if way in gain else ""
            print(f"{name:<12}{way:<11}{each:8.2f} ms{more}")
        ms = result[name]["backward"]["ms"]
        print(
            f"{name:<12}backward:", *(f"{way} {each:.2f}" for way, each in ms.items())
        )
    # profiles come last: launches may be slower after one
    result["lanes"] = {"autograd": profiled_lanes(True)}
    result["lanes"]["one thread"] = profiled_lanes(False)
    return result


def launch_lanes(rows: list[list[Any]]) -> dict[str, int]:
    """How many kernels each thread of the CPU launched."""
    launches: dict[str, int] = {}
    for lane, _, _, name in rows:
        if lane.startswith("CPU") and "Launch" in name:
            launches[lane] = launches.get(lane, 0) + 1
    return launches


def overlap_us(rows: list[list[Any]]) -> float:
    """Microseconds in which two CPU threads are both between first and last launch."""
    spans = {}
    for lane, start, us, name in rows:
        if lane.startswith("CPU") and "Launch" in name:
            first, _ = spans.get(lane, (start, 0))
            spans[lane] = first, start + us
    longest = sorted(spans.values(), key=lambda span: span[1] - span[0])[-2:]
    if len(longest) < 2:
        return 0.0
    start = max(span[0] for span in longest)
    return max(0.0, min(span[1] for span in longest) - start)


def derive(results: dict) -> dict:
    """Of the profiles: threads that launch much, and for which share of it two do."""
    if "lanes" not in results:
        return {}
    found = {}
    for way, rows in results["lanes"].items():
        threads = [n for n in launch_lanes(rows).values() if n > 10]
        calls = [r for r in rows if r[0].startswith("CPU") and "Launch" in r[3]]
        first = min(row[1] for row in calls)
        us = max(row[1] + row[2] for row in calls) - first
        found[way] = {"threads": len(threads), "at_once": overlap_us(rows) / us}
    return {"profiled": found}


TITLES = {
    "one thread": "one backward(),\none thread",
    "autograd": "one backward(),\nautograd's threads",
    "threads": "a Python thread\nfor each GPU",
}
NAMES = {
    "small": "100 small layers",
    "transformer": "transformer",
    "large": "large layers",
}


def plot(results: dict, ceilings: dict):
    marks: list[Any] = []
    for name, text in NAMES.items():
        gain = results[name]["gain"]
        marks.append(Bars({title: gain[way] for way, title in TITLES.items()}, text))
    marks.append(Rule("x", 2, "two GPUs"))
    axis = Axis("speed of a step, times that of one GPU after the other")
    picture = Picture([Panel(marks, axis)])
    if "lanes" not in results:
        return picture
    return picture, {"lanes": drawn_lanes(results["lanes"])}


def drawn_lanes(profiles: dict[str, list[list[Any]]]) -> Picture:
    """Both profiles on one axis."""
    from snippets.pictures import timelines

    titles = {"autograd": "autograd's threads", "one thread": "one thread"}
    return timelines({titles[way]: rows for way, rows in profiles.items()})


if __name__ == "__main__":
    main()
