# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Keep half of every batch while batches grow, and map the memory when it is out."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from snippets.memory.snapshot_reading import blocks_of
from snippets.pictures import Axis, Bars, Note, Panel, Picture, Rule, Spans

CAP_MIB, FIRST_MIB, GROWTH_MIB = 2048, 32, 4  # at scale 1
SCALES = (1, 4, 8)  # everything so many times as large
SETTINGS = {
    "default": {},
    "emptied": {},
    "max_split": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:32"},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "rounded": {"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:4"},
    "collected": {"PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.6"},
    "collected_without_limit": {
        "PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.01"
    },
    "expandable_by_new_name": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
}
AT_SCALE_ONE_ALONE = ("collected_without_limit", "expandable_by_new_name")


def batch_of(mib: int) -> torch.Tensor:
    """A batch of so many MiB on the GPU, not filled: no kernel is launched."""
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


def result_of(mib: int) -> torch.Tensor:
    """What you want to remember of it."""
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


def memory_map(snapshot: dict) -> list[list[Any]]:
    """[MiB, who holds it, MiB that the tensor needs, segment] of each block, by address.

    Nobody holds a block of "". Segments are numbered.
    """
    rows, numbers = [], {}
    for block in blocks_of(snapshot):
        number = numbers.setdefault(block["segment"], len(numbers))
        sizes = block["bytes"] >> 20, block["asked"] >> 20
        rows.append([sizes[0], block["owner"], sizes[1], number])
    return rows


def grow(scale: int, empty: bool, limited: bool) -> dict:
    """The batch at which the loop stops, and what memory looks like then.

    `empty`: give the cache back to CUDA after each batch. Not `limited`: PyTorch may
    take what the GPU has, and the loop ends where nothing more could fit into the limit.
    """
    cap_mib, last_mib = CAP_MIB * scale, CAP_MIB * scale
    if limited:
        share = (cap_mib << 20) / torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(share)
    else:
        last_mib = furthest() * scale
    torch.cuda.memory._record_memory_history(stacks="python")
    kept, words, gave_back = [], "", 0
    try:
        for mib in range(FIRST_MIB * scale, last_mib, GROWTH_MIB * scale):
            batch = batch_of(mib)
            kept.append(result_of(mib // 2))
            del batch
            gave_back = torch.cuda.memory_stats()["num_device_free"]
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
        "gave_back": gave_back,  # before it was out of memory
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
    names = [name for name in SETTINGS if scale == 1 or name not in AT_SCALE_ONE_ALONE]
    free, _ = torch.cuda.mem_get_info()
    each = (CAP_MIB * scale + 1024) << 20  # a process, its context included
    if scale == 1:
        each *= 2  # one of them has no limit
    with ThreadPoolExecutor(max(1, free // each)) as pool:
        runs = pool.map(partial(in_process_of_its_own, scale=scale), names)
        return dict(zip(names, runs, strict=True))


def furthest() -> int:
    """The batch at which scale 1 stops even if nothing is ever lost, in MiB."""
    kept = 0
    for mib in range(FIRST_MIB, CAP_MIB, GROWTH_MIB):
        if kept + mib + mib // 2 > CAP_MIB:
            return mib
        kept += mib // 2


def main() -> dict:
    runs = all_settings(1)
    without_limit = runs.pop("collected_without_limit")
    for name, run in runs.items():
        run["held_mib"] = sum(mib for mib, owner, *_ in run["blocks"] if owner)
        run["holes_mib"] = [mib for mib, owner, *_ in run["blocks"] if not owner]
        shown = f"{name:<23}refused at {run['refused_mib']} MiB; tensors hold"
        print(f"{shown} {run['held_mib']} MiB, {sum(run['holes_mib'])} idle")
    print(f"\nwhat the default said: {runs['default']['words']}\n")

    total_mib = torch.cuda.mem_get_info()[1] >> 20
    scales = [scale for scale in SCALES if CAP_MIB * scale < 0.8 * total_mib]
    by_scale = [runs, *(all_settings(scale) for scale in scales[1:])]
    refused, asked_cuda = {}, {}
    for name in runs:
        each = [found[name] for found in by_scale if name in found]
        ends = zip(scales, each, strict=False)  # told in MiB of scale 1
        refused[name] = [run["refused_mib"] // scale for scale, run in ends]
        asked_cuda[name] = [run["asked_cuda"] for run in each]
        print(f"{name:<23}refused at {refused[name]}, asked CUDA {asked_cuda[name]}")
    print(f"without any loss, refused at {furthest()} MiB times {scales}")
    gave_back = [runs["collected"]["gave_back"], without_limit["gave_back"]]
    print(
        "given back by the threshold: {} times, without a limit {}".format(*gave_back)
    )
    result = {"cap_mib": CAP_MIB, "settings": runs, "scales": scales}
    result |= {"refused": refused, "asked_cuda": asked_cuda}
    result["gave_back"] = dict(zip(["limited", "unlimited"], gave_back, strict=True))
    return result | {"furthest_mib": furthest()}


def derive(results: dict) -> dict:
    """By setting, holes and results beside others; how often cures ask CUDA."""
    holes, beside = {}, {}
    for name, run in results["settings"].items():
        segments = [segment for *_, segment in run["blocks"]]
        holes[name] = len(run["holes_mib"])
        beside[name] = sum(
            owner == "result_of" and segments.count(segment) > 1
            for _, owner, _, segment in run["blocks"]
        )
    refused = results["refused"]
    cures = [refused[name][-1] for name in ("emptied", "max_split", "expandable")]
    asked = results["asked_cuda"]
    expandable, max_split, emptied = (
        asked[name][2] / asked["default"][2]
        for name in ("expandable", "max_split", "emptied")
    )
    found = {"cures_ask": [expandable, max_split], "emptied_asks": emptied}
    found |= {
        "holes": holes,
        "results_beside_others": beside,
        "cures_end_at_mib": cures,
    }
    last = results["scales"][-1]
    fits = {name: last * (each[-1] - GROWTH_MIB) for name, each in refused.items()}
    found["fits_mib"] = fits  # of the largest loop, one tensor before the refused one
    return found | {"farthest_mib": max(max(each) for each in refused.values())}


def plot(results: dict, ceilings: dict):
    def largest_loop() -> Picture:
        """The largest tensor for which the largest loop has room, and the most possible."""
        scale, refused = results["scales"][-1], results["refused"]
        names = {"default": "default", "collected": "garbage_collection_threshold"}
        names |= {"rounded": "roundup_power2_divisions"}
        names |= {"expandable": "expandable_segments"}
        names |= {"max_split": "max_split_size_mb"}
        names |= {"emptied": "empty_cache() each batch"}
        mib = {
            label: scale * (refused[name][-1] - GROWTH_MIB)
            for name, label in names.items()
        }
        texts = {label: f"{each:,}" for label, each in mib.items()}
        bars = Bars(mib, "largest tensor that still fits", texts=texts)
        could = scale * (results["furthest_mib"] - GROWTH_MIB)
        most = Rule("x", could, "most that could fit")
        return Picture(
            [Panel([bars, most], Axis("largest tensor that still fits, MiB", low=0))]
        )

    lanes = {"default": "default", "collected": "garbage_collection\n_threshold"}
    lanes |= {"rounded": "roundup_power2\n_divisions"}
    lanes |= {"expandable": "expandable\n_segments", "max_split": "max_split\n_size_mb"}
    lanes["emptied"] = "empty_cache()\neach batch"
    colors = {
        "results": 1,
        "last batch (its result did not fit)": 3,
        "unused end of a block": 4,
        "free": "ceiling",
    }
    cap, marks = results["cap_mib"], []
    for name, lane in lanes.items():
        bars = {label: [] for label in colors}
        at = 0
        for mib, owner, asked, _ in results["settings"][name]["blocks"]:
            if not owner:
                bars["free"].append((at, mib))
            elif owner == "batch_of":
                bars["last batch (its result did not fit)"].append((at, asked))
            else:
                bars["results"].append((at, asked))
            if owner and asked < mib:
                bars["unused end of a block"].append((at + asked, mib - asked))
            at += mib
        for label, color in colors.items():
            marks.append(Spans(lane, bars[label], label, color, label == "free"))
        refused = f"{results['settings'][name]['refused_mib']} MiB"
        marks.append(Note(cap, lane, refused, dx=5))
    marks.append(Note(cap, lanes["default"], "stops at:", dx=5, dy=-14))
    marks.append(Rule("x", cap, "limit"))
    ticks = {mib: f"{mib:,}" for mib in range(0, cap, 500)}
    x = Axis("MiB, in the order of addresses", low=0, ticks=ticks)
    return Picture([Panel(marks, x)]), {"large": largest_loop()}


if __name__ == "__main__":
    if sys.argv[1:2] == ["grow"]:
        name, scale = sys.argv[2:]
        limited = name != "collected_without_limit"
        found = grow(int(scale), name == "emptied", limited)
        print(json.dumps(found))
    else:
        main()
