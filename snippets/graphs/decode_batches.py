# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""Write many sequences at once: what a token costs by the size of the batch."""

from functools import partial
from statistics import median

import torch
from torch import Tensor

from snippets.graphs.decode_step import least_bytes, pytorchs
from snippets.graphs.language_model import LanguageModel, parameters
from snippets.graphs.static_cache import Static, attention, generate
from snippets.pictures import sweep
from snippets.timing.benchmark import wall_clock
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTH, BLOCKS, PROMPT, STEPS = 2048, 12, 480, 32
TEXTS = (1, 4, 16, 64, 256)
ATTENTIONS = {"by_hand": attention, "pytorchs": pytorchs}


def network(texts: int, device: str) -> tuple[LanguageModel, Tensor]:
    """The same model in bfloat16 each time, and a prompt for each text."""
    torch.manual_seed(0)
    with torch.device(device):
        net = LanguageModel(WIDTH, BLOCKS, PROMPT + STEPS)
        prompt = torch.randint(net.token.num_embeddings, (texts, PROMPT))
    return net.bfloat16(), prompt


def per_step(work, calls: int) -> float:
    """Seconds of one of the STEPS steps that `work` makes."""
    return wall_clock(work, calls) / STEPS


def with_texts(texts: int, device: str) -> dict:
    """Times of a step of so many texts as a graph, with each attention."""
    net, prompt = network(texts, device)
    works, scores = {}, []
    for name, function in ATTENTIONS.items():
        cache = Static(net, prompt, PROMPT + STEPS, function)
        scores.append(cache.step().float())
        step = captured(cache.step)
        works[name] = partial(generate, cache, step, STEPS + 1)
    torch.testing.assert_close(*scores, rtol=0, atol=0.06)  # of about 0.6
    turns = take_turns(works, 1, 5, clock=per_step)
    row = {"texts": texts} | recorded(turns, "us")
    slower = ratios(turns["by_hand"], turns["pytorchs"])
    row |= {"by_hand_slower": median(slower), "by_hand_slower_trials": slower}
    row["bytes"] = least_bytes(net, texts, PROMPT + STEPS // 2)
    embedded = net.token.weight.numel() + net.place.weight.numel()
    row["flop"] = 2 * texts * (parameters(net) - embedded)
    best = min(row["us"].values())
    row |= {"tokens_s": 1e6 * texts / best, "tflop_s": row["flop"] / best / 1e6}
    row["gb_s"] = sum(row["bytes"].values()) / best / 1e3
    return row


@torch.no_grad()
def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for texts in TEXTS:
        row = with_texts(texts, device)
        rows.append(row)
        us = row["us"]
        print(f"{texts:4} texts: {us['by_hand']:6.0f} µs a step,", end=" ")
        print(f"PyTorch's attention {us['pytorchs']:6.0f}; at best", end=" ")
        print(f"{row['tokens_s']:8,.0f} tokens/s, {row['gb_s']:5.0f} GB/s,", end=" ")
        print(f"{row['tflop_s']:4.0f} TFLOP/s")
    return {"batches": rows, "places": PROMPT + STEPS, "blocks": BLOCKS}


def derive(results: dict) -> dict:
    """The share of bytes that are keys and values, and of tokens a second at batch 1."""
    rows, share = results["batches"], []
    for row in rows:
        share.append(row["bytes"]["cache"] / sum(row["bytes"].values()))
    one = rows[0]["tokens_s"]
    return {
        "cache_share": share,
        "gain": [row["tokens_s"] / one for row in rows],
        "step_us": [min(row["us"].values()) for row in rows],
    }


def plot(results: dict, ceilings: dict):
    rows = results["batches"]
    texts = [row["texts"] for row in rows]
    lines = {"measured": [row["tokens_s"] for row in rows]}
    limits = {}
    if "hbm_gb_s" in ceilings:
        limits["at the memory's bandwidth"] = [
            row["texts"] * 1e9 * ceilings["hbm_gb_s"] / sum(row["bytes"].values())
            for row in rows
        ]
    labels = {"xlabel": "sequences in a batch", "ylabel": "tokens per second, of all"}
    return sweep(texts, lines, limits, xlog=True, ylog=True, **labels)


if __name__ == "__main__":
    main()
