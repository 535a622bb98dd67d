# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Keep half of every batch while batches grow: how far each allocator setting gets under a cap."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

MIB = 2**20
CAP_MIB, FIRST_MIB, GROWTH_MIB = 2048, 32, 4
OLD_NAME, NEW_NAME = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
SETTINGS = {
    "default": {},
    "max_split": {OLD_NAME: "max_split_size_mb:32"},
    "expandable": {OLD_NAME: "expandable_segments:True"},
    "expandable_by_new_name": {NEW_NAME: "expandable_segments:True"},
}


def tensor(mib: int) -> torch.Tensor:
    """A tensor of so many MiB on the GPU, not filled: no kernel is launched."""
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def counters() -> list[float]:
    """MiB held by tensors, and MiB that PyTorch keeps."""
    return [torch.cuda.memory_allocated() / MIB, torch.cuda.memory_reserved() / MIB]


def grow() -> dict:
    """[MiB of the batch, allocated, reserved] after each batch, and when memory was out."""
    torch.cuda.set_per_process_memory_fraction(
        CAP_MIB * MIB / torch.cuda.mem_get_info()[1]
    )
    batches, kept = [], []
    try:
        for mib in range(FIRST_MIB, CAP_MIB, GROWTH_MIB):
            batch = tensor(mib)
            kept.append(tensor(mib // 2))  # what you want to remember of it
            del batch
            batches.append([mib, *counters()])
    except torch.OutOfMemoryError as error:
        end = [mib, *counters()]
        words = re.sub(
            r"Process \d+ has .*? in use\. ", "", str(error)
        )  # the other children
    expandable = torch.cuda.memory._snapshot()["allocator_settings"][
        "expandable_segments"
    ]
    return {
        "batches": batches,
        "end": end,
        "words": words,
        "is_expandable": bool(expandable),
    }


def most_possible() -> int:
    """MiB of the largest batch for which everything still fits, without a byte lost."""
    kept, mib = 0, FIRST_MIB
    while kept + mib + mib // 2 <= CAP_MIB:
        kept, mib = kept + mib // 2, mib + GROWTH_MIB
    return mib - GROWTH_MIB


def in_process_of_its_own(setting: dict[str, str]) -> dict:
    """What `grow` gives with this setting, which PyTorch reads once, from the environment."""
    others = {
        name: value
        for name, value in os.environ.items()
        if name not in (OLD_NAME, NEW_NAME)
    }
    command = [sys.executable, __file__, "grow"]
    child = subprocess.run(
        command, env=others | setting, capture_output=True, text=True
    )
    if child.returncode:
        raise RuntimeError(f"{setting}: {child.stderr}")
    return json.loads(child.stdout) | {"warns": "deprecated" in child.stderr}


def main() -> dict:
    with ThreadPoolExecutor() as pool:
        runs = dict(
            zip(
                SETTINGS,
                pool.map(in_process_of_its_own, SETTINGS.values()),
                strict=True,
            )
        )
    for name, run in runs.items():
        run["largest_mib"], (_, *at_the_end) = run["batches"][-1][0], run["end"]
        shown = f"largest batch {run['largest_mib']:3} MiB; then tensors hold"
        print(f"{name:<23} {shown} {at_the_end[0]:4.0f} of {at_the_end[1]:4.0f} MiB")
    print(f"\nwhat the default said: {runs['default']['words']}")
    return {"cap_mib": CAP_MIB, "most_possible_mib": most_possible(), "settings": runs}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(layout="constrained")
    for name in ("default", "max_split", "expandable"):
        mib, allocated, reserved = zip(
            *results["settings"][name]["batches"], strict=True
        )
        ax.plot(mib, reserved, label=name.replace("_", " "))
    ax.plot(mib, allocated, label="held by tensors")
    ax.axhline(results["cap_mib"], color="gray", linestyle="--", label="allowed")
    ax.set(xlabel="batch, MiB", ylabel="MiB kept by PyTorch", ylim=(0, None))
    figure.legend(loc="outside upper left", ncols=3, handlelength=1, columnspacing=1)
    return figure


if __name__ == "__main__":
    print(json.dumps(grow())) if sys.argv[1:] else main()
