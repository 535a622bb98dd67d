# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# missing = { 1 = "not recorded yet" }
# ///
"""Generate tokens one by one with a cache of keys and values: where does a step go?"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snippets.graphs.hybridize_now import handed_over
from snippets.graphs.language_model import HEAD, LanguageModel, causal, parameters
from snippets.timing.kernel_time import captured, gpu_clock
from snippets.timing.lanes import lanes
from snippets.timing.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

WIDTH, BLOCKS, CONTEXT, PROMPT, TOKENS = 1024, 8, 512, 64, 32
BATCHES, CHECKS = (1, 8, 32), (0, 1, 16)  # texts side by side; steps between checks
END = -1  # no token: so that a check never stops early


def attention(q: Tensor, keys: Tensor, values: Tensor, filled=None) -> Tensor:
    """Attention of one token, to the places that are `filled`: a mask, or all of them."""
    scores = q @ keys.transpose(2, 3) / HEAD**0.5
    if filled is not None:
        scores = scores.masked_fill(~filled, -torch.inf)
    return scores.softmax(-1) @ values


class Growing:
    """A cache that grows: each step makes all keys and values anew, one token longer."""

    def __init__(self, net: LanguageModel, prompt: Tensor):
        self.net, self.keys, self.values = net, [], []
        attends = [self.keep_prompt] * len(net.blocks)
        scores = net(prompt, attends=attends)
        self.first, self.prompt = scores[:, -1:].argmax(-1), prompt.shape[1]
        self.rewind()

    def keep_prompt(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.keys.append(k)
        self.values.append(v)
        return causal(q, k, v)

    def rewind(self) -> None:
        """Forget all but the prompt."""
        self.token, self.length = self.first, self.prompt
        self.keys = [keys[:, :, : self.prompt] for keys in self.keys]
        self.values = [values[:, :, : self.prompt] for values in self.values]

    def attend(self, i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.keys[i] = torch.cat([self.keys[i], k], 2)
        self.values[i] = torch.cat([self.values[i], v], 2)
        return attention(q, self.keys[i], self.values[i])

    def step(self) -> Tensor:
        """Scores of the next token, which becomes `token`."""
        places = torch.full((1,), self.length, device=self.token.device)
        attends = [partial(self.attend, i) for i in range(len(self.keys))]
        scores = self.net(self.token, places=places, attends=attends)
        self.token, self.length = scores[:, -1:].argmax(-1), self.length + 1
        return scores


class Static(nn.Module):
    """A cache of CONTEXT places: no step allocates it, so a graph can replay a step.

    Token, place and cache are changed in place. Places that are not filled yet are
    read, and masked.
    """

    def __init__(self, net: LanguageModel, prompt: Tensor, of_token=attention):
        super().__init__()
        self.net, self.prompt, batch = net, prompt.shape[1], prompt.shape[0]
        self.of_token = of_token
        weight = net.scores.weight
        shape = batch, weight.shape[1] // HEAD, CONTEXT, HEAD
        for i in range(len(net.blocks)):
            self.register_buffer(f"keys_{i}", weight.new_zeros(shape))
            self.register_buffer(f"values_{i}", weight.new_zeros(shape))
        places = torch.arange(CONTEXT, device=prompt.device)
        self.register_buffer("places", places)
        self.register_buffer("place", places[self.prompt : self.prompt + 1].clone())
        attends = [partial(self.keep_prompt, i) for i in range(len(net.blocks))]
        first = net(prompt, attends=attends)[:, -1:].argmax(-1)
        self.register_buffer("first", first)
        self.register_buffer("token", first.clone())

    def cache(self, i: int) -> tuple[Tensor, Tensor]:
        return getattr(self, f"keys_{i}"), getattr(self, f"values_{i}")

    def keep_prompt(self, i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for room, rows in zip(self.cache(i), (k, v), strict=True):
            room[:, :, : self.prompt].copy_(rows)
        return causal(q, k, v)

    def rewind(self) -> None:
        """Forget all but the prompt."""
        self.token.copy_(self.first)
        self.place.fill_(self.prompt)

    def step(self) -> Tensor:
        """Scores of the next token, which becomes `token`."""
        filled = (self.places <= self.place)[None, None, None]

        def attend(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.cache(i)
            keys.index_copy_(2, self.place, k)
            values.index_copy_(2, self.place, v)
            return self.of_token(q, keys, values, filled)

        attends = [partial(attend, i) for i in range(len(self.net.blocks))]
        scores = self.net(self.token, places=self.place, attends=attends)
        self.token.copy_(scores[:, -1:].argmax(-1))
        self.place.add_(1)
        return scores


def generate(cache, step: Callable, tokens: int, check: int = 0) -> Tensor:
    """Tokens that follow the prompt; every `check` steps the CPU asks if all have ended."""
    cache.rewind()
    found = []
    for i in range(tokens):
        step()
        found.append(cache.token.clone())
        if check and (i + 1) % check == 0 and bool((cache.token == END).all()):
            break
    return torch.cat(found, 1)


def captured_step(cache: Static, step: Callable) -> Callable:
    """`step` as a graph. To warm up is a real step: the cache is rewound after it."""

    def one() -> Tensor:
        return step()

    cache.rewind()
    replay = captured(one)
    cache.rewind()
    return replay


def compare(net: LanguageModel, prompt: Tensor, made: dict[str, tuple]) -> dict:
    """How far the first scores are from those without a cache, and how many tokens agree."""
    found, tokens = {}, {}
    first = net(prompt)[:, -1:].argmax(-1)
    expected = net(torch.cat([prompt, first], 1))[:, -1:].float()
    for name, (cache, step) in made.items():
        for _ in range(3):  # compiles, records
            generate(cache, step, 2)
        torch.cuda.synchronize()
        cache.rewind()
        scores = step().float()
        torch.testing.assert_close(scores, expected, rtol=0.05, atol=0.1)
        found[name] = float((scores - expected).abs().max())
        tokens[name] = generate(cache, step, TOKENS)
    agree = {n: int((row == tokens["static"]).sum()) for n, row in tokens.items()}
    return {"differs_by": found, "agree": agree}


def bytes_of_a_step(net: LanguageModel, batch: int) -> dict[str, int]:
    """What a step has to read: all weights but the embeddings', and the whole cache."""
    embedded = net.token.weight.nbytes + net.place.weight.nbytes
    size = net.scores.weight.element_size()
    cache = 2 * BLOCKS * batch * WIDTH * CONTEXT * size
    return {"weights": size * parameters(net) - embedded, "cache": cache}


def in_batches(net: LanguageModel) -> list[dict]:
    """A step for several texts at once: launched one by one, and as a graph."""
    rows = []
    for batch in BATCHES:
        prompt = torch.randint(net.token.num_embeddings, (batch, PROMPT), device="cuda")
        eager, graphed = Static(net, prompt), Static(net, prompt)
        made = {"static": (eager, eager.step)}
        made["graph"] = graphed, captured_step(graphed, graphed.step)
        row = {"batch": batch, "bytes": bytes_of_a_step(net, batch)}
        rows.append(row | timed(made))
    return rows


def timed(made: dict[str, tuple], trials: int = 9) -> dict:
    """Milliseconds in which each way generates TOKENS tokens; they take turns."""
    works = {}
    for name, (cache, step) in made.items():
        works[name] = partial(generate, cache, step, TOKENS)
    return recorded(take_turns(works, trials=trials))


def network() -> tuple[LanguageModel, Tensor]:
    """The same network each time, and a prompt of one text."""
    torch.manual_seed(0)
    net = LanguageModel(WIDTH, BLOCKS, CONTEXT).bfloat16().to("cuda")
    return net, torch.randint(net.token.num_embeddings, (1, PROMPT), device="cuda")


@torch.no_grad()
def uncompiled() -> dict:
    """Caches and graphs, what a step does on the GPU, and what a check costs."""
    net, prompt = network()
    growing, static = Growing(net, prompt), Static(net, prompt)
    graphed = Static(net, prompt)
    made = {"growing": (growing, growing.step), "static": (static, static.step)}
    made["graph"] = graphed, captured_step(graphed, graphed.step)
    result = compare(net, prompt, made) | timed(made)
    result["bytes"] = bytes_of_a_step(net, 1)
    checked, on_gpu, counted = {}, {}, {}
    for name in ("static", "graph"):
        for check in CHECKS:
            checked[f"{name}_{check}"] = partial(generate, *made[name], TOKENS, check)
    result["checked"] = recorded(take_turns(checked, trials=9))
    spin = partial(gpu_clock, calls=2, spin_cycles=6_000_000)
    for name in ("static", "graph"):
        cache, step = made[name]
        cache.rewind()
        turns = take_turns({name: step}, trials=7, clock=lambda work, _: spin(work))
        on_gpu[name] = turns[name]
        cache.rewind()
        counted[name] = len(handed_over(lanes(step)))
        cache.rewind()
    result |= {"on_gpu": recorded(on_gpu, "us"), "launches": counted}
    return result | {"batches": in_batches(net)}


@torch.no_grad()
def compiled(mode: str) -> dict:
    """A static step compiled in this mode, beside eager, and as a graph by hand."""
    net, prompt = network()
    static, one = Static(net, prompt), Static(net, prompt)
    made = {"static": (static, static.step)}
    if mode == "default":
        made["compiled"] = one, torch.compile(one.step)
        generate(*made["compiled"], 2)
        two = Static(net, prompt)
        made["compiled_graph"] = two, captured_step(two, torch.compile(two.step))
    else:
        made[mode.replace("-", "_")] = one, torch.compile(one.step, mode=mode)
    result = compare(net, prompt, made) | timed(made)
    skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    return result | {"cudagraph_skips": skips}


def pytorchs(q: Tensor, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
    """Attention of one token by PyTorch's function, which picks a library."""
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=filled)


@torch.no_grad()
def with_pytorchs_attention() -> dict:
    """A static step with a mask for PyTorch's own attention: eager, then as a graph."""
    net, prompt = network()
    static = Static(net, prompt)
    eager, graphed = Static(net, prompt, pytorchs), Static(net, prompt, pytorchs)
    made = {"static": (static, static.step), "sdpa": (eager, eager.step)}
    result = {"eager": compare(net, prompt, made) | timed(made)}
    made["sdpa_graph"] = graphed, captured_step(graphed, graphed.step)
    return result | compare(net, prompt, made) | timed(made)


def error_of(work: Callable, *given) -> dict:
    """What `work` gives; if it ends with an error, the first line of that."""
    try:
        return work(*given)
    except RuntimeError as error:
        first: BaseException = error
        while first.__context__:
            first = first.__context__
        return {"error": f"{type(first).__name__}: {first}".splitlines()[0]}


def main() -> dict:
    context = get_context("forkserver")  # an illegal access would end what shares a GPU
    context.set_forkserver_preload(["torch"])
    parts = {
        "uncompiled": (uncompiled,),
        "compiled": (compiled, "default"),
        "reduce_overhead": (compiled, "reduce-overhead"),
        "sdpa": (with_pytorchs_attention,),
    }
    result: dict = {"tokens": TOKENS}
    for name, part in parts.items():
        with ProcessPoolExecutor(1, context) as process:
            try:
                result[name] = process.submit(error_of, *part).result()
            except BrokenProcessPool as error:
                result[name] = {"error": str(error)}
        row = result[name]
        if "error" in row:
            print(f"{name}: {row['error']}")
        for way, ms in row.get("ms", {}).items():
            us = 1e3 * ms / TOKENS
            print(f"{name:16}{way:16}{us:8.1f} µs a token, {1e6 / us:8,.0f} tokens/s")
    return result


def plot(results: dict, ceilings: dict):
    labels = {
        "growing": ("uncompiled", "eager, growing cache"),
        "static": ("uncompiled", "eager, static cache"),
        "compiled": ("compiled", "compiled"),
        "reduce_overhead": ("reduce_overhead", "compiled, reduce-overhead"),
        "graph": ("uncompiled", "one graph"),
        "compiled_graph": ("compiled", "compiled, one graph"),
    }
    rates = {}
    for way, (part, label) in labels.items():
        ms = results[part].get("ms", {})
        if way in ms:
            rates[label] = results["tokens"] / ms[way] * 1e3
    limits = {}
    if ceilings:
        bytes_read = sum(results["uncompiled"]["bytes"].values())
        limits["as fast as memory"] = 1e9 * ceilings["hbm_gb_s"] / bytes_read
    return bars(rates, limits, unit="tokens per second")


if __name__ == "__main__":
    main()
