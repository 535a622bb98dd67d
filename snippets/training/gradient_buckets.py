# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2, 4, 8]
# exclusive = false
# timeout = 180
# launcher = "torchrun"
# ranks = 2
# ///
"""Average gradients over ranks as DDP does: in buckets, beside the backward pass."""

from copy import deepcopy
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from snippets.training.ddp_equality import farthest, gradients, of_all_ranks
from snippets.training.models import transformer
from snippets.training.waiting_ranks import meet


class Buckets:
    """Averages gradients over ranks; one all-reduce for so many megabytes of them.

    All ranks must add gradients of the same parameters, in the same order. DDP checks
    that, this does not: it would average what does not belong together.
    """

    def __init__(self, group: dist.ProcessGroup, mb: float = 25):
        self.group, self.limit = group, mb * 1e6
        self.waiting, self.sent = [], []

    def add(self, parameter: nn.Parameter) -> None:
        """Take a gradient that is ready; send those that wait, if they are enough."""
        self.waiting.append(parameter.grad)
        if sum(gradient.nbytes for gradient in self.waiting) >= self.limit:
            self.send()

    def send(self) -> None:
        """Start the all-reduce of the gradients that wait, without waiting for it."""
        flat = torch.cat([gradient.flatten() for gradient in self.waiting])
        flat /= self.group.size()
        work = dist.all_reduce(flat, group=self.group, async_op=True)
        self.sent.append((work, flat, self.waiting))
        self.waiting = []

    def finish(self) -> None:
        """Send the rest; when all have come, put the averages where gradients were."""
        if self.waiting:
            self.send()
        for work, flat, averaged in self.sent:
            work.wait()
            parts = flat.split([gradient.numel() for gradient in averaged])
            for gradient, part in zip(averaged, parts, strict=True):
                gradient.copy_(part.view_as(gradient))
        self.sent = []


def one_by_one(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Average each gradient by an all-reduce of its own; no parameter may lack one."""
    for parameter in model.parameters():
        parameter.grad /= group.size()
        dist.all_reduce(parameter.grad, group=group)


def main() -> dict:
    device, group = meet()
    torch.manual_seed(0)
    model = transformer(layers=2, width=256).to(device)
    hooked, buckets, error = deepcopy(model), Buckets(group, mb=1), {}
    exchange = {"nothing": lambda: None, "buckets": buckets.finish}
    exchange["one_by_one"] = partial(one_by_one, model, group)
    for parameter in hooked.parameters():
        parameter.register_post_accumulate_grad_hook(buckets.add)
    batch = torch.randn(8 * group.size(), 16, 256).to(device)  # the same on all ranks
    expected = gradients(model, batch)  # one device, the whole batch
    mine = batch.chunk(group.size())[group.rank()]
    for name, average in exchange.items():
        each = hooked if name == "buckets" else model
        gradients(each, mine)
        average()
        found = [parameter.grad for parameter in each.parameters()]
        error[name] = of_all_ranks(farthest(found, expected), torch.device("cpu"))
    if group.rank() == 0:
        for way, errors in error.items():
            print(f"{way:<11}", *(f"rank {r}: {e:.1e}" for r, e in enumerate(errors)))
    dist.destroy_process_group()
    return {"ranks": len(error["buckets"]), "error": error}


if __name__ == "__main__":
    main()
