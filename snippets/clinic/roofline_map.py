# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""The book's operations on the roofline: FLOP for each byte, and FLOP per second."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.pictures import DASHES, Axis, Dots, Line, Note, Panel, Picture
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import take_turns


class Op(NamedTuple):
    """Work on the GPU, its FLOP, the least bytes it moves, and the roof above it."""

    work: Callable
    flop: float
    moved: float
    roof: str


def products(batch: int, n: int, dtype=torch.bfloat16, roof="bf16") -> Op:
    """`batch` matmuls of (n, n); checked against float64."""
    x = torch.randn(batch, n, n, device="cuda", dtype=dtype)
    right = (x[0, :64].double() @ x[0].double()).to(dtype)
    torch.testing.assert_close((x @ x)[0, :64], right, rtol=0.02, atol=0.02 * n**0.5)
    # x is read once, though it is used twice, and the result is as large
    return Op(partial(torch.bmm, x, x), batch * 2 * n**3, 2 * x.nbytes, roof)


def with_tf32(op: Op) -> Op:
    """The same with TF32 allowed for matmuls of float32."""

    def work() -> None:
        settings = torch.backends.cuda.matmul  # of the whole process
        before, settings.fp32_precision = settings.fp32_precision, "tf32"
        try:
            op.work()
        finally:
            settings.fp32_precision = before

    return op._replace(work=work, roof="tf32")


def by_row(work: Callable[..., Any], x: Tensor, flop: int, times: int) -> Op:
    """Work in float32 with so many FLOP an element, which touches x so many times."""
    return Op(partial(work, x), flop * x.numel(), times * x.nbytes, "fp32")


def operations() -> dict[str, Op]:
    """From one FLOP for many bytes to thousands of FLOP for each byte."""
    x = torch.randn(16384, 16384, device="cuda")
    q = torch.randn(4, 16, 4096, 64, device="cuda", dtype=torch.bfloat16)
    attention = partial(F.scaled_dot_product_attention, q, q, q)
    ops = {
        "add": by_row(partial(torch.add, other=1), x, 1, 2),
        "matrix by vector": by_row(lambda x: torch.mv(x, x[0]), x, 2, 1),
        "softmax": by_row(partial(torch.softmax, dim=1), x, 5, 2),
        "attention": Op(attention, 4 * 4096 * q.numel(), 2 * q.nbytes, "bf16"),
    }
    plain = products(1, 4096, torch.float32, "fp32")
    ops |= {"float32 4096": plain, "TF32 4096": with_tf32(plain)}
    for n in (64, 128, 256, 512):
        ops[f"{2**27 // n**2:,} × {n}"] = products(2**27 // n**2, n)
    return ops | {f"bf16 {n}": products(1, n) for n in (1024, 4096, 8192)}


def main() -> dict:
    ops, rows = operations(), {}
    works = {name: op.work for name, op in ops.items()}
    times = take_turns(works, warmup=1, trials=5, calls=5, clock=gpu_clock)
    for name, op in ops.items():
        rates = [op.flop / 1e12 / seconds for seconds in times[name].trials]
        row = {"tflop_s": median(rates), "tflop_s_trials": rates, "roof": op.roof}
        rows[name] = row | {"flop_per_byte": op.flop / op.moved}
        print(f"{name:<17}{op.flop / op.moved:9.2f} FLOP/B{median(rates):9.2f} TFLOP/s")
    return {"rows": rows}


def plot(results: dict, ceilings: dict):
    rows = results["rows"]
    marks = []
    for roof in sorted({row["roof"] for row in rows.values()}):
        points = [row for row in rows.values() if row["roof"] == roof]
        x = [row["flop_per_byte"] for row in points]
        marks.append(Dots(x, [row["tflop_s"] for row in points], roof))
    # left of its dot, or right of it: where no line and no other name is
    left = {"bf16 1024": (10, 13), "512 × 512": (-12, -6)}
    left |= {"matrix by vector": (-12, -14), "bf16 4096": (5, -14)}
    right = {"softmax": (6, 0), "attention": (8, 11)}
    right |= {"bf16 8192": (2, -14), "TF32 4096": (4, 19), "float32 4096": (-30, 13)}
    right |= {"32,768 × 64": (6, 6)}
    for name, row in rows.items():
        kind, _, size = name.rpartition(" ")
        text = f"{size}²" if size.isdigit() else name
        if size == "4096":  # the same matmul in each data type
            text = f"{kind} {text}"
        (dx, dy), side = right.get(name, (6, 3)), "left"
        if name in left or (" × " in name and name not in right):
            (dx, dy), side = left.get(name, (-8, 0)), "right"
        place = row["flop_per_byte"], row["tflop_s"]
        marks.append(Note(*place, text, side, dx, dy))
    most = max(row["flop_per_byte"] for row in rows.values())
    ends = [0.1, 9 * most]
    for roof, dash in zip(("bf16", "fp32", "tf32"), DASHES, strict=True):
        if f"{roof}_tflop_s" in ceilings and "hbm_gb_s" in ceilings:
            peak, slope = ceilings[f"{roof}_tflop_s"], ceilings["hbm_gb_s"] / 1e3
            x = [ends[0], peak / slope, ends[1]]
            y = [min(peak, slope * each) for each in x]
            look = {"dots": False, "dash": dash, "color": "ceiling"}
            marks.append(Line(x, y, f"{roof} roof", **look))
            marks.append(Note(ends[1], peak, f"{roof} roof", dx=4, color="ceiling"))
    if "hbm_gb_s" in ceilings:
        place = 4, 4 * ceilings["hbm_gb_s"] / 1e3
        marks.append(Note(*place, "memory roof", "right", -8, -2, color="ceiling"))
    x = Axis("FLOP per byte", log=True, low=0.07, high=119 * most)
    return Picture([Panel(marks, x, Axis("TFLOP/s", log=True, high=3000))])


if __name__ == "__main__":
    main()
