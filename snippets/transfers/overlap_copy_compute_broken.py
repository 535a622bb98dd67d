# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Broken on purpose: products and their non-blocking copies in one stream, as D2L publishes it."""

from itertools import cycle
from statistics import median

import torch

from snippets.timing.benchmark import measure

N, ROUNDS = 4000, 20  # float32 products of N by N; D2L has 50 of them


def products(x: torch.Tensor, rounds: int) -> list[torch.Tensor]:
    return [torch.mm(x, x) for _ in range(rounds)]


def copies(results: list[torch.Tensor], landing: list[torch.Tensor]) -> None:
    for result, host in zip(results, cycle(landing), strict=False):
        host.copy_(result, non_blocking=True)


def together(x: torch.Tensor, landing: list[torch.Tensor], rounds: int) -> None:
    """As D2L does it: all products, then their copies, none of which blocks the CPU."""
    copies(products(x, rounds), landing)


def in_turn(works: dict) -> dict[str, list[float]]:
    """ms of each work in five rounds after one to warm up, in turn: the same clocks for all."""
    trials = {name: [] for name in works}
    for name, run in [*works.items()] * 6:
        trials[name] += measure(run, warmup=0, trials=1).ms()
    return {name: ms[1:] for name, ms in trials.items()}


def timeline(work) -> list[list]:
    """[lane, start_us, duration_us, kind] of calls, products and copies, one lane per stream."""
    with torch.profiler.profile(acc_events=True) as profiler:
        work()
        torch.cuda.synchronize()
    found = []
    for e in profiler.events():
        on_gpu = e.device_type.name == "CUDA"
        if on_gpu or any(call in e.name for call in ("Launch", "Memcpy", "Synchronize")):
            kind = "call" if not on_gpu else "copy" if "Memcpy" in e.name else "product"
            lane = f"stream {e.device_resource_id:>3}" if on_gpu else "CPU"
            found.append((lane, e.time_range.start, e.time_range.elapsed_us(), kind))
    zero = min(start for _, start, _, kind in found if kind == "product")
    return [[lane, round(start - zero, 1), round(us, 1), kind] for lane, start, us, kind in found]


def main() -> dict:
    x = torch.randn(N, N, device="cuda")
    landing = [torch.zeros(N, N, pin_memory=True) for _ in range(4)]  # filled again and again
    measure(lambda: together(x, landing, 4), warmup=0, trials=1)
    torch.testing.assert_close(torch.stack(landing)[:, -1].cuda(), torch.mm(x, x)[[-1] * 4])
    results, works = products(x, ROUNDS), {"products": lambda: products(x, ROUNDS)}
    works["copies"] = lambda: copies(results, landing)
    works["together"] = lambda: together(x, landing, ROUNDS)
    trials = in_turn(works)
    ms = {name: median(trials[name]) for name in trials}
    shares = [(one + other - both) / min(one, other) for one, other, both in zip(*trials.values(), strict=True)]
    table = [f"{name:<9}{ms[name]:8.1f} ms" for name in ms]
    print(*table, f"hidden   {median(shares):8.0%} of the shorter leg", sep="\n")
    events = [timeline(lambda: together(x, landing, 6)) for _ in range(2)][1]  # the first is slow
    result = {"rounds": ROUNDS, "bytes": ROUNDS * x.nbytes, "flop": ROUNDS * 2 * N**3, "ms": ms}
    return result | {"ms_trials": trials, "hidden": median(shares), "hidden_trials": shares, "events": events}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    events, names = results["events"], sorted({event[0] for event in results["events"]})
    for color, kind in (("C0", "product"), ("C1", "copy"), ("C2", "call")):
        for lane in sorted({event[0] for event in events if event[3] == kind}):
            spans = [(e[1] / 1e3, e[2] / 1e3) for e in events if (e[0], e[3]) == (lane, kind)]
            ax.broken_barh(spans, (names.index(lane) - 0.4, 0.8), color=color, label=kind)
    legs = [sum(e[2] for e in events if e[3] == kind) / 1e3 for kind in ("product", "copy")]
    ax.axvline(max(legs), color="gray", linestyle="--", label="the longer leg")
    ax.set(xlabel="ms, the first six rounds", ylim=(len(names) - 0.5, -0.5))
    ax.set_yticks(range(len(names)), labels=names)
    figure.legend(loc="outside upper left", ncols=2)
    return figure


if __name__ == "__main__":
    main()
