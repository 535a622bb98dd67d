# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""Call an operation twenty times on the same numbers: how many results are there?"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

NUMBERS, SLOTS, REPEATS = 1_000_000, 1000, 20
CONFIG = "CUBLAS_WORKSPACE_CONFIG"


def distinct(work: Callable[[], Tensor], repeats: int = REPEATS) -> int:
    """How many results, different in value, `work()` gives in so many calls.

    All results that differ are kept meanwhile. `work` gives a new tensor each time: one
    buffer that it overwrites, as a CUDA graph does, counts as 1 whatever is in it, so
    give `lambda: work().clone()` there. Values are compared, as by `torch.equal`: 0.0
    and -0.0 are alike, and a result with a NaN differs from every other.
    """
    results: list[Tensor] = []
    for _ in range(repeats):
        result = work()
        if not any(torch.equal(result, other) for other in results):
            results.append(result)
    return len(results)


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Tensor]:
    """Work that gives the gradient of the sum of squares of `function(x)`."""
    leaf = x.clone().requires_grad_()

    def work() -> Tensor:
        return torch.autograd.grad(function(leaf).square().sum(), leaf)[0]

    return work


def operations(device: str) -> dict[str, Callable[[], Tensor]]:
    """Work by the name of its operation, each always with the same inputs."""
    torch.manual_seed(0)
    with torch.device(device):
        values = torch.randn(NUMBERS)
        slots = torch.randint(SLOTS, (NUMBERS,))
        images = torch.randn(8, 64, 32, 32)
        kernel = torch.randn(64, 64, 3, 3)
        words = torch.randint(50, (8192,))
        table = torch.randn(1000, 256)
        queries = torch.randn(4, 8, 1024, 64)
        square = torch.randn(1024, 1024)

    def room() -> Tensor:
        return torch.zeros(SLOTS, device=device)

    def attention(q: Tensor) -> Tensor:
        low = q.bfloat16()
        return F.scaled_dot_product_attention(low, low, low, is_causal=True).float()

    return {
        "index_add_": lambda: room().index_add_(0, slots, values),
        "scatter_add_": lambda: room().scatter_add_(0, slots, values),
        "scatter_reduce_": lambda: room().scatter_reduce_(0, slots, values, "sum"),
        "index_put_": lambda: room().index_put_((slots,), values, accumulate=True),
        "put_": lambda: room().put_(slots, values, accumulate=True),
        "bincount": lambda: torch.bincount(slots, values, SLOTS),
        "cumsum": lambda: values.cumsum(0),
        "embedding, backward": gradient(lambda w: F.embedding(words, w), table),
        "conv2d, backward": gradient(lambda w: F.conv2d(images, w, padding=1), kernel),
        "interpolate, backward": gradient(
            lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), images
        ),
        "attention, backward": gradient(attention, queries),
        "matmul": lambda: square @ square,
        "sum": lambda: values.sum(),
    }


@contextmanager
def deterministic() -> Iterator[None]:
    """PyTorch takes deterministic algorithms, and refuses where it has none."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def looked_at(work: Callable[[], Tensor]) -> dict:
    """Results by default, by deterministic algorithms, and what these take longer."""
    row: dict = {"default": distinct(work), "refusal": ""}
    expected = work()

    def strictly() -> Tensor:
        with deterministic():
            return work()

    try:
        row["deterministic"] = distinct(strictly)
    except RuntimeError as error:
        row["refusal"] = str(error).split(". ")[0]
        return row
    off = (strictly() - expected).norm() / expected.norm()
    assert off < 0.02, f"deterministic algorithms are off by {off}"
    turns = take_turns({"default": work, "strict": strictly}, trials=7, calls=5)
    slower = ratios(turns["strict"], turns["default"])
    return row | recorded(turns, "us") | {"slower": median(slower)}


def refused_matmul() -> str:
    """What a process says to its first product, if the variable is not set."""
    env = {name: value for name, value in os.environ.items() if name != CONFIG}
    command = [sys.executable, __file__, "matmul"]
    child = subprocess.run(command, env=env, capture_output=True, text=True)
    return child.stdout.strip()


def multiply_strictly() -> str:
    x = torch.ones(64, 64, device="cuda")
    with deterministic():
        try:
            torch.mm(x, x)
        except RuntimeError as error:
            return str(error).splitlines()[0]
    return ""


def main() -> dict:
    os.environ[CONFIG] = ":4096:8"  # before the first product: cuBLAS reads it then
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = {name: looked_at(work) for name, work in operations(device).items()}
    for name, row in rows.items():
        print(f"{name:22}{row['default']:3} results in {REPEATS} calls;", end=" ")
        if row["refusal"]:
            print(row["refusal"])
            continue
        times = f"{row['us']['default']:8.1f} → {row['us']['strict']:8.1f} µs"
        print(f"deterministic: {row['deterministic']}, {times}")
    result = {"operations": rows, "repeats": REPEATS}
    if device == "cuda":
        result["refused_matmul"] = refused_matmul()
        print(f"\na matmul without {CONFIG}:\n{result['refused_matmul']}")
    return result


def derive(results: dict) -> dict:
    """Which operations vary, which are refused, and how deterministic ones do."""
    rows = results["operations"]
    vary = sorted(name for name, row in rows.items() if row["default"] > 1)
    refused = sorted(name for name, row in rows.items() if row["refusal"])
    slower = {name: row["slower"] for name, row in rows.items() if "slower" in row}
    strict = [row["deterministic"] for row in rows.values() if not row["refusal"]]
    return {"vary": vary, "refused": refused, "slower": slower, "strict": strict}


def plot(results: dict, ceilings: dict):
    slower = {}
    for name, row in results["operations"].items():
        if row["default"] > 1 and "slower" in row:
            slower[name] = row["slower"]
    return bars(slower, {}, "deterministic: times as long")


if __name__ == "__main__":
    if sys.argv[1:]:
        print(multiply_strictly())
    else:
        main()
