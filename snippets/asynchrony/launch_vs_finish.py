# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""How long a bf16 product takes to launch and how long to finish, over its size."""

import time
from random import sample
from statistics import median

import torch

from snippets.pictures import Note, sweep

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)


def checked_matrix(n: int) -> torch.Tensor:
    """Random bf16 [n, n] on the GPU whose square agrees with float32 in 64 rows."""
    x = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    rows, exact = torch.mm(x, x)[:64].float(), x[:64].float() @ x.float()
    torch.testing.assert_close(rows, exact, rtol=2e-2, atol=0.02 * n**0.5)
    return x


def timed(x: torch.Tensor, calls: int = 40) -> dict[str, float]:
    """µs per product until the calls are back, until all are finished, their ratio."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):  # so many that the wait at the end weighs little
        torch.mm(x, x)
    back = 1e6 * (time.perf_counter() - start) / calls
    torch.cuda.synchronize()
    done = 1e6 * (time.perf_counter() - start) / calls
    return {"enqueue_us": back, "finish_us": done, "ratio": done / back}


def medians(rows: list[dict[str, float]]) -> dict:
    """The median of each key, and under `…_trials` all that it had."""
    trials = {key: [row[key] for row in rows] for key in rows[0]}
    found = {key: median(each) for key, each in trials.items()}
    return found | {f"{key}_trials": each for key, each in trials.items()}


def main() -> dict:
    xs = {n: checked_matrix(n) for n in SIZES}
    # In another order each round: no size always follows the same other
    rounds = [{n: timed(xs[n]) for n in sample(SIZES, len(SIZES))} for _ in range(25)]
    rows = {f"n{n}": medians([each[n] for each in rounds[2:]]) for n in SIZES}
    for name, row in rows.items():
        print(f"{name:6}back {row['enqueue_us']:5.1f}, done {row['finish_us']:7.1f} µs")
    launch_us = median(row["enqueue_us"] for row in rows.values())
    crossover_n = 8192 * (launch_us / rows["n8192"]["finish_us"]) ** (1 / 3)
    return {"sweep": rows, "launch_us": launch_us, "crossover_n": crossover_n}


def derive(results: dict) -> dict:
    """How long launches take, for all sizes."""
    return {"enqueue_us": [row["enqueue_us"] for row in results["sweep"].values()]}


def plot(results: dict, ceilings: dict):
    sizes = sorted(int(name[1:]) for name in results["sweep"])
    rows = [results["sweep"][f"n{n}"] for n in sizes]
    series = {
        "finished": [each["finish_us"] for each in rows],
        "launched": [each["enqueue_us"] for each in rows],
    }
    floor = {}
    if "bf16_tflop_s" in ceilings:
        peak = ceilings["bf16_tflop_s"]
        floor = {"least possible": [2 * n**3 / peak / 1e6 for n in sizes]}
    labels = {"xlabel": "n (matrices of n × n)", "ylabel": "µs per matmul"}
    picture = sweep(sizes, series, floor, xlog=True, ylog=True, **labels)
    panel, launch, (*_, n, last) = picture.panels[0], results["launch_us"], sizes
    panel.y.low = launch / 5
    panel.marks[0].color, panel.marks[1].color = "gpu", "python"
    finished = Note(n, rows[-2]["finish_us"], "finished", "right", dx=-8, color="gpu")
    panel.marks += [
        finished,
        Note(last, launch, "launched", "right", dy=-10, color="python"),
    ]
    for label, (*_, least) in floor.items():
        # the line has a third of a launch at this n
        n = last * (launch / 3 / least) ** (1 / 3)
        panel.marks.append(Note(n, launch / 3, label, dx=10, color="ceiling"))
    return picture


if __name__ == "__main__":
    main()
