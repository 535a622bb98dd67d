# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: the side stream waits for the main stream before it sums what that one writes."""

import torch

RUNS, N = 50, 4096
QUEUED = {"documented": 0, "amplified": 5}  # products that stand in the queue before the write


def write_then_sum(x: torch.Tensor, busy: torch.Tensor, queued: int, side) -> torch.Tensor:
    """Write ones into x (100, 100) behind so many products, sum x on the side stream."""
    for _ in range(queued):
        torch.mm(busy, busy)
    x.fill_(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        return x.sum()


def sums(queued: int, side: torch.cuda.Stream) -> list[float]:
    """What the sum was in each of 50 runs, every one begun with zeros and an idle GPU."""
    x, busy = torch.empty(100, 100, device="cuda"), torch.randn(N, N, device="cuda")
    write_then_sum(x, busy, queued + 1, side)  # the first call loads kernels, which takes long
    found = []
    for _ in range(RUNS):
        x.zero_()
        torch.cuda.synchronize()
        total = write_then_sum(x, busy, queued, side)
        torch.cuda.synchronize()
        found.append(total.item())
    return found


def timeline(queued: int, side: torch.cuda.Stream) -> list[list]:
    """[lane, start_us, duration_us, name] of the kernels of one run, a lane per stream."""
    x, busy = torch.zeros(100, 100, device="cuda"), torch.randn(N, N, device="cuda")
    torch.cuda.synchronize()
    with torch.profiler.profile(acc_events=True) as profiler:
        write_then_sum(x, busy, queued, side)
        torch.cuda.synchronize()
    kernels = [e for e in profiler.events() if e.device_type.name == "CUDA"]
    spans = [(e.time_range.start, e.time_range.elapsed_us()) for e in kernels]
    zero, roles = min(spans)[0], {"FillFunctor": "write x", "::reduce_kernel": "sum x"}
    names = [next((roles[r] for r in roles if r in e.name), "product") for e in kernels]
    lanes = [f"stream {e.device_resource_id:>3}" for e in kernels]
    times = [[round(start - zero, 1), round(us, 1)] for start, us in spans]
    return [[at, *us, name] for at, us, name in zip(lanes, times, names, strict=True)]


def main() -> dict:
    side, results = torch.cuda.Stream(), {"runs": RUNS, "right": 100.0 * 100.0}
    for form, queued in QUEUED.items():
        found = sums(queued, side)
        wrong = sum(total != results["right"] for total in found)
        print(f"{form:<11} {queued} products queued, wrong sums: {wrong:2} of {RUNS}")
        results[form] = {"queued": queued, "wrong": wrong, "sums": found}
    timeline(1, side)  # the first profile of a process also starts the profiler
    return results | {"events": timeline(QUEUED["amplified"], side)}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(layout="constrained")
    lanes = sorted({lane for lane, *_ in results["events"]})
    for color, name in (("C0", "product"), ("C1", "write x"), ("C2", "sum x")):
        found = [event for event in results["events"] if event[3] == name]
        row, starts = lanes.index(found[0][0]), [start / 1e3 for _, start, *_ in found]
        if name == "product":
            spans = [(start, us / 1e3) for start, (*_, us, _) in zip(starts, found, strict=True)]
            ax.broken_barh(spans, (row - 0.4, 0.8), color=color, label=name)
        else:  # too short for a bar to be seen
            ax.plot(starts, [row] * len(starts), "D", markersize=10, color=color, label=name)
    ax.set(yticks=range(len(lanes)), yticklabels=lanes, ylim=(len(lanes) - 0.5, -0.5))
    ax.set_xlabel("ms since the first kernel")
    figure.legend(loc="outside upper left", ncols=3, handlelength=1, columnspacing=1)
    return figure


if __name__ == "__main__":
    main()
