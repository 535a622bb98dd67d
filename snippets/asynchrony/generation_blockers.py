# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Which lines of a loop that generates text wait for the GPU? Ends, draws, caches."""

from collections.abc import Callable

import torch

from snippets.asynchrony.waits import report

BATCH, VOCABULARY, HEADS, LENGTH, WIDTH, END = 4, 4096, 8, 128, 64, 0


def loop_lines() -> dict[str, Callable[[], object]]:
    """What a loop does between two steps of the model."""
    scores = torch.randn(BATCH, VOCABULARY, device="cuda")
    token = scores.argmax(-1, keepdim=True)
    ended = torch.zeros(BATCH, 1, dtype=torch.bool, device="cuda")
    shares, small = scores.softmax(-1), scores < 1
    keys = torch.zeros(BATCH, HEADS, LENGTH, WIDTH, device="cuda")
    new, place = keys[:, :, :1].clone(), torch.tensor([7], device="cuda")

    def all_ended() -> bool:
        return True if (token == END).all() else False  # noqa: SIM210, as loops say it

    def note_ends() -> None:
        ended.logical_or_(token == END)

    def by_number() -> None:
        keys[:, :, 7:8] = new

    def by_tensor() -> None:
        keys.index_copy_(2, place, new)

    def drop_small() -> None:
        scores[small] = -torch.inf

    return {
        "if (token == END).all(): break": all_ended,
        "ended |= token == END": note_ends,
        "token[0].item()": lambda: token[0].item(),
        "token.tolist()": token.tolist,
        "scores.argmax(-1)": lambda: scores.argmax(-1),
        "torch.multinomial(shares, 1)": lambda: torch.multinomial(shares, 1),
        "torch.distributions.Categorical(shares).sample()": lambda: (
            torch.distributions.Categorical(shares).sample()
        ),
        "Categorical(shares, validate_args=False).sample()": lambda: (
            torch.distributions.Categorical(shares, validate_args=False).sample()
        ),
        "scores.topk(50)": lambda: scores.topk(50),
        "scores[small] = -inf": drop_small,
        "scores[small]": lambda: scores[small],
        "torch.tensor([7], device=...)": lambda: torch.tensor([7], device=token.device),
        "torch.cat([keys, new], 2)": lambda: torch.cat([keys, new], 2),
        "keys[:, :, 7:8] = new": by_number,
        "keys.index_copy_(2, place, new)": by_tensor,
        "keys[:, :, :place]": lambda: keys[:, :, :place],
    }


@torch.no_grad()
def main() -> dict:
    return report(loop_lines())


def derive(results: dict) -> dict:
    """The lines that do not wait as these do, or do not return at once as those do."""
    waiting = {
        "if (token == END).all(): break",
        "token[0].item()",
        "token.tolist()",
        "torch.distributions.Categorical(shares).sample()",
        "scores[small]",
        "torch.tensor([7], device=...)",
        "keys[:, :, :place]",
    }
    returning = {
        "Categorical(shares, validate_args=False).sample()",
        "torch.multinomial(shares, 1)",
        "keys.index_copy_(2, place, new)",
    }
    others = waiting.symmetric_difference(results["waits"])
    return {"otherwise": sorted(others | returning.difference(results["returns"]))}


if __name__ == "__main__":
    main()
