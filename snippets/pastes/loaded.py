"""Weights of one file into a split model: rank 0 opens it, and sends each rank its parts."""

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)


def loaded(model, path):
    weights = {}
    if torch.distributed.get_rank() == 0:
        weights = torch.load(path, map_location="cpu", mmap=True)  # read page by page
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, weights, options=options)
    return model
