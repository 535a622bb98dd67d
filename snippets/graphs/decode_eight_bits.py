# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 420
# ///
"""A decode step with weights in bf16, FP8 and int8: what it gains, and its error."""

from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from snippets.graphs.decode_step import least_bytes, pytorchs
from snippets.graphs.language_model import LanguageModel
from snippets.graphs.static_cache import Static, generate
from snippets.pictures import bars
from snippets.timing.benchmark import wall_clock
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTH, BLOCKS, PROMPT, STEPS = 4096, 8, 96, 32
E4M3 = torch.float8_e4m3fn


def by_fp8(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Rows x by a weight in FP8; x becomes FP8 here, with one scale for all of it."""
    largest = x.abs().amax().float().clamp(min=1e-12)
    of_x = largest / torch.finfo(E4M3).max
    low = (x / of_x).to(E4M3)
    options = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    return torch._scaled_mm(low, weight.T, scale_a=of_x, scale_b=scale, **options)


def by_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """One row x by a weight in int8, which is read as it is; x stays in bfloat16.

    Compiled it is one kernel; eager it would write the products, as large as the weight.
    """
    sums = (x.float() * weight.float()).sum(-1)
    return (sums * scale).to(x.dtype)[None]


class Low(nn.Module):
    """A linear layer whose weight is in eight bits: `kind` is "fp8" or "int8"."""

    def __init__(self, layer: nn.Linear, kind: str) -> None:
        super().__init__()
        weight = layer.weight.detach()
        if kind == "fp8":
            largest = weight.abs().amax().float()
            scale = (largest / torch.finfo(E4M3).max).clamp(min=1e-12)
            low = (weight / scale).to(E4M3)
        else:
            largest = weight.abs().amax(1).float()
            scale = (largest / 127).clamp(min=1e-12)
            low = (weight / scale[:, None]).round().to(torch.int8)
        self.register_buffer("low", low)
        self.register_buffer("scale", scale)
        self.bias = layer.bias
        self.product = torch.compile(
            by_fp8 if kind == "fp8" else by_int8, dynamic=False
        )

    def forward(self, x: Tensor) -> Tensor:
        rows = self.product(x.flatten(0, 1), self.low, self.scale)
        y = rows.unflatten(0, x.shape[:2])
        return y if self.bias is None else y + self.bias


def lowered(net: nn.Module, kind: str) -> nn.Module:
    """The network with each linear layer in eight bits; its embeddings stay."""
    for name, part in list(net.named_children()):
        if isinstance(part, nn.Linear):
            setattr(net, name, Low(part, kind))
        else:
            lowered(part, kind)
    return net


def network(texts: int, device: str) -> tuple[LanguageModel, Tensor]:
    """The same model in bfloat16 each time, and a prompt for each text."""
    torch.manual_seed(0)
    with torch.device(device):
        net = LanguageModel(WIDTH, BLOCKS, PROMPT + STEPS)
        prompt = torch.randint(net.token.num_embeddings, (texts, PROMPT))
    return net.bfloat16(), prompt


def cached(net: LanguageModel, prompt: Tensor, kind: str) -> Static:
    """A cache behind the prompt, which bf16 reads; then the weights are lowered."""
    cache = Static(net, prompt, PROMPT + STEPS, pytorchs)
    if kind != "bf16":
        lowered(net, kind)
    return cache


def per_step(work, calls: int) -> float:
    """Seconds of one of the STEPS steps that `work` makes."""
    return wall_clock(work, calls) / STEPS


def with_texts(texts: int, kinds: tuple[str, ...], device: str) -> dict:
    """Times of a step of so many texts as a graph, and how far the scores are off."""
    works, scores, read, refused = {}, {}, {}, {}
    for kind in kinds:
        net, prompt = network(texts, device)
        read[kind] = dict(least_bytes(net, texts, PROMPT + STEPS // 2))
        if kind != "bf16":
            read[kind]["weights"] //= 2
        cache = cached(net, prompt, kind)
        try:
            scores[kind] = cache.step().float().clone()
        except RuntimeError as error:  # a product may want more rows
            refused[kind] = str(error).partition("\n")[0]
            continue
        cache.rewind()
        works[kind] = partial(generate, cache, captured(cache.step), STEPS + 1)
    turns = take_turns(works, 1, 7, clock=per_step)
    row = {"texts": texts, "bytes": read, "refused": refused} | recorded(turns, "us")
    row |= {"gain": {}, "gain_trials": {}, "error": {}, "gb_s": {}}
    exact = scores["bf16"]
    for kind, timing in turns.items():
        faster = ratios(turns["bf16"], timing)
        row["gain"][kind], row["gain_trials"][kind] = median(faster), faster
        row["error"][kind] = float((scores[kind] - exact).norm() / exact.norm())
        row["gb_s"][kind] = sum(read[kind].values()) / row["us"][kind] / 1e3
    assert max(row["error"].values()) < 0.2, row["error"]
    return row


@torch.no_grad()
def main() -> dict:
    torch._dynamo.config.recompile_limit = 64  # a shape for each kind of layer
    rows = [
        with_texts(1, ("bf16", "fp8", "int8"), "cuda"),
        with_texts(16, ("bf16", "fp8"), "cuda"),
    ]
    for row in rows:
        for kind, us in row["us"].items():
            print(f"{row['texts']:2} texts, {kind:5}{us:7.0f} µs a step,", end=" ")
            print(f"{row['gain'][kind]:.2f} times as fast,", end=" ")
            print(
                f"{row['gb_s'][kind]:5.0f} GB/s, scores off by {row['error'][kind]:.1%}"
            )
    return {"rows": rows, "width": WIDTH, "blocks": BLOCKS}


def derive(results: dict) -> dict:
    """The row of one text, and that of many."""
    one, many = results["rows"]
    return {"one": one, "many": many}


def plot(results: dict, ceilings: dict):
    values = {}
    for row in results["rows"]:
        name = "one sequence" if row["texts"] == 1 else f"{row['texts']} sequences"
        values[name] = dict(row["us"])
    return bars(values, {}, "µs a step")


if __name__ == "__main__":
    main()
