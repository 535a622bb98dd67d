"""The GPU if there is one, else the CPU; a model or a batch (tensors in tuples, lists, dicts) goes there."""

import torch
from torch.utils._pytree import tree_map

gpu = torch.accelerator.current_accelerator(check_available=True)
device = gpu or torch.device("cpu")
print("device:", device)


def moves(x):
    return hasattr(x, "to")  # a model, a tensor, a packed sequence


def put(thing):
    return tree_map(lambda x: x.to(device) if moves(x) else x, thing, is_leaf=moves)
