# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""One matmul, one copy: nothing to overlap with, until you cut them in pieces."""

import time
from functools import partial
from statistics import median

import torch
from torch import Tensor

from snippets.pictures import sweep
from snippets.timing.take_turns import recorded, take_turns

ROWS, N = 16384, 8192  # bf16 (ROWS, N) times (N, N): a result of 256 MiB
PIECES = (1, 2, 4, 8, 16, 32, 64, 100)


def in_pieces(
    x: Tensor, w: Tensor, gpu: Tensor, host: Tensor, n: int, copying: torch.cuda.Stream
) -> None:
    """x @ w to `gpu` and on to pinned `host`: each piece is copied beside the next."""
    multiplying = torch.cuda.current_stream()
    cut = (whole.chunk(n) for whole in (x, gpu, host))
    for rows, result, landing in zip(*cut, strict=True):
        torch.mm(rows, w, out=result)
        copying.wait_stream(multiplying)
        with torch.cuda.stream(copying):
            landing.copy_(result, non_blocking=True)
    multiplying.wait_stream(copying)  # `gpu` is not written before it is copied


def products(x: Tensor, w: Tensor, gpu: Tensor, n: int) -> None:
    for rows, result in zip(x.chunk(n), gpu.chunk(n), strict=True):
        torch.mm(rows, w, out=result)


def copies(gpu: Tensor, host: Tensor, n: int) -> None:
    for result, landing in zip(gpu.chunk(n), host.chunk(n), strict=True):
        landing.copy_(result, non_blocking=True)


def launch_clock(work, calls: int) -> float:
    """Seconds until the launching call is back, while the GPU goes on."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - start) / calls


def main() -> dict:
    x, w = (torch.randn(n, N, device="cuda").bfloat16() for n in (ROWS, N))
    gpu, copying = torch.mm(x, w), torch.cuda.Stream()
    host = torch.zeros(ROWS, N, dtype=torch.bfloat16, pin_memory=True)
    some = slice(None, None, ROWS // 128)
    expected = (x[some].float() @ w.float()).cpu()
    rows = []
    for n in PIECES:
        gpu.zero_()
        in_pieces(x, w, gpu, host.zero_(), n, copying)
        torch.cuda.synchronize()
        torch.testing.assert_close(host[some].float(), expected, rtol=2e-2, atol=2.0)
        works = {"product": partial(products, x, w, gpu, n)}
        works["transfer"] = partial(copies, gpu, host, n)
        works["both"] = partial(in_pieces, x, w, gpu, host, n, copying)
        turns = take_turns(works, trials=7)
        launch = {"launch": works["both"]}
        turns |= take_turns(launch, trials=7, clock=launch_clock)
        rows.append({"pieces": n} | recorded(turns))
        print(f"in {n:>3}", *(f"{k}{ms:6.2f} ms" for k, ms in rows[-1]["ms"].items()))
    return {"bytes": host.nbytes, "flop": 2 * ROWS * N**2, "rows": rows}


def derive(results: dict) -> dict:
    """The shortest time, and those of up to 32 pieces as shares of a pipeline's."""
    shares = []
    for row in results["rows"]:
        product, transfer = row["ms"]["product"], row["ms"]["transfer"]
        if row["pieces"] <= 32:
            stages = max(product, transfer) + min(product, transfer) / row["pieces"]
            shares.append(row["ms"]["both"] / stages)
    least = min(row["ms"]["both"] for row in results["rows"])
    return {"of_pipeline": median(shares), "least_ms": least}


def plot(results: dict, ceilings: dict):
    rows = results["rows"]
    parts = [
        (row["ms"]["product"], row["ms"]["transfer"], row["pieces"]) for row in rows
    ]
    formula = [max(a, b) + min(a, b) / n for a, b, n in parts]
    series = {"together, measured": [row["ms"]["both"] for row in rows]}
    series["together, by the formula"] = formula
    series["matmul alone"] = [a for a, _, _ in parts]
    series["launches alone"] = [row["ms"]["launch"] for row in rows]
    words = {"xlabel": "number of pieces", "ylabel": "ms", "xlog": True}
    limits = {"copy alone, in one piece": parts[0][1]}
    return sweep([n for _, _, n in parts], series, limits, **words)


if __name__ == "__main__":
    main()
