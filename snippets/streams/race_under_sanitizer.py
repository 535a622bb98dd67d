# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Let PyTorch's CUDA sanitizer judge four programs by order, not by outcome."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch


def summed(fork: bool = True, join: bool = True, drop: bool = False) -> float:
    """Ones of the main stream, summed on a side stream, read on the main stream."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.ones(100, 100, device="cuda")
    if fork:
        side.wait_stream(main)
    with torch.cuda.stream(side):
        total = x.sum()
    if drop:
        del x
        torch.zeros(100, 100, device="cuda")  # in the memory that x had
    if join:
        main.wait_stream(side)
    return total.item()


PROGRAMS = {
    "no_fork": {"fork": False},
    "no_join": {"join": False},
    "fork_and_join": {},
    "freed_too_early": {"drop": True},
}


def judged(program: str) -> dict:
    """Exit code and races reported for a program, run alone with the sanitizer."""
    env = os.environ | {"TORCH_CUDA_SANITIZER": "1"}
    command = [sys.executable, __file__, program]
    child = subprocess.run(command, env=env, capture_output=True, text=True)
    races = child.stderr.count("detected a possible data race")
    told = re.findall(r"^(aten::\w+|reading|writing)", child.stderr, re.MULTILINE)
    return {"exit_code": child.returncode, "races": races, "report": told}


def main() -> dict:
    with ThreadPoolExecutor() as pool:
        verdicts = dict(zip(PROGRAMS, pool.map(judged, PROGRAMS), strict=True))
    for name, verdict in verdicts.items():
        races, exit_code = verdict["races"], verdict["exit_code"]
        print(f"{name:<16} races reported: {races}, exit code {exit_code}")
    print("in no_fork it names", *verdicts["no_fork"]["report"])
    return {"programs": verdicts}


if __name__ == "__main__":
    if sys.argv[1:]:
        summed(**PROGRAMS[sys.argv[1]])
    else:
        main()
