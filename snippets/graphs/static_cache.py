# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# timeout = 240
# ///
"""Token by token: a cache that grows, one of fixed length, and what a step launches."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from snippets.graphs.language_model import HEAD, LanguageModel, causal, parameters

WIDTH, BLOCKS, CONTEXT, PROMPT, TOKENS = 1024, 8, 128, 16, 12


def attention(q: Tensor, keys: Tensor, values: Tensor, filled=None) -> Tensor:
    """Attention of one token to the places that are `filled`, a mask, or to all."""
    scores = q @ keys.transpose(2, 3) / HEAD**0.5
    if filled is not None:
        scores = torch.where(filled, scores, -torch.inf)
    return scores.softmax(-1) @ values


class Growing:
    """A cache that grows: each step makes all keys and values anew, one token longer."""

    def __init__(self, net: LanguageModel, prompt: Tensor):
        self.net, self.of_prompt = net, []
        attends = [self.keep_prompt] * len(net.blocks)
        self.first = net(prompt, attends=attends)[:, -1:].argmax(-1)
        self.start = torch.full((1,), prompt.shape[1], device=prompt.device)
        self.rewind()

    def keep_prompt(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.of_prompt.append((k, v))
        return causal(q, k, v)

    def rewind(self) -> None:
        """Forget all but the prompt."""
        self.cache = list(self.of_prompt)
        self.token, self.place = self.first.clone(), self.start

    def attend(self, i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.cache[i]
        self.cache[i] = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        return attention(q, *self.cache[i])

    def step(self) -> Tensor:
        """Make `token` the next one; its scores."""
        attends = [partial(self.attend, i) for i in range(len(self.cache))]
        scores = self.net(self.token, places=self.place, attends=attends)
        self.token = scores.argmax(-1)
        self.place = self.place + 1
        return scores


class Static(nn.Module):
    """A cache of `length` places: no step makes it anew, so a graph can replay a step.

    Token, place and cache are tensors that are changed in place. Places that are not
    filled yet are read, and masked. `attention` is that of one token.
    """

    def __init__(
        self, net: LanguageModel, prompt: Tensor, length: int, attention=attention
    ):
        super().__init__()
        self.attention = attention
        self.net, self.prompt, weight = net, prompt.shape[1], net.scores.weight
        shape = prompt.shape[0], weight.shape[1] // HEAD, length, HEAD
        for i in range(len(net.blocks)):
            self.register_buffer(f"keys_{i}", weight.new_zeros(shape))
            self.register_buffer(f"values_{i}", weight.new_zeros(shape))
        self.register_buffer("places", torch.arange(length, device=prompt.device))
        place = torch.full((1,), self.prompt, device=prompt.device)
        self.register_buffer("place", place)
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
        """Make `token` the next one; its scores."""
        filled = (self.places <= self.place)[None, None, None]

        def attend(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.cache(i)
            keys.index_copy_(2, self.place, k)
            values.index_copy_(2, self.place, v)
            return self.attention(q, keys, values, filled)

        attends = [partial(attend, i) for i in range(len(self.net.blocks))]
        scores = self.net(self.token, places=self.place, attends=attends)
        self.token.copy_(scores.argmax(-1))
        self.place.add_(1)
        return scores


class Operators(TorchDispatchMode):
    """Counts operators that compute or copy; a view of a tensor does not count."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not (func.is_view or "unsafe_view" in func.name()):
            self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def without_cache(net: LanguageModel, prompt: Tensor, tokens: int) -> Tensor:
    """Tokens that follow the prompt; each step reads the whole text anew."""
    text = prompt
    for _ in range(tokens):
        text = torch.cat([text, net(text)[:, -1:].argmax(-1)], 1)
    return text[:, prompt.shape[1] :]


def generate(
    cache: Growing | Static, step: Callable[[], object], tokens: int
) -> Tensor:
    """Tokens that follow the prompt; the first is in the cache already."""
    cache.rewind()
    found = [cache.token.clone()]
    for _ in range(tokens - 1):
        step()
        found.append(cache.token.clone())
    return torch.cat(found, 1)


def graphs_of(cache: Growing | Static, tokens: int) -> list[int]:
    """How many graphs the compiler was given after each step. No code is made."""
    graphs, counts = [], []

    def keep(graph: torch.fx.GraphModule, _) -> Callable[[], object]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    step = torch.compile(cache.step, backend=keep)
    for _ in range(tokens):
        step()
        counts.append(len(graphs))
    return counts


@torch.no_grad()
def main() -> dict:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = LanguageModel(WIDTH, BLOCKS, CONTEXT).to(device)
    prompt = torch.randint(net.token.num_embeddings, (1, PROMPT), device=device)
    expected = without_cache(net, prompt, TOKENS)
    growing, static = Growing(net, prompt), Static(net, prompt, CONTEXT)
    torch.testing.assert_close(generate(growing, growing.step, TOKENS), expected)
    torch.testing.assert_close(generate(static, static.step, TOKENS), expected)

    counted = {}
    for name, cache in {"growing": growing, "static": static}.items():
        with Operators() as operators:
            cache.step()
        counted[name] = len(operators.names)
    compiled = {"growing": graphs_of(Growing(net, prompt), 6)}
    compiled["static"] = graphs_of(Static(net, prompt, CONTEXT), 6)
    for name, count in counted.items():
        print(f"{name:8}{count:4} operators a token,", end=" ")
        print(f"graphs compiled after each of six: {compiled[name]}")
    embedded = net.token.weight.numel() + net.place.weight.numel()
    result = {"tokens": expected.tolist(), "operators": counted, "graphs": compiled}
    return result | {"blocks": BLOCKS, "read": parameters(net) - embedded}


if __name__ == "__main__":
    main()
