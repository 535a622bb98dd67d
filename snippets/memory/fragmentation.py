# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# take = ["memory_map"]
# ///
"""Keep half of every batch while batches grow, and map the memory when it is out."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

CAP_MIB, FIRST_MIB, GROWTH_MIB = 2048, 32, 4  # at scale 1
SCALES = (1, 4, 8)  # everything so many times as large
SETTINGS = {
    "default": {},
    "emptied": {},
    "max_split": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:32"},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "expandable_by_new_name": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
}


def tensor(mib: int) -> torch.Tensor:
    """A tensor of so many MiB on the GPU, not filled: no kernel is launched."""
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


def memory_map(snapshot: dict) -> list[list[int]]:
    """[MiB, 1 if a tensor holds it] of each block that PyTorch has, by address."""
    segments = sorted(snapshot["segments"], key=lambda segment: segment["address"])
    blocks = [block for segment in segments for block in segment["blocks"]]
    return [[b["size"] >> 20, int(b["state"] == "active_allocated")] for b in blocks]


def grow(scale: int, empty: bool) -> dict:
    """The batch that does not fit any more, and what memory looks like then.

    `empty`: give the cache back to CUDA after each batch.
    """
    cap_mib = CAP_MIB * scale
    share = (cap_mib << 20) / torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(share)
    kept = []
    try:
        for mib in range(FIRST_MIB * scale, cap_mib, GROWTH_MIB * scale):
            batch = tensor(mib)
            kept.append(tensor(mib // 2))  # what you want to remember of it
            del batch
            if empty:
                torch.cuda.empty_cache()
    except torch.OutOfMemoryError as error:
        # without a word of the other children
        words = re.sub(r"Process \d+ has .*? in use\. ", "", str(error))
    snapshot = torch.cuda.memory._snapshot()
    return {
        "refused_mib": mib,
        "words": words,
        "blocks": memory_map(snapshot),
        "is_expandable": bool(snapshot["allocator_settings"]["expandable_segments"]),
        "asked_cuda": torch.cuda.memory_stats()["num_device_alloc"],
    }


def in_process_of_its_own(name: str, scale: int = 1) -> dict:
    """What `grow` gives with a setting, which PyTorch reads from the environment."""
    env = {k: v for k, v in os.environ.items() if not k.endswith("ALLOC_CONF")}
    env |= SETTINGS[name]
    command = [sys.executable, __file__, "grow", name, str(scale)]
    child = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(child.stdout)


def all_settings(scale: int) -> dict[str, dict]:
    """What `grow` gives with each setting; as many at once as fit on the GPU."""
    free, _ = torch.cuda.mem_get_info()
    each = (CAP_MIB * scale + 1024) << 20  # a process, its context included
    with ThreadPoolExecutor(max(1, free // each)) as pool:
        runs = pool.map(partial(in_process_of_its_own, scale=scale), SETTINGS)
        return dict(zip(SETTINGS, runs, strict=True))


def furthest() -> int:
    """The batch of scale 1 that does not fit even if nothing is ever lost, in MiB."""
    kept = 0
    for mib in range(FIRST_MIB, CAP_MIB, GROWTH_MIB):
        if kept + mib + mib // 2 > CAP_MIB:
            return mib
        kept += mib // 2


def main() -> dict:
    runs = all_settings(1)
    for name, run in runs.items():
        run["held_mib"] = sum(mib for mib, held in run["blocks"] if held)
        run["holes_mib"] = [mib for mib, held in run["blocks"] if not held]
        shown = f"{name:<23}refused at {run['refused_mib']} MiB; tensors hold"
        print(f"{shown} {run['held_mib']} MiB, {sum(run['holes_mib'])} idle")
    print(f"\nwhat the default said: {runs['default']['words']}\n")

    total_mib = torch.cuda.mem_get_info()[1] >> 20
    scales = [scale for scale in SCALES if CAP_MIB * scale < 0.8 * total_mib]
    by_scale = [runs, *(all_settings(scale) for scale in scales[1:])]
    refused, asked_cuda = {}, {}
    for name in SETTINGS:
        each = [found[name] for found in by_scale]
        ends = zip(scales, each, strict=True)  # told in MiB of scale 1
        refused[name] = [run["refused_mib"] // scale for scale, run in ends]
        asked_cuda[name] = [run["asked_cuda"] for run in each]
        print(f"{name:<23}refused at {refused[name]}, asked CUDA {asked_cuda[name]}")
    print(f"without any loss, refused at {furthest()} MiB times {scales}")
    result = {"cap_mib": CAP_MIB, "settings": runs, "scales": scales}
    result |= {"refused": refused, "asked_cuda": asked_cuda}
    return result | {"furthest_mib": furthest()}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(layout="constrained")
    lanes = ("default", "expandable", "max_split", "emptied")
    for i, label in enumerate(["idle", "held by tensors"]):
        for lane, name in enumerate(lanes):
            bars, at = [], 0
            for mib, held in results["settings"][name]["blocks"]:
                if held == i:
                    bars.append((at, mib))
                at += mib
            look = {"color": f"C{1 - i}", "label": None if lane else label}
            ax.broken_barh(bars, (lane - 0.35, 0.7), edgecolor="none", **look)
    ax.axvline(results["cap_mib"], color="gray", linestyle="--", label="allowed")
    ax.set_yticks(range(len(lanes)), [name.replace("_", " ") for name in lanes])
    ax.set(xlabel="MiB at the refusal, by address", xlim=(0, None))
    ax.invert_yaxis()
    figure.legend(loc="outside upper left", ncols=3)
    return figure


if __name__ == "__main__":
    if sys.argv[1:2] == ["grow"]:
        name, scale = sys.argv[2:]
        print(json.dumps(grow(int(scale), empty=name == "emptied")))
    else:
        main()
