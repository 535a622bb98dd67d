# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# timeout = 180
# ///
"""Start a child by fork, spawn or forkserver: how long until it begins to work?"""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch
import torch.multiprocessing as mp

from snippets.pictures import bars

TRIALS = {"fork": 7, "forkserver": 7, "spawn": 3}
CODES = {"python": "pass", "python and torch": "import torch"}


def begin(connection) -> None:
    """In the child: when it began, and MiB of memory shared with nobody (Linux)."""
    began = time.perf_counter()  # one clock for all processes of a machine
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    kib = sum(int(line.split()[1]) for line in lines if line.startswith("Private"))
    connection.send((began, kib / 1024))


def started(method: str) -> tuple[float, float]:
    """Milliseconds from `start()` until the child's function runs, and its own MiB."""
    ours, theirs = mp.Pipe()
    process = mp.get_context(method).Process(target=begin, args=(theirs,))
    start = time.perf_counter()
    process.start()
    theirs.close()  # else recv() waits for ever if the child dies
    began, mib = ours.recv()
    process.join()
    return 1e3 * (began - start), mib


def python_ms(code: str) -> float:
    """Milliseconds of a Python that runs this code, from its start to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return 1e3 * (time.perf_counter() - start)


def costs() -> dict:
    """Start-up and memory of a child, by method."""
    runs = {method: [started(method) for _ in range(n)] for method, n in TRIALS.items()}
    trials = {method: [ms for ms, _ in each] for method, each in runs.items()}
    ms = {method: median(each) for method, each in trials.items()}
    own_mib = {
        method: median([mib for _, mib in each]) for method, each in runs.items()
    }
    return {"ms": ms, "ms_trials": trials, "own_mib": own_mib}


def main() -> dict:
    mp.get_context("forkserver").set_forkserver_preload(["torch"])
    alone = {name: [python_ms(code) for _ in range(3)] for name, code in CODES.items()}
    result = {"alone_ms": {name: median(each) for name, each in alone.items()}}
    result |= {
        "alone_ms_trials": alone,
        "first_forkserver_ms": started("forkserver")[0],
    }
    result["fresh"] = costs()
    if torch.cuda.is_available():
        torch.ones(1, device="cuda")
        result["used_cuda"] = costs()
    for name, ms in result["alone_ms"].items():
        print(f"{name:<22}{ms:8.1f} ms")
    for parent in ("fresh", "used_cuda"):
        for method, ms in result.get(parent, {"ms": {}})["ms"].items():
            mib = result[parent]["own_mib"][method]
            print(f"{parent:<12}{method:<10}{ms:8.1f} ms, {mib:5.1f} MiB of its own")
    return result


def plot(results: dict, ceilings: dict):
    parents = {"fresh": "parent fresh", "used_cuda": "parent has used CUDA"}
    rows = {"import torch": results["alone_ms"]["python and torch"]}
    for method in results["fresh"]["ms"]:
        there = {label: results[p] for p, label in parents.items() if p in results}
        rows[method] = {label: each["ms"][method] for label, each in there.items()}
    alone = {next(iter(rows["fork"])): rows.pop("import torch")}
    rows["only import torch"] = alone
    return bars(rows, {}, "ms until the child works", log=True)


if __name__ == "__main__":
    main()
