# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# launcher = "torchrun"
# ranks = 2
# exclusive = false
# timeout = 120
# take = ["without_gradient"]
# ///
"""Parameters that get no gradient, under DDP: which step fails, and what cures it."""

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, by DDP, it keeps gloo's threads alive
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from snippets.training.ddp_minimal import join

STEPS = 3
LIMIT = timedelta(seconds=2)  # how long a rank waits for the other
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "find_unused": {"find_unused_parameters": True},
    "static_graph": {"static_graph": True},
}


class Layers(nn.Module):
    """Two layers; the second takes part if `used(rank, step)`."""

    def __init__(self, used: Callable[[int, int], bool]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.used = used

    def forward(self, x: Tensor, rank: int, step: int) -> Tensor:
        x = self.first(x)
        return self.second(x) if self.used(rank, step) else x


def without_gradient(model: nn.Module) -> list[str]:
    """After `backward()`: the names of the parameters that should have a gradient.

    Call it on the model as it is before DDP, after one step on one device.
    """
    parameters = model.named_parameters()
    return [name for name, p in parameters if p.requires_grad and p.grad is None]


def freeze(model: Layers) -> None:
    model.second.requires_grad_(False)


def thaw(model: Layers) -> None:
    model.second.requires_grad_(True)


def leave(model: Layers) -> None:
    """Change nothing."""


def always(rank: int, step: int) -> bool:
    return True


#: whether the second layer is used; what is done before DDP wraps the model, and after
CASES = {
    "all used": (always, leave, leave),
    "never used": (lambda rank, step: False, leave, leave),
    "used on rank 0 only": (lambda rank, step: rank == 0, leave, leave),
    "used in steps 1 and 3": (lambda rank, step: step != 2, leave, leave),
    "frozen before": (always, freeze, leave),
    "frozen after": (always, leave, freeze),
    "thawed after": (always, freeze, thaw),
}


def gradients(model: nn.Module, rank: int, step: int) -> list[Tensor]:
    """Gradients of a rank's loss, a tensor for each parameter; zeros for none."""
    model.zero_grad()
    x = torch.full((2, 4), 1.0 + rank)
    model(x, rank, step).square().mean().backward()
    pairs = [(p, p.grad) for p in model.parameters()]
    return [torch.zeros_like(p) if g is None else g.clone() for p, g in pairs]


def mean_gradients(model: nn.Module, step: int) -> list[Tensor]:
    """What every rank should have: the mean over ranks, computed on one device."""
    ranks = range(dist.get_world_size())
    of_ranks = zip(*(gradients(model, rank, step) for rank in ranks), strict=True)
    return [torch.stack(tensors).mean(0) for tensors in of_ranks]


def steps_of(ddp: nn.Module, alone: nn.Module) -> list[str]:
    """What each step of this rank ended with: "right", "wrong" gradients, an error.

    `alone` is the same model as `ddp`, not wrapped.
    """
    steps: list[str] = []
    for step in range(1, STEPS + 1):
        expected = mean_gradients(alone, step)
        try:
            found = gradients(ddp, dist.get_rank(), step)
        except RuntimeError as error:
            line = str(error).splitlines()[0].rpartition("] ")[2]
            return [*steps, line.partition(". ")[0]]
        close = map(torch.allclose, found, expected)
        steps.append("right" if all(close) else "wrong")
    return steps


def train(
    used: Callable[[int, int], bool],
    before: Callable[[Layers], None],
    after: Callable[[Layers], None],
    options: dict[str, Any],
) -> list[str]:
    """The steps of a model that is changed before it is wrapped, and after."""
    torch.manual_seed(0)
    model = Layers(used)
    before(model)
    alone = deepcopy(model)
    group = dist.new_group(timeout=LIMIT)  # of its own: an error breaks it
    ddp = DistributedDataParallel(model, process_group=group, **options)
    after(model)
    after(alone)
    return steps_of(ddp, alone)


def of_all_ranks(steps: list[str]) -> list[list[str]]:
    """What every rank tells, in the order of the ranks."""
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, steps)
    return told


def word(ranks: list[list[str]]) -> str:
    """How training ended, in a word, over the steps of all ranks."""
    for number, step in enumerate(zip_longest(*ranks, fillvalue="right"), 1):
        if not {"right", "wrong"}.issuperset(step):
            return f"error in step {number}"
    return "wrong" if any("wrong" in steps for steps in ranks) else "right"


def table(found: dict[str, dict[str, list[list[str]]]]) -> dict[str, dict[str, str]]:
    """A word for each case with each option; rank 0 prints them."""
    words = {c: {o: word(ranks) for o, ranks in by.items()} for c, by in found.items()}
    if dist.get_rank() == 0:
        for case, by_option in words.items():
            print(case)
            for option, said in by_option.items():
                print(f"    {option:<14}{said}")
    return words


def main() -> dict:
    join()
    alone = Layers(CASES["never used"][0])
    gradients(alone, rank=0, step=1)
    found: dict = {}
    for case, parts in CASES.items():
        found[case] = {
            name: of_all_ranks(train(*parts, options))
            for name, options in OPTIONS.items()
        }
    result = {"unused": without_gradient(alone), "found": found, "word": table(found)}
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """By setting the cases that train right; those that end; steps of thawed layers."""
    word, found = results["word"], results["found"]
    settings = ("default", "find_unused", "static_graph")
    unfinished = "Expected to have finished reduction"
    thawed_steps: set[str] = set()
    for ranks in found["thawed after"].values():
        for steps in ranks:
            thawed_steps.update(steps)
    return {
        "right": {
            setting: [case for case in word if word[case][setting] == "right"]
            for setting in settings
        },
        "unfinished": [
            case
            for case, by in found.items()
            if all(
                rank[0] == "wrong" and unfinished in rank[1] for rank in by["default"]
            )
        ],
        "thawed_steps": sorted(thawed_steps),
    }


if __name__ == "__main__":
    main()
