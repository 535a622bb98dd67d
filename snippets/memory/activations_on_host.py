# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# take = ["on_host"]
# take_on_cpu = ["on_host"]
# ///
"""Activations kept, computed twice, or on the host: gradients first, then peak and time."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from snippets.memory.activations_twice import loss, network
from snippets.memory.peak_predicted import measured
from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

BLOCKS, WIDTH, SEQUENCES, TOKENS = 6, 1024, 32, 1024
LEAST_BYTES = 2**20  # smaller tensors stay on the GPU


@contextmanager
def on_host(apart: Iterable[Tensor] = (), least: int = LEAST_BYTES) -> Iterator[None]:
    """What is saved for the backward pass goes to pinned memory, and comes back there.

    Tensors in `apart`, such as parameters, stay where they are, and so do those that
    have fewer bytes than `least`. What several operations save is copied for each.
    """
    kept = {tensor.untyped_storage().data_ptr() for tensor in apart}

    def pack(tensor: Tensor) -> tuple[torch.device, Tensor]:
        stays = tensor.untyped_storage().data_ptr() in kept or tensor.nbytes < least
        if stays or not tensor.is_cuda:
            return tensor.device, tensor.detach()
        host = torch.empty_like(tensor, device="cpu", pin_memory=True)
        return tensor.device, host.copy_(tensor.detach(), non_blocking=True)

    def unpack(packed: tuple[torch.device, Tensor]) -> Tensor:
        device, tensor = packed
        return tensor.to(device, non_blocking=True)

    with saved_tensors_hooks(pack, unpack):
        yield


def plain(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    """All activations are kept."""
    return loss(blocks, x, 0)


def computed_twice(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    """Each block keeps its input alone."""
    return loss(blocks, x, len(blocks))


def all_on_host(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    """PyTorch's own way: whatever is saved goes to the host, the parameters, too."""
    with save_on_cpu(pin_memory=x.is_cuda):
        return loss(blocks, x, 0)


def activations_on_host(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    """`on_host`, for all but the parameters and what is small."""
    with on_host(blocks.parameters()):
        return loss(blocks, x, 0)


WAYS: dict[str, Callable[[nn.ModuleList, Tensor], Tensor]] = {
    "kept": plain,
    "twice": computed_twice,
    "all_on_host": all_on_host,
    "on_host": activations_on_host,
}


def step(way: str, blocks: nn.ModuleList, x: Tensor) -> None:
    """Leave the gradients of a step, no others."""
    blocks.zero_grad()
    WAYS[way](blocks, x).backward()


def bytes_saved(forward: Callable[[], Tensor]) -> int:
    """Bytes of all tensors that `forward()` saves, each time one is saved."""
    sizes = []

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes)
        return tensor.detach()

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(sizes)


def main() -> dict:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    blocks = network(WIDTH, device)
    x = torch.randn(SEQUENCES, TOKENS, WIDTH, device=device)
    expected: list[Tensor] = []
    for way in WAYS:
        step(way, blocks, x)
        found = [parameter.grad.clone() for parameter in blocks.parameters()]
        expected = expected or found
        torch.testing.assert_close(found, expected)
    del expected, found
    blocks.zero_grad()
    torch.set_float32_matmul_precision("high")  # TF32, as in training
    rows: dict[str, dict] = {way: {} for way in WAYS}
    for way, row in rows.items():
        if device == "cuda":
            row["peak"] = measured(partial(step, way, blocks, x))
            blocks.zero_grad()
    turns = take_turns({way: partial(step, way, blocks, x) for way in WAYS}, trials=5)
    times = recorded(turns)
    slower = {way: ratios(turns[way], turns["kept"]) for way in WAYS}
    for way, row in rows.items():
        peak = row.get("peak", 0) / 2**20
        print(f"{way:<12}{peak:8.0f} MiB {times['ms'][way]:9.1f} ms a step")
    result = {"saved_bytes": bytes_saved(partial(plain, blocks, x)), "rows": rows}
    result["weight_bytes"] = sum(p.nbytes for p in blocks.parameters())
    medians = {way: median(trials) for way, trials in slower.items()}
    return result | {"slower": medians, "slower_trials": slower} | times


def derive(results: dict) -> dict:
    """Peaks relative to all kept, and the rate at which the host takes what is saved."""
    rows, ms = results["rows"], results["ms"]
    added_s = (ms["all_on_host"] - ms["kept"]) / 1e3
    found = {"gb_s": 2 * results["saved_bytes"] / added_s / 1e9}
    if "peak" in rows["kept"]:
        peak = {way: row["peak"] / rows["kept"]["peak"] for way, row in rows.items()}
        found["peak_of"] = peak
    return found


def plot(results: dict, ceilings: dict):
    titles = {"kept": "all kept", "twice": "blocks computed twice"}
    titles |= {"all_on_host": "save_on_cpu", "on_host": "on_host, without weights"}
    return bars({text: results["ms"][way] for way, text in titles.items()}, {}, "ms")


if __name__ == "__main__":
    main()
