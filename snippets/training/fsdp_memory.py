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
"""DDP and fully sharded data parallel: bytes on each GPU, and the time of a step."""

import time
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns
from snippets.training.ddp_equality import farthest
from snippets.training.dp_vs_ddp import slowest_rank, step
from snippets.training.models import transformer
from snippets.training.waiting_ranks import meet

#: few rows and many, for each GPU
ROWS, MANY, TOKENS, WIDTH, LAYERS = 4, 16, 512, 1024, 24


def sharded(model: torch.nn.Sequential, mesh: DeviceMesh) -> torch.nn.Module:
    """Keep on each rank a part of each layer; the whole of it only while it is used."""
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def first_gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    """Gradients of the first layer, whole, on the CPU; all ranks call it together."""
    grads = [p.grad for p in list(model.parameters())[:12]]
    return [getattr(g, "full_tensor", g.detach)().to("cpu", copy=True) for g in grads]


def memory_gb(work, before: int) -> dict[str, float]:
    """Gigabytes of tensors here after a step of training, and at most in it.

    Without what was there before, in bytes.
    """
    for _ in range(4):
        work()
    time.sleep(1)  # what collectives have used is given back some time later
    torch.cuda.reset_peak_memory_stats()
    work()
    state, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    return {"state": (state - before) / 1e9, "peak": (peak - before) / 1e9}


def main() -> dict:
    device, group = meet()
    view = {"process_group": group, "gradient_as_bucket_view": True}
    ddp = partial(DistributedDataParallel, **view)
    shard = partial(sharded, mesh=DeviceMesh.from_group(group, device.type))
    torch.manual_seed(group.rank())
    mine = torch.randn(MANY, TOKENS, WIDTH, device=device)
    works, gradients, gb = {}, {}, {}
    for name, wrap in {"ddp": ddp, "fsdp": shard}.items():
        torch.manual_seed(0)  # the same model on all ranks, and in both ways
        before = torch.cuda.memory_allocated()
        with device:
            model = transformer(LAYERS, WIDTH)
        parameters = sum(p.numel() for p in model.parameters())
        model = wrap(model)
        adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
        works[name] = partial(step, model, mine[:ROWS], adam)
        works[f"{name}_many"] = partial(step, model, mine, adam)
        works[name]()
        gradients[name] = first_gradients(model)
        gb[name] = memory_gb(works[name], before)
    torch.set_float32_matmul_precision("high")  # TF32
    times = take_turns(works, trials=11, clock=slowest_rank)
    if group.rank() == 0:
        print(*(f"{name}: {each['state']:.2f} GB" for name, each in gb.items()))
        print(*(f"{name}: {1e3 * each.median:.1f} ms" for name, each in times.items()))
    result = recorded(times) | {"ranks": group.size(), "parameters": parameters}
    dist.destroy_process_group()
    return result | {"gb": gb, "gradients_differ_by": farthest(*gradients.values())}


def plot(results: dict, ceilings: dict):
    titles = {"ddp": "DDP", "fsdp": "FSDP"}
    shown = {}
    for name, title in titles.items():
        gb = results["gb"][name]
        shown[title] = {"after a step": gb["state"], "peak in a step": gb["peak"]}
    return bars(shown, {}, "GB on each GPU")


if __name__ == "__main__":
    main()
