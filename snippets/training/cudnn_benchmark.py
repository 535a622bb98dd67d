# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""`cudnn.benchmark` with images of one size, and of many: first steps and later ones."""

import json
import random
import subprocess
import sys
from statistics import median

import torch
from torch import nn

from snippets.pictures import sweep
from snippets.timing.benchmark import wall_clock

IMAGES, CHANNELS, LAYERS, FIXED, STEPS = 16, 64, 8, 96, 24
SIDES = tuple(range(64, 160, 8))  # each comes twice, in another order


def network(device: str) -> nn.Sequential:
    """Convolutions of three kinds, and a mean: for images of any size."""
    torch.manual_seed(0)
    with torch.device(device):
        layers: list[nn.Module] = [nn.Conv2d(3, CHANNELS, 7, 2, 3), nn.ReLU()]
        for number in range(LAYERS):
            side = 1 + 2 * (number % 2)
            layers += [nn.Conv2d(CHANNELS, CHANNELS, side, 1, side // 2), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))


def step_ms(net: nn.Module, side: int, device: str) -> float:
    """Milliseconds of a forward and backward pass with images of this size."""
    x = torch.randn(IMAGES, 3, side, side, device=device)

    def step() -> None:
        net.zero_grad()
        net(x).square().mean().backward()

    return 1e3 * wall_clock(step)


def times(benchmark: bool, device: str = "cuda") -> dict[str, list[float]]:
    """Milliseconds of each step with images of one size, then of changing sizes."""
    torch.backends.cudnn.benchmark = benchmark
    net = network(device)
    step_ms(net, 32, device)  # libraries start, and kernels are loaded
    fixed = [step_ms(net, FIXED, device) for _ in range(STEPS)]
    draw, changing = random.Random(0), []
    for _ in range(2):
        for side in draw.sample(SIDES, len(SIDES)):
            changing.append(step_ms(net, side, device))
    return {"fixed": fixed, "changing": changing}


def in_process_of_its_own(benchmark: bool) -> dict[str, list[float]]:
    """What is tried once is known for the rest of a process."""
    command = [sys.executable, __file__, str(int(benchmark))]
    child = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(child.stdout)


def halves(ms: list[float]) -> dict[str, float]:
    """Mean milliseconds of a step in which a size is new, and of one when it is not."""
    new, known = ms[: len(SIDES)], ms[len(SIDES) :]
    return {"new_ms": sum(new) / len(new), "known_ms": sum(known) / len(known)}


def main() -> dict:
    rows: dict = {}
    for name, benchmark in {"off": False, "on": True}.items():
        row: dict = {"steps_ms": in_process_of_its_own(benchmark)}
        fixed = row["steps_ms"]["fixed"]
        row |= {"first_ms": fixed[0], "later_ms": median(fixed[STEPS // 2 :])}
        row["later_ms_trials"] = fixed[STEPS // 2 :]
        row |= halves(row["steps_ms"]["changing"])
        rows[name] = row
        print(f"benchmark {name:3} one size: first {row['first_ms']:7.1f} ms,", end=" ")
        print(f"later {row['later_ms']:6.2f}; a new size {row['new_ms']:7.1f},", end="")
        print(f" one seen before {row['known_ms']:6.2f}")
    spent = rows["on"]["first_ms"] - rows["off"]["first_ms"]
    saved = rows["off"]["later_ms"] - rows["on"]["later_ms"]
    return {"benchmark": rows, "sides": SIDES, "spent_ms": spent, "saved_ms": saved}


def derive(results: dict) -> dict:
    """Median milliseconds of a step whose size is new, and of one seen before."""
    middle = {}
    for name, row in results["benchmark"].items():
        ms, count = row["steps_ms"]["changing"], len(results["sides"])
        middle[name] = {"new": median(ms[:count]), "known": median(ms[count:])}
    return {"middle_ms": middle}


def plot(results: dict, ceilings: dict):
    lines = {}
    for name, row in results["benchmark"].items():
        lines[f"benchmark {name}"] = row["steps_ms"]["changing"]
    numbers = list(range(1, 2 * len(results["sides"]) + 1))
    labels = {"xlabel": "step, each size twice", "ylabel": "ms"}
    picture = sweep(numbers, lines, {}, ylog=True, **labels)
    picture.panels[0].x.ticks = None
    return picture


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(times(sys.argv[1] == "1")))
    else:
        main()
