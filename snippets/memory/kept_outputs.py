# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# timeout = 180
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""An evaluation loop that keeps its outputs: what does each batch hold afterwards?"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from snippets.memory.peak_predicted import Peak
from snippets.pictures import sweep
from snippets.timing.take_turns import recorded, take_turns

ROWS, WIDTH, LAYERS, CLASSES, BATCHES = 256, 1024, 6, 16, 8
Way = Callable[[nn.Module, Tensor], Tensor]


def network() -> nn.Sequential:
    """Scores of 16 classes for rows of numbers, after six hidden layers."""
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))


def with_graph(net: nn.Module, x: Tensor) -> Tensor:
    return net(x)


def to_cpu_with_graph(net: nn.Module, x: Tensor) -> Tensor:
    return net(x).cpu()


def detached(net: nn.Module, x: Tensor) -> Tensor:
    return net(x).detach()


def no_grad(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return net(x)


def inference_mode(net: nn.Module, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return net(x)


def to_cpu(net: nn.Module, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return net(x).cpu()


WAYS: tuple[Way, ...] = (with_graph, detached, no_grad, inference_mode)
TO_CPU: tuple[Way, ...] = (to_cpu_with_graph, to_cpu)  # where that is another place


def evaluated(net: nn.Module, way: Way, device: str) -> tuple[dict, Tensor]:
    """Bytes on the device after each batch, and the most meanwhile; and all outputs.

    The network's own bytes do not count.
    """
    torch.manual_seed(0)
    kept, held = [], []
    with Peak(device) as peak:
        for parameter in net.parameters():
            parameter.detach()  # counted now, and not with its first use
        own = sum(peak.sizes.values())
        for _ in range(BATCHES):
            kept.append(way(net, torch.rand(ROWS, WIDTH, device=device)))
            held.append(sum(peak.sizes.values()) - own)
    outputs = torch.cat([output.detach().cpu() for output in kept])
    return {"held_bytes": held, "peak_bytes": peak.bytes - own}, outputs


def allocated(net: nn.Module, way: Way) -> int:
    """Bytes that the allocator gave to such a loop, and has not got back at its end."""
    before = torch.cuda.memory_allocated()
    kept = [way(net, torch.rand(ROWS, WIDTH, device="cuda")) for _ in range(BATCHES)]
    held = torch.cuda.memory_allocated() - before
    del kept
    return held


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    net = network().to(device)
    ways = WAYS + TO_CPU if device == "cuda" else WAYS
    rows, expected = {}, evaluated(net, inference_mode, device)[1]
    for way in ways:
        row, outputs = evaluated(net, way, device)
        torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)
        first, *_, last = row["held_bytes"]
        row["batch_bytes"] = (last - first) // (BATCHES - 1)
        if device == "cuda":
            row["allocated_bytes"] = allocated(net, way)
        rows[way.__name__] = row
    x = torch.rand(ROWS, WIDTH, device=device)
    works = {way.__name__: partial(way, net, x) for way in ways}
    calls = 20 if device == "cuda" else 1
    times = recorded(take_turns(works, trials=7, calls=calls), "us")
    for name, row in rows.items():
        print(f"{name:18}{row['batch_bytes']:>12,} B a batch,", end=" ")
        print(f"peak {row['peak_bytes'] / 2**20:6.1f} MiB, {times['us'][name]:7.0f} µs")
    result = {"ways": rows, "batches": BATCHES, "output_bytes": 4 * ROWS * CLASSES}
    return result | times


def derive(results: dict) -> dict:
    """The different sizes of what a batch holds in the ways that keep no graph."""
    names = ("detached", "no_grad", "inference_mode")
    held = {results["ways"][name]["batch_bytes"] for name in names}
    return {"without_graph": sorted(held)}


def plot(results: dict, ceilings: dict):
    words = {
        "with_graph": "output with its graph",
        "detached": "detach(), no_grad() or\ninference_mode()",
    }
    lines = {}
    for name, text in words.items():
        held = results["ways"][name]["held_bytes"]
        lines[text] = [size / 2**20 for size in held]
    numbers = list(range(1, results["batches"] + 1))
    return sweep(numbers, lines, {}, xlabel="batches so far", ylabel="MiB held")


if __name__ == "__main__":
    main()
