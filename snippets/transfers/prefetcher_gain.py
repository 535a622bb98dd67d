# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""When does a prefetcher help? Two buffers, filled in turn, over work per copy."""

from functools import partial
from statistics import median

import torch
from torch import Tensor

from snippets.pictures import sweep
from snippets.timing.take_turns import ratios, recorded, take_turns

ROWS, N, OUT = 2048, 8192, 2048  # a batch is bf16 (ROWS, N): 32 MiB
STEPS, PRODUCTS = 12, (1, 3, 5, 7, 9, 12)


def work(batch: Tensor, w: Tensor, products: int) -> Tensor:
    """So many matmuls of a batch with w (N, OUT), and one number of the last."""
    for _ in range(products):
        y = torch.mm(batch, w)
    return y[0].float().sum()


def plain(batches: list[Tensor], step) -> list[Tensor]:
    """Copy, work, copy, work: one stream."""
    return [step(batch.to("cuda", non_blocking=True)) for batch in batches]


def two_buffers(batches: list[Tensor], step) -> list[Tensor]:
    """The next batch is copied into one buffer while the step works on the other."""
    working, copying = torch.cuda.current_stream(), torch.cuda.Stream()
    buffers = [torch.empty_like(batches[0], device="cuda") for _ in range(2)]
    free, results = [torch.cuda.Event() for _ in buffers], []
    copying.wait_stream(working)  # until here the memory of the buffers may be in use
    for i, batch in enumerate(batches):
        buffer, done = buffers[i % 2], free[i % 2]
        copying.wait_event(done)  # until the step that used this buffer is over
        with torch.cuda.stream(copying):
            buffer.copy_(batch, non_blocking=True)
        working.wait_stream(copying)  # arrived
        results.append(step(buffer))
        done.record(working)
    return results


def main() -> dict:
    w = torch.randn(N, OUT, device="cuda", dtype=torch.bfloat16)
    on_gpu = torch.randn(ROWS, N, device="cuda", dtype=torch.bfloat16)
    batches = [((i + 1) * on_gpu).cpu().pin_memory() for i in range(4)] * (STEPS // 4)
    rows = []
    for products in PRODUCTS:
        step = partial(work, w=w, products=products)
        results = [torch.stack(way(batches, step)) for way in (plain, two_buffers)]
        torch.testing.assert_close(*results, rtol=1e-3, atol=1.0)
        turns = take_turns(
            {
                "transfer": partial(plain, batches, Tensor.numel),
                "work": partial(plain, [on_gpu] * STEPS, step),
                "plain": partial(plain, batches, step),
                "prefetched": partial(two_buffers, batches, step),
            },
            trials=7,
        )
        gain = ratios(turns["plain"], turns["prefetched"])
        row = {"products": products, "gain": median(gain), "gain_trials": gain}
        rows.append(row | recorded(turns))
        print(
            f"{products:>3}", *(f"{k}{ms:7.2f} ms" for k, ms in rows[-1]["ms"].items())
        )
    return {"steps": STEPS, "bytes": on_gpu.nbytes, "rows": rows}


def derive(results: dict) -> dict:
    """The gains, as shares of what two stages give that overlap but for one step."""
    shares = []
    for row in results["rows"]:
        work, transfer = row["ms"]["work"], row["ms"]["transfer"]
        stages = max(work, transfer) + min(work, transfer) / results["steps"]
        shares.append(row["gain"] * stages / (work + transfer))
    rows = [(row["gain"], row["ms"]) for row in results["rows"]]
    gain, ms = max(rows, key=lambda row: row[0])
    best = {"gain": gain, "work_of_transfer": ms["work"] / ms["transfer"]}
    least = min(ms["transfer"] for _, ms in rows)
    return {"of_two_stages": shares, "best": best, "least_transfer_ms": least}


def plot(results: dict, ceilings: dict):
    rows, steps = [row["ms"] for row in results["rows"]], results["steps"]
    pairs = [(ms["work"], ms["transfer"]) for ms in rows]
    best = [(a + b) / (max(a, b) + min(a, b) / steps) for a, b in pairs]
    gain = {"with a prefetcher": [row["gain"] for row in results["rows"]]}
    limit = {f"upper limit, {steps} steps": best}
    words = {
        "xlabel": "time of work / time of copy",
        "ylabel": "times as fast",
        "xlog": True,
    }
    return sweep([round(a / b, 1) for a, b in pairs], gain, limit, **words)


if __name__ == "__main__":
    main()
