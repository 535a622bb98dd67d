"""`accumulate` for a model that `fully_shard` has split."""


def accumulate_split(model, loss_of, parts):
    parts = list(parts)
    rows = sum(len(y) for _, y in parts)
    try:
        for number, (x, y) in enumerate(parts, start=1):
            last = number == len(parts)
            model.set_requires_gradient_sync(last)
            model.set_is_last_backward(last)
            (loss_of(model(x), y) * len(y) / rows).backward()
    finally:  # also if a part raises
        model.set_requires_gradient_sync(True)
        model.set_is_last_backward(True)
