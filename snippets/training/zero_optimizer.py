# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""ZeRO-1: DDP whose ranks share Adam's moments; bytes on each GPU, and time of a step."""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns
from snippets.training.dp_vs_ddp import slowest_rank, step
from snippets.training.fsdp_options import memory_gb, new_model
from snippets.training.waiting_ranks import meet

ROWS, TOKENS, WIDTH = 2, 1024, 1536  # rows for each GPU; the width is the model's
CHECKED_TOKENS = 64


def adam_of(name: str, parameters, group: dist.ProcessGroup) -> torch.optim.Optimizer:
    """Adam with all moments on each rank, or with a share of them on each.

    views: parameters lie in buckets, which are sent as they are. Before the state_dict()
    of a shared Adam all ranks have to call consolidate_state_dict(to=rank).
    """
    # eps: where gradients are rounding only, Adam shall not make steps of it
    how = {"lr": 1e-4, "eps": 1e-5, "fused": True}
    if name == "adam":
        return torch.optim.Adam(parameters, **how)
    return ZeroRedundancyOptimizer(
        parameters,
        torch.optim.Adam,
        process_group=group,
        parameters_as_bucket_view=name == "zero_views",
        **how,
    )


def weights(model: nn.Module) -> list[torch.Tensor]:
    """A copy of all weights, on the CPU."""
    return [p.detach().to("cpu", copy=True) for p in model.parameters()]


def differ_by(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """The largest difference of any weight."""
    pairs = zip(some, others, strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def of_all_ranks(number: float) -> list[float]:
    """This number of every rank, in the order of the ranks."""
    numbers = [None] * dist.get_world_size()
    dist.all_gather_object(numbers, number)
    return numbers


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()
    torch.manual_seed(1 + rank)  # rows of its own for each rank
    rows = torch.randn(ROWS, TOKENS, WIDTH, device=device)
    works, updates, gb, held, differ = {}, {}, {}, {}, {}
    start = expected = weights(new_model(device))
    parameters = sum(weight.numel() for weight in start)
    for name in ("adam", "zero", "zero_views"):
        before = torch.cuda.memory_allocated()
        model = DistributedDataParallel(
            new_model(device), process_group=group, gradient_as_bucket_view=True
        )
        adam = adam_of(name, model.parameters(), group)
        torch.set_float32_matmul_precision("highest")
        for _ in range(3):
            step(model, rows[:, :CHECKED_TOKENS], adam)
        found = weights(model)
        if name == "adam":
            expected, moved = found, differ_by(found, start)
        differ[name] = max(of_all_ranks(differ_by(found, expected)))
        torch.set_float32_matmul_precision("high")  # TF32
        works[name], updates[name] = partial(step, model, rows, adam), adam.step
        gb[name] = memory_gb(works[name], before)
        own = adam if name == "adam" else adam.optim
        moments = [t for s in own.state.values() for t in s.values() if t.dim() > 0]
        held[name] = of_all_ranks(sum(moment.nbytes for moment in moments) / 1e9)
    times = take_turns(works, trials=11, clock=slowest_rank)
    update = take_turns(updates, trials=11, clock=slowest_rank)
    result = recorded(times) | {"ranks": ranks, "parameters": parameters, "gb": gb}
    result |= {"moments_gb": held, "weights_differ_by": differ, "moved_by": moved}
    result["update"] = recorded(update)
    if rank == 0:
        for name, ms in result["ms"].items():
            moments = " ".join(f"{each:.2f}" for each in held[name])
            optimizer = f"optimizer {result['update']['ms'][name]:5.1f} ms"
            text = f"{gb[name]['state']:.2f} GB after it, moments {moments} GB"
            print(f"{name:<11} step {ms:6.1f} ms, {optimizer}, {text}")
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """How much each rank keeps beside its share, and how far ways differ."""
    ranks, moments_gb = results["ranks"], results["moments_gb"]
    state_gb = results["gb"]["zero"]["state"]
    share_gb = (8 + 8 / ranks) * results["parameters"] / 1e9
    return {
        "moments_of_share": max(moments_gb["zero"]) * ranks / moments_gb["adam"][0],
        "state_off": abs(1 - share_gb / state_gb),
        "most_weights_differ": max(results["weights_differ_by"].values()),
    }


def plot(results: dict, ceilings: dict):
    titles = {"adam": "DDP, Adam", "zero": "DDP, ZeRO-1"}
    shown = {}
    for name, title in titles.items():
        gb = results["gb"][name]
        shown[title] = {"after a step": gb["state"], "peak in a step": gb["peak"]}
    return bars(shown, {}, "GB on each GPU")


if __name__ == "__main__":
    main()
