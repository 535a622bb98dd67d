# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Broken on purpose: sum on a side stream what the main stream is about to write."""

import torch

from snippets.pictures import Axis, Dots, Note, Panel, Picture, Spans
from snippets.timing.lanes import lanes
from snippets.timing.wait_for import wait_for

RUNS, N = 50, 4096
# products that are launched before the write
QUEUED = {"documented": 0, "amplified": 5}


def write_then_sum(queued: int, busy: torch.Tensor, x: torch.Tensor, side):
    """Write ones into x behind so many products, sum x on the side stream."""
    for _ in range(queued):
        torch.mm(busy, busy)
    x.fill_(1)
    with torch.cuda.stream(side):
        return x.sum()


def main() -> dict:
    x, busy = torch.zeros(100, 100, device="cuda"), torch.randn(N, N, device="cuda")
    side, results = torch.cuda.Stream(), {"runs": RUNS}
    write_then_sum(1, busy, x, side)  # the first call loads kernels, which takes long
    for form, queued in QUEUED.items():
        sums = []
        for _ in range(RUNS):
            x.zero_()
            wait_for()
            total = write_then_sum(queued, busy, x, side)
            wait_for()
            sums.append(total.item())
        wrong = sum(total != x.numel() for total in sums)
        print(f"{form:<11} {queued} products queued, wrong sums: {wrong:2} of {RUNS}")
        results[form] = {"queued": queued, "wrong": wrong, "sums": sums}
    events = lanes(lambda: write_then_sum(QUEUED["amplified"], busy, x, side))
    return results | {"events": [event for event in events if event[0] != "CPU"]}


def plot(results: dict, ceilings: dict):
    parts = {"sum x": "reduce_kernel", "write x": "elementwise_kernel", "matmuls": ""}
    colors = {"matmuls": 1, "write x": 2, "sum x": 3}
    drawn = {role: {"main": [], "side": []} for role in colors}
    main = results["events"][0][0]  # the lane of the first product
    for lane, start, us, name in results["events"]:
        role = next(role for role, part in parts.items() if part in name)
        drawn[role]["main" if lane == main else "side"].append((start, us, name))
    (written,) = [start for row in drawn["write x"].values() for start, *_ in row]
    whole, near = [], []
    for role, rows in drawn.items():
        for row, spans in rows.items():
            names = [name for *_, name in spans]
            shifted = [(start - written, us) for start, us, _ in spans]
            near.append(Spans(row, shifted, role, colors[role], names=names))
            if role == "matmuls":
                ms = [(start / 1e3, us / 1e3) for start, us, _ in spans]
                whole.append(Spans(row, ms, role, colors[role], names=names))
            elif spans:  # too short for a bar
                ms = [start / 1e3 for start, *_ in spans]
                dots = Dots(ms, [row] * len(ms), role, colors[role], diamond=True)
                whole.append(dots)
    (first, *_, last) = drawn["matmuls"]["main"]
    middle = (first[0] + last[0] + last[1]) / 2e3
    whole.append(Note(middle, "main", "matmuls", "center", color="paper"))
    around = Axis("µs before and after the write", low=-6, high=6)
    return Picture([Panel(whole, Axis("ms")), Panel(near, around)])


if __name__ == "__main__":
    main()
