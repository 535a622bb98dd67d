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
"""What averaging adds to a step: one by one, in buckets, from hooks, and with DDP."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.ddp_equality import farthest, gradients
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.gradient_buckets import Buckets, one_by_one
from snippets.training.models import transformer
from snippets.training.waiting_ranks import meet

ROWS, TOKENS, WIDTH = 8, 512, 1024  # rows for each GPU


def in_buckets(model: torch.nn.Module, group: dist.ProcessGroup) -> None:
    """Average gradients in buckets, those of the last layer first; none may lack."""
    buckets = Buckets(group)
    for parameter in reversed(list(model.parameters())):
        buckets.add(parameter)
    buckets.finish()


def averaged(
    model: torch.nn.Module, exchange: Callable[[], object], rows: torch.Tensor
) -> list[torch.Tensor]:
    """Gradients of the mean loss over all ranks' rows, if the exchange is right."""
    model.zero_grad()
    model(rows).square().mean().backward()
    exchange()
    return [parameter.grad for parameter in model.parameters()]


def ways(
    model: torch.nn.Module, group, rows: torch.Tensor
) -> dict[str, Callable[[], object]]:
    """By name, functions that leave gradients of this rank's rows averaged, or not."""
    plain, hooked, buckets = deepcopy(model), deepcopy(model), Buckets(group)
    for parameter in hooked.parameters():
        parameter.register_post_accumulate_grad_hook(buckets.add)
    ddp = DistributedDataParallel(deepcopy(model), process_group=group)
    return {
        "nothing": partial(averaged, plain, lambda: None, rows),
        "one_by_one": partial(averaged, plain, partial(one_by_one, plain, group), rows),
        "in_buckets": partial(averaged, plain, partial(in_buckets, plain, group), rows),
        "from_hooks": partial(averaged, hooked, buckets.finish, rows),
        "ddp": partial(averaged, ddp, lambda: None, rows),
    }


def main() -> dict:
    device, group = meet()
    torch.manual_seed(0)  # the same model and batch on all ranks
    with device:
        model = transformer(width=WIDTH)
        batch = torch.randn(group.size() * ROWS, TOKENS, WIDTH)
    expected = gradients(model, batch)  # one GPU, the whole batch
    works = ways(model, group, batch.chunk(group.size())[group.rank()])
    for name, work in works.items():
        right = farthest(work(), expected) < 1e-2
        assert right == (name != "nothing"), f"{name}: wrong gradients, or a weak test"
    torch.set_float32_matmul_precision("high")  # TF32
    times = take_turns(works, trials=15, clock=slowest_rank)
    slower = {name: ratios(timing, times["nothing"]) for name, timing in times.items()}
    result = recorded(times) | {"slower_trials": slower}
    result["slower"] = {name: median(each) for name, each in slower.items()}
    if group.rank() == 0:
        for name, ms in result["ms"].items():
            print(f"{name:<11}{ms:6.2f} ms, {result['slower'][name]:.3f} × nothing")
    dist.destroy_process_group()
    return result | {"gradients_gb": sum(g.nbytes for g in expected) / 1e9}


def derive(results: dict) -> dict:
    """In how many rounds buckets were faster than one all-reduce each."""
    if "ms_trials" not in results:
        return {}
    trials = results["ms_trials"]
    pairs = zip(trials["one_by_one"], trials["in_buckets"], strict=False)
    return {"rounds_faster": sum(single > buckets for single, buckets in pairs)}


def plot(results: dict, ceilings: dict):
    names = {"one_by_one": "one by one", "in_buckets": "in buckets"}
    names |= {"from_hooks": "buckets, from hooks", "ddp": "DDP"}
    ms = {text: results["ms"][name] for name, text in names.items()}
    return bars(ms, {"nothing is exchanged": results["ms"]["nothing"]}, "ms a step")


if __name__ == "__main__":
    main()
