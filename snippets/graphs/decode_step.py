# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 300
# ///
"""Ways to make the next token: what launches take, and how far memory's speed is."""

import os
import traceback
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from multiprocessing import get_context
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.graphs.hybridize_now import handed_over
from snippets.graphs.language_model import LanguageModel, parameters
from snippets.graphs.static_cache import Growing, Static, generate
from snippets.pictures import Axis, Bars, Note, Panel, Picture, three
from snippets.timing.benchmark import wall_clock
from snippets.timing.kernel_time import captured
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTH, BLOCKS, CONTEXT, PROMPT, STEPS = 1024, 12, 1024, 512, 64
FORCED, TOLERANCE = 8, 0.06  # scores are about 0.6 large; bfloat16 errs by 0.02
MATMULS = ("gemm", "gemv", "nvjet", "cutlass", "xmma", "splitK")  # in kernels' names
LIMIT_S = 100  # for a part


def network(width: int, texts: int) -> tuple[LanguageModel, Tensor]:
    """The same model in bfloat16 each time, and a prompt for each text."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        net = LanguageModel(width, BLOCKS, CONTEXT)
        prompt = torch.randint(net.token.num_embeddings, (texts, PROMPT))
    return net.bfloat16(), prompt


def least_bytes(net: LanguageModel, texts: int, places: int) -> dict[str, int]:
    """Bytes that a step cannot but read: weights once, and keys and values of `places`.

    Of the embeddings it reads a row or two, which are left out.
    """
    weight = net.scores.weight
    embedded = net.token.weight.numel() + net.place.weight.numel()
    row = 2 * len(net.blocks) * weight.shape[1]  # keys and values of a place
    numbers = {"weights": parameters(net) - embedded, "cache": row * texts * places}
    return {name: weight.element_size() * count for name, count in numbers.items()}


def pytorchs(q: Tensor, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
    """Attention of one token to the places that are filled, by PyTorch's own function."""
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=filled)


def forced(cache: Static | Growing, step: Callable[..., Any], text: Tensor) -> Tensor:
    """Scores of each step if it is given the tokens of `text` instead of its own."""
    cache.rewind()
    scores = []
    for i in range(text.shape[1]):
        cache.token.copy_(text[:, i : i + 1])
        scores.append(step().clone())
    return torch.cat(scores, 1)


def per_token(work: Callable[[], object], calls: int) -> float:
    """Seconds of one of the STEPS steps that `work` makes."""
    return wall_clock(work, calls) / STEPS


def read_each(cache: Static, step: Callable[[], object]) -> None:
    """Make the tokens one by one, and read each on the CPU, as who streams them does."""
    cache.rewind()
    for _ in range(STEPS):
        step()
        cache.token.tolist()


def on_gpu(cache: Static | Growing, step: Callable[[], object]) -> dict:
    """Launches of a step, its kernels, and the microseconds in which a kernel runs."""
    us, in_matmuls = [], []
    for _ in range(3):
        cache.rewind()
        timeline = lanes(step)
        kernels = [row for row in timeline if not row[0].startswith("CPU")]
        us.append(sum(row[2] for row in kernels))
        of_matmuls = [r[2] for r in kernels if any(name in r[3] for name in MATMULS)]
        in_matmuls.append(sum(of_matmuls))
    counted = {"launches": len(handed_over(timeline)), "kernels": len(kernels)}
    counted |= {"kernel_us": median(us), "kernel_us_trials": us}
    return counted | {"matmul_us": median(in_matmuls), "matmul_us_trials": in_matmuls}


def compared(net: LanguageModel, prompt: Tensor, ways: dict[str, tuple]) -> dict:
    """Check each way against float32; then let them take turns, a token's time each."""
    text = torch.randint(net.token.num_embeddings, (1, FORCED), device=prompt.device)
    exact = deepcopy(net).float()(torch.cat([prompt, text], 1))[:, PROMPT:]
    found: dict = {"differs_by": {}, "agree": {}, "gpu": {}}
    tokens = {}
    for name, (cache, step) in ways.items():
        scores = forced(cache, step, text).float()
        torch.testing.assert_close(scores, exact, rtol=0, atol=TOLERANCE)
        found["differs_by"][name] = float((scores - exact).abs().max())
        tokens[name] = generate(cache, step, STEPS + 1)
        same = tokens[name] == tokens["static"]
        # until the first that differs
        found["agree"][name] = int(same.cumprod(1).sum())
    works = {name: partial(generate, *way, STEPS + 1) for name, way in ways.items()}
    turns = take_turns(works, trials=9, clock=per_token)
    found |= recorded(turns, "us") | {"gain": {}, "gain_trials": {}}
    for name, way in ways.items():
        faster = ratios(turns["static"], turns[name])
        found["gain"][name], found["gain_trials"][name] = median(faster), faster
        found["gpu"][name] = on_gpu(*way)
    return found


@torch.no_grad()
def uncompiled() -> dict:
    """Both caches, the static one also as a graph; and what reading each token costs."""
    net, prompt = network(WIDTH, 1)
    growing, static = Growing(net, prompt), Static(net, prompt, CONTEXT)
    eager, graph = (static, static.step), (static, captured(static.step))
    ways = {"static": eager, "growing": (growing, growing.step), "graph": graph}
    result = compared(net, prompt, ways)
    reads = {}
    for name in ("static", "graph"):
        reads[name] = partial(generate, *ways[name], STEPS + 1)
        reads[f"{name}_read"] = partial(read_each, *ways[name])
    result["read"] = recorded(take_turns(reads, trials=9, clock=per_token), "us")
    result["bytes"] = least_bytes(net, 1, PROMPT + STEPS // 2)
    result["room"] = least_bytes(net, 1, CONTEXT)["cache"]
    return result


@torch.no_grad()
def with_pytorchs_attention() -> dict:
    """The static cache with PyTorch's attention in the place of that by hand."""
    net, prompt = network(WIDTH, 1)
    by_hand = Static(net, prompt, CONTEXT)
    static = Static(net, prompt, CONTEXT, pytorchs)
    ways = {"static": (by_hand, by_hand.step), "attention": (static, static.step)}
    ways["attention_graph"] = static, captured(static.step)
    return compared(net, prompt, ways)


@torch.no_grad()
def compiled(folder: str, mode: str | None = None) -> dict:
    """The step with the static cache, compiled in this mode; by default also as a graph.

    `folder` is the compiler's cache.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    net, prompt = network(WIDTH, 1)
    static = Static(net, prompt, CONTEXT)
    step = torch.compile(static.step, mode=mode)
    first_s = wall_clock(step)
    # `reduce-overhead` records the second call, and replays the third
    for _ in range(2):
        step()
    ways = {"static": (static, static.step)}
    if mode is None:
        ways["compiled"] = static, step
        ways["compiled_graph"] = static, captured(step)
    else:
        ways[mode.replace("-", "_")] = static, step
    skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    result = compared(net, prompt, ways)
    return result | {"first_s": first_s, "cudagraph_skips": skips}


def tell(part: Callable[[], object], theirs) -> None:
    """Send what `part()` gives, or the error that it ends with."""
    try:
        theirs.send(part())
    except Exception as error:
        traceback.print_exc()
        theirs.send({"error": f"{type(error).__name__}: {error}".splitlines()[0]})


def apart(part: Callable[[], object], limit_s: float) -> dict:
    """What `part()` gives in a process of its own: its errors, and its memory, end there.

    Graphs of `reduce-overhead` and graphs by hand are best kept apart: to record the
    former frees the workspaces of cuBLAS, and the latter may still write there.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=tell, args=(part, theirs))
    process.start()
    theirs.close()
    result = {"error": f"not done after {limit_s:g} s"}
    if ours.poll(limit_s):
        try:
            result = ours.recv()
        except EOFError:
            result = {"error": "the process died"}
        process.join(10)
    process.kill()
    process.join()
    return result


def main() -> dict:
    result = {}
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        parts = {"uncompiled": uncompiled, "compiled": partial(compiled, folder)}
        parts["reduce_overhead"] = partial(compiled, folder, "reduce-overhead")
        parts["attention"] = with_pytorchs_attention
        for name, part in parts.items():
            result[name] = row = apart(part, LIMIT_S)
            if "error" in row:
                print(f"{name}: {row['error']}")
                continue
            for way, us in row["us"].items():
                gpu = row["gpu"][way]
                print(f"{way:16}{us:7.0f} µs a token,", end=" ")
                print(f"{gpu['launches']:4} launches of {gpu['kernels']:4}", end=" ")
                print(f"kernels that run for {gpu['kernel_us']:6.0f} µs")
    return result | {"blocks": BLOCKS, "steps": STEPS, "places": CONTEXT}


def derive(results: dict) -> dict:
    """How far scores are from float32's; what graphs change, and reading costs."""
    parts = ("uncompiled", "compiled", "reduce_overhead", "attention")
    differ = [
        max(results[part].get("differs_by", {}).values(), default=None)
        for part in parts
    ]
    if None in differ:
        return {}
    eager, attention = results["uncompiled"], results["attention"]["agree"]
    us = eager["read"]["us"]
    return {
        "most_differs_by": max(differ),
        "graph_changes": {
            "tokens": attention["attention_graph"] - attention["attention"],
            "scores": eager["differs_by"]["graph"] - eager["differs_by"]["static"],
        },
        "read_takes": {way: us[f"{way}_read"] / us[way] for way in ("graph", "static")},
    }


def plot(results: dict, ceilings: dict):
    labels = {
        "growing": ("uncompiled", "eager, growing cache"),
        "static": ("uncompiled", "eager, static cache"),
        "attention": ("attention", "eager,\nPyTorch's attention"),
        "compiled": ("compiled", "compiled"),
        "graph": ("uncompiled", "one graph"),
        "attention_graph": ("attention", "one graph,\nPyTorch's attention"),
        "reduce_overhead": ("reduce_overhead", "compiled, reduce-overhead"),
        "compiled_graph": ("compiled", "compiled, one graph"),
    }
    rates = {}
    for way, (part, label) in labels.items():
        us = results[part].get("us", {})
        if way in us:
            rates[label] = 1e6 / us[way]
    ways = {"a launch for each kernel": {}, "one launch for a token": {}}
    for label, rate in rates.items():
        graph = "graph" in label or "reduce" in label
        ways[list(ways)[graph]][label] = rate
    marks = [Bars(of, name, dict.fromkeys(of, 0.0)) for name, of in ways.items()]
    picture = Picture([Panel(marks, Axis("tokens per second"))])
    if ceilings and rates:
        # the ceiling is so far away that an axis up to it would leave the bars short
        least = sum(results["uncompiled"]["bytes"].values())
        allowed = three(1e9 * ceilings["hbm_gb_s"] / least)
        panel, text = picture.panels[0], f"memory allows\n{allowed} →"
        panel.x.high = 1.2 * max(rates.values())
        # beside the shortest bar of those whose row is two lines high
        row = min(rates, key=lambda row: ("\n" not in row, rates[row]))
        panel.marks.append(Note(panel.x.high, row, text, "right", dy=-6))
    return picture


if __name__ == "__main__":
    main()
