# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Small urgent work beside large products: keep SMs free for it with a green context."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.cuda.green_contexts import GreenContext

from snippets.pictures import bars
from snippets.streams.stream_priority import latency_s
from snippets.timing.benchmark import wall_clock
from snippets.timing.take_turns import recorded, take_turns

FREE = 4  # in so many parts of the SMs one is kept free of the large products
LAYERS, WIDTH, LARGE = 10, 512, 8192
#: Each block writes the number of its SM, and stays there for a while.
SOURCE = r"""
extern "C" __global__ void where(int *out, int clocks)
{
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    long long began = clock64();
    while (clock64() - began < clocks);
    out[blockIdx.x] = sm;
}
"""


def sms_of(stream: Any, kernel: Callable[..., Any], sms: int) -> set[int]:
    """Numbers of the SMs on which kernels of this stream run."""
    out = torch.full((8 * sms,), -1, dtype=torch.int, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        kernel((len(out), 1, 1), (1, 1, 1), [out, 200_000])
    stream.synchronize()
    return set(out.tolist())


def small(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A network of LAYERS small products."""
    for _ in range(LAYERS):
        x = (x @ w).relu_()
    return x


def in_stream(stream: Any, work: Callable[[], Any]) -> Any:
    with torch.cuda.stream(stream):
        return work()


def itself(work: Any, calls: int) -> float:
    """The seconds that `work` returns."""
    return work()


def main() -> dict:
    dtype = torch.bfloat16
    a = torch.randn(LARGE, LARGE, device="cuda", dtype=dtype)
    x, w = (
        torch.randn(WIDTH, WIDTH, device="cuda", dtype=dtype) / 16 for _ in range(2)
    )
    sms = torch.cuda.get_device_properties().multi_processor_count
    count = sms * (FREE - 1) // FREE // 8 * 8  # a multiple of 8, as the driver wants
    contexts = [GreenContext.create(num_sms=count, device_id=0) for _ in range(2)]
    limited, second = (context.Stream() for context in contexts)
    kernel = torch.cuda._compile_kernel(SOURCE, "where")
    whole = torch.cuda.current_stream()
    found = {"all": sms_of(whole, kernel, sms)}
    found |= {
        "first": sms_of(limited, kernel, sms),
        "second": sms_of(second, kernel, sms),
    }
    result: dict = {"sms": {name: len(numbers) for name, numbers in found.items()}}
    result["sms"]["in_both"] = len(found["first"] & found["second"])
    print(f"SMs: {result['sms']}")

    crowd: Any = partial(torch.mm, a, a, out=torch.empty_like(a))
    work = partial(small, x, w)
    for each in (work, crowd):
        expected = each().clone()
        torch.cuda.synchronize()
        found_there = in_stream(limited, each)
        limited.synchronize()
        torch.testing.assert_close(found_there, expected)
    other, urgent = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    ways: dict[str, Callable[[], float]] = {
        "idle": partial(latency_s, other, work, lambda: None),
        "same": partial(latency_s, whole, work, crowd),
        "other": partial(latency_s, other, work, crowd),
        "urgent": partial(latency_s, urgent, work, crowd),
        "reserved": lambda: in_stream(limited, partial(latency_s, other, work, crowd)),
    }
    timings = take_turns(ways, trials=15, clock=itself)
    result["small"] = recorded(timings, "ms")
    crowds = {"all": crowd, "limited": partial(in_stream, limited, crowd)}
    result["large"] = recorded(take_turns(crowds, trials=9, calls=20, clock=wall_clock))
    for name, ms in result["small"]["ms"].items():
        print(f"small network, {name:9}{ms:7.3f} ms")
    for name, ms in result["large"]["ms"].items():
        print(f"large product, {name:9}{ms:7.3f} ms")
    return result | {"layers": LAYERS}


def plot(results: dict, ceilings: dict):
    ways = {"same": "the same stream", "other": "another stream"}
    ways |= {"urgent": "high priority", "reserved": "SMs kept free", "idle": "idle GPU"}
    ms = {label: results["small"]["ms"][way] for way, label in ways.items()}
    return bars(ms, {}, "ms until the small network is done", log=True)


if __name__ == "__main__":
    main()
