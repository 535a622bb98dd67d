# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# take = ["fetch_later"]
# ///
"""Start a copy to the host, do other work, wait for the copy before you look."""

from collections.abc import Callable
from functools import partial

import torch

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

N, ELEMENTS = 8192, 32 * 2**20  # bf16 matmuls; float32, 128 MiB
PRODUCTS, LONG = 3, 60  # short work, and one about as long as .cpu() takes
REST_S = 0.15  # before each: a GPU that has just worked runs at a lower clock


def fetch_later(
    on_gpu: torch.Tensor, copying: torch.cuda.Stream
) -> tuple[torch.Tensor, torch.Event]:
    """Start a copy to pinned memory behind what is launched: a tensor, an event.

    Read the tensor only after the event's `synchronize()`, and do not write into
    `on_gpu` before that; dropping it is safe. `copying` is a stream of its GPU, else
    ValueError. The copy has no graph: a loss that you fetch and keep holds nothing else.
    Results that you keep take new pinned memory each, which holds the caller.
    """
    if on_gpu.device != copying.device:
        places = f"the tensor is on {on_gpu.device}, the stream on {copying.device}"
        raise ValueError(f"{places}: give a stream of the tensor's GPU")
    copying.wait_stream(torch.cuda.current_stream(on_gpu.device))
    with torch.cuda.stream(copying):
        on_host = on_gpu.detach().to("cpu", non_blocking=True)
    on_gpu.record_stream(copying)
    return on_host, copying.record_event()


def work(x: torch.Tensor, products: int) -> None:
    for _ in range(products):
        torch.mm(x, x)


def cpu_then_work(on_gpu: torch.Tensor, work: Callable[[], None]) -> torch.Tensor:
    on_host = on_gpu.cpu()
    work()
    return on_host


def work_then_wait(
    on_gpu: torch.Tensor, work: Callable[[], None], copying: torch.cuda.Stream
) -> torch.Tensor:
    on_host, landed = fetch_later(on_gpu, copying)
    work()
    landed.synchronize()
    return on_host


def main() -> dict:
    x = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    on_gpu, copying = torch.randn(ELEMENTS, device="cuda"), torch.cuda.Stream()
    short, long = (partial(work, x, products) for products in (PRODUCTS, LONG))
    assert torch.equal(work_then_wait(on_gpu, short, copying), on_gpu.cpu())
    works = {"copy": partial(fetch_later, on_gpu, copying), "cpu": on_gpu.cpu}
    for name, run in {"work": short, "long": long}.items():
        works[name] = run
        works[f"cpu_then_{name}"] = partial(cpu_then_work, on_gpu, run)
        works[f"{name}_then_wait"] = partial(work_then_wait, on_gpu, run, copying)
    result = recorded(take_turns(works, trials=9, rest_s=REST_S))
    print(*(f"{way:<16}{ms:8.2f} ms" for way, ms in result["ms"].items()), sep="\n")
    return result


def plot(results: dict, ceilings: dict):
    ms = results["ms"]
    times = {
        "work alone": ms["work"],
        "copy alone": ms["copy"],
        "wait for the copy,\nthen work (sum)": ms["work"] + ms["copy"],
        "work, then wait\nfor the copy": ms["work_then_wait"],
    }
    return bars(times, {}, "ms")


if __name__ == "__main__":
    main()
