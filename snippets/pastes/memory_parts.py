"""MiB of the current GPU: tensors, PyTorch's cache, all else (contexts, other processes), and free."""

import torch


def memory_parts():
    tensors, taken = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    free, total = torch.cuda.mem_get_info()
    parts = {"tensors": tensors, "cache": taken - tensors}
    parts |= {"outside PyTorch": total - free - taken, "free": free}
    parts["most tensors so far"] = torch.cuda.max_memory_allocated()
    return {name: count // 2**20 for name, count in parts.items()}
