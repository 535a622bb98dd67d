"""Tensor parallel: each GPU has some outputs of the layers `wide`, and the same inputs of `narrow`."""

from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


def split_layers(blocks, mesh, wide, narrow):
    plan: dict = {}
    plan |= dict.fromkeys(wide, ColwiseParallel())
    plan |= dict.fromkeys(narrow, RowwiseParallel())
    for block in blocks:
        parallelize_module(block, mesh, plan)
