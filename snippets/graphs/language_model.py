# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# ///
"""The small language model of this chapter: causal blocks, and its loss."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HEAD = 64  # width of an attention head
VOCABULARY = 4096


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each token attends to itself and to those before it."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    """Attention and a feed-forward part, for rows (batch, tokens, width)."""

    def __init__(self, width: int):
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, attend: Callable[..., Any] = causal) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.before_attention(x))
        heads = qkv.view(batch, tokens, 3, -1, HEAD).permute(2, 0, 3, 1, 4)
        seen = attend(*heads.unbind())
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class LanguageModel(nn.Module):
    """Scores of the next token; with `targets` it gives their mean loss instead.

    `places` are the tokens' positions, 0, 1, 2 … by default; `attends` has a function
    of q, k and v for each block. A target of -100 is left out of the loss.
    """

    def __init__(self, width: int, blocks: int, context: int, vocabulary=VOCABULARY):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, vocabulary, bias=False)

    def forward(
        self,
        tokens: Tensor,
        targets: Tensor | None = None,
        places: Tensor | None = None,
        attends: Iterable[Callable[..., Any]] | None = None,
    ) -> Tensor:
        if places is None:
            places = torch.arange(tokens.shape[1], device=tokens.device)
        if attends is None:
            attends = [causal] * len(self.blocks)
        x = self.token(tokens) + self.place(places)
        for block, attend in zip(self.blocks, attends, strict=True):
            x = block(x, attend)
        scores = self.scores(self.norm(x))
        if targets is None:
            return scores
        return F.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


def successors(batch: int, tokens: int, device: str) -> tuple[Tensor, Tensor]:
    """Tokens and targets of a text in which each token is the last one plus one."""
    first = torch.randint(VOCABULARY, (batch, 1), device=device)
    text = (first + torch.arange(tokens + 1, device=device)) % VOCABULARY
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def main() -> dict:
    torch.manual_seed(0)
    net = LanguageModel(width=128, blocks=2, context=64)
    tokens, targets = successors(4, 32, "cpu")
    scores, changed = net(tokens), tokens.clone()
    changed[:, -1] += 1
    torch.testing.assert_close(net(changed % VOCABULARY)[:, :-1], scores[:, :-1])
    loss, of_chance = net(tokens, targets).item(), math.log(VOCABULARY)
    print(f"{parameters(net):,} parameters, loss {loss:.2f}, of chance {of_chance:.2f}")
    return {"parameters": parameters(net), "loss": loss, "of_chance": of_chance}


if __name__ == "__main__":
    main()
