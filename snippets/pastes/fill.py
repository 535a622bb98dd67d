"""The numbers that no file has: buffers of a Transformers model, computed again by their module."""

import torch


def fill(module):
    for weight in module.parameters(recurse=False):
        torch.nn.init.zeros_(weight)  # the file's numbers come later
    if next(module.buffers(recurse=False), None) is not None:
        for name, buffer in type(module)(module.config).named_buffers(recurse=False):
            getattr(module, name).copy_(buffer)
