# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# once = { events = "a trace: the claim is about order" }
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

    figure, ax = plt.subplots()
    names = sorted({lane for lane, *_ in results["events"]})
    parts = {"sum x": "reduce_kernel", "write x": "elementwise_kernel", "product": ""}
    drawn = {role: [] for role in parts}
    for lane, start, us, name in results["events"]:
        role = next(role for role, part in parts.items() if part in name)
        drawn[role].append((start / 1e3, us / 1e3, names.index(lane)))
    for start, ms, row in drawn["product"]:
        ax.broken_barh([(start, ms)], (row - 0.4, 0.8), color="C0")
    for color, role in (("C1", "write x"), ("C2", "sum x")):  # too short for a bar
        starts, _, rows = zip(*drawn[role], strict=True)
        ax.plot(starts, rows, "D", markersize=10, color=color, label=role)
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="ms; bars: products", ylim=(len(names) - 0.4, -0.6))
    figure.legend(loc="outside upper left", ncols=2)
    return figure


if __name__ == "__main__":
    main()
