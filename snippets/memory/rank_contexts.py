# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1, 2]
# timeout = 120
# ///
"""Ranks that touch GPU 0 before they choose their own: what each of them leaves there."""

from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from snippets.pictures import bars


def choose_first(gpu: int, path: str) -> Any:
    """Choose the GPU, and load a checkpoint that was saved on GPU 0 to it."""
    torch.cuda.set_device(gpu)
    return torch.load(path, map_location=f"cuda:{gpu}")


def load_as_saved(gpu: int, path: str) -> Any:
    """Choose the GPU, and load the checkpoint to where it was saved."""
    torch.cuda.set_device(gpu)
    return torch.load(path)


def touch_first(gpu: int, path: str) -> Any:
    """Make a tensor before the GPU is chosen."""
    held = torch.zeros(1, device="cuda")
    torch.cuda.set_device(gpu)
    return held


WAYS = {
    "choose_first": choose_first,
    "load_as_saved": load_as_saved,
    "touch_first": touch_first,
}


def used_mib() -> list[int]:
    """MiB in use on each GPU, by whomever."""
    used = []
    for gpu in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(gpu)
        used.append((total - free) >> 20)
    return used


def rank(way: str, gpu: int, path: str, meet: Any) -> None:
    """What one rank does on its GPU; it goes on until the others have been counted."""
    held = WAYS[way](gpu, path)
    x = torch.ones(512, 512, device=f"cuda:{gpu}")
    x.add(x).sum().item()
    meet.wait()
    meet.wait()
    del held


def taken(way: str, gpus: list[int], path: str, context: Any) -> list[int]:
    """MiB that ranks on these GPUs take on each GPU."""
    before, meet = used_mib(), context.Barrier(len(gpus) + 1)
    start = partial(context.Process, target=rank)
    ranks = [start(args=(way, gpu, path, meet)) for gpu in gpus]
    for process in ranks:
        process.start()
    meet.wait(60)
    after = used_mib()
    meet.wait(60)
    for process in ranks:
        process.join()
    return [now - then for now, then in zip(after, before, strict=True)]


def main() -> dict:
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    gpus = torch.cuda.device_count()
    rows = {}
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "weights.pt")
        torch.save(torch.zeros(64 << 18, device="cuda:0"), path)  # 64 MiB
        if gpus == 1:
            for count in (1, 2, 4):
                rows[f"{count} on one GPU"] = taken(
                    "touch_first", [0] * count, path, context
                )
        else:
            for way in WAYS:
                rows[way] = taken(way, list(range(gpus)), path, context)
    for name, mib in rows.items():
        print(f"{name:14}", *(f"GPU {i}: {size:5} MiB" for i, size in enumerate(mib)))
    return {"taken_mib": rows, "gpus": gpus, "file_mib": 64}


def derive(results: dict) -> dict:
    """On one GPU: MiB that each further process takes.

    On several: GPU 0 as a multiple of GPU 1, and MiB more on it for who is careless.
    """
    if results["gpus"] > 1:
        first = {way: mib[0] for way, mib in results["taken_mib"].items()}
        chosen, other, *_ = results["taken_mib"]["choose_first"]
        careless = min(first["load_as_saved"], first["touch_first"])
        return {"chosen_times": chosen / other, "more_mib": careless - chosen}
    taken_mib = [mib[0] for mib in results["taken_mib"].values()]
    return {"each_mib": (taken_mib[-1] - taken_mib[0]) / 3}


def plot(results: dict, ceilings: dict):
    words = {
        "choose_first": "set_device, map_location",
        "load_as_saved": "set_device, torch.load\nas it was saved",
        "touch_first": "a tensor, then set_device",
    }
    groups = {}
    for name, mib in results["taken_mib"].items():
        row = {f"GPU {gpu}": size for gpu, size in enumerate(mib)}
        groups[words.get(name, name)] = row
    return bars(groups, {}, "MiB taken by all ranks")


if __name__ == "__main__":
    main()
