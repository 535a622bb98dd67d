# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 120
# ///
"""Train twice with one seed: when are the weights the same to the last bit?"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

EPOCHS, STEPS, ROWS = 4, 4, 512


@dataclass
class Run:
    """A model with dropout and its optimizer, made after a seed, in so many threads."""

    seed: int = 0
    threads: int = 1
    model: nn.Module = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)
        layers = nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 1)
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def train(self, epochs: int) -> "Run":
        """Steps on rows that are drawn anew, as a shuffled loader gives them."""
        for _ in range(epochs * STEPS):
            x = torch.randn(ROWS, 64)
            self.optimizer.zero_grad()
            (self.model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            self.optimizer.step()
        return self

    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


def interrupted(with_generator: bool) -> Tensor:
    """Half of the epochs; then another process loads what was saved, and goes on."""
    first = Run().train(EPOCHS // 2)
    saved = deepcopy((first.model.state_dict(), first.optimizer.state_dict()))
    generator = torch.get_rng_state()
    second = Run()
    second.model.load_state_dict(saved[0])
    second.optimizer.load_state_dict(saved[1])
    if with_generator:
        torch.set_rng_state(generator)
    return second.train(EPOCHS // 2).weights()


RUNS: dict[str, Callable[[], Tensor]] = {
    "again": lambda: Run().train(EPOCHS).weights(),
    "another seed": lambda: Run(seed=1).train(EPOCHS).weights(),
    "in two threads": lambda: Run(threads=2).train(EPOCHS).weights(),
    "resumed": lambda: interrupted(with_generator=False),
    "resumed, generator saved": lambda: interrupted(with_generator=True),
}


def put() -> Tensor:
    return torch.zeros(4).put_(torch.tensor([0, 0]), torch.ones(2))


def unpool() -> Tensor:
    indices = torch.zeros(1, 1, 2, 2, dtype=torch.long)
    return nn.functional.max_unpool2d(torch.ones(1, 1, 2, 2), indices, 2)


def add() -> Tensor:
    return torch.zeros(4).index_add_(0, torch.tensor([0, 0]), torch.ones(2))


def new_memory() -> Tensor:
    return torch.empty(4)


def asked_to_be_deterministic(call: Callable[[], Tensor]) -> str:
    """What an operation of the CPU gives, or says, under use_deterministic_algorithms."""
    torch.use_deterministic_algorithms(True)
    try:
        return str(call().flatten().tolist())
    except RuntimeError as error:
        return str(error).partition(". ")[0]
    finally:
        torch.use_deterministic_algorithms(False)


def in_another_order() -> dict[str, float]:
    """A sum of a million numbers, and the same numbers added from the other end."""
    x = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    return {"forwards": x.sum().item(), "backwards": x.flip(0).sum().item()}


def main() -> dict:
    before = torch.get_num_threads()
    expected = Run().train(EPOCHS).weights()
    differ = {name: float((run() - expected).abs().max()) for name, run in RUNS.items()}
    torch.set_num_threads(before)
    calls = (put, unpool, add, new_memory)
    says = {call.__name__: asked_to_be_deterministic(call) for call in calls}
    for name, by in differ.items():
        print(
            f"{name:<25}", "the same bits" if by == 0 else f"differs by up to {by:.1g}"
        )
    for name, words in says.items():
        print(f"{name:<11}{words[:70]}")
    sums = in_another_order()
    print(f"{'a sum':<11}{sums['forwards']:.4f}, backwards {sums['backwards']:.4f}")
    return {"differ": differ, "says": says, "sums": sums}


if __name__ == "__main__":
    main()
