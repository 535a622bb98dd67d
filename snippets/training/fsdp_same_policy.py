# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 120
# launcher = "torchrun"
# ///
"""FSDP beside a model that is not split, both with one bf16 policy: what does splitting cost?"""

from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_options import (
    BF16,
    losses,
    memory_gb,
    new_model,
    sharded,
    step,
)
from snippets.training.waiting_ranks import meet

ROWS, TOKENS, WIDTH = {"few": 2, "many": 8}, 1024, 1536  # rows for each GPU
CHECKED = (1, 128)  # rows for each GPU and their tokens, to compare losses


def replicas(group: dist.ProcessGroup, device: torch.device) -> DeviceMesh:
    """A mesh on which `fully_shard` splits nothing: each rank keeps the whole model.

    Gradients are averaged over the group, as DDP does it. All ranks must call this.
    """
    ranks = group.size()
    alone, _ = dist.new_subgroups(1, backend=dist.get_backend(group))
    return DeviceMesh.from_group(
        [group, alone],
        device.type,
        mesh=torch.arange(ranks).reshape(ranks, 1),
        mesh_dim_names=("replicate", "shard"),
    )


def main() -> dict:
    device, group = meet()
    torch.set_float32_matmul_precision("high")  # TF32, where nothing is in bf16
    meshes = {
        "fsdp": DeviceMesh.from_group(group, device.type),
        "replicated": replicas(group, device),
    }
    torch.manual_seed(1)  # all ranks know all rows
    checked = torch.randn(CHECKED[0] * group.size(), CHECKED[1], WIDTH)
    own = checked.to(device).chunk(group.size())[group.rank()]
    works, loss, gb = {name: {} for name in ROWS}, {}, {}
    for name in ("ddp_autocast", *meshes):
        before = torch.cuda.memory_allocated()
        how = {"autocast": name == "ddp_autocast"}
        model = new_model(device)
        if name in meshes:
            options = {"mp_policy": BF16, "blocks": 4, "reshard_after_forward": False}
            model = sharded(model, meshes[name], **options)
        else:
            model = DistributedDataParallel(
                model, process_group=group, gradient_as_bucket_view=True
            )
        loss[name] = losses(model, own, **how)
        adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
        for size, count in ROWS.items():
            rows = torch.randn(count, TOKENS, WIDTH, device=device)
            works[size][name] = partial(step, model, rows, adam, **how)
        gb[name] = memory_gb(works["many"][name], before)
    result = {"ranks": group.size(), "loss": loss, "gb": gb}
    for size, each in works.items():
        times = take_turns(each, warmup=1, trials=15, clock=slowest_rank)
        result[size] = recorded(times)
    if group.rank() == 0:
        for name, each in gb.items():
            few, many = (result[size]["ms"][name] for size in ROWS)
            print(f"{name:<13}{few:7.1f} ms{many:8.1f} ms{each['peak']:6.1f} GB")
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """How far the losses with FSDP are from those of the replicated model."""
    losses = results["loss"]
    pairs = zip(losses["fsdp"], losses["replicated"], strict=True)
    return {"loss_off": [abs(sharded - whole) for sharded, whole in pairs]}


def plot(results: dict, ceilings: dict):
    titles = {
        "ddp_autocast": "DDP, autocast",
        "replicated": "not split, bf16 policy",
        "fsdp": "FSDP, bf16 policy",
    }
    ms = results["many"]["ms"]
    return bars({text: ms[name] for name, text in titles.items()}, {}, "ms a step")


if __name__ == "__main__":
    main()
