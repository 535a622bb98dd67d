# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Which lines wait for the GPU? Values, waits by name; launches, shapes, events."""

from collections.abc import Callable

import torch

from snippets.asynchrony.waits import report


def value_lines() -> dict[str, Callable[[], object]]:
    """Lines by their text; `v` and `w` are 1,024 numbers, `s` is the sum of some."""
    v, w = torch.rand(2, 1024, device="cuda")
    s, p = v.sum(), torch.ones(1, device="cuda", requires_grad=True)
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
        "event.synchronize()": wait_for_event,
        "torch.cuda.synchronize()": lambda: torch.cuda.synchronize(),
        "torch.cuda.empty_cache()": empty_cache,
        "v + w": lambda: v + w,
        "(p * v).sum().backward()": lambda: (p * v).sum().backward(),
        "v.shape": lambda: v.shape,
        "event.record()": lambda: event.record(),
        "event.query()": lambda: event.query(),
        "side.wait_stream(stream)": lambda: side.wait_stream(stream),
    }


def main() -> dict:
    return report(value_lines())


def derive(results: dict) -> dict:
    """The lines that do not wait as these do, or do not return at once as those do."""
    waiting = {
        "s.item()",
        "bool(s > 0)",
        "str(s)",
        "v.cpu()",
        "torch.equal(v, w)",
        "event.synchronize()",
        "torch.cuda.synchronize()",
        "torch.cuda.empty_cache()",
    }
    returning = {
        "v + w",
        "(p * v).sum().backward()",
        "v.shape",
        "event.record()",
        "event.query()",
        "side.wait_stream(stream)",
    }
    others = waiting.symmetric_difference(results["waits"])
    others |= returning.symmetric_difference(results["returns"])
    return {"otherwise": sorted(others)}


if __name__ == "__main__":
    main()
