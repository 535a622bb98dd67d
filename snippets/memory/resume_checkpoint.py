# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""Resume from a checkpoint of a GPU: where does `torch.load` put it, and who keeps it?"""

import gc
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

WIDTH, LAYERS, ROWS = 4096, 4, 64
LOADS: dict[str, dict[str, Any]] = {
    "as_saved": {},
    "to_cpu": {"map_location": "cpu"},
    "mapped": {"map_location": "cpu", "mmap": True},
}
WAYS = ("as_saved", "as_saved_dropped", "to_cpu", "mapped")


def network(device: str) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    """Linear layers, and an Adam for them."""
    with torch.device(device):
        layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
        net = nn.Sequential(*layers)
    return net, torch.optim.Adam(net.parameters(), lr=1e-5, foreach=True)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> None:
    """One step on random numbers."""
    net(torch.randn(ROWS, WIDTH, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def save(path: Path, device: str) -> None:
    """Train one step, and write weights and optimizer as they are: on this device."""
    net, optimizer = network(device)
    train(net, optimizer, device)
    torch.save({"net": net.state_dict(), "adam": optimizer.state_dict()}, path)


def host_bytes() -> int:
    """This process's memory in the host, without pages of mapped files (Linux)."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return 1024 * int(found[1])  # type: ignore


@contextmanager
def host_peak(peaks: dict[str, int]) -> Iterator[None]:
    """How many bytes the host's memory grows at most meanwhile, sampled each 2 ms."""
    before, done, samples = host_bytes(), threading.Event(), []

    def sample() -> None:
        while not done.wait(0.002):
            samples.append(host_bytes())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    peaks["host_peak"] = max(0, *samples, host_bytes()) - before


def resumed(way: str, path: Path, device: str = "cuda") -> dict[str, int]:
    """Bytes of this process once it has resumed, at most until then, and in a step.

    "as_saved" keeps the checkpoint, as a variable of a long function does.
    """
    train(*network(device), device)  # libraries take what they need
    gc.collect()
    base, row = torch.cuda.memory_allocated(), {}
    torch.cuda.reset_peak_memory_stats()
    with host_peak(row):
        net, optimizer = network(device)
        checkpoint = torch.load(path, **LOADS[way.removesuffix("_dropped")])
        net.load_state_dict(checkpoint["net"])
        optimizer.load_state_dict(checkpoint["adam"])
        torch.cuda.synchronize()
    if way.endswith("_dropped"):
        del checkpoint
    row["loaded"] = torch.cuda.memory_allocated() - base
    row["load_peak"] = torch.cuda.max_memory_allocated() - base
    torch.cuda.reset_peak_memory_stats()
    train(net, optimizer, device)
    row["step_peak"] = torch.cuda.max_memory_allocated() - base
    row["moments_on_gpu"] = sum(
        state["exp_avg"].is_cuda for state in optimizer.state.values()
    )
    return row


def in_process_of_its_own(path: Path, way: str) -> dict[str, int]:
    command = [sys.executable, __file__, way, str(path)]
    child = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(child.stdout)


def main() -> dict:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        save(path, "cuda")
        gc.collect()
        torch.cuda.empty_cache()
        with ThreadPoolExecutor(len(WAYS)) as pool:
            rows = pool.map(partial(in_process_of_its_own, path), WAYS)
            ways = dict(zip(WAYS, rows, strict=True))
        loads = {name: partial(torch.load, path, **LOADS[name]) for name in LOADS}
        times = recorded(take_turns(loads, warmup=1, trials=3))
        file_bytes = path.stat().st_size
    weights = 4 * LAYERS * WIDTH**2
    print(f"{weights / 2**20:.0f} MiB of weights, file {file_bytes / 2**20:.0f} MiB")
    for name, row in ways.items():
        gpu = "GPU {loaded:6} after, {load_peak:6} peak, {step_peak:6} in a step"
        mib = {key: size >> 20 for key, size in row.items()}
        print(f"{name:17}", gpu.format(**mib), f"; host {mib['host_peak']:6} MiB")
    result = {"ways": ways, "weight_bytes": weights, "file_bytes": file_bytes}
    return result | {"load": times}


def derive(results: dict) -> dict:
    """Bytes on the GPU above those of a checkpoint that was loaded to the CPU."""
    kept, dropped, to_cpu, mapped = (results["ways"][way] for way in WAYS)
    more = {"kept_more": kept["loaded"] - to_cpu["loaded"]}
    more["dropped_more"] = dropped["loaded"] - to_cpu["loaded"]
    more["peak_more"] = dropped["load_peak"] - to_cpu["load_peak"]
    return more | {"mapped_of_host": mapped["host_peak"] / to_cpu["host_peak"]}


def plot(results: dict, ceilings: dict):
    words = {
        "as_saved": "as it was saved, kept",
        "as_saved_dropped": "as it was saved,\nthen del",
        "to_cpu": 'map_location="cpu"',
        "mapped": "and mmap=True",
    }
    groups = {}
    for way, text in words.items():
        row = results["ways"][way]
        groups[text] = {
            "GPU, a step later": row["step_peak"] / 2**20,
            "host, while loading": row["host_peak"] / 2**20,
        }
    return bars(groups, {}, "MiB at most")


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(resumed(sys.argv[1], Path(sys.argv[2]))))
    else:
        main()
