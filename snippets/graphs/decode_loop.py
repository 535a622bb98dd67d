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
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snippets.graphs.hybridize_now import handed_over
from snippets.graphs.language_model import HEAD, LanguageModel, causal, parameters
from snippets.timing.kernel_time import captured, gpu_clock
from snippets.timing.lanes import lanes
from snippets.timing.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTH, BLOCKS, CONTEXT, PROMPT, TOKENS = 1024, 8, 512, 64, 32
BATCHES, CHECKS = (1, 8, 32), (0, 1, 16)  # texts side by side; steps between checks
END = -1  # no token: so that a check never stops early


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
        return F.scaled_dot_product_attention(q, self.keys[i], self.values[i])

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

    def __init__(self, net: LanguageModel, prompt: Tensor):
        super().__init__()
        self.net, self.prompt, batch = net, prompt.shape[1], prompt.shape[0]
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
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=filled)

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


def ways(net: LanguageModel, prompt: Tensor) -> dict[str, tuple]:
    """A cache and a step for each way to generate."""
    growing = Growing(net, prompt)
    made = {"growing": (growing, growing.step)}
    for name in ("static", "compiled", "reduce_overhead", "graph", "compiled_graph"):
        cache = Static(net, prompt)
        step = cache.step
        if name == "reduce_overhead":
            step = torch.compile(step, mode="reduce-overhead")
        elif name.startswith("compiled"):
            step = torch.compile(step)
        if name.endswith("graph"):
            step = captured(step)
        made[name] = cache, step
    return made


def compare(net: LanguageModel, prompt: Tensor, made: dict[str, tuple]) -> dict:
    """How far the first scores are from those without a cache, and how many tokens agree."""
    found, expected, tokens = {}, None, {}
    for name, (cache, step) in made.items():
        for _ in range(3):  # compiles, records
            generate(cache, step, 2)
        cache.rewind()
        if expected is None:
            expected = net(torch.cat([prompt, cache.token], 1))[:, -1:].float()
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
        steps = {"static": eager.step, "graph": captured(graphed.step)}
        caches = {"static": eager, "graph": graphed}
        works = {}
        for name, step in steps.items():
            works[name] = partial(generate, caches[name], step, TOKENS)
        turns = take_turns(works, trials=7)
        row = {"batch": batch, "bytes": bytes_of_a_step(net, batch)}
        rows.append(row | recorded(turns))
    return rows


@torch.no_grad()
def main() -> dict:
    torch.manual_seed(0)
    net = LanguageModel(WIDTH, BLOCKS, CONTEXT).bfloat16().to("cuda")
    prompt = torch.randint(net.token.num_embeddings, (1, PROMPT), device="cuda")
    made = ways(net, prompt)
    result = compare(net, prompt, made)
    works, checked, kernels = {}, {}, {}
    for name, (cache, step) in made.items():
        works[name] = partial(generate, cache, step, TOKENS)
    for name in ("static", "graph"):
        for check in CHECKS:
            work = partial(generate, *made[name], TOKENS, check)
            checked[f"{name}_{check}"] = work
        kernels[name] = made[name][1]
        made[name][0].rewind()
    turns = take_turns(works, trials=9)
    result |= recorded(turns) | {"tokens": TOKENS, "bytes": bytes_of_a_step(net, 1)}
    result["checked"] = recorded(take_turns(checked, trials=9))
    spin = partial(gpu_clock, calls=2, spin_cycles=6_000_000)
    clock = take_turns(kernels, trials=7, clock=lambda work, _: spin(work))
    result["on_gpu"] = recorded(clock, "us")
    for name in kernels:
        made[name][0].rewind()
    counted = {name: len(handed_over(lanes(step))) for name, step in kernels.items()}
    result |= {"launches": counted, "gain": {}, "gain_trials": {}}
    for name, timing in turns.items():
        faster = ratios(turns["growing"], timing)
        result["gain"][name], result["gain_trials"][name] = median(faster), faster
        us = 1e3 * result["ms"][name] / TOKENS
        print(f"{name:16}{us:8.1f} µs a token, {1e6 / us:8,.0f} tokens/s")
    gpu_us = result["on_gpu"]["us"]["static"]
    print(f"static, on the GPU {gpu_us:.1f} µs, {counted['static']} launches a token")
    result["batches"] = in_batches(net)
    skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    return result | {"cudagraph_skips": skips}


def plot(results: dict, ceilings: dict):
    labels = {
        "growing": "eager, growing cache",
        "static": "eager, static cache",
        "compiled": "compiled",
        "reduce_overhead": "compiled, reduce-overhead",
        "graph": "one graph",
        "compiled_graph": "compiled, one graph",
    }
    rates = {}
    for name, label in labels.items():
        rates[label] = results["tokens"] / results["ms"][name] * 1e3
    limits = {}
    if ceilings:
        bytes_read = sum(results["bytes"].values())
        limits["as fast as memory"] = 1e9 * ceilings["hbm_gb_s"] / bytes_read
    return bars(rates, limits, unit="tokens per second")


if __name__ == "__main__":
    main()
