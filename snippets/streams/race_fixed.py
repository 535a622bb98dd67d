# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: the side stream waits for the main stream, and then sums what that writes."""

import torch

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
    side.wait_stream(torch.cuda.current_stream())
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

    import matplotlib.pyplot as plt

    figure, (whole, near) = plt.subplots(2)
    parts = {"sum x": "reduce_kernel", "write x": "elementwise_kernel", "product": ""}
    drawn = {role: [] for role in parts}
    main = results["events"][0][0]  # the lane of the first product
    for lane, start, us, name in results["events"]:
        role = next(role for role, part in parts.items() if part in name)
        drawn[role].append((start, us, int(lane != main)))
    written = drawn["write x"][0][0]
    for color, role in (("C0", "product"), ("C1", "write x"), ("C2", "sum x")):
        for start, us, row in drawn[role]:
            place = (row - 0.4, 0.8)
            near.broken_barh([(start - written, us)], place, color=color)
            if role == "product":
                whole.broken_barh([(start / 1e3, us / 1e3)], place, color=color)
            else:  # too short for a bar
                whole.plot(start / 1e3, row, "D", markersize=8, color=color, label=role)
    for ax in (whole, near):
        ax.set_yticks([0, 1], ["main", "side"])
        ax.set_ylim(1.6, -0.6)
    first, last = drawn["product"][0], drawn["product"][-1]
    middle = (first[0] + last[0] + last[1]) / 2e3
    whole.text(middle, 0, "matmuls", color="white", ha="center", va="center")
    whole.set(xlabel="ms")
    near.set(xlabel="µs before and after the write", xlim=(-6, 6))
    figure.legend(loc="outside upper left", ncols=2)
    return figure


if __name__ == "__main__":
    main()
