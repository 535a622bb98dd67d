# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Texts of changing lengths: how much more than its tensors does PyTorch reserve?"""

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from snippets.pictures import bars

LONGEST, SHORTEST, STEPS, ROWS = 1024, 64, 48, 16
WIDTH, LAYERS, WORDS = 512, 4, 8192
ORDERS = ("fixed", "random", "growing", "longest_first", "padded")
SETTINGS = {
    "default": {},
    "expandable": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
}


def lengths(order: str) -> list[int]:
    """The length of each step's texts; the longest is the same in each order."""
    draw = random.Random(0)
    drawn = [draw.randint(SHORTEST, LONGEST) for _ in range(STEPS - 1)]
    middle = STEPS // 2
    orders = {
        "fixed": [LONGEST] * STEPS,
        "random": [*drawn[:middle], LONGEST, *drawn[middle:]],
        "growing": [*sorted(drawn), LONGEST],
        "longest_first": [LONGEST, *drawn],
    }
    padded = [-(-length // 256) * 256 for length in orders["random"]]
    return (orders | {"padded": padded})[order]


def train(sizes: list[int], device: str = "cuda") -> list[list[int]]:
    """Bytes [allocated at most in the step, reserved after it], for texts so long."""
    torch.manual_seed(0)
    with torch.device(device):
        blocks = [
            nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, 0, batch_first=True)
            for _ in range(LAYERS)
        ]
        net = nn.Sequential(nn.Embedding(WORDS, WIDTH), *blocks)
        scores = nn.Linear(WIDTH, WORDS)
    parameters = [*net.parameters(), *scores.parameters()]
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    rows = []
    for size in sizes:
        torch.cuda.reset_peak_memory_stats()
        words = torch.randint(WORDS, (ROWS, size), device=device)
        y = scores(net(words))
        loss = cross_entropy(y.flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del words, y, loss
        rows.append([torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved()])
    return rows


def in_process_of_its_own(order: str, setting: str) -> dict:
    """What `train` gives in this order, and how often CUDA was asked for memory."""
    env = {k: v for k, v in os.environ.items() if not k.endswith("ALLOC_CONF")}
    command = [sys.executable, __file__, order]
    env |= SETTINGS[setting]
    child = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(child.stdout)


def main() -> dict:
    cases = [(order, setting) for order in ORDERS for setting in SETTINGS]
    # as many at once as surely fit on a GPU of 80 GB
    with ThreadPoolExecutor(5) as pool:
        runs = list(pool.map(lambda case: in_process_of_its_own(*case), cases))
    result = {}
    for (order, setting), run in zip(cases, runs, strict=True):
        peak = max(allocated for allocated, _ in run["steps"])
        reserved = max(reserved for _, reserved in run["steps"])
        row = {"peak": peak, "reserved": reserved, "times": reserved / peak}
        result.setdefault(order, {})[setting] = run | row
        print(f"{order:14}{setting:11}tensors {peak >> 20:6} MiB at most,", end=" ")
        print(
            f"reserved {reserved >> 20:6}, {row['times']:.2f} times as much,", end=" "
        )
        print(f"CUDA asked {run['asked_cuda']} times, out {run['retries']} times")
    return {"orders": result, "longest": LONGEST, "steps": STEPS, "rows": ROWS}


def derive(results: dict) -> dict:
    """How many times its peak a run reserves at most: in orders that grow no longer
    than their first steps, and with expandable segments in any order.
    """
    orders = results["orders"]
    calm = (orders[name]["default"] for name in ("fixed", "longest_first", "padded"))
    expandable = (row["expandable"]["times"] for row in orders.values())
    found = {"calm_times": max(row["times"] for row in calm)}
    return found | {"expandable_times": max(expandable)}


def plot(results: dict, ceilings: dict):
    words = {
        "fixed": "always the longest",
        "longest_first": "longest first",
        "random": "random",
        "growing": "growing",
        "padded": "random, padded\nto 4 lengths",
    }
    groups = {}
    for order, text in words.items():
        rows = results["orders"][order]
        groups[text] = {
            "tensors": rows["default"]["peak"] / 2**30,
            "reserved": rows["default"]["reserved"] / 2**30,
            "reserved, expandable": rows["expandable"]["reserved"] / 2**30,
        }
    return bars(groups, {}, "GiB at most")


if __name__ == "__main__":
    if sys.argv[1:]:
        steps = train(lengths(sys.argv[1]))
        stats = torch.cuda.memory_stats()
        counts = {"asked_cuda": stats["num_device_alloc"]}
        counts["retries"] = stats["num_alloc_retries"]
        print(json.dumps({"steps": steps} | counts))
    else:
        main()
