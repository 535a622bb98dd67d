# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# timeout = 300
# ///
"""Activation checkpointing: bytes that it saves, arithmetic and time that it costs."""

from collections.abc import Callable, Iterable
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from snippets.pictures import sweep
from snippets.timing.take_turns import ratios, recorded, take_turns

BLOCKS, HEADS = 6, 4
CHECKPOINTED = (0, 2, 4, 6)  # so many of the blocks compute their activations twice
CPU, GPU = (256, 8, 64), (1024, 16, 512)  # width, sequences, tokens of each


def saved_bytes(forward: Callable[[], Tensor], apart: Iterable[Tensor] = ()) -> int:
    """Bytes that `forward()` keeps for the backward pass of its result.

    Memory that several operations keep counts once; that of the tensors in `apart`,
    such as parameters, does not count. On "meta" memory has no address: use the CPU.
    What is saved for a graph that `forward` drops before it returns, such as that of a
    second loss, counts too, unless later memory has its address. For dense tensors:
    sparse ones raise NotImplementedError, and DTensors RuntimeError.
    """
    sizes = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = forward()  # noqa: F841, which keeps what was saved alive
    for tensor in apart:
        sizes.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(sizes.values())


def network(width: int, device: str) -> nn.ModuleList:
    """Blocks of a transformer, without dropout."""
    blocks = nn.ModuleList()
    for _ in range(BLOCKS):
        block = nn.TransformerEncoderLayer(
            width, HEADS, 4 * width, 0, batch_first=True, norm_first=True
        )
        blocks.append(block)
    return blocks.to(device)


def loss(blocks: nn.ModuleList, x: Tensor, checkpointed: int) -> Tensor:
    """Mean square of what the blocks give; the first so many keep their inputs alone."""
    for i, block in enumerate(blocks):
        if i < checkpointed:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        else:
            x = block(x)
    return x.square().mean()


def step(blocks: nn.ModuleList, x: Tensor, checkpointed: int) -> None:
    blocks.zero_grad()
    loss(blocks, x, checkpointed).backward()


def gradients(blocks: nn.ModuleList, x: Tensor, checkpointed: int) -> list[Tensor]:
    step(blocks, x, checkpointed)
    return [parameter.grad.clone() for parameter in blocks.parameters()]


def flop(work: Callable[[], object]) -> int:
    """Floating-point operations of the matmuls of `work()`, counted, not timed."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def main() -> dict:
    torch.manual_seed(0)
    device, sizes = ("cuda", GPU) if torch.cuda.is_available() else ("cpu", CPU)
    width, sequences, tokens = sizes
    blocks = network(width, device)
    x = torch.randn(sequences, tokens, width, device=device)
    steps = {str(n): partial(step, blocks, x, n) for n in CHECKPOINTED}
    all_kept, all_twice = gradients(blocks, x, 0), gradients(blocks, x, BLOCKS)
    torch.testing.assert_close(all_twice, all_kept)

    saved = {}
    for n in CHECKPOINTED:
        saved[str(n)] = saved_bytes(partial(loss, blocks, x, n), blocks.parameters())
    counted = {name: flop(work) for name, work in steps.items()}
    counted["forward"] = flop(partial(loss, blocks, x, 0))
    with set_checkpoint_early_stop(False):
        counted["to_the_end"] = flop(steps[str(BLOCKS)])

    turns = take_turns(steps, trials=9)
    times = recorded(turns)
    for name, ms in times["ms"].items():
        mib, gflop = saved[name] / 2**20, counted[name] / 1e9
        print(f"{name} of {BLOCKS} blocks computed twice:", end=" ")
        print(f"{mib:7.1f} MiB kept, {gflop:8.2f} GFLOP, {ms:7.1f} ms a step")
    slower = ratios(turns[str(BLOCKS)], turns["0"])
    result = {"blocks": BLOCKS, "activation_bytes": x.nbytes, "saved_bytes": saved}
    result |= {"flop": counted, "slower": median(slower), "slower_trials": slower}
    return result | times


def derive(results: dict) -> dict:
    """Bytes that two checkpointed blocks more save, and activations that one saves."""
    saved = results["saved_bytes"]
    by_block = (saved["0"] - saved["6"]) / results["blocks"]
    return {
        "saved_by_two": [saved[str(n)] - saved[str(n + 2)] for n in (0, 2, 4)],
        "block_saves": by_block / results["activation_bytes"],
    }


def plot(results: dict, ceilings: dict):
    def relative(key: str) -> list[float]:
        """With so many blocks computed twice as were timed, to that with none."""
        return [results[key][count] / results[key]["0"] for count in results["ms"]]

    lines = {"bytes kept for the backward pass": relative("saved_bytes")}
    lines["time of a step"] = relative("ms")
    arithmetic = {"arithmetic of a step": relative("flop")}
    labels = {"xlabel": "blocks computed twice"}
    labels["ylabel"] = "relative to no checkpointing"
    return sweep([int(name) for name in results["ms"]], lines, arithmetic, **labels)


if __name__ == "__main__":
    main()
