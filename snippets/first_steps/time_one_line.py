# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Time one line twice: until the call is back, and until the work is done."""

import time
from collections.abc import Callable
from statistics import median

import torch

from snippets.timing.benchmark import measure


def until_returned(line: Callable[[], object], trials: int = 15) -> list[float]:
    """Milliseconds until the call is back; a GPU may not even have begun. Broken."""
    ms = []
    for _ in range(trials):
        start = time.perf_counter()
        line()
        ms.append(1e3 * (time.perf_counter() - start))
    return ms


def until_done(line: Callable[[], object], trials: int = 15) -> list[float]:
    """Milliseconds until the work is done: after a warm-up, and waited for. Fixed."""
    return measure(line, trials=trials).ms()


def main() -> dict:
    device, n = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 512)
    x = torch.randn(n, n, device=device)

    def line() -> torch.Tensor:
        return torch.mm(x, x)

    torch.testing.assert_close(line()[0], x[0] @ x, rtol=1e-3, atol=1e-2)
    trials = {"done": until_done(line), "returned": until_returned(line)}
    ms = {name: median(each) for name, each in trials.items()}
    tflop_s = {name: 2e-9 * n**3 / each for name, each in ms.items()}
    for name in ms:
        print(f"{name:<9}{ms[name]:9.3f} ms {tflop_s[name]:12.3f} TFLOP/s")
    return {"n": n, "ms": ms, "ms_trials": trials, "tflop_s": tflop_s}


if __name__ == "__main__":
    main()
