"""FSDP: each rank keeps its part of each block, and has a whole block only while it computes it."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def split(model, blocks, mesh=None, group=1, keep=False):
    mesh = mesh or init_device_mesh("cuda", (torch.distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
    blocks = list(blocks)
    for start in range(0, len(blocks), group):  # each group is gathered alone
        part = blocks[start] if group == 1 else blocks[start : start + group]
        fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=not keep)
    return fully_shard(model, mesh=mesh, mp_policy=policy)  # the other layers
