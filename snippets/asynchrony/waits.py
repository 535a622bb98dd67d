# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["waits"]
# ///
"""Does this function wait for the GPU? Call it behind a kernel of known length."""

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch


def held(function: Callable[[], object], busy_ms: float = 15.0) -> tuple[float, float]:
    """Milliseconds until `function()` is back, and of the kernel that runs before it.

    The kernel keeps the current stream of the current GPU busy for about `busy_ms`.
    """
    khz = torch.cuda.get_device_properties(torch.cuda.current_device()).clock_rate
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    torch.cuda._sleep(int(busy_ms * khz))  # counts clock cycles
    end.record()
    start = time.perf_counter()
    function()
    back = time.perf_counter()
    torch.cuda.synchronize()
    return 1e3 * (back - start), begin.elapsed_time(end)


def waits(function: Callable[[], object]) -> bool:
    """Whether `function()` waits for what the current stream was given before it.

    It is called three times: the first call may load kernels, the second shows how long
    it takes on an idle GPU, the third is behind a kernel at least ten times as long.
    A function of more than about a thousand launches fills the queue: that waits, too.
    It needs a CUDA GPU, without which PyTorch raises an error.
    """
    function()
    alone_ms, _ = held(function, busy_ms=0)
    held_ms, kernel_ms = held(function, max(15.0, 10 * alone_ms))
    return held_ms > 0.5 * kernel_ms


def report(lines: Mapping[str, Callable[[], object]]) -> dict:
    """How long each line was held, in ms and as a share of the kernel; who waits."""
    rows, busy_ms = {}, []
    for line, function in lines.items():
        trials = [held(function) for _ in range(6)][1:]  # the first call warms up
        ms = [each for each, _ in trials]
        shares = [each / kernel for each, kernel in trials]
        rows[line] = {"blocked_ms": median(ms), "blocked_ms_trials": ms}
        rows[line] |= {"share": median(shares), "share_trials": shares}
        busy_ms += [kernel for _, kernel in trials]
        print(f"{line:<53}{median(ms):6.2f} ms")
    waiting = [line for line, row in rows.items() if row["share"] >= 0.9]
    back = [line for line, row in rows.items() if row["share"] <= 0.25]
    print(f"behind {median(busy_ms):.1f} ms: {len(waiting)} wait, {len(back)} do not")
    result = {"lines": rows, "waits": waiting, "returns": back}
    return result | {"busy_ms": median(busy_ms), "busy_ms_trials": busy_ms}


def main() -> dict:
    x, side = torch.ones(1024, device="cuda"), torch.cuda.Stream()

    def item_on_another_stream() -> None:
        with torch.cuda.stream(side):
            x[0].item()

    asked = {
        "x[0].item()": lambda: x[0].item(),
        "x[0].item() on another stream": item_on_another_stream,
        "x + 1": lambda: x + 1,
        "20 ms of Python": lambda: time.sleep(0.02),
    }
    verdicts = {line: waits(function) for line, function in asked.items()}
    for line, verdict in verdicts.items():
        print(f"{line:<30}{'waits' if verdict else 'does not wait'}")
    return {"waits": verdicts}


if __name__ == "__main__":
    main()
