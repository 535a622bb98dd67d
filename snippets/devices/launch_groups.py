# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1, 2, 4, 8]
# ///
"""Why does a launch cost now more, now less: the GPU, the core, or the CPU's pace?"""

import os
from collections.abc import Callable
from functools import partial
from statistics import mean, median, pvariance, quantiles

import torch

from snippets.pictures import Axis, Dots, Panel, Picture
from snippets.timing.benchmark import measure
from snippets.timing.wait_for import wait_for

N, SAMPLES = 128, 192


def product(device: str, n: int) -> Callable[[], object]:
    """A function that squares an (n, n) matrix of this device."""
    x = torch.randn(n, n, device=device)
    return partial(torch.mm, x, x, out=torch.empty_like(x))


def host_us(work: Callable[[], object], calls: int) -> float:
    """Microseconds until a call returns, whether or not the GPU has finished."""
    times = measure(work, devices=[], warmup=1, trials=3, calls=calls)
    return 1e6 * times.median


def observed(
    launches: list[Callable[[], object]], cores: list[set[int]]
) -> tuple[list[float], list[float]]:
    """Host µs of a launch, and of a call on the CPU just before and after it.

    This thread may run on `cores`, each in its turn, and stays on the last; the GPUs
    take turns, too.
    """
    on_cpu, launch, cpu = product("cpu", 2), [], []
    for i, allowed in enumerate(cores):
        os.sched_setaffinity(0, allowed)
        before = host_us(on_cpu, 200)
        launch.append(host_us(launches[i % len(launches)], 70))
        cpu.append((before + host_us(on_cpu, 200)) / 2)
        wait_for()
    return launch, cpu


def explained(values: list[float], groups: list[int]) -> float:
    """Share of the variance of the values that lies between the groups, 0 to 1."""
    pairs, means = list(zip(values, groups, strict=True)), {}
    for group in set(groups):
        means[group] = mean(value for value, its in pairs if its == group)
    return pvariance([means[group] for group in groups]) / pvariance(values)


def spread(values: list[float]) -> float:
    """The ninth decile over the first; 1 if all are alike."""
    low, *_, high = quantiles(values, n=10)
    return high / low


def taken_apart(launches: list[Callable[[], object]], cores: list[set[int]]) -> dict:
    """Medians, spreads, and what share of the variance the GPU and the core explain."""
    launch, cpu = observed(launches, cores)
    row = {"launch_us": median(launch), "launch_us_trials": launch}
    row |= {"cpu_us": median(cpu), "cpu_us_trials": cpu, "spread": spread(launch)}
    row["spread_over_cpu"] = spread([a / b for a, b in zip(launch, cpu, strict=True)])
    row["by_gpu"] = explained(launch, [i % len(launches) for i in range(len(cores))])
    return row | {"by_core": explained(launch, [min(allowed) for allowed in cores])}


def main() -> dict:
    gpus, everywhere = torch.cuda.device_count(), os.sched_getaffinity(0)
    launches = [product(f"cuda:{i}", N) for i in range(gpus)]
    some = [{core} for core in sorted(everywhere)[:: max(1, len(everywhere) // 16)]]
    turns = [core for core in some for _ in launches]
    plans = {"free": [everywhere] * SAMPLES, "one_core": some[:1] * SAMPLES}
    plans["each_core"] = turns * max(2, SAMPLES // len(turns))
    result = {plan: taken_apart(launches, cores) for plan, cores in plans.items()}
    os.sched_setaffinity(0, everywhere)
    for plan, row in result.items():
        us, wide, over = (row[k] for k in ("launch_us", "spread", "spread_over_cpu"))
        print(f"{plan:<10}{us:5.1f} µs, spread {wide:.2f}×; per CPU call {over:.2f}×")
    return {"visible_gpus": gpus, "cores_tried": len(some)} | result


def derive(results: dict) -> dict:
    """Launches on the cores whose own work was slow, and on those where it was fast."""
    row = results["each_core"]
    if "launch_us_trials" not in row:
        return {}
    pairs = list(zip(row["launch_us_trials"], row["cpu_us_trials"], strict=True))
    least = min(cpu for _, cpu in pairs)
    slow = [launch for launch, cpu in pairs if cpu >= 1.75 * least]
    fast = [launch for launch, cpu in pairs if cpu <= 1.25 * least]
    cores = {"slow": slow, "fast": fast}
    return {"launch_us": {name: median(each) for name, each in cores.items() if each}}


def plot(results: dict, ceilings: dict):
    """Each sample: a call on the CPU, and a launch in the same milliseconds."""
    names = {"free": "any core", "one_core": "one core"}
    names["each_core"] = "each core in turn"
    dots = []
    for plan, label in names.items():
        x, y = results[plan]["cpu_us_trials"], results[plan]["launch_us_trials"]
        dots.append(Dots(x, y, label))
    x, y = Axis("a call on the CPU, µs"), Axis("a launch, µs")
    return Picture([Panel(dots, x, y)])


if __name__ == "__main__":
    main()
