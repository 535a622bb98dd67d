# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["registered"]
# timeout = 120
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""Pinned memory: how many bytes are held for those that you ask for, and what helps?"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

MIB = (1, 3, 5, 33, 64, 65, 129)
SETTINGS = {
    "default": "",
    "registered": "pinned_use_cuda_host_register:True",
    "segment": "pinned_reserve_segment_size_mb:1024",
    "threshold": "pinned_max_round_threshold_mb:4",  # newer than PyTorch 2.11
}
COPY_MIB = 129


@contextmanager
def registered(tensor: Tensor) -> Iterator[Tensor]:
    """Pin the memory that a CPU tensor has, no more of it, as long as the block lasts.

    RuntimeError if CUDA refuses: for memory that is pinned already, for example. Copies
    from it must have ended before the block does: synchronize in it, also if it raises.
    """
    storage = tensor.untyped_storage()
    cuda: Any = torch.cuda.cudart()
    address = storage.data_ptr()
    torch.cuda.check_error(cuda.cudaHostRegister(address, storage.nbytes(), 0))
    try:
        yield tensor
    finally:
        torch.cuda.check_error(cuda.cudaHostUnregister(address))


def pinned_bytes() -> int:
    """Bytes of pinned memory that PyTorch's allocator has, in use or not."""
    return torch.cuda.host_memory_stats()["allocated_bytes.current"]


def resident_bytes() -> int:
    """Bytes of this process that are in the host's memory (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held() -> dict[str, list[int]]:
    """By size: bytes asked for, those that the allocator counts, those of the system."""
    torch.cuda.synchronize()
    torch.ones(1).pin_memory()  # what the first one brings along
    kept, found = [], {"asked": [], "counted": [], "resident": []}
    for mib in MIB:
        counted, resident = pinned_bytes(), resident_bytes()
        kept.append(torch.empty(mib << 20, dtype=torch.uint8, pin_memory=True))
        found["asked"].append(mib << 20)
        found["counted"].append(pinned_bytes() - counted)
        found["resident"].append(resident_bytes() - resident)
    return found


def with_setting(name: str) -> dict:
    """What `held` finds in a process with this setting, or how that one ended."""
    env = {k: v for k, v in os.environ.items() if not k.endswith("ALLOC_CONF")}
    if SETTINGS[name]:
        env["PYTORCH_ALLOC_CONF"] = SETTINGS[name]
    command = [sys.executable, __file__, "held"]
    child = subprocess.run(command, env=env, capture_output=True, text=True)
    if child.returncode:
        lines = child.stderr.strip().splitlines()
        told = [line for line in lines if "Error" in line or "what()" in line]
        return {"error": (told or lines)[-1].strip()}
    return json.loads(child.stdout)


def copies() -> dict:
    """Times to send one tensor from plain, pinned and registered memory."""
    plain = torch.randint(256, (COPY_MIB << 20,), dtype=torch.uint8)
    gpu, pinned = torch.empty_like(plain, device="cuda"), plain.pin_memory()
    before = pinned_bytes()
    with registered(plain.clone()) as own:
        facts = {"is_pinned": own.is_pinned(), "counted": pinned_bytes() - before}
        sources = {"plain": plain, "pinned": pinned, "registered": own}
        works = {}
        for name, source in sources.items():
            works[name] = partial(gpu.copy_, source, non_blocking=True)
            gpu.zero_()
            works[name]()
            torch.testing.assert_close(gpu.cpu(), plain)
        times = recorded(take_turns(works, trials=9))
    return facts | {"bytes": plain.nbytes} | times


def main() -> dict:
    with ThreadPoolExecutor(len(SETTINGS)) as pool:
        settings = dict(zip(SETTINGS, pool.map(with_setting, SETTINGS), strict=True))
    for name, row in settings.items():
        print(f"{name} {SETTINGS[name]}".strip())
        if "error" in row:
            print(f"  {row['error']}")
            continue
        for asked, counted, resident in zip(*row.values(), strict=True):
            mib = f"{asked >> 20:4} MiB asked, {counted >> 20:4} counted"
            print(f"  {mib}, {resident >> 20:4} more resident")
    found = copies()
    for name, ms in found["ms"].items():
        rate = found["bytes"] / 1e6 / ms
        print(f"copy from {name:11}{ms:7.2f} ms, {rate:5.1f} GB/s")
    return {"settings": settings, "copies": found}


def derive(results: dict) -> dict:
    """By setting, how many times the bytes are held; the next powers of two; rates."""
    times = {}
    for name, row in results["settings"].items():
        if "error" not in row:
            pairs = zip(row["counted"], row["asked"], strict=True)
            times[name] = [counted / asked for counted, asked in pairs]
    copied = results["copies"]
    rates = {name: copied["bytes"] / 1e6 / ms for name, ms in copied["ms"].items()}
    asked = results["settings"]["default"]["asked"]
    powers = [1 << (size - 1).bit_length() for size in asked]
    return {"times": times, "gb_s": rates, "powers": powers}


def plot(results: dict, ceilings: dict):
    row = results["settings"]["default"]
    groups = {}
    for asked, counted in zip(row["asked"], row["counted"], strict=True):
        groups[f"{asked >> 20} MiB"] = {
            "asked": asked / 2**20,
            "held": counted / 2**20,
        }
    return bars(groups, {}, "MiB of pinned memory")


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(held()))
    else:
        main()
