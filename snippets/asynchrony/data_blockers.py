# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Which lines of a training step wait for the GPU? Loss, checks, labels, samples."""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import cross_entropy, one_hot

from snippets.asynchrony.waits import report


def data_lines() -> dict[str, Callable[[], object]]:
    """Labels, samples, masks, losses and their checks: 1,024 rows, 10 classes."""
    logits = torch.rand(1024, 10, device="cuda", requires_grad=True)
    y, p = torch.randint(10, (1024,), device="cuda"), torch.rand(10, device="cuda")
    keep, bad = y > 4, torch.zeros((), dtype=torch.bool, device="cuda")
    loss = cross_entropy(logits, y).detach()
    send = partial(torch.tensor([1, 2]).to, "cuda", non_blocking=True)

    def backward(find_nan: bool = False) -> None:
        with torch.autograd.set_detect_anomaly(find_nan):
            cross_entropy(logits, y).backward()

    return {
        "cross_entropy(logits, y).backward()": backward,
        "the same under set_detect_anomaly(True)": lambda: backward(find_nan=True),
        "loss.item()": lambda: loss.item(),
        "bool(loss.isnan())": lambda: bool(loss.isnan()),
        "bad |= loss.isnan()": lambda: bad.logical_or_(loss.isnan()),
        "logits[keep].sum()": lambda: logits[keep].sum(),
        "(logits * keep[:, None]).sum()": lambda: (logits * keep[:, None]).sum(),
        "one_hot(y)": lambda: one_hot(y),
        "one_hot(y, 10)": lambda: one_hot(y, 10),
        "multinomial(p, 1)": lambda: torch.multinomial(p, 1),
        "tensor([1, 2], device='cuda')": lambda: torch.tensor([1, 2], device="cuda"),
        "tensor([1, 2]).to('cuda', non_blocking=True)": send,
    }


def main() -> dict:
    return report(data_lines())


def derive(results: dict) -> dict:
    """The lines that do not wait as these do."""
    waiting = {
        "the same under set_detect_anomaly(True)",
        "loss.item()",
        "bool(loss.isnan())",
        "logits[keep].sum()",
        "one_hot(y)",
        "tensor([1, 2], device='cuda')",
    }
    return {"otherwise": sorted(waiting.symmetric_difference(results["waits"]))}


if __name__ == "__main__":
    main()
