# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 300
# ///
"""Start the same convolutions again and again: does cuDNN choose the same algorithms?"""

import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snippets.timing.lanes import lanes

RUNS, BESIDE = 6, 3
#: images, channels, side of an image, side of a kernel
SHAPES = (
    (32, 64, 56, 3),
    (16, 128, 28, 3),
    (32, 256, 14, 1),
    (8, 32, 96, 5),
    (64, 48, 24, 3),
)
SETTINGS = {
    "default": {},
    "benchmark": {"benchmark": True},
    "benchmark, deterministic": {"benchmark": True, "deterministic": True},
}


def digest(tensors: list[Tensor]) -> str:
    """The same for tensors that are alike to the last bit."""
    told = hashlib.sha256()
    for tensor in tensors:
        told.update(tensor.detach().cpu().numpy().tobytes())
    return told.hexdigest()[:12]


def passes(shape: tuple[int, int, int, int], device: str) -> list[Tensor]:
    """Output and gradients of a convolution, of the same numbers in each process."""
    images, channels, side, kernel = shape
    torch.manual_seed(0)
    x = torch.randn(images, channels, side, side).to(device).requires_grad_()
    weight = nn.Parameter(torch.randn(channels, channels, kernel, kernel).to(device))
    y = F.conv2d(x, weight, padding=kernel // 2)
    return [y, *torch.autograd.grad(y.square().mean(), [x, weight])]


def kernels(shape: tuple[int, int, int, int], device: str) -> list[str]:
    """Names of the kernels on the GPU, of a pass whose algorithms are chosen."""
    names = [
        name
        for lane, _, _, name in lanes(lambda: passes(shape, device))
        if lane != "CPU"
    ]
    return sorted(set(names))


def choices(setting: str, device: str = "cuda") -> list[dict]:
    """For each shape the bits of its results, in three calls, and its kernels."""
    for name, value in SETTINGS[setting].items():
        setattr(torch.backends.cudnn, name, value)
    rows = []
    for shape in SHAPES:
        bits = [digest(passes(shape, device)) for _ in range(3)]
        row = {"bits": bits, "kernels": []}
        if device == "cuda":
            names = json.dumps(kernels(shape, device)).encode()
            row["kernels"] = hashlib.sha256(names).hexdigest()[:12]
        rows.append(row)
    return rows


def in_process_of_its_own(setting: str) -> list[dict]:
    """What cuDNN has chosen stays in a process."""
    command = [sys.executable, __file__, setting]
    child = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(child.stdout.splitlines()[-1])


def counted(runs: list[list[dict]]) -> list[dict[str, int]]:
    """For each shape: results in one process, over all processes, sets of kernels."""
    rows = []
    for of_shape in zip(*runs, strict=True):
        bits = {bit for row in of_shape for bit in row["bits"]}
        rows.append(
            {
                "in_a_process": max(len(set(row["bits"])) for row in of_shape),
                "over_processes": len(bits),
                "kernels": len({str(row["kernels"]) for row in of_shape}),
            }
        )
    return rows


def main() -> dict:
    found = {}
    with ThreadPoolExecutor(BESIDE) as pool:
        for setting in SETTINGS:
            runs = list(pool.map(in_process_of_its_own, [setting] * RUNS))
            found[setting] = counted(runs)
            for shape, row in zip(SHAPES, found[setting], strict=True):
                print(f"{setting:25}{shape!s:20}", end="")
                print(f"{row['kernels']} sets of kernels,", end=" ")
                print(f"{row['over_processes']} results in {RUNS} processes,", end=" ")
                print(f"{row['in_a_process']} in one")
    return {"runs": RUNS, "shapes": SHAPES, "found": found}


def derive(results: dict) -> dict:
    """By setting, the most of each count over all shapes."""
    most = {}
    for setting, rows in results["found"].items():
        most[setting] = {key: max(row[key] for row in rows) for key in rows[0]}
    return {"most": most}


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(choices(sys.argv[1])))
    else:
        main()
