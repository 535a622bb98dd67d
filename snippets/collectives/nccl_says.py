# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# missing = { 8 = "not recorded yet" }
# ///
"""What NCCL says of itself: version, NVLink SHARP, links, and what it does at a size."""

import os
import re
import subprocess
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist

from snippets.collectives.collectives_zoo import join

SIZES = [2**k for k in range(10, 31)]  # bytes


def job() -> None:
    """An all-reduce of each size; NCCL writes its log."""
    device = join()
    for size in SIZES:
        dist.all_reduce(torch.zeros(size // 4, device=device))
    torch.cuda.synchronize()
    dist.destroy_process_group()


def log_of(file: str, ranks: int) -> str:
    """Run a file in so many ranks, and return what NCCL logged in all of them."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += [f"--nproc-per-node={ranks}", file]
    with TemporaryDirectory() as folder:
        asks = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING"}
        asks["NCCL_DEBUG_FILE"] = f"{folder}/%p"  # a file for each process
        options = {"capture_output": True, "text": True, "timeout": 100}
        done = subprocess.run(torchrun, env=os.environ | asks, **options)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return "".join(path.read_text() for path in sorted(Path(folder).iterdir()))


def read(log: str) -> dict:
    """The facts in a log of NCCL 2.28; what it does not say is missing or empty."""
    says_nvls = re.findall(r"NCCL INFO ([^|\n]*NVLS[^|\n]*)$", log, re.M)
    told = {"says_nvls": sorted(set(says_nvls))}
    version = re.search(r"NCCL version (\S+)", log)
    if version:
        told["version"] = version[1]
    settings = re.findall(r"(NCCL_\w+) set by environment to (\S+?)\.?$", log, re.M)
    told["settings"] = {name: value for name, value in settings if "DEBUG" not in name}
    counts = re.search(r"(\d+) coll channels.* (\d+) nvls channels", log)
    if counts:
        told |= {"channels": int(counts[1]), "nvls_channels": int(counts[2])}
    told["links"] = Counter(re.findall(r"\] -> \d+\[\d+\] via (\S+)", log))
    told["latency_us"] = model(log)
    choice = (
        r"AllReduce: (\d+) Bytes -> Algo (\w+) proto (\w+) channel\S*=\{(\d+)\.\.(\d+)"
    )
    rows = {int(size): row for size, *row in re.findall(choice, log)}
    told["bytes"] = sorted(rows)
    told["algorithm"] = [rows[size][0] for size in told["bytes"]]
    told["protocol"] = [rows[size][1] for size in told["bytes"]]
    spans = [(int(rows[size][2]), int(rows[size][3])) for size in told["bytes"]]
    told["blocks"] = [last - first + 1 for first, last in spans]
    return told


def model(log: str) -> dict[str, float]:
    """µs that NCCL reckons with for an all-reduce of no bytes, where it would use it.

    By algorithm and protocol, from the tables that it logs: latency/bandwidth in GB/s.
    """
    found, algorithms, protocols = {}, [], []
    for line in re.findall(r"NCCL INFO (.*\|.*)", log):
        name, *cells = [cell.strip() for cell in line.split("|")]
        if name == "Algorithm":
            algorithms = " ".join(cells).split()
        elif name == "Protocol":
            protocols = [cell for cell in cells if cell]
        elif name == "AllReduce":
            columns = [(each, p) for each in algorithms for p in protocols[:3]]
            for (algorithm, protocol), cell in zip(columns, cells, strict=False):
                latency, _, rate = cell.partition("/")
                if float(rate or 0) > 0:
                    found[f"{algorithm} {protocol}"] = float(latency)
    return found


def main() -> dict:
    told = read(log_of(__file__, torch.cuda.device_count()))
    version = ".".join(map(str, torch.cuda.nccl.version()))
    told |= {"ranks": torch.cuda.device_count(), "torch_has": version}
    print(f"NCCL {version}: {told.get('nvls_channels')} channels for NVLink SHARP")
    print("set in the environment:", *map("=".join, told["settings"].items()))
    print("links:", *(f"{count} {link}" for link, count in told["links"].items()))
    rows = zip(told["bytes"], told["algorithm"], told["protocol"], strict=True)
    for what, group in groupby(rows, key=lambda row: row[1:]):
        sizes = [size // 2**10 for size, *_ in group]
        print(f"{sizes[0]:9,} to {sizes[-1]:9,} KiB:", *what)
    return told


def derive(results: dict) -> dict:
    """The sizes that NCCL sends by each protocol, and the protocols by size."""
    sizes = {}
    for size, protocol in zip(results["bytes"], results["protocol"], strict=True):
        sizes.setdefault(protocol, []).append(size)
    order = [protocol for protocol, _ in groupby(results["protocol"])]
    return {"sent_by": sizes, "protocols": order}


if __name__ == "__main__":
    if "RANK" in os.environ:
        job()
    else:
        main()
