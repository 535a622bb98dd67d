# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Keep half of every batch while batches grow, and map the memory when it is out."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

CAP_MIB, FIRST_MIB, GROWTH_MIB = 2048, 32, 4
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


def grow(empty: bool) -> dict:
    """The batch that does not fit any more, and what memory looks like then.

    `empty`: give the cache back to CUDA after each batch.
    """
    share = (CAP_MIB << 20) / torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(share)
    kept = []
    try:
        for mib in range(FIRST_MIB, CAP_MIB, GROWTH_MIB):
            batch = tensor(mib)
            kept.append(tensor(mib // 2))  # what you want to remember of it
            del batch
            if empty:
                torch.cuda.empty_cache()
    except torch.OutOfMemoryError as error:
        # without a word of the other children
        words = re.sub(r"Process \d+ has .*? in use\. ", "", str(error))
    snapshot = torch.cuda.memory._snapshot()
    expandable = bool(snapshot["allocator_settings"]["expandable_segments"])
    found = {"refused_mib": mib, "words": words, "blocks": memory_map(snapshot)}
    return found | {"is_expandable": expandable}


def in_process_of_its_own(name: str) -> dict:
    """What `grow` gives with a setting, which PyTorch reads from the environment."""
    env = {k: v for k, v in os.environ.items() if not k.endswith("ALLOC_CONF")}
    env |= SETTINGS[name]
    command = [sys.executable, __file__, "grow", name]
    child = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(child.stdout)


def main() -> dict:
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(in_process_of_its_own, SETTINGS))
    runs = dict(zip(SETTINGS, found, strict=True))
    for name, run in runs.items():
        run["held_mib"] = sum(mib for mib, held in run["blocks"] if held)
        run["holes_mib"] = [mib for mib, held in run["blocks"] if not held]
        shown = f"{name:<23}refused at {run['refused_mib']} MiB; tensors hold"
        print(f"{shown} {run['held_mib']} MiB, {sum(run['holes_mib'])} idle")
    print(f"\nwhat the default said: {runs['default']['words']}")
    return {"cap_mib": CAP_MIB, "settings": runs}


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
        print(json.dumps(grow(empty=sys.argv[2] == "emptied")))
    else:
        main()
