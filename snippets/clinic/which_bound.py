# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# once = { gpu_us = "from one profile of twenty calls" }
# ///
"""Launch, memory, compute or copy: what binds an operation? Judge by what it takes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch

from snippets.timing.benchmark import measure
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.lanes import lanes

CALLS = 20


class Op(NamedTuple):
    """Work, and the least it must do: FLOP, bytes of GPU memory, bytes over PCIe."""

    work: Callable
    flop: float = 0
    dtype: str = "fp32"
    memory_bytes: float = 0
    copy_bytes: float = 0


def bound(op: Op, wall_s: float, gpu_s: float, ceilings: Mapping[str, float]) -> str:
    """What binds `op`: a call takes `wall_s` and keeps the GPU busy for `gpu_s`.

    Ceilings are per second: FLOP by data type, bytes for "memory" and "copy".
    """
    least = {"compute": op.flop / ceilings[op.dtype]}
    least["memory"] = op.memory_bytes / ceilings["memory"]
    least["copy"] = op.copy_bytes / ceilings["copy"]
    binds = max(least, key=least.get)
    idle = gpu_s < 0.7 * wall_s and least[binds] < 0.1 * wall_s
    return "launch" if idle else binds


def gpu_busy_s(work: Callable) -> float:
    """Seconds of kernels and copies in a call, from a profile."""
    rows = lanes(lambda: [work() for _ in range(CALLS)])
    return sum(us for lane, _, us, _ in rows if "stream" in lane) / 1e6 / CALLS


def measured_ceilings(n: int = 8192) -> dict[str, float]:
    """What this GPU reaches at best, per second, in products of (n, n) and copies."""
    x, found = torch.randn(n, n, device="cuda"), {}
    for name, y in {"fp32": x, "bf16": x.bfloat16()}.items():
        found[name] = 2 * n**3 / gpu_clock(partial(torch.mm, y, y), calls=3)
    found["memory"] = 2 * x.nbytes / gpu_clock(x.clone, calls=3)
    send = partial(x.copy_, x.cpu().pin_memory(), non_blocking=True)
    return found | {"copy": x.nbytes / gpu_clock(send, calls=3)}


def judged(ops: Mapping[str, Op], ceilings: Mapping[str, float]) -> dict[str, dict]:
    """For each operation what binds it, and from which times that was judged."""
    rows = {}
    for name, op in ops.items():
        timing, gpu_s = measure(op.work, trials=5, calls=CALLS), gpu_busy_s(op.work)
        binds = bound(op, timing.median, gpu_s, ceilings)
        print(f"{name:<22}{1e6 * timing.median:10.1f} µs, bound by {binds}")
        wall = {"wall_us": 1e6 * timing.median, "wall_us_trials": timing.us()}
        rows[name] = wall | {"gpu_us": 1e6 * gpu_s, "bound": binds}
    return rows


def main() -> dict:
    small, large = torch.randn(1024, device="cuda"), torch.randn(2**28, device="cuda")
    add, both = Op(small.neg, memory_bytes=2 * small.nbytes), 2 * large.nbytes
    ops = {"1,024 floats": add, "268 million": Op(large.neg, memory_bytes=both)}
    return judged(ops, measured_ceilings())


if __name__ == "__main__":
    main()
