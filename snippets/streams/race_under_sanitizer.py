# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Let PyTorch's CUDA sanitizer judge four programs: it looks at the order, not at the outcome."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch


def no_fork() -> float:
    """The side stream sums what the main stream writes, and does not wait for it."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.ones(100, 100, device="cuda")
    with torch.cuda.stream(side):
        total = x.sum()
    main.wait_stream(side)
    return total.item()


def no_join() -> float:
    """The main stream reads what the side stream writes, and does not wait for it."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.ones(100, 100, device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        total = x.sum()
    return total.item()


def fork_and_join() -> float:
    """Each stream waits for the other before it reads what that one writes."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.ones(100, 100, device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        total = x.sum()
    main.wait_stream(side)
    return total.item()


def freed_too_early() -> float:
    """The same, but x is dropped and its memory filled anew while the side stream may read it."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.ones(100, 100, device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        total = x.sum()
    del x
    torch.zeros(100, 100, device="cuda")
    main.wait_stream(side)
    return total.item()


PROGRAMS = {f.__name__: f for f in (no_fork, no_join, fork_and_join, freed_too_early)}


def excerpt(report: str) -> list[str]:
    """The lines of a report that say which kernel did what on which stream, without addresses."""
    starts = ("Access", "Previous", "aten::", "reading", "writing")
    return [re.sub(r"\d{4,}", "…", row) for row in report.splitlines() if row.startswith(starts)]


def judged(program: str) -> dict:
    """Exit code and races reported for a program, run with the sanitizer in its own process."""
    command, watched = [sys.executable, __file__, program], {"TORCH_CUDA_SANITIZER": "1"}
    child = subprocess.run(command, env=os.environ | watched, capture_output=True, text=True)
    races = child.stderr.count("detected a possible data race")
    report = {"report": excerpt(child.stderr), "last": (child.stderr.splitlines() or [""])[-1]}
    return {"exit_code": child.returncode, "races": races} | report


def main() -> dict:
    with ThreadPoolExecutor() as pool:
        verdicts = dict(zip(PROGRAMS, pool.map(judged, PROGRAMS), strict=True))
    for name, verdict in verdicts.items():
        print("{:<16} races reported: {races}, exit code {exit_code}".format(name, **verdict))
    print("\nwhat it says of no_fork:", *verdicts["no_fork"]["report"], sep="\n  ")
    return {"programs": verdicts}


if __name__ == "__main__":
    PROGRAMS.get(sys.argv[-1], main)()
