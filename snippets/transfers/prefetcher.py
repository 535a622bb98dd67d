# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Does a prefetcher help? One buffer is filled while the other is worked on, over work per copy."""

from functools import partial
from statistics import median

import torch
from torch import Tensor

from snippets.timing.benchmark import measure

ROWS, N, OUT = 2048, 8192, 2048  # a batch is bf16 (ROWS, N): 32 MiB
STEPS, PRODUCTS = 12, (1, 3, 7, 9, 12, 24)


def work(batch: Tensor, w: Tensor, products: int) -> Tensor:
    """So many products of a batch with w (N, OUT), and one number of the last one."""
    for _ in range(products):
        y = torch.mm(batch, w)
    return y[0].float().sum()


def plain(batches: list[Tensor], step) -> list[Tensor]:
    """Copy, work, copy, work: one stream."""
    return [step(batch.to("cuda", non_blocking=True)) for batch in batches]


def prefetched(batches: list[Tensor], step) -> list[Tensor]:
    """The next batch is copied into one buffer while the step works on the other."""
    working, copying = torch.cuda.current_stream(), torch.cuda.Stream()
    buffers = [torch.empty_like(batches[0], device="cuda") for _ in range(2)]
    free, results = [torch.cuda.Event() for _ in buffers], []
    copying.wait_stream(working)  # until here the memory of the buffers may be in use
    for i, batch in enumerate(batches):
        buffer, done = buffers[i % 2], free[i % 2]
        copying.wait_event(done)  # worked on no more; lets pass before its first record
        with torch.cuda.stream(copying):
            buffer.copy_(batch, non_blocking=True)
        working.wait_stream(copying)  # arrived
        results.append(step(buffer))
        done.record(working)
    return results


def in_turn(works: dict) -> dict[str, list[float]]:
    """ms per step in five rounds after one to warm up, in turn: the same clocks for all."""
    trials = {name: [] for name in works}
    for name, run in [*works.items()] * 6:
        trials[name] += [ms / STEPS for ms in measure(run, warmup=0, trials=1).ms()]
    return {name: ms[1:] for name, ms in trials.items()}


def row(batches: list[Tensor], on_gpu: Tensor, w: Tensor, products: int) -> dict:
    """ms per step of the copy alone, the work alone, and both, plain and prefetched."""
    step = partial(work, w=w, products=products)
    results = [torch.stack(way(batches, step)) for way in (prefetched, plain)]
    torch.testing.assert_close(*results, rtol=1e-3, atol=1.0)
    works = {"transfer": lambda: plain(batches, id), "work": lambda: plain([on_gpu] * STEPS, step)}
    works |= {way.__name__: partial(way, batches, step) for way in (plain, prefetched)}
    trials = in_turn(works)
    ms = {name: median(trials[name]) for name in trials}
    print(f"{products:8}" + "".join(f"{ms[name]:9.2f}" for name in ms))
    return {"products": products, "ms": ms, "ms_trials": trials}


def main() -> dict:
    w = torch.randn(N, OUT, device="cuda", dtype=torch.bfloat16)
    on_gpu = torch.randn(ROWS, N, device="cuda", dtype=torch.bfloat16)
    batches = [((i + 1) * on_gpu).cpu().pin_memory() for i in range(4)] * (STEPS // 4)
    print("products     copy     work    plain   prefetched, ms per step")
    rows = [row(batches, on_gpu, w, products) for products in PRODUCTS]
    return {"steps": STEPS, "bytes": on_gpu.nbytes, "rows": rows}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    rows = [row["ms"] for row in results["rows"]]
    ratio = [ms["work"] / ms["transfer"] for ms in rows]
    gain = [ms["plain"] / ms["prefetched"] for ms in rows]
    ax.plot(ratio, gain, marker="o", label="measured")
    legs, steps = [(ms["work"], ms["transfer"]) for ms in rows], results["steps"]
    best = [sum(leg) / (max(leg) + min(leg) / steps) for leg in legs]  # one of the shorter has nothing to hide behind
    ax.plot(ratio, best, color="gray", linestyle="--", label=f"possible in {steps} steps")
    ax.set(xscale="log", xlabel="work / copy", ylabel="plain / prefetched", ylim=(0.9, 2.3))
    ax.set_xticks([0.2, 0.5, 1, 2, 4], labels=["0.2", "0.5", "1", "2", "4"])
    ax.minorticks_off()
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
