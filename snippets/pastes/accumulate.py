"""The gradients of a large batch, in parts, exchanged once."""

from contextlib import nullcontext


def accumulate(ddp, loss_of, parts):
    rows = sum(len(x) for x, _ in parts)
    for number, (x, y) in enumerate(parts, start=1):
        last = number == len(parts)
        with nullcontext() if last else ddp.no_sync():  # forward pass included
            (loss_of(ddp(x), y) * len(x) / rows).backward()
