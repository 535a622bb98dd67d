# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""An index out of bounds on the GPU: which line is blamed, in which mode?"""

import json
import os
import sys
import traceback
from statistics import median
from subprocess import run

import torch

from snippets.timing.benchmark import measure


def step() -> tuple:
    """Fails on the GPU: there is no element 1000."""
    x = torch.zeros(1000, device="cuda")
    index = torch.tensor([1000], device="cuda")
    torch.cuda._sleep(200_000_000)  # cycles: earlier work of about 100 ms
    wrong = x[index]
    right = x + 1
    return right.sum().item(), wrong


def crash() -> dict:
    """Crash this process's GPU work; what it learns of it, and what launches cost."""
    x = torch.zeros(1000, device="cuda")
    facts = {"us_trials": measure(lambda: x.add_(1), trials=9, calls=3_000).us()}
    try:
        step()
    except RuntimeError as error:
        blamed = traceback.extract_tb(error.__traceback__)[-1]
        facts |= {"line": blamed.lineno, "code": blamed.line, "error": str(error)}
    try:
        torch.zeros(1, device="cuda")
        return facts | {"gpu_usable": True}
    except RuntimeError:
        return facts | {"gpu_usable": False}


def crashed(blocking: bool) -> dict:
    """What `crash` gives in a process of its own, with or without blocking launches."""
    mode = {"CUDA_LAUNCH_BLOCKING": str(int(blocking))}
    command = [sys.executable, __file__, "crash"]
    child = run(command, env=os.environ | mode, capture_output=True, text=True)
    facts = json.loads(child.stdout)
    facts["us"] = median(facts["us_trials"])
    facts["hint"] = "CUDA_LAUNCH_BLOCKING=1" in facts["error"]
    return facts | {"assertion": "index out of bounds" in child.stderr}


def main() -> dict:
    result = {"default": crashed(blocking=False), "blocking": crashed(blocking=True)}
    for mode, facts in result.items():
        print(f"{mode:9}blames `{facts['code']}`")
        print(f"{'':9}{facts['error'].splitlines()[0]}")
        print(f"{'':9}{facts['us']:.1f} µs per launch")
    slowdown = result["blocking"]["us"] / result["default"]["us"]
    return result | {"slowdown": slowdown}


if __name__ == "__main__":
    if sys.argv[1:] == ["crash"]:
        print(json.dumps(crash()))
    else:
        main()
