"""Tensor parallel: each GPU has some outputs of the layers `wide`, and the same inputs of `narrow`."""

from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


def split_layers(blocks, mesh, wide, narrow):
    for block in blocks:
        for name in wide:  # a name that the block lacks is an error
            parallelize_module(block.get_submodule(name), mesh, ColwiseParallel())
        for name in narrow:
            parallelize_module(block.get_submodule(name), mesh, RowwiseParallel())
