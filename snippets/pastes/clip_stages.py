"""Clip by one norm over the stages of a pipeline; a stage that is frozen adds zero."""

import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def clip_stages(parameters, max_norm, stages):
    squares, parts = torch.zeros((), device="cuda"), {}
    for p in parameters:
        parts.setdefault(getattr(p.grad, "device_mesh", None), []).append(p)
    for some in parts.values():
        norm = get_total_norm([p.grad for p in some if p.grad is not None])
        squares += getattr(norm, "full_tensor", norm.clone)().float() ** 2
    torch.distributed.all_reduce(squares, group=stages)
    [clip_grads_with_norm_(some, max_norm, squares.sqrt()) for some in parts.values()]
    return squares.sqrt()
