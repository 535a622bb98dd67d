# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# launcher = "torchrun"
# ranks = 2
# exclusive = false
# timeout = 120
# ///
"""A checkpointed block under DDP, reentrant or not: what fails, and what cures it."""

from copy import deepcopy

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from snippets.training.ddp_minimal import join
from snippets.training.ddp_parameters import OPTIONS, of_all_ranks, steps_of, table


class Checkpointed(nn.Module):
    """A layer, and a block that is called and checkpointed `calls` times.

    `spare` is a layer that takes no part, if there is one.
    """

    def __init__(self, calls: int, reentrant: bool, spare: nn.Module | None) -> None:
        super().__init__()
        self.first, self.block = nn.Linear(4, 4), nn.Linear(4, 4)
        self.calls, self.reentrant, self.spare = calls, reentrant, spare

    def forward(self, x: Tensor, rank: int, step: int) -> Tensor:
        x = self.first(x)
        for _ in range(self.calls):
            x = checkpoint(self.block, x, use_reentrant=self.reentrant)
        return x


def train(model: Checkpointed, options: dict) -> list[str]:
    """What each step of this rank ended with."""
    ddp = DistributedDataParallel(deepcopy(model), **options)
    return steps_of(ddp, model)


def main() -> dict:
    join()
    torch.manual_seed(0)
    blocks = {
        "called once": (1, None),
        "called twice": (2, None),
        "once, a layer unused": (1, nn.Linear(4, 4)),
    }
    found: dict = {}
    for reentrant in (True, False):
        for name, (calls, spare) in blocks.items():
            model = Checkpointed(calls, reentrant, spare)
            ends = {o: of_all_ranks(train(model, how)) for o, how in OPTIONS.items()}
            found[name + (", reentrant" if reentrant else "")] = ends
    result = {"found": found, "word": table(found)}
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """By setting the cases that train right, and that mark a variable ready twice."""
    plain, reentrant, twice = {}, {}, {}
    for setting in ("default", "find_unused", "static_graph"):
        right = [case for case, by in results["word"].items() if by[setting] == "right"]
        plain[setting] = [case for case in right if "reentrant" not in case]
        reentrant[setting] = [
            case.removesuffix(", reentrant") for case in right if "reentrant" in case
        ]
        twice[setting] = [
            case.removesuffix(", reentrant")
            for case, by in results["found"].items()
            if "mark a variable ready only once" in by[setting][0][0]
        ]
    return {"plain": plain, "reentrant": reentrant, "twice": twice}


if __name__ == "__main__":
    main()
