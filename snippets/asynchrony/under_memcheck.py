# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# timeout = 240
# ///
"""A kernel writes where it must not: what PyTorch says, and what compute-sanitizer sees."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

WRITE = """
extern "C" __global__ void write(float *x, int far, int times)
{
    x[(long)far * times] = 1;
}
"""
ELEMENTS = 1024
PLACES = {"one_too_far": (ELEMENTS, 1), "far_away": (1 << 20, 1 << 20)}
TOOL = "compute-sanitizer"
WAYS: dict[str, tuple[list[str], dict[str, str]]] = {
    "plain": ([], {}),
    "memcheck": ([TOOL, "--tool", "memcheck"], {}),
    "memcheck_uncached": (
        [TOOL, "--tool", "memcheck"],
        {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    ),
}
LIMIT_S = 180


def write(place: str) -> None:
    """Let one thread write beside a tensor of 1024 numbers."""
    kernel = torch.cuda._compile_kernel(WRITE, "write")
    x = torch.zeros(ELEMENTS, device="cuda")
    kernel((1, 1, 1), (1, 1, 1), [x, *PLACES[place]])
    torch.cuda.synchronize()


def seen(output: str) -> dict[str, str]:
    """What an output says: PyTorch's error, the tool's first finding, and its place."""
    patterns = {
        "error": r"Error: (CUDA error: .*)",
        "finding": r"=========\s+(Invalid .*)",
        "place": r"=========\s+and is (.*)",
    }
    found = {}
    for name, pattern in patterns.items():
        match = re.search(pattern, output)
        words = match[1] if match else ""
        found[name] = re.sub(r" at 0x[0-9a-f]+", "", words)
    return found


def judged(case: tuple[str, str]) -> dict:
    """What is said of a place when the program runs in a way."""
    place, way = case
    prefix, variables = WAYS[way]
    if prefix and not shutil.which(TOOL):
        return {"error": f"{TOOL} is not installed", "finding": "", "place": ""}
    command = [*prefix, sys.executable, __file__, place]
    env = os.environ | variables
    options: dict = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    child = subprocess.run(command, env=env, text=True, timeout=LIMIT_S, **options)
    return seen(child.stdout) | {"exit": child.returncode}


def main() -> dict:
    cases = [(place, way) for place in PLACES for way in WAYS]
    with ThreadPoolExecutor(len(cases)) as pool:
        rows: dict[str, dict] = {}
        for (place, way), row in zip(cases, pool.map(judged, cases), strict=True):
            rows.setdefault(place, {})[way] = row
    for place, ways in rows.items():
        for way, row in ways.items():
            words = [row[name] for name in ("finding", "place", "error") if row[name]]
            print(f"{place:12}{way:19}", "; ".join(words) or "nothing")
    return {"places": rows, "bytes": 4 * ELEMENTS}


if __name__ == "__main__":
    if sys.argv[1:]:
        write(sys.argv[1])
    else:
        main()
