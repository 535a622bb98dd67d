# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""Read a prompt, then write: time to the first token, and to each further one."""

from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from snippets.graphs.decode_batches import ATTENTIONS
from snippets.graphs.decode_step import least_bytes, pytorchs
from snippets.graphs.language_model import LanguageModel, parameters
from snippets.graphs.static_cache import Static, generate
from snippets.pictures import Axis, Line, Panel, Picture
from snippets.timing.benchmark import wall_clock
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import recorded, take_turns

WIDTH, BLOCKS, STEPS = 2048, 12, 32
PROMPTS = (16, 64, 256, 1024, 4096, 16384)
CONTEXT = PROMPTS[-1] + STEPS
TOLERANCE = 0.06  # scores are about 0.6 large


def network(device: str) -> LanguageModel:
    """The same model in bfloat16 each time."""
    torch.manual_seed(0)
    with torch.device(device):
        return LanguageModel(WIDTH, BLOCKS, CONTEXT).bfloat16()


def prefill(cache: Static, prompt: Tensor) -> Tensor:
    """Read the prompt, fill the cache, and give the scores of the next token."""
    blocks = range(len(cache.net.blocks))
    attends = [partial(cache.keep_prompt, i) for i in blocks]
    return cache.net(prompt, attends=attends)[:, -1:]


def prefill_flop(net: LanguageModel, tokens: int) -> int:
    """FLOP of the matmuls, and of attention from each token to those before it."""
    width = net.scores.weight.shape[1]
    embedded = net.token.weight.numel() + net.place.weight.numel()
    attention = 2 * tokens**2 * width * len(net.blocks)  # half of two products
    return 2 * tokens * (parameters(net) - embedded) + attention


def checked(net: LanguageModel, prompt: Tensor) -> float:
    """How far a prefill's scores, and a step's, are from those of float32 at most."""
    cache = Static(net, prompt, prompt.shape[1] + 8, pytorchs)
    first = prefill(cache, prompt)
    cache.rewind()
    second = cache.step()
    text = torch.cat([prompt, cache.first], 1)
    exact = deepcopy(net).float()(text)[:, -2:]
    found = torch.cat([first, second], 1).float()
    torch.testing.assert_close(found, exact, rtol=0, atol=TOLERANCE)
    return float((found - exact).abs().max())


def per_token(work, calls: int) -> float:
    """Seconds of one of the STEPS steps that `work` makes."""
    return wall_clock(work, calls) / STEPS


def with_prompt(net: LanguageModel, tokens: int) -> dict:
    """Times of a prefill and of a step behind it, and the least that each must do."""
    device = net.scores.weight.device
    prompt = torch.randint(net.token.num_embeddings, (1, tokens), device=device)
    works = {}
    for name, attention in ATTENTIONS.items():
        cache = Static(net, prompt, tokens + STEPS, attention)
        works[name] = partial(generate, cache, captured(cache.step), STEPS + 1)
    decode = take_turns(works, 1, 5, clock=per_token)
    read = take_turns({"prefill": partial(prefill, cache, prompt)}, 1, 5)
    row = {"tokens": tokens} | recorded(read | decode)
    row["decode_ms"] = min(row["ms"][name] for name in ATTENTIONS)
    row["flop"] = prefill_flop(net, tokens)
    row["bytes"] = sum(least_bytes(net, 1, tokens + STEPS // 2).values())
    row["prefill_tokens_s"] = 1e3 * tokens / row["ms"]["prefill"]
    row["decode_tokens_s"] = 1e3 / row["decode_ms"]
    row["tflop_s"] = row["flop"] / row["ms"]["prefill"] / 1e9
    row["gb_s"] = row["bytes"] / row["decode_ms"] / 1e6
    return row


@torch.no_grad()
def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = network(device)
    prompt = torch.randint(net.token.num_embeddings, (1, PROMPTS[1]), device=device)
    differs_by = checked(net, prompt)
    rows = []
    for tokens in PROMPTS:
        row = with_prompt(net, tokens)
        rows.append(row)
        ms = row["ms"]["prefill"]
        print(f"{tokens:6} tokens: first after {ms:7.2f} ms,", end=" ")
        print(
            f"{row['prefill_tokens_s']:9,.0f} a second, {row['tflop_s']:4.0f}", end=""
        )
        print(
            f" TFLOP/s; then {row['decode_ms']:6.3f} ms each, {row['gb_s']:5.0f} GB/s"
        )
    result = {"prompts": rows, "parameters": parameters(net)}
    return result | {"differs_by": differs_by, "blocks": BLOCKS, "width": WIDTH}


def plot(results: dict, ceilings: dict):
    rows = results["prompts"]
    tokens = [row["tokens"] for row in rows]
    ticks = {n: f"{n:,}" for n in tokens}
    panels = []
    sides = {
        "prefill": ("flop", "bf16_tflop_s", 1e12),
        "decode": ("bytes", "hbm_gb_s", 1e9),
    }
    for name, (work, ceiling, unit) in sides.items():
        rates = [row[f"{name}_tokens_s"] for row in rows]
        marks: list[Any] = [Line(tokens, rates, "measured")]
        if ceiling in ceilings:
            count = [row["tokens"] if name == "prefill" else 1 for row in rows]
            pairs = zip(count, rows, strict=True)
            limit = [n * unit * ceilings[ceiling] / row[work] for n, row in pairs]
            marks.append(Line(tokens, limit, "ceiling", dots=False, color="ceiling"))
        x = Axis("tokens of the prompt", log=True, ticks=ticks)
        y = Axis("tokens per second", log=True)
        panels.append(Panel(marks, x, y, name))
    return Picture(panels, columns=2)


if __name__ == "__main__":
    main()
