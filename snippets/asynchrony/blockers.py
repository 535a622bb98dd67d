# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Which lines wait for the GPU? Values, sizes, indices; launches, shapes, events."""

from collections.abc import Callable
from operator import setitem

import torch
from torch import repeat_interleave

from snippets.asynchrony.waits import report


def value_lines() -> dict[str, Callable]:
    """Lines by their text; `v` and `w` are 1,024 numbers, `s` is a sum, `k` is 3."""
    v, w = torch.rand(2, 1024, device="cuda")
    m, s, mask = torch.rand(512, 512, device="cuda"), v.sum(), v > 0.5
    k, n = torch.tensor(3, device="cuda"), torch.full((1024,), 2, device="cuda")
    p = torch.ones(1, device="cuda", requires_grad=True)
    event, side = torch.cuda.Event(), torch.cuda.Stream()
    stream = torch.cuda.current_stream()
    kept = [torch.empty(2**25, dtype=torch.uint8, device="cuda") for _ in range(50)]

    def wait_for_event() -> None:
        event.record()
        event.synchronize()

    def empty_cache() -> None:
        kept.pop()  # so that there is something to give back
        torch.cuda.empty_cache()

    return {
        "s.item()": lambda: s.item(),
        "bool(s > 0)": lambda: bool(s > 0),
        "str(s)": lambda: str(s),
        "v.cpu()": lambda: v.cpu(),
        "torch.equal(v, w)": lambda: torch.equal(v, w),
        "torch.nonzero(v)": lambda: torch.nonzero(v),
        "torch.unique(v)": lambda: torch.unique(v),
        "v[mask]": lambda: v[mask],
        "v[k]": lambda: v[k],
        "v[0] = 1.0": lambda: setitem(v, 0, 1.0),
        "repeat_interleave(v, n)": lambda: repeat_interleave(v, n),
        "event.synchronize()": wait_for_event,
        "torch.cuda.synchronize()": lambda: torch.cuda.synchronize(),
        "torch.cuda.empty_cache()": empty_cache,
        "v[mask] = 1.0": lambda: setitem(v, mask, 1.0),
        "v[:1] = 1.0": lambda: setitem(v, slice(1), 1.0),
        "repeat_interleave(v, n, output_size=2048)": lambda: repeat_interleave(
            v, n, output_size=2048
        ),
        "torch.where(mask, v, w)": lambda: torch.where(mask, v, w),
        "v + w": lambda: v + w,
        "torch.mm(m, m)": lambda: torch.mm(m, m),
        "(p * v).sum().backward()": lambda: (p * v).sum().backward(),
        "v.shape": lambda: v.shape,
        "torch.empty_like(v)": lambda: torch.empty_like(v),
        "event.record()": lambda: event.record(),
        "event.query()": lambda: event.query(),
        "side.wait_stream(stream)": lambda: side.wait_stream(stream),
    }


def main() -> dict:
    return report(value_lines())


if __name__ == "__main__":
    main()
