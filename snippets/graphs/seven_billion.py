# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# gpu_gib = 58
# ///
"""A decoder with the shapes of Llama 2 7B: does Python still decide a token, or a step?

The shapes are those of Llama 2 7B (arXiv:2307.09288), which takes blocks and widths from
the first LLaMA (arXiv:2302.13971). The weights are random, and so is the text.
"""

import os
import time
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snippets.graphs.decode_step import forced, on_gpu, pytorchs
from snippets.graphs.language_model import causal, parameters
from snippets.graphs.static_cache import generate
from snippets.pictures import Axis, Bars, Panel, Picture, limits, sweep
from snippets.timing.benchmark import wall_clock
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.timing.wait_for import wait_for

BLOCKS, WIDTH, HEADS, HIDDEN = 32, 4096, 32, 11_008
VOCABULARY, CONTEXT = 32_000, 4096
PLACES, STEPS, FORCED, TEXTS = 1024, 32, 8, (1, 4, 16, 64)
TRAINED = 8  # blocks of a training step, with CONTEXT tokens
TOLERANCE = 0.2  # of the scores' length; bfloat16 alone errs by 0.05 in 32 blocks
BESIDE_GIB = 12  # of the training step, of products, and to spare


class Block(nn.Module):
    """Attention and SwiGLU behind an RMSNorm each, for rows (texts, tokens, width)."""

    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.heads = heads
        self.before_attention = nn.RMSNorm(width, eps=1e-5)
        self.q, self.k, self.v, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.before_mlp = nn.RMSNorm(width, eps=1e-5)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(
        self, x: Tensor, angles: Tensor, attend: Callable[..., Tensor] = causal
    ) -> Tensor:
        texts, tokens, width = x.shape
        rows = self.before_attention(x)
        q, k, v = (
            part(rows).view(texts, tokens, self.heads, -1).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        seen = attend(rotated(q, angles), rotated(k, angles), v)
        x = x + self.out(seen.transpose(1, 2).reshape(texts, tokens, width))
        rows = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(rows)) * self.up(rows))

    def with_cache(self, x: Tensor, angles: Tensor, cache: Sequence[Tensor]) -> Tensor:
        """The same for a token of each text.

        `cache` has keys, values, the place of the token, and what to add to scores:
        nothing at places that are filled, else minus infinity.
        """
        keys, values, place, mask = cache

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys.index_copy_(2, place, k)
            values.index_copy_(2, place, v)
            return pytorchs(q, keys, values, mask)

        return self(x, angles, attend)


class Decoder(nn.Module):
    """Scores of the next token behind each token of texts."""

    def __init__(
        self,
        blocks: int,
        width: int,
        heads: int,
        hidden: int,
        vocabulary: int,
        context: int,
        dtype: torch.dtype = torch.bfloat16,
    ):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width, dtype=dtype)
        one_by_one = (Block(width, heads, hidden).to(dtype) for _ in range(blocks))
        self.blocks = nn.ModuleList(one_by_one)
        self.norm = nn.RMSNorm(width, eps=1e-5, dtype=dtype)
        self.scores = nn.Linear(width, vocabulary, bias=False, dtype=dtype)
        self.register_buffer("angles", angles_of(context, width // heads).to(dtype))
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=1.28 / width**0.5)  # 0.02 of 4096

    def forward(self, tokens: Tensor) -> Tensor:
        angles = self.angles[:, : tokens.shape[1]]
        x = self.token(tokens)
        for block in self.blocks:
            x = block(x, angles)
        return self.scores(self.norm(x))


def angles_of(places: int, head: int) -> Tensor:
    """Cosines and sines of rotary positions: (2, places, width of a head)."""
    turns = 10_000 ** (-torch.arange(0, head, 2) / head)
    angles = torch.arange(places)[:, None] * turns.repeat(2)
    return torch.stack([angles.cos(), angles.sin()])


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Queries or keys, turned by the angles of their places."""
    cos, sin = angles
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Decoding:
    """Texts that are written token by token, with a cache of fixed length.

    The first `start` places hold random keys and values. Token, place and cache are
    changed in place, so one graph can replay a step.
    """

    def __init__(self, net: Decoder, texts: int, places: int, start: int):
        self.net, self.start = net, start
        self.works = [block.with_cache for block in net.blocks]
        weight = net.scores.weight
        heads = net.blocks[0].heads
        shape = texts, heads, places, weight.shape[1] // heads
        self.caches = [
            (weight.new_empty(shape).normal_(), weight.new_empty(shape).normal_())
            for _ in net.blocks
        ]
        self.places = torch.arange(places, device=weight.device)
        self.place = torch.full((1,), start, device=weight.device)
        self.token = torch.zeros(texts, 1, dtype=torch.long, device=weight.device)

    def compiled(self) -> "Decoding":
        """The same texts and cache, with compiled blocks: equal ones share their code."""
        other = copy(self)
        other.works = [torch.compile(work) for work in self.works]
        return other

    def rewind(self) -> None:
        """Forget all tokens that were written."""
        self.token.zero_()
        self.place.fill_(self.start)

    def step(self) -> Tensor:
        """Make `token` the next one of each text; its scores."""
        net = self.net
        x, angles = net.token(self.token), net.angles[:, self.place]
        mask = torch.zeros_like(self.places, dtype=x.dtype)
        mask.masked_fill_(self.places > self.place, -torch.inf)
        for work, (keys, values) in zip(self.works, self.caches, strict=True):
            x = work(x, angles, (keys, values, self.place, mask[None, None, None]))
        scores = net.scores(net.norm(x))
        self.token.copy_(scores.argmax(-1))
        self.place.add_(1)
        return scores


class Training:
    """Forward and backward of the first blocks with one text, without an optimizer."""

    def __init__(self, net: Decoder, blocks: int, tokens: int):
        self.blocks, self.angles = net.blocks[:blocks], net.angles[:, :tokens]
        weight = net.scores.weight
        self.x = weight.new_empty(1, tokens, weight.shape[1]).normal_()
        self.gradient = torch.randn_like(self.x)
        self.x.requires_grad_()  # as if it came from an embedding

    def rewind(self) -> None:
        """Drop all gradients."""
        self.x.grad = None
        self.blocks.zero_grad()

    def step(self) -> None:
        self.rewind()
        with torch.enable_grad():
            x = self.x
            for block in self.blocks:
                x = block(x, self.angles)
        x.backward(self.gradient)

    def flop(self) -> int:
        """FLOP of products and attention, the backward pass twice the forward pass."""
        tokens, width = self.x.shape[1:]
        products = sum(w.numel() for w in self.blocks.parameters() if w.dim() > 1)
        attention = 2 * tokens**2 * width * len(self.blocks)  # half of two products
        return 3 * (2 * tokens * products + attention)


def network(device: str) -> Decoder:
    """The model, made where it is needed: the weights never cross a bus."""
    torch.manual_seed(0)
    with torch.device(device):
        return Decoder(BLOCKS, WIDTH, HEADS, HIDDEN, VOCABULARY, CONTEXT)


def needed_gib(texts: int) -> float:
    """GiB of the weights, of a cache for so many texts and another, and beside them."""
    block = 4 * WIDTH**2 + 3 * WIDTH * HIDDEN
    weights = BLOCKS * block + 2 * VOCABULARY * WIDTH
    caches = 2 * BLOCKS * WIDTH * PLACES * (texts + 1)
    return 2 * (weights + caches) / 2**30 + BESIDE_GIB


def check_room(free_gib: float) -> None:
    """RuntimeError, with what to do, where the GPU has too little free memory."""
    needed = needed_gib(max(TEXTS))
    if needed <= free_gib:
        return
    fewer = tuple(texts for texts in TEXTS if needed_gib(texts) <= free_gib)
    smaller = f"or set TEXTS = {fewer}" if fewer else "or take a larger GPU"
    raise RuntimeError(
        f"this needs {needed:.0f} GiB of free memory on the GPU, and {free_gib:.0f} "
        f"are free: end other programs that use this GPU (nvidia-smi), {smaller}"
    )


def least_bytes(net: Decoder, texts: int, places: int) -> dict[str, int]:
    """Bytes that a step cannot but read: weights once, and keys and values of `places`.

    Of the embeddings it reads a row for each text, which is left out.
    """
    size, width = net.scores.weight.element_size(), net.scores.weight.shape[1]
    weights = size * (parameters(net) - net.token.weight.numel())
    return {
        "weights": weights,
        "cache": size * 2 * len(net.blocks) * width * texts * places,
    }


def checked(net: Decoder) -> float:
    """The largest error of scores with a cache, beside those of the whole text."""
    weight = net.scores.weight
    text = torch.randint(weight.shape[0], (1, FORCED), device=weight.device)
    text[:, 0] = 0  # what a decoding begins with
    cache: Any = Decoding(net, 1, PLACES, 0)
    return apart(forced(cache, cache.step, text), net(text))


def apart(scores: Tensor, expected: Tensor) -> float:
    """The largest relative error of a token's scores; AssertionError if it is too large.

    A token's scores are taken as one vector: an error is the length of the difference
    by the length of those expected.
    """
    found, expected = scores.float(), expected.float()
    error = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    torch.testing.assert_close(error, torch.zeros_like(error), rtol=0, atol=TOLERANCE)
    return float(error.max())


def per_token(work: Callable[[], object], calls: int) -> float:
    """Seconds of one of the STEPS steps that `work` makes."""
    return wall_clock(work, calls) / STEPS


def compared(ways: dict[str, tuple[Any, Callable[[], Tensor]]]) -> dict:
    """Check each way against eager mode; then let them take turns, a token's time each."""
    cache, step = ways["eager"]
    texts = cache.token.shape[0]
    vocabulary, device = cache.net.token.num_embeddings, cache.token.device
    text = torch.randint(vocabulary, (texts, FORCED), device=device)
    expected = forced(cache, step, text)
    tokens = generate(cache, step, STEPS + 1)
    row: dict = {"texts": texts, "differs_by": {}, "agree": {}}
    for name, way in ways.items():
        row["differs_by"][name] = apart(forced(*way, text), expected)
        same = (generate(*way, STEPS + 1) == tokens).all(0)
        row["agree"][name] = int(same.cumprod(0).sum())  # until the first that differs
    works = {name: partial(generate, *way, STEPS + 1) for name, way in ways.items()}
    turns = take_turns(works, warmup=1, trials=7, clock=per_token)
    row |= recorded(turns, "us") | {"gain": {}, "gain_trials": {}}
    for name in ways:
        faster = ratios(turns["eager"], turns[name])
        row["gain"][name], row["gain_trials"][name] = median(faster), faster
    row["bytes"] = least_bytes(cache.net, texts, cache.start + STEPS // 2)
    us = ", ".join(f"{name} {us:,.0f} µs" for name, us in row["us"].items())
    print(f"{texts:2} texts: a step takes {us}")
    return row


def ways_of(net: Decoder, texts: int) -> dict[str, tuple[Any, Callable[[], Tensor]]]:
    """A cache and its step: eager, and the same as one graph."""
    cache = Decoding(net, texts, PLACES, PLACES - STEPS)
    return {"eager": (cache, cache.step), "graph": (cache, captured(cache.step))}


def first_call(step: Callable[[], object], folder: str) -> float:
    """Seconds of the first step, which compiles; `folder` is the compiler's cache."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    return wall_clock(step)


def returns_after(work: Callable[[], object]) -> float:
    """Seconds until Python returns from `work`; the devices are idle before it."""
    wait_for()
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    wait_for()
    return seconds


def trained(training: Training) -> dict:
    """When a training step is done, and when Python returns from it."""
    clocks = {"done": wall_clock, "returned": returns_after}
    works = {name: partial(clock, training.step) for name, clock in clocks.items()}
    turns = take_turns(works, 2, 9, clock=lambda clock, calls: clock())
    assert training.x.grad is not None and training.x.grad.isfinite().all()
    row = {"blocks": len(training.blocks), "tokens": training.x.shape[1]}
    row |= recorded(turns) | {"flop": training.flop()}
    row["tflop_s"] = row["flop"] / row["ms"]["done"] / 1e9
    print(f"{row['blocks']} blocks, {row['tokens']:,} tokens, forward and", end=" ")
    print(
        f"backward: {row['ms']['done']:.1f} ms, {row['tflop_s']:.0f} TFLOP/s;", end=""
    )
    print(f" Python returns after {row['ms']['returned']:.1f} ms")
    return row


def told(name: str, gpu: dict) -> dict:
    """Print what a profile found, and give it back."""
    print(f"{name:14}{gpu['launches']:5} launches of {gpu['kernels']:5}", end=" ")
    print(f"kernels that run for {gpu['kernel_us']:8,.0f} µs")
    return gpu


@torch.no_grad()
def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        check_room(torch.cuda.mem_get_info()[0] / 2**30)
    net = network(device)
    result: dict = {"parameters": parameters(net), "differs_by": checked(net)}
    print(f"{result['parameters']:,} parameters, in bfloat16")
    ways = ways_of(net, 1)
    compiled = ways["eager"][0].compiled()
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        result["first_s"] = first_call(compiled.step, folder)
        ways["compiled_graph"] = compiled, captured(compiled.step)
    print(f"the compiled step's first call took {result['first_s']:.0f} s")
    rows = [compared(ways)]
    rows += [compared(ways_of(net, texts)) for texts in TEXTS if texts > 1]
    training: Any = Training(net, TRAINED, CONTEXT)
    result |= {"rows": rows, "train": trained(training)}
    # last, since launches are slower after a profile
    rows[0]["gpu"] = {name: told(name, on_gpu(*way)) for name, way in ways.items()}
    result["train"]["gpu"] = told("training", on_gpu(training, training.step))
    if device == "cuda":
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return result | {"blocks": BLOCKS, "width": WIDTH, "places": PLACES}


def derive(results: dict) -> dict:
    """Rates in GB/s and tokens a second, and the share of time in which kernels run."""
    rows, train = results["rows"], results["train"]
    one, last = rows[0], rows[-1]
    rates = {}
    for way in ("eager", "graph"):
        rates[way] = [1e6 * row["texts"] / row["us"][way] for row in rows]
    read = {way: sum(one["bytes"].values()) / us / 1e3 for way, us in one["us"].items()}
    many_read = sum(last["bytes"].values()) / last["us"]["graph"] / 1e3
    busy = {way: one["gpu"][way]["kernel_us"] / us for way, us in one["us"].items()}
    return {
        "one": one,
        "many": last,
        "gb_s": read,
        "many_gb_s": many_read,
        "busy": busy,
        "tokens_s": rates,
        "train_busy": train["gpu"]["kernel_us"] / train["ms"]["done"] / 1e3,
    }


def plot(results: dict, ceilings: dict):
    rows = results["rows"]
    ms = {way: us / 1e3 for way, us in rows[0]["us"].items()}
    graphs = {"one graph": ms["graph"]}
    graphs["compiled,\none graph"] = ms["compiled_graph"]
    marks = [
        Bars({"eager": ms["eager"]}, "a launch for each kernel"),
        Bars(graphs, "one launch for a token"),
    ]
    rates = {"eager": [1e6 * row["texts"] / row["us"]["eager"] for row in rows]}
    rates["one graph"] = [1e6 * row["texts"] / row["us"]["graph"] for row in rows]
    limit, allowed = {}, {}
    if "hbm_gb_s" in ceilings:
        rate = 1e6 * ceilings["hbm_gb_s"]  # bytes in a ms
        least = [sum(row["bytes"].values()) / rate for row in rows]
        limit = {"at the memory's bandwidth": least[0]}
        pairs = zip(rows, least, strict=True)
        allowed = {
            "at the memory's bandwidth": [1e3 * r["texts"] / t for r, t in pairs]
        }
    picture = Picture([Panel([*marks, *limits(limit)], Axis("ms per token"))])
    labels = {"xlabel": "sequences in a batch", "ylabel": "tokens per second, of all"}
    texts = [row["texts"] for row in rows]
    more = sweep(texts, rates, allowed, xlog=True, ylog=True, **labels)
    return picture, {"texts": more}


if __name__ == "__main__":
    main()
