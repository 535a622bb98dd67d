# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 150
# ///
"""Let PyTorch's CUDA sanitizer judge four programs by order, not by outcome."""

import os
import subprocess
import sys

import torch

PROGRAMS = ("no_fork", "no_join", "fork_and_join", "freed_too_early")


def summed(program: str = "fork_and_join") -> float:
    """Ones of the main stream, summed on a side stream, read on the main stream."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.ones(100, 100, device="cuda")
    if program != "no_fork":
        side.wait_stream(main)
    with torch.cuda.stream(side):
        total = x.sum()
    if program == "freed_too_early":
        del x
        torch.zeros(100, 100, device="cuda")  # in the memory that x had
    if program != "no_join":
        main.wait_stream(side)
    return total.item()


def judged(program: str) -> dict:
    """Exit code and races reported for a program, run alone with the sanitizer."""
    env = os.environ | {"TORCH_CUDA_SANITIZER": "1"}
    command = [sys.executable, __file__, program]
    child = subprocess.run(command, env=env, capture_output=True, text=True)
    races = child.stderr.count("detected a possible data race")
    return {"exit_code": child.returncode, "races": races}


def main() -> dict:
    verdicts = {program: judged(program) for program in PROGRAMS}
    for program, said in verdicts.items():
        told = "races reported: {races}, exit code {exit_code}".format(**said)
        print(f"{program:<16} {told}")
    return {"programs": verdicts}


def derive(results: dict) -> dict:
    """The races that are seen, and the exit codes, by program."""
    programs = results["programs"]
    return {
        "races": {name: row["races"] for name, row in programs.items()},
        "exits": {name: row["exit_code"] for name, row in programs.items()},
    }


if __name__ == "__main__":
    if sys.argv[1:]:
        summed(sys.argv[1])
    else:
        main()
