"""`accumulate` for a model that `fully_shard` has split."""

import torch.distributed as dist


def accumulate_split(model, loss_of, parts):
    parts = list(parts)
    count = sum((y != -100).sum() for _, y in parts)  # labels that count
    dist.all_reduce(count)  # on all ranks
    try:
        for number, (x, y) in enumerate(parts, start=1):
            model.set_requires_gradient_sync(number == len(parts))
            (loss_of(model(x), y) * dist.get_world_size() / count).backward()
    finally:  # also if a part raises
        model.set_requires_gradient_sync(True)
