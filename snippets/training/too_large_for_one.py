# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 150
# launcher = "torchrun"
# take = ["Block"]
# ///
"""Train a model whose state one GPU cannot hold: what happens on one, and on all."""

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh

from snippets.pictures import Axis, Bars, Panel, Picture, Rule
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for
from snippets.training.built_in_parts import built_in_parts
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_options import BF16, losses, mean_over_ranks, sharded, step
from snippets.training.waiting_ranks import meet

WIDTH, HEAD = 4096, 128
ROWS, TOKENS = 4, 1024  # for each GPU
CHECKED = {"layers": 2, "rows": 1, "tokens": 128}  # what one GPU can hold, too
STATE_BYTES = 16  # of a parameter in float32: itself, its gradient, Adam's two moments
FULL = 1.2  # how many GPUs the state would fill
LAYERS_ON_CPU = 2
RATE = 1e-5  # of Adam
STEPS, TRIALS = 2, 5  # between two waits; how often


class Block(nn.Module):
    """Causal attention and feed-forward, of layers that can fill their own parameters.

    For rows (batch, tokens, width); HEAD divides the width.
    """

    def __init__(self, width: int):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.before(x)).unflatten(-1, (3, -1, HEAD))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, tokens, HEAD)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


def network(layers: int, width: int) -> nn.Sequential:
    """So many blocks."""
    return nn.Sequential(*[Block(width) for _ in range(layers)])


def layers_for(memory_bytes: int) -> int:
    """How many blocks have FULL times the state that so many bytes can hold."""
    with torch.device("meta"):
        parameters = sum(p.numel() for p in Block(WIDTH).parameters())
    return round(FULL * memory_bytes / STATE_BYTES / parameters)


def gb_now() -> float:
    """10⁹ bytes of tensors on this GPU; 0 on the CPU."""
    return torch.cuda.memory_allocated() / 1e9


def first_step(
    model: Callable[[], nn.Module], rows: Tensor, gb: dict[str, float]
) -> None:
    """Build a model and train it for a step; `gb` gets what is there after each phase."""
    net = model()
    gb["parameters"] = gb_now()
    with torch.autocast(rows.device.type, torch.bfloat16):
        output = net(rows)
    gb["forward"] = gb_now()
    output.float().square().mean().backward()
    del output
    gb["backward"] = gb_now()
    torch.optim.Adam(net.parameters(), lr=RATE, fused=True).step()
    gb["adam"] = gb_now()


def on_one(layers: int, rows: Tensor) -> dict:
    """How far one GPU comes in its first step with the whole model."""
    gb: dict[str, float] = {}
    build = partial(network, layers, WIDTH)
    whole = partial(built_in_parts, build, lambda model: model, rows.device)
    out_of_memory = False
    try:
        first_step(whole, rows, gb)
    except torch.OutOfMemoryError:
        out_of_memory = True
    gc.collect()  # modules have cycles
    torch.cuda.empty_cache()
    return {"gb": gb, "out_of_memory": out_of_memory, "left_gb": gb_now()}


def split_model(layers: int, mesh: DeviceMesh, device: torch.device, **options):
    """A model of which each rank has its part, built in parts."""
    build = partial(network, layers, WIDTH)
    split = partial(sharded, mesh=mesh, **options)
    return built_in_parts(build, split, device)  # type: ignore


def checked_losses(mesh: DeviceMesh, device: torch.device) -> dict[str, list[float]]:
    """Losses in float32 of a small model, whole and split, from the same parameters."""
    torch.manual_seed(1)  # all ranks know all rows
    shape = CHECKED["rows"] * mesh.size(), CHECKED["tokens"], WIDTH
    rows = torch.randn(shape).to(device)
    torch.manual_seed(0)
    with device:
        whole = network(CHECKED["layers"], WIDTH)
    split = split_model(CHECKED["layers"], mesh, device)
    set_model_state_dict(
        split, whole.state_dict(), options=StateDictOptions(full_state_dict=True)
    )
    mine = rows.chunk(mesh.size())[mesh.get_local_rank()]
    found = mean_over_ranks(losses(split, mine))
    return {"whole": losses(whole, rows), "split": found}


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()
    mesh = DeviceMesh.from_group(group, device.type)
    loss = checked_losses(mesh, device)
    gc.collect()
    layers, memory = LAYERS_ON_CPU, 0
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
        layers = layers_for(memory)
    torch.manual_seed(rank)  # on the CPU each part needs its own
    rows = torch.randn(ROWS, TOKENS, WIDTH, device=device)
    one = on_one(layers, rows)  # on each GPU by itself
    dist.barrier()
    before = gb_now()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    model = split_model(layers, mesh, device, mp_policy=BF16)
    wait_for()
    result = {"ranks": ranks, "layers": layers, "memory_gb": memory / 1e9}
    result |= {"parameters": sum(p.numel() for p in model.parameters()), "one": one}
    result |= {"tokens": ROWS * TOKENS, "loss": loss}
    result |= {"build_s": time.perf_counter() - start}
    peaks = {"build": torch.cuda.max_memory_allocated() / 1e9 - before}
    adam = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    work = partial(step, model, rows, adam)
    result["first_losses"] = [work().item() for _ in range(3)]
    wait_for()
    result["state_gb"] = gb_now() - before
    times = take_turns(
        {"step": work}, warmup=1, trials=TRIALS, calls=STEPS, clock=slowest_rank
    )
    peaks["train"] = torch.cuda.max_memory_allocated() / 1e9 - before
    result |= recorded(times) | {"peak_gb": peaks}
    if rank == 0:
        billions = result["parameters"] / 1e9
        print(f"{billions:.2f} × 10⁹ parameters; a GPU has {memory / 1e9:.1f} GB")
        for phase, gb in one["gb"].items():
            print(f"one GPU, after {phase:<11}{gb:6.1f} GB")
        print("one GPU:", "out of memory" if one["out_of_memory"] else "it fits")
        gb, ms = result["state_gb"], result["ms"]["step"]
        print(f"{ranks} ranks: {gb:.1f} GB of state on each, at most", end=" ")
        print(f"{peaks['train']:.1f} GB; a step takes {ms:.0f} ms")
    del model, adam, work
    gc.collect()  # FSDP has cycles, and no model may outlive its process group
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """The state of the whole model, how it is shared, and how fast it is trained.

    The state is given in GPUs (`fills`) and for each rank in an N-th of it; what a
    rank has while building, in an N-th of the parameters. model_tflop_s counts six
    operations for each parameter and token, on one GPU.
    """
    pairs = zip(results["loss"]["split"], results["loss"]["whole"], strict=True)
    flop = 6 * results["parameters"] * results["tokens"]
    whole, ranks = STATE_BYTES * results["parameters"] / 1e9, results["ranks"]
    memory = results["memory_gb"]
    return {
        "whole_state_gb": whole,
        "fills": whole / memory if memory else 0.0,
        "peak_of_memory": results["peak_gb"]["train"] / memory if memory else 0.0,
        "state_of_share": results["state_gb"] * ranks / whole,
        "build_of_share": results["peak_gb"]["build"] * ranks * 4 / whole,
        "model_tflop_s": flop / results["ms"]["step"] / 1e9,
        "losses_differ_by": max(abs(s - w) / w for s, w in pairs),
    }


def plot(results: dict, ceilings: dict):
    whole, ranks = STATE_BYTES * results["parameters"] / 1e9, results["ranks"]
    state = {"one GPU": whole, f"each of {ranks} GPUs": results["state_gb"]}
    more = {f"each of {ranks} GPUs": results["peak_gb"]["train"] - results["state_gb"]}
    texts = {row: f"{gb:.0f}" for row, gb in state.items()}
    texts_more = {row: f"{results['peak_gb']['train']:.0f}" for row in more}
    starts = {row: results["state_gb"] for row in more}
    marks: list[Any] = [
        Bars(
            state,
            "parameters, gradients, moments",
            texts=texts | dict.fromkeys(more, ""),
        ),
        Bars(more, "more at the peak of a step", starts, texts_more),
    ]
    if results["memory_gb"]:
        marks.append(Rule("x", results["memory_gb"], "memory of one GPU"))
    return Picture([Panel(marks, Axis("GB"))])


if __name__ == "__main__":
    main()
