# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# timeout = 120
# ///
"""Ten squares of (random) 1000 by 1000 matrices, numpy to PyTorch: what is the gap?

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

import time
from functools import partial

import numpy as np
import torch

from snippets.pictures import bars
from snippets.timing.benchmark import Timing
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for

N, ROUNDS = 1000, 10


def numpy_loop(a: np.ndarray, draw: bool) -> None:
    """Square `a`, or with `draw` a fresh random matrix of its type in each round."""
    for _ in range(ROUNDS):
        if draw:
            a = np.random.normal(size=a.shape).astype(a.dtype, copy=False)
        np.dot(a, a)


def torch_loop(a: torch.Tensor, draw: bool) -> None:
    """The same in PyTorch, on the device of `a`."""
    for _ in range(ROUNDS):
        if draw:
            a = torch.randn_like(a)
        torch.mm(a, a)


def returned_and_finished(work) -> tuple[float, float]:
    """Seconds until the calls are back, and until the devices have finished."""
    wait_for()
    start = time.perf_counter()
    work()
    returned = time.perf_counter()
    wait_for()
    return returned - start, time.perf_counter() - start


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    f64 = np.random.normal(size=(N, N))
    x64 = torch.from_numpy(f64).to(device)
    f32, x32 = f64.astype(np.float32), x64.float()
    torch.testing.assert_close((x32 @ x32).double(), x64 @ x64, rtol=1e-3, atol=1e-2)
    numpy_loops = {
        "numpy_draw": partial(numpy_loop, f64, draw=True),
        "numpy_draw_f32": partial(numpy_loop, f32, draw=True),
        "numpy_f64": partial(numpy_loop, f64, draw=False),
        "numpy_f32": partial(numpy_loop, f32, draw=False),
    }
    torch_loops = {
        "torch_draw": partial(torch_loop, x32, draw=True),
        "torch_f64": partial(torch_loop, x64, draw=False),
        "torch": partial(torch_loop, x32, draw=False),
    }
    timings = take_turns(numpy_loops, warmup=1, trials=3)
    pairs = {name: [] for name in torch_loops}
    for _ in range(100 if device == "cuda" else 8):
        for name, work in torch_loops.items():
            pairs[name].append(returned_and_finished(work))
    for name, each in pairs.items():
        late = each[len(each) // 2 :]  # launches get faster at first
        for i, end in enumerate(("returned", "finished")):
            timings[f"{name}_{end}"] = Timing([pair[i] for pair in late])
    result = recorded(timings)
    ms = result["ms"]
    for name in ms:
        print(f"{name.replace('_', ' '):24}{ms[name]:9.3f} ms")
    factors = {"gap": ms["numpy_draw"] / ms["torch_draw_returned"]}
    return result | {"device": device, "factors": factors, "flop": 2 * ROUNDS * N**3}


def derive(results: dict) -> dict:
    """How many times as fast each change makes the loop, in every order measured."""
    ms = results["ms"]
    changes = {
        "device": [
            ("numpy_f32", "torch_finished"),
            ("numpy_f64", "torch_f64_finished"),
            ("numpy_draw_f32", "torch_draw_finished"),
        ],
        "not_waiting": [
            ("torch_finished", "torch_returned"),
            ("torch_draw_finished", "torch_draw_returned"),
            ("torch_f64_finished", "torch_f64_returned"),
        ],
        "float32": [
            ("numpy_f64", "numpy_f32"),
            ("numpy_draw", "numpy_draw_f32"),
            ("torch_f64_finished", "torch_finished"),
        ],
        "not_drawing": [
            ("numpy_draw", "numpy_f64"),
            ("numpy_draw_f32", "numpy_f32"),
            ("torch_draw_finished", "torch_finished"),
            ("torch_draw_returned", "torch_returned"),
        ],
    }
    faster = {
        change: [ms[slow] / ms[fast] for slow, fast in pairs]
        for change, pairs in changes.items()
    }
    return {"faster_by": faster}


def plot(results: dict, ceilings: dict):
    ms = results["ms"]
    rows = {
        "numpy, float64": ("numpy_draw", "numpy_f64"),
        "numpy, float32": ("numpy_draw_f32", "numpy_f32"),
        "PyTorch, float32, finished": ("torch_draw_finished", "torch_finished"),
        "PyTorch, float32, returned": ("torch_draw_returned", "torch_returned"),
    }
    values = {
        label: {"drawing in each round": ms[draw], "one matrix": ms[one]}
        for label, (draw, one) in rows.items()
    }
    floor = {}
    if "fp32_tflop_s" in ceilings:
        least = results["flop"] / ceilings["fp32_tflop_s"] / 1e9
        floor = {"least possible on this GPU": least}
    return bars(values, floor, unit="ms", log=True)


if __name__ == "__main__":
    main()
