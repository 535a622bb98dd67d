# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["in_pieces"]
# ///
"""One matmul, one copy: nothing to overlap with, until you cut them in pieces."""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median

import torch
from torch import Tensor

from snippets.pictures import sweep
from snippets.timing.take_turns import recorded, take_turns

ROWS, N = 16384, 8192  # bf16 (ROWS, N) times (N, N): a result of 256 MiB
PIECES = (1, 2, 4, 8, 16, 32, 64, 100)


def in_pieces(
    pieces: Iterable[Tensor], host: Iterable[Tensor], copying: torch.cuda.Stream
) -> None:
    """Copy each piece to the host while the GPU works on the next one.

    `pieces` launches the work on a piece when it is asked for it, as a generator does;
    `host` has room for each in pinned memory (elsewhere nothing overlaps). `copying` is
    a stream of the pieces' GPU. Read `host` after `copying.synchronize()`. ValueError
    for a piece on another GPU, or not of the shape of its room, and if one of both ends
    early; what was launched before is waited for by the current stream all the same.
    A room of another dtype converts its piece.
    """
    working = torch.cuda.current_stream(copying.device)
    try:
        for piece, room in zip(pieces, host, strict=True):
            if piece.shape != room.shape or piece.device != copying.device:
                given = f"{tuple(piece.shape)} on {piece.device}"
                wanted = f"{tuple(room.shape)} on {copying.device}"
                raise ValueError(f"a piece is {given}, not {wanted}")
            copying.wait_stream(working)
            with torch.cuda.stream(copying):
                room.copy_(piece.detach(), non_blocking=True)
            piece.record_stream(copying)  # its memory is not used before it is copied
    finally:
        working.wait_stream(copying)  # what comes next may write into the pieces


def products(x: Tensor, w: Tensor, gpu: Tensor, n: int) -> Iterator[Tensor]:
    """The rows of x @ w in n pieces, each computed into its place in `gpu`."""
    for rows, result in zip(x.chunk(n), gpu.chunk(n), strict=True):
        yield torch.mm(rows, w, out=result)


def product_in_pieces(
    x: Tensor, w: Tensor, gpu: Tensor, host: Tensor, n: int, copying: torch.cuda.Stream
) -> None:
    """x @ w to `gpu` and on to pinned `host`: each piece is copied beside the next."""
    in_pieces(products(x, w, gpu, n), host.chunk(n), copying)


def product(x: Tensor, w: Tensor, gpu: Tensor, n: int) -> None:
    """x @ w to `gpu`, in n pieces."""
    for _ in products(x, w, gpu, n):
        pass


def copies(gpu: Tensor, host: Tensor, n: int) -> None:
    for result, landing in zip(gpu.chunk(n), host.chunk(n), strict=True):
        landing.copy_(result, non_blocking=True)


def launch_clock(work: Callable[[], object], calls: int) -> float:
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
        product_in_pieces(x, w, gpu, host.zero_(), n, copying)
        torch.cuda.synchronize()
        torch.testing.assert_close(host[some].float(), expected, rtol=2e-2, atol=2.0)
        works = {"product": partial(product, x, w, gpu, n)}
        works["transfer"] = partial(copies, gpu, host, n)
        works["both"] = partial(product_in_pieces, x, w, gpu, host, n, copying)
        turns = take_turns(works, trials=7)
        launch = {"launch": works["both"]}
        turns |= take_turns(launch, trials=7, clock=launch_clock)
        rows.append({"pieces": n} | recorded(turns))
        print(f"in {n:>3}", *(f"{k}{ms:6.2f} ms" for k, ms in rows[-1]["ms"].items()))
    return {"bytes": host.nbytes, "flop": 2 * ROWS * N**2, "rows": rows}


def derive(results: dict) -> dict:
    """The shortest time, and those of up to 32 pieces as shares of a pipeline's.

    `grows`: how many times as long each part takes in the most pieces as in one, the
    copy as in 4, the launches as in 16.
    """
    shares = []
    for row in results["rows"]:
        product, transfer = row["ms"]["product"], row["ms"]["transfer"]
        if row["pieces"] <= 32:
            stages = max(product, transfer) + min(product, transfer) / row["pieces"]
            shares.append(row["ms"]["both"] / stages)
    ms = {row["pieces"]: row["ms"] for row in results["rows"]}
    least, most = min(each["both"] for each in ms.values()), ms[max(ms)]
    few = {"product": 1, "transfer": 4, "launch": 16}
    grows = {part: most[part] / ms[pieces][part] for part, pieces in few.items()}
    return {"of_pipeline": median(shares), "least_ms": least, "grows": grows}


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
