# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 240
# launcher = "torchrun"
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""DDP with torch.compile: how it is cut, what then runs beside all-reduces."""

import gc
import os
import tempfile
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.benchmark import wall_clock
from snippets.timing.take_turns import both_orders, ratios, recorded
from snippets.training.ddp_equality import farthest, gradients
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_step_profile import by_name, gpu_account, gpu_steps
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, ROWS, TOKENS = 3, 1024, 32, 512  # rows for each GPU
BACKEND = "inductor"


class Block(nn.Module):
    """Attention and feed-forward of a transformer, width a multiple of 64."""

    def __init__(self, width: int):
        super().__init__()
        self.before_attention, self.before_mlp = (
            nn.LayerNorm(width),
            nn.LayerNorm(width),
        )
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.before_attention(x)).unflatten(-1, (3, -1, 64))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.down(nn.functional.gelu(self.up(self.before_mlp(x))))


class Stack(nn.Module):
    """Blocks in a class of our own: Dynamo does not begin in files of torch.nn."""

    def __init__(self, layers: int, width: int):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def eager(model: nn.Module, group) -> nn.Module:
    """DDP alone."""
    return DistributedDataParallel(model, process_group=group)


def before(model: nn.Module, group, backend: str = "inductor") -> nn.Module:
    """Compile the module, then wrap it."""
    return eager(torch.compile(model, backend=backend), group)


def after(model: nn.Module, group, backend: str = "inductor") -> nn.Module:
    """Wrap the module, then compile it."""
    return torch.compile(eager(model, group), backend=backend)


def blocks(model: nn.Module, group, backend: str = "inductor") -> nn.Module:
    """Compile each layer of the model by itself, then wrap it."""
    for block in model.blocks:
        block.compile(backend=backend)
    return eager(model, group)


#: how it is wrapped, and whether Dynamo cuts the graph where DDP's buckets end
WAYS = {
    "after": (after, True),
    "unsplit": (after, False),
    "blocks": (blocks, True),
    "blocks_unsplit": (blocks, False),
}


def graphs() -> dict[str, int]:
    """Graphs that Dynamo has made until now, and the parts that were compiled."""
    counters = torch._dynamo.utils.counters
    made = counters["stats"]["unique_graphs"]
    return {"graphs": made, "parts": counters["aot_autograd"]["total"]}


def forward_backward(model: nn.Module, rows: Tensor) -> None:
    model.zero_grad()
    model(rows).square().mean().backward()


def least_waiting(steps: list[dict[str, float]]) -> list[dict[str, float]]:
    """Of each step the account of the rank whose NCCL kernels take least time.

    It comes last to the all-reduces, so its kernels wait least for the other ranks.
    """
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, steps)
    return [
        min(ranks, key=lambda step: step["nccl"]) for ranks in zip(*every, strict=True)
    ]


def of_gpu(work: Callable[[], object]) -> dict[str, dict]:
    """Medians, and all trials, of `gpu_account`, of the rank that waits least."""
    return by_name(least_waiting([gpu_account(step) for step in gpu_steps(work)]))


def start_over(split: bool) -> None:
    """Forget all graphs and their number; whether DDP's buckets cut the next ones."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.config.optimize_ddp = split


def compiled(name: str, model: nn.Module, group, rows, expected) -> dict:
    """Compile in one of WAYS, then take turns with DDP that is not compiled."""
    wrap, split = WAYS[name]
    start_over(split)
    ddp = wrap(deepcopy(model), group, BACKEND)
    dist.barrier()
    first_s = wall_clock(partial(forward_backward, ddp, rows))
    first_graphs = graphs()
    result = {"first_s": first_s, "error": farthest(gradients(ddp, rows), expected)}
    works = {"eager": eager(deepcopy(model), group), name: ddp}
    works = {n: partial(forward_backward, each, rows) for n, each in works.items()}
    result |= timed(works)
    result |= first_graphs | {"gpu": of_gpu(works[name])}
    result["recompiles"] = graphs()["parts"] - first_graphs["parts"]
    return result


def pieces(
    wrap: Callable[..., Any], model: nn.Module, group, rows: Tensor
) -> dict[str, int]:
    """Into how many graphs and parts a model is cut: Inductor need not compile them."""
    start_over(True)
    forward_backward(wrap(deepcopy(model), group, "aot_eager"), rows)
    return graphs()


def sequential(group: dist.ProcessGroup, device: torch.device) -> dict[str, int]:
    """What is compiled of a model that has classes of torch.nn alone, once wrapped."""
    start_over(True)
    layers = nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)
    ddp = after(nn.Sequential(*layers).to(device), group, BACKEND)
    forward_backward(ddp, torch.randn(2, 64, device=device))
    return graphs()


def timed(works: dict[str, Callable[[], object]]) -> dict:
    """Times in turns, and how many times as fast the second is as the first."""
    # in its first ten steps DDP waits for the GPU, for its statistics
    times = both_orders(works, warmup=8, trials=6, clock=slowest_rank)
    slow, fast = times.values()
    gains = ratios(slow, fast)
    return recorded(times) | {"gain": median(gains), "gain_trials": gains}


def main() -> dict:
    device, group = meet()
    torch.set_float32_matmul_precision("high")  # TF32
    results = {"ranks": group.size(), "layers": LAYERS, "ways": {}}
    torch.manual_seed(0)  # the same model and batch on all ranks
    with device:
        model = Stack(LAYERS, WIDTH)
        batch = torch.randn(group.size() * ROWS, TOKENS, WIDTH)
    expected = gradients(model, batch)  # one device, the whole batch
    rows = batch.chunk(group.size())[group.rank()]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        alone = partial(forward_backward, eager(deepcopy(model), group), rows)
        results["gpu_eager"] = of_gpu(alone)
        results["sequential"] = sequential(group, device)
        for wrap in (before, after):
            results[f"pieces_{wrap.__name__}"] = pieces(wrap, model, group, rows)
        torch._inductor.config.force_disable_caches = True
        for name in WAYS:
            result = compiled(name, model, group, rows, expected)
            results["ways"][name] = result
            assert result["error"] < 1e-2, f"{name}: wrong gradients"
            gc.collect()  # DDP has cycles
            if group.rank() == 0:
                gpu = result["gpu"]["ms"]
                print(
                    f"{name:<15}{result['parts']:3} parts in {result['first_s']:4.1f} s,",
                    f"{result['ms'][name]:6.2f} ms, eager {result['ms']['eager']:.2f},",
                    f"exposed {gpu['exposed']:.2f} of {gpu['nccl']:.2f} ms,",
                    f"{result['recompiles']} recompiles",
                )
    dist.destroy_process_group()
    return results


def derive(results: dict) -> dict:
    """Gains and errors of the ways, and in how many rounds each was faster."""
    ways = results["ways"]
    derived = {
        "gains": [way["gain"] for way in ways.values()],
        "parts": {name: way["parts"] for name, way in ways.items()},
        "block_graphs": [ways["blocks"]["graphs"], ways["blocks_unsplit"]["parts"]],
        "reduces": ways["after"]["gpu"]["ms"]["nccl_kernels"],
        "most_error": max(way["error"] for way in ways.values()),
        "recompiles": sum(way["recompiles"] for way in ways.values()),
    }
    if all("gain_trials" in way for way in ways.values()):
        derived["rounds_faster"] = {
            name: sum(gain > 1 for gain in way["gain_trials"])
            for name, way in ways.items()
        }
    return derived


def plot(results: dict, ceilings: dict):
    titles = {"after": "compiled", "unsplit": "compiled, not cut"}
    titles |= {"blocks": "each block", "blocks_unsplit": "each block, not cut"}
    groups = {}
    for name, title in titles.items():
        ms = results["ways"][name]["ms"]
        groups[title] = {"compiled": ms[name], "eager, in turns with it": ms["eager"]}
    return bars(groups, {}, "ms")


if __name__ == "__main__":
    main()
