"""The gradients of a large batch, in parts, exchanged once; `loss_of` is a mean over rows."""

from contextlib import nullcontext


def accumulate(ddp, loss_of, parts):
    parts = list(parts)
    rows = sum(len(y) for _, y in parts)
    for number, (x, y) in enumerate(parts, start=1):
        last = number == len(parts)
        with nullcontext() if last else ddp.no_sync():  # round the forward pass, too
            (loss_of(ddp(x), y) * len(y) / rows).backward()
