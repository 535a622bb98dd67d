# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0, 1]
# timeout = 120
# once = { first_forkserver_ms = "the server starts once in a process" }
# ///
"""Start a child by fork, spawn or forkserver: how long until it begins to work?"""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch
import torch.multiprocessing as mp

from snippets.timing.pictures import bars

TRIALS = {"fork": 7, "forkserver": 7, "spawn": 3}


def own_mib() -> float:
    """MiB of memory that this process shares with no other (Linux)."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "Private" in line) / 1024


def begin(connection, on_gpu: bool) -> None:
    """In the child: say when it began and what memory it has; then use its device."""
    began = time.perf_counter()  # one clock for all processes of a machine
    memory = own_mib()
    total = torch.ones(8, device="cuda" if on_gpu else "cpu").sum().item()
    connection.send((began, memory, total))


def started(method: str, on_gpu: bool = False) -> tuple[float, float]:
    """Milliseconds from `start()` until the child's function runs, and its own MiB."""
    ours, theirs = mp.Pipe()
    process = mp.get_context(method).Process(target=begin, args=(theirs, on_gpu))
    start = time.perf_counter()
    process.start()
    began, memory, total = ours.recv()
    process.join()
    assert (total, process.exitcode) == (8, 0)
    return 1e3 * (began - start), memory


def python_ms(code: str) -> float:
    """Milliseconds of a Python that runs this code, from start to end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return 1e3 * (time.perf_counter() - start)


def costs(on_gpu: bool = False) -> dict:
    """Start-up of each method; on_gpu: the children use it, where they can."""
    gpu = {"fork": False, "spawn": on_gpu, "forkserver": on_gpu}
    runs = {m: [started(m, gpu[m]) for _ in range(n)] for m, n in TRIALS.items()}
    trials = {method: [ms for ms, _ in each] for method, each in runs.items()}
    return {
        "ms": {method: median(each) for method, each in trials.items()},
        "ms_trials": trials,
        "own_mib": {m: median([mib for _, mib in each]) for m, each in runs.items()},
    }


def main() -> dict:
    mp.get_context("forkserver").set_forkserver_preload(["torch"])
    codes = {"python": "pass", "python_and_torch": "import torch"}
    alone = {name: [python_ms(code) for _ in range(3)] for name, code in codes.items()}
    result = {"alone_ms": {name: median(each) for name, each in alone.items()}}
    result |= {
        "alone_ms_trials": alone,
        "first_forkserver_ms": started("forkserver")[0],
    }
    result["before"] = costs()
    if torch.cuda.is_available():
        torch.ones(1, device="cuda")
        result["after_cuda"] = costs(on_gpu=True)
    for name, ms in result["alone_ms"].items():
        print(f"{name.replace('_', ' '):<18}{ms:8.1f} ms")
    for when in ("before", "after_cuda"):
        for method, ms in result.get(when, {"ms": {}})["ms"].items():
            mib = result[when]["own_mib"][method]
            print(f"{when:<11}{method:<10}{ms:8.1f} ms, {mib:5.0f} MiB of its own")
    return result


def plot(results: dict, ceilings: dict):
    before, after = results["before"]["ms"], results.get("after_cuda", {}).get("ms")
    rows = {"import torch": results["alone_ms"]["python_and_torch"]}
    if after:
        rows = {"import torch": {"before CUDA": rows["import torch"]}}
        for method, ms in before.items():
            rows[method] = {"before CUDA": ms, "after CUDA": after[method]}
        return bars(rows, {}, "ms until the child works", log=True)
    return bars(rows | before, {}, "ms until the child works", log=True)


if __name__ == "__main__":
    main()
