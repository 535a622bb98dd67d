# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""Where is this tensor? The article's calls beside today's.

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
"""

import warnings

import torch
from torch import Tensor, nn


def places(device: str) -> dict:
    """Who is where after `.to(device)`."""
    x, model = torch.ones(2), nn.Linear(2, 1)
    moved = x.to(device)
    model.to(device)
    return {
        "tensor": x.device.type,
        "result": moved.device.type,
        "model": next(model.parameters()).device.type,
        "again_is_the_same_object": moved.to(device) is moved,
        "product": (2 * moved + torch.tensor(1.0)).device.type,
    }


def old_and_new(device: str) -> dict[str, tuple]:
    """What calls of the article give, and what today's forms give."""
    values, layer = torch.tensor([1.0, 2.0]), nn.Linear(2, 1)
    pairs = {
        "FloatTensor([1, 2])": (torch.FloatTensor([1, 2]), values),
        "DoubleTensor([1, 2])": (torch.DoubleTensor([1, 2]), values.double()),
        "FloatTensor((9, 9))": (torch.FloatTensor((9, 9)), torch.tensor([9.0, 9.0])),
        "FloatTensor(9, 9).shape": (torch.FloatTensor(9, 9).shape, (9, 9)),
        "next(model.parameters()).is_cuda": (next(layer.parameters()).is_cuda, False),
    }
    if device == "cuda":
        pairs["tensor.cuda()"] = values.cuda(), values.to("cuda")
        pairs["tensor.get_device()"] = values.cuda().get_device(), 0
        pairs["model.cuda()"] = next(layer.cuda().parameters()).device.type, "cuda"
    return pairs


def same(old, new) -> bool:
    """Whether both are equal; tensors in value, type and device."""
    if not isinstance(old, Tensor):
        return old == new
    return (old.dtype, old.device) == (new.dtype, new.device) and torch.equal(old, new)


def implicit_softmax(dimensions: int) -> dict:
    """Along which of so many dimensions `Softmax()` sums to 1, and what it says."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = nn.Softmax()(torch.rand([3] * dimensions))
    ones = [torch.allclose(y.sum(d), torch.ones(())) for d in range(dimensions)]
    return {"dim": ones.index(True), "said": [str(each.message) for each in caught]}


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pairs, where = old_and_new(device), places(device)
    rows = [{"call": call, "same": same(*pair)} for call, pair in pairs.items()]
    for row in rows:
        print(f"{row['call']:<35}{'as today' if row['same'] else 'DIFFERS'}")
    print(f"x.to({device!r}): x on {where['tensor']}, the result on {where['result']}")
    softmax = [implicit_softmax(dimensions) for dimensions in (1, 2, 3, 4)]
    print("Softmax() of 1 to 4 dimensions sums along", *(row["dim"] for row in softmax))
    return {"device": device, "rows": rows, "where": where, "softmax": softmax}


def derive(results: dict) -> dict:
    """Which pairs of calls do the same."""
    return {"alike": [row["same"] for row in results["rows"]]}


if __name__ == "__main__":
    main()
