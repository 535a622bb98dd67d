# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""A matmul on the CPU beside matmuls on the GPU: alone, together, and in both orders."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from snippets.pictures import bars
from snippets.timing.benchmark import measure
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.timing.wait_for import wait_for

N_CPU, N_GPU = 4096, 8192  # rows and columns
MOST_CALLS = 200  # fewer than the queue of a stream holds


def on_cpu(a: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a, a, out=out)


def on_gpu(b: torch.Tensor, out: torch.Tensor, calls: int) -> None:
    """Launch so many matmuls; none of them has to be done when this returns."""
    for _ in range(calls):
        torch.mm(b, b, out=out)


def in_turn(cpu: Callable[[], None], gpu: Callable[[], None]) -> None:
    """Wait for the GPU before the CPU begins."""
    gpu()
    wait_for()
    cpu()


def gpu_first(cpu: Callable[[], None], gpu: Callable[[], None]) -> None:
    """Launch, then compute: both work."""
    gpu()
    cpu()
    wait_for()


def cpu_first(cpu: Callable[[], None], gpu: Callable[[], None]) -> None:
    """Compute, then launch: the launch comes when the CPU is done."""
    cpu()
    gpu()
    wait_for()


def main() -> dict:
    torch.manual_seed(0)
    a, b = torch.randn(N_CPU, N_CPU), torch.randn(N_GPU, N_GPU, device="cuda")
    products = torch.empty_like(a), torch.empty_like(b)
    cpu = partial(on_cpu, a, products[0])
    one = partial(on_gpu, b, products[1], 1)
    both = measure(cpu, trials=5).median, measure(one, trials=5).median
    calls = min(max(round(both[0] / both[1]), 1), MOST_CALLS)  # about equally long
    gpu = partial(on_gpu, b, products[1], calls)
    works = {
        "CPU alone": cpu,
        "GPU alone": gpu,
        "in turn": partial(in_turn, cpu, gpu),
        "CPU first": partial(cpu_first, cpu, gpu),
        "GPU first": partial(gpu_first, cpu, gpu),
    }
    expected = a @ a, b @ b
    for work in works.values():
        for product in products:
            product.zero_()
        work()
        wait_for()
        if work is not gpu:
            torch.testing.assert_close(products[0], expected[0])
        if work is not cpu:
            torch.testing.assert_close(products[1], expected[1])
    times = take_turns(works, trials=11)
    result = recorded(times) | {"n": {"cpu": N_CPU, "gpu": N_GPU}, "calls": calls}
    result["threads"] = torch.get_num_threads()
    faster = ratios(times["in turn"], times["GPU first"])
    for name, ms in result["ms"].items():
        print(f"{name:10}{ms:9.1f} ms")
    print(f"launched first, the GPU works beside: {median(faster):.2f} times as fast")
    return result | {"speedup": median(faster), "speedup_trials": faster}


def derive(results: dict) -> dict:
    """The sum and the longer of the two alone, in ms."""
    alone = [results["ms"][f"{name} alone"] for name in ("CPU", "GPU")]
    return {"sum_ms": sum(alone), "longer_ms": max(alone)}


def plot(results: dict, ceilings: dict):
    ms = results["ms"]
    longer = max(ms["CPU alone"], ms["GPU alone"])
    return bars(ms, {"the longer of the two": longer}, "ms")


if __name__ == "__main__":
    main()
