# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""Where is this tensor, and how did it get there? The article's calls beside today's."""

import warnings
from collections.abc import Callable

import torch
from torch import nn

OLD_TO_NEW = {
    "torch.DoubleTensor([1, 2])": "torch.tensor([1, 2], dtype=torch.float64)",
    "torch.FloatTensor([1, 2])": "torch.tensor([1.0, 2.0])",
    "torch.FloatTensor((100, 100))": "torch.tensor([100.0, 100.0])",
    "torch.FloatTensor(100, 100).shape": "torch.empty(100, 100).shape",
    "next(model.parameters()).is_cuda": 'next(model.parameters()).device.type == "cuda"',
}
OLD_TO_NEW_ON_GPU = {
    "torch.FloatTensor([1, 2]).cuda()": 'torch.tensor([1.0, 2.0], device="cuda")',
    "torch.ones(2).cuda().get_device()": 'torch.ones(2, device="cuda").device.index',
    "model.cuda()": 'model.to("cuda")',
}


def small_model() -> nn.Sequential:
    """The article's model, (batch, 20) to (batch, 4), with the `dim` that its Softmax lacks."""
    return nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 4), nn.Softmax(dim=-1))


def compared(pairs: dict[str, str]) -> list[dict]:
    """Each old call, today's form, and whether both give the same: value, type and device."""
    names, rows = {"torch": torch, "model": small_model()}, []
    for pair in pairs.items():
        old, new = (eval(call, names) for call in pair)
        if isinstance(old, torch.Tensor):
            old, new = ((t.dtype, str(t.device), t.tolist()) for t in (old, new))
        rows.append({"old": pair[0], "new": pair[1], "same": old == new})
    return rows


def places(device: str) -> dict:
    """Who is where after `.to(device)`."""
    x, model = torch.ones(2), small_model()
    moved = x.to(device)
    model.to(device)
    return {
        "tensor": x.device.type,
        "result": moved.device.type,
        "model": next(model.parameters()).device.type,
        "again_is_the_same_object": moved.to(device) is moved,
        "product": (2 * moved + torch.tensor(1.0)).device.type,
    }


def error_of(call: Callable) -> str:
    """The first line of its complaint; empty if there is none."""
    try:
        call()
    except (RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def implicit_softmax(dimensions: int) -> dict:
    """Along which of so many dimensions `Softmax()` without `dim` sums to 1, and what it says."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = nn.Softmax()(torch.rand([3] * dimensions))
    one = torch.ones(())
    dim = next(d for d in range(dimensions) if torch.allclose(y.sum(d), one))
    return {"dimensions": dimensions, "dim": dim, "said": [str(w.message) for w in caught]}


def main() -> dict:
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    rows = compared((OLD_TO_NEW_ON_GPU if on_gpu else {}) | OLD_TO_NEW)
    for row in rows:
        print(f"{row['old']:<35}{'is' if row['same'] else 'IS NOT'} {row['new']}")
    where, here = places(device), torch.ones(2, device=device)
    print(f"x.to({device!r}): x on {where['tensor']}, the result on {where['result']}")
    print(f"model.to({device!r}): the model on {where['model']}")
    errors = {"mixed": error_of(lambda: here + torch.ones(2)), "numpy": error_of(here.numpy)}
    for text in filter(None, errors.values()):
        print(text)
    softmax = [implicit_softmax(dimensions) for dimensions in (1, 2, 3, 4)]
    for row in softmax:
        print(f"Softmax() without dim, tensor of {row['dimensions']} dimensions: dim {row['dim']}")
    return {"device": device, "rows": rows, "where": where, "errors": errors, "softmax": softmax}


if __name__ == "__main__":
    main()
