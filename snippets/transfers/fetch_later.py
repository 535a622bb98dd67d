# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Start a copy to the host, do other work, wait for the copy before you look."""

from functools import partial

import torch

from snippets.timing.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

N, PRODUCTS, ELEMENTS = 8192, 3, 32 * 2**20  # bf16 products; float32, 128 MiB


def fetch_later(on_gpu: torch.Tensor, copying: torch.cuda.Stream):
    """Start a copy to pinned memory behind what is launched: a tensor, an event.

    Read the tensor only after the event's `synchronize()`, and do not write into
    `on_gpu` before that; dropping it is safe.
    """
    copying.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copying):
        on_host = on_gpu.to("cpu", non_blocking=True)
    on_gpu.record_stream(copying)
    return on_host, copying.record_event()


def work(x: torch.Tensor) -> None:
    for _ in range(PRODUCTS):
        torch.mm(x, x)


def cpu_then_work(on_gpu: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    on_host = on_gpu.cpu()
    work(x)
    return on_host


def work_then_wait(on_gpu: torch.Tensor, x: torch.Tensor, copying: torch.cuda.Stream):
    on_host, landed = fetch_later(on_gpu, copying)
    work(x)
    landed.synchronize()
    return on_host


def main() -> dict:
    x = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    on_gpu, copying = torch.randn(ELEMENTS, device="cuda"), torch.cuda.Stream()
    assert torch.equal(work_then_wait(on_gpu, x, copying), on_gpu.cpu())
    works = {"work": partial(work, x), "copy": partial(fetch_later, on_gpu, copying)}
    works["cpu_then_work"] = partial(cpu_then_work, on_gpu, x)
    works["work_then_wait"] = partial(work_then_wait, on_gpu, x, copying)
    result = recorded(take_turns(works))
    print(*(f"{way:<16}{ms:8.2f} ms" for way, ms in result["ms"].items()), sep="\n")
    return result


def plot(results: dict, ceilings: dict):
    ms = results["ms"]
    labels = {way.replace("_", " "): ms[way] for way in ms}
    return bars(labels, {"the longer leg": max(ms["work"], ms["copy"])}, "ms")


if __name__ == "__main__":
    main()
