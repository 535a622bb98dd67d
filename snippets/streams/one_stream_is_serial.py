# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Ask for three scores on one stream: the calls return at once, the work runs in a row."""

from functools import partial

import torch

from snippets.timing.benchmark import measure

ROWS = 8192
WIDTHS = {"mlp": 2048, "cnn": 3072, "resnet": 4096}  # features per row that each model hands on


def similarity(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Linear CKA, 0 to 1, of two sets of features (rows, width): one number, left on the device."""
    a, b = a - a.mean(0), b - b.mean(0)
    return (a.T @ b).square().sum() / ((a.T @ a).norm() * (b.T @ b).norm())


def timeline(work) -> list[list]:
    """[lane, start_us, duration_us, name] of each launch, in lane CPU, and of each kernel."""
    with torch.profiler.profile(acc_events=True) as profiler:
        measure(work, warmup=0, trials=1)
    events = [e for e in profiler.events() if e.device_type.name == "CUDA" or "Launch" in e.name]
    zero = min(e.time_range.start for e in events)

    def row(event) -> list:
        on_cpu, span = event.device_type.name == "CPU", event.time_range
        lane = "CPU" if on_cpu else f"stream {event.device_resource_id:>3}"
        return [lane, round(span.start - zero, 1), round(span.elapsed_us(), 1), event.name[:40]]

    return [row(event) for event in events]


def main() -> dict:
    features = {name: torch.randn(2, ROWS, n, device="cuda") for name, n in WIDTHS.items()}
    calls = {name: partial(similarity, a, a + b) for name, (a, b) in features.items()}
    alike = torch.stack([similarity(a, 2 * a + 1) for a, _ in features.values()])
    torch.testing.assert_close(alike, torch.ones_like(alike), rtol=1e-3, atol=0)

    def three() -> list[torch.Tensor]:
        return [call() for call in calls.values()]

    timings = {name: measure(work) for name, work in (calls | {"three": three}).items()}
    timings["three_returned"] = measure(three, devices=())  # an empty list: nobody is waited for
    ms = {name: 1e3 * timing.median for name, timing in timings.items()}
    for name, each in ms.items():
        print(f"{name:<15}{each:8.3f} ms")
    results = {"ms": ms, "ms_trials": {name: timing.ms() for name, timing in timings.items()}}
    results |= {"tflop_s": 6e-9 * ROWS * sum(n * n for n in WIDTHS.values()) / ms["three"]}
    timeline(three)  # the first profile of a process also starts the profiler
    kernels = {name: sum(e[0] != "CPU" for e in timeline(call)) for name, call in calls.items()}
    results |= {"kernels": kernels, "scores": [score.item() for score in three()]}
    return results | {"events": timeline(three)}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(layout="constrained")
    spans = [(at, start / 1e3, us / 1e3) for at, start, us, _ in results["events"]]
    lanes = sorted({at for at, *_ in spans})
    launches = [span[1:] for span in spans if span[0] == "CPU"]
    on_gpu = sorted(span[1:] for span in spans if span[0] != "CPU")
    for i, name in enumerate(WIDTHS):
        ax.broken_barh(on_gpu[: results["kernels"][name]], (0.6, 0.8), label=name, color=f"C{i}")
        on_gpu = on_gpu[results["kernels"][name] :]
    ax.broken_barh(launches, (-0.4, 0.8), label="launch", color="C3")
    ax.text(max(start + ms for start, ms in launches), 0, "  the CPU is done here", va="center")
    ax.set(yticks=range(len(lanes)), yticklabels=lanes, ylim=(len(lanes) - 0.5, -0.5))
    ax.set_xlabel("ms since the first launch")
    figure.legend(loc="outside upper left", ncols=4, handlelength=1, columnspacing=1)
    return figure


if __name__ == "__main__":
    main()
