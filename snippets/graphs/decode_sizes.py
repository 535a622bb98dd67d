# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Larger models, and more sequences at once: when do launches stop to decide a token?"""

from functools import partial
from statistics import median

import torch

from snippets.graphs.decode_step import (
    BLOCKS,
    CONTEXT,
    PROMPT,
    STEPS,
    least_bytes,
    network,
    on_gpu,
    per_token,
)
from snippets.graphs.language_model import parameters
from snippets.graphs.static_cache import Static, generate
from snippets.pictures import sweep
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTHS, WIDTH, TEXTS = (512, 1024, 2048, 4096), 1024, (8, 32)


@torch.no_grad()
def eager_and_graph(width: int, texts: int) -> tuple[dict, Static]:
    """Microseconds of a step of this model for so many texts, eager and as a graph."""
    net, prompt = network(width, texts)
    static = Static(net, prompt, CONTEXT)
    ways = {"eager": (static, static.step), "graph": (static, captured(static.step))}
    tokens = [generate(*way, STEPS + 1) for way in ways.values()]
    torch.testing.assert_close(tokens[1], tokens[0])
    works = {name: partial(generate, *way, STEPS + 1) for name, way in ways.items()}
    turns = take_turns(works, warmup=1, trials=7, clock=per_token)
    faster = ratios(turns["eager"], turns["graph"])
    row = {"width": width, "texts": texts, "parameters": parameters(net)}
    row |= recorded(turns, "us") | {"gain": median(faster), "gain_trials": faster}
    row["bytes"] = least_bytes(net, texts, PROMPT + STEPS // 2)
    row["room"] = least_bytes(net, texts, CONTEXT)["cache"]
    print(
        f"{width:5} wide, {texts:2} texts: eager {row['us']['eager']:6.0f} µs,", end=" "
    )
    print(f"graph {row['us']['graph']:6.0f} µs a step")
    return row, static


def main() -> dict:
    sizes = [(width, 1) for width in WIDTHS] + [(WIDTH, count) for count in TEXTS]
    measured = [eager_and_graph(*size) for size in sizes]
    rows = [row for row, _ in measured]
    for row, static in measured:  # last, since launches are slower after a profile
        with torch.no_grad():
            row["gpu"] = on_gpu(static, static.step)
    widths = rows[: len(WIDTHS)]
    texts = [widths[WIDTHS.index(WIDTH)], *rows[len(WIDTHS) :]]
    return {"widths": widths, "texts": texts, "blocks": BLOCKS}


def derive(results: dict) -> dict:
    """The rate at which a graph reads weights and cache, for each width."""
    return {
        "read_gb_s": [
            (row["bytes"]["weights"] + row["bytes"]["cache"]) / row["us"]["graph"] / 1e3
            for row in results["widths"]
        ]
    }


def plot(results: dict, ceilings: dict):
    rows = results["widths"]
    lines = {"eager": [row["us"]["eager"] for row in rows]}
    lines["one graph"] = [row["us"]["graph"] for row in rows]
    limits = {}
    if ceilings:
        least = [sum(row["bytes"].values()) for row in rows]
        limits["at the memory's bandwidth"] = [
            b / ceilings["hbm_gb_s"] / 1e3 for b in least
        ]
    labels = {"xlabel": "width of the model", "ylabel": "µs per token"}
    widths = [row["width"] for row in rows]
    return sweep(widths, lines, limits, xlog=True, ylog=True, **labels)


if __name__ == "__main__":
    main()
