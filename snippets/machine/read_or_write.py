# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Kernels that only read, only write, or do both: what does the memory give each?"""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from snippets.pictures import bars
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import take_turns

TOUCHED = 2**31  # bytes that each call reads and writes in all
FACTOR = 2654435761  # an odd number that scatters the bits of a count
SOURCE = """
extern "C" __global__ void scatter(uint4 *out, int n, int factor)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned bits = i * (unsigned)factor;
    if (i < n) out[i] = make_uint4(bits, bits * 3, bits * 5, bits * 7);
}
"""


def scatter(kernel: Callable[..., Any], out: Tensor, factor: int) -> None:
    """Write 16 bytes from each thread: other bits everywhere, or zeros by factor 0."""
    n = out.nbytes // 16
    signed = factor - 2**32 if factor >= 2**31 else factor  # as a C `int`
    kernel((-(-n // 256), 1, 1), (256, 1, 1), [out, n, signed])


def check_scattered(out: Tensor) -> None:
    """The first 4096 threads have written what the kernel says."""
    found = out.view(torch.int32)[: 4 * 4096].view(-1, 4).long() % 2**32
    bits = torch.arange(4096, device=out.device) * FACTOR % 2**32
    torch.testing.assert_close(found[:, 0], bits)
    torch.testing.assert_close(found[:, 3], bits * 7 % 2**32)


def works() -> dict[str, partial[object]]:
    """Calls that touch TOUCHED bytes each, by what they do."""
    whole = torch.randn(TOUCHED // 4, device="cuda")
    written = torch.empty_like(whole)
    kernel = torch.cuda._compile_kernel(SOURCE, "scatter")
    a, b = (torch.randn(TOUCHED // 8, device="cuda") for _ in range(2))
    x, y, z = (torch.randn(TOUCHED // 12, device="cuda") for _ in range(3))
    return {
        "read: amax": partial(torch.amax, whole),
        "read: sum": partial(torch.sum, whole),
        "write: fill_": partial(written.fill_, 1.0),
        "write: zero_": partial(written.zero_),
        "write: zeros, own kernel": partial(scatter, kernel, written, 0),
        "write: scattered bits": partial(scatter, kernel, written, FACTOR),
        "half and half: copy_": partial(a.copy_, b),
        "half and half, in place: neg_": partial(a.neg_),
        "two reads, one write: add": partial(torch.add, y, z, alpha=3, out=x),
    }


def main() -> dict:
    calls = works()
    calls["write: scattered bits"]()
    check_scattered(calls["write: scattered bits"].args[1])
    timings = take_turns(calls, trials=11, clock=gpu_clock, calls=5)
    trials, gb_s = {}, {}
    for name, timing in timings.items():
        trials[name] = [TOUCHED / 1e9 / seconds for seconds in timing.trials]
        gb_s[name] = median(trials[name])
        print(f"{name:<32}{gb_s[name]:6.0f} GB/s")
    return {"gb_s": gb_s, "gb_s_trials": trials}


def derive(results: dict) -> dict:
    """The rates of kinds of access, and of mixes if reads and writes took turns."""
    gb_s = results["gb_s"]
    read, write = gb_s["read: sum"], gb_s["write: fill_"]
    own, add = gb_s["write: zeros, own kernel"], gb_s["two reads, one write: add"]
    scattered = gb_s["write: scattered bits"]
    rates = {
        "write_gb_s": min(write, gb_s["write: zero_"]),
        "most_read_gb_s": max(read, gb_s["read: amax"]),
        "most_half_gb_s": max(
            gb_s["half and half: copy_"], gb_s["half and half, in place: neg_"]
        ),
        "half_in_turn_gb_s": 2 / (1 / read + 1 / write),
        "add_in_turn_gb_s": 3 / (2 / read + 1 / write),
    }
    return rates | {
        "writes_off": [abs(scattered / own - 1), abs(own / write - 1)],
        "write_of_read": rates["write_gb_s"] / rates["most_read_gb_s"],
        "half_turns": rates["most_half_gb_s"] / rates["half_in_turn_gb_s"],
        "add_turns": add / rates["add_in_turn_gb_s"],
    }


def plot(results: dict, ceilings: dict):
    labels = {"write: fill_": "only writes: fill_"}
    labels["write: scattered bits"] = "only writes: random bits"
    labels |= {"read: sum": "only reads: sum"}
    labels |= {"two reads, one write: add": "reads two, writes one: triad"}
    labels |= {"half and half: copy_": "reads one, writes one: copy_"}
    labels |= {"half and half, in place: neg_": "the same in place: neg_"}
    rates = {label: results["gb_s"][name] for name, label in labels.items()}
    if "hbm_gb_s" not in ceilings:
        return bars(rates, {}, "GB/s read and written")
    shares = {label: 100 * rate / ceilings["hbm_gb_s"] for label, rate in rates.items()}
    return bars(shares, {"ceiling": 100}, "% of the memory's ceiling")


if __name__ == "__main__":
    main()
