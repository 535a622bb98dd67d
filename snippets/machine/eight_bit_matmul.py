# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""A layer in bf16, FP8 and int8, by its rows: rates beside the GPU's, and errors."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from snippets.pictures import Axis, Line, Panel, Picture
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import take_turns

INPUTS, OUTPUTS = 8192, 16384  # in FP8 134 MB: more than a cache holds
ROWS = (32, 128, 512, 2048, 8192)
E4M3 = torch.float8_e4m3fn


def in_fp8(x: Tensor, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """x in FP8, and its scale: of all, or of each row along `dim`.

    x is about the product of both. A row of zeros gets a scale of 1e-12.
    """
    largest = x.abs().amax(dim, keepdim=dim is not None).float()
    scale = (largest / torch.finfo(E4M3).max).clamp(min=1e-12)
    return (x / scale).to(E4M3), scale


def in_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """x in int8, and the scale of each row: (n, 1)."""
    scale = (x.abs().amax(1, keepdim=True).float() / 127).clamp(min=1e-12)
    return (x / scale).round().to(torch.int8), scale


def by_fp8(x: Tensor, weight: Tensor, dim: int | None) -> Callable[[], Tensor]:
    """x @ weightᵀ of FP8, to bfloat16; the weight is (outputs, inputs)."""
    one, other = in_fp8(x, dim), in_fp8(weight, dim)
    scales = {"scale_a": one[1], "scale_b": other[1].T if dim else other[1]}
    options = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    return partial(torch._scaled_mm, one[0], other[0].T, **scales, **options)


def products(x: Tensor, weight: Tensor) -> dict[str, Callable[[], Tensor]]:
    """The kernels alone: what they multiply is in its type already."""
    one, other = in_int8(x)[0], in_int8(weight)[0]
    return {
        "bf16": partial(torch.mm, x, weight.T),
        "fp8": by_fp8(x, weight, None),
        "fp8_rows": by_fp8(x, weight, 1),
        "int8": partial(torch._int_mm, one, other.T),  # sums in int32
    }


def error(found: Tensor, exact: Tensor) -> float:
    """The norm of the difference over that of what is exact."""
    return float((found.double() - exact).norm() / exact.norm())


def errors(x: Tensor, weight: Tensor) -> dict[str, float]:
    """How far each way is from float64, with the conversion of x and weight."""
    exact = x.double() @ weight.double().T
    ways = products(x, weight)
    found = {
        name: error(work(), exact) for name, work in ways.items() if name != "int8"
    }
    scales = in_int8(x)[1] * in_int8(weight)[1].T
    return found | {"int8": error(ways["int8"]().double() * scales, exact)}


def main() -> dict:
    torch.manual_seed(0)
    weight = torch.randn(OUTPUTS, INPUTS, device="cuda").bfloat16()
    off, rows = {}, []
    for count in ROWS:
        x = torch.randn(count, INPUTS, device="cuda").bfloat16()
        if not off:
            off = errors(x, weight)
            assert max(off.values()) < 0.1, off
        works = products(x, weight)
        calls = 20 if count < 2048 else 4
        turns = take_turns(works, 1, 7, calls, rest_s=0.02, clock=gpu_clock)
        row: dict = {
            "rows": count,
            "us": {},
            "us_trials": {},
            "tflop_s": {},
            "gb_s": {},
        }
        for name, timing in turns.items():
            us = [1e6 * seconds for seconds in timing.trials]
            row["us"][name], row["us_trials"][name] = median(us), us
            flop = 2 * count * INPUTS * OUTPUTS
            row["tflop_s"][name] = flop / median(us) / 1e6
            size = 2 if name == "bf16" else 1
            row["gb_s"][name] = size * INPUTS * OUTPUTS / median(us) / 1e3  # weights
        rows.append(row)
        rates = (f"{name} {rate:6.0f}" for name, rate in row["tflop_s"].items())
        print(f"{count:5} rows, TFLOP/s:", *rates, end="; ")
        print(*(f"{name} {us:6.1f}" for name, us in row["us"].items()), "µs")
    print("error:", *(f"{name} {share:.1e}" for name, share in off.items()))
    return {"rows": rows, "errors": off, "inputs": INPUTS, "outputs": OUTPUTS}


def derive(results: dict) -> dict:
    """How many times as fast as bf16 each way is, by rows."""
    gain: dict[str, list[float]] = {}
    for row in results["rows"]:
        for name, us in row["us"].items():
            gain.setdefault(name, []).append(row["us"]["bf16"] / us)
    return {"gain": gain}


def plot(results: dict, ceilings: dict):
    words = {"bf16": "bf16", "fp8": "FP8", "fp8_rows": "FP8, scaled by rows"}
    words["int8"] = "int8"
    rows = results["rows"]
    counts = [row["rows"] for row in rows]
    marks: list[Any] = []
    for name, text in words.items():
        marks.append(Line(counts, [row["tflop_s"][name] for row in rows], text))
    for name, size in {"bf16": 2, "fp8": 1}.items():
        if {"hbm_gb_s", f"{name}_tflop_s"} <= set(ceilings):
            limits = []
            for count in counts:
                read = 2 * count * ceilings["hbm_gb_s"] / 1e3 / size
                limits.append(min(read, ceilings[f"{name}_tflop_s"]))
            label = f"ceiling of {words[name]}"
            marks.append(Line(counts, limits, label, False, "4 2", color="ceiling"))
    x = Axis("rows (tokens)", log=True, ticks={count: f"{count:,}" for count in counts})
    return Picture([Panel(marks, x, Axis("TFLOP/s", log=True))])


if __name__ == "__main__":
    main()
