# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# take = ["saved_bytes"]
# ///
"""What a forward pass keeps for its backward pass, in bytes: of any tensors, on any device."""

from collections.abc import Callable, Iterable
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.checkpoint import checkpoint
from torch.utils.weak import WeakIdKeyDictionary

ROWS, WIDTH = 64, 256


def dense_parts(tensor: Tensor) -> list[Tensor]:
    """The dense tensors that it is made of: itself, or those of a sparse or split one."""
    if is_traceable_wrapper_subclass(tensor):  # such as DTensor: this rank's part
        inner = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        parts = [part for part in inner if isinstance(part, Tensor)]
    elif tensor.layout is torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    else:
        return [tensor]
    dense = []
    for part in parts:
        dense += dense_parts(part)
    return dense


class Kept:
    """A tensor that is kept, for as long as something will need it."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor


def saved_bytes(forward: Callable[[], object], apart: Iterable[Tensor] = ()) -> int:
    """Bytes that `forward()` keeps for the backward pass of what it returns.

    Memory that several operations keep counts once, as a whole, also where they keep a
    part of it; that of the tensors in `apart`, such as parameters, does not count.
    What is kept for a result that `forward` drops does not count either. Tensors may be
    on several devices, or on "meta", where nothing is computed; sparse; or split over
    ranks: then this rank's part counts. All is 0 in `torch.no_grad()`.

    What a checkpointed part computes again is not kept, and does not count. Neither is
    what an operation of your own keeps in `ctx` without `save_for_backward`, and what
    hooks inside `forward`, such as `save_on_cpu`, put elsewhere.
    """
    alive: WeakSet[Kept] = WeakSet()  # a graph that is dropped takes its own along

    def keep(tensor: Tensor) -> Kept:
        kept = Kept(tensor.detach())  # a result that its own node keeps is never freed
        alive.add(kept)
        return kept

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept.tensor):
        result = forward()
    sizes = WeakIdKeyDictionary()
    for kept in alive:
        for part in dense_parts(kept.tensor):
            sizes[part.untyped_storage()] = part.untyped_storage().nbytes()
    for tensor in apart:
        for part in dense_parts(tensor.detach()):
            sizes.pop(part.untyped_storage(), None)
    total = sum(sizes.values())
    del result  # until here it keeps alive what was saved
    return total


def with_log(net: nn.Module, x: Tensor) -> Tensor:
    """A loss, and another for a log, of which nobody calls the backward pass."""
    logged = net(x).abs().mean()
    assert logged.requires_grad
    return net(x).square().mean()


def main() -> dict:
    layers = nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)
    net, x = nn.Sequential(*layers), torch.ones(ROWS, WIDTH, requires_grad=True)
    with torch.device("meta"):
        shapes, rows = (
            nn.Linear(WIDTH, WIDTH),
            torch.ones(ROWS, WIDTH, requires_grad=True),
        )
    weights = list(net.parameters())
    sparse = torch.eye(WIDTH).to_sparse().requires_grad_()
    works: dict[str, tuple[Callable[[], Tensor], list[nn.Parameter]]] = {
        "a layer": (lambda: layers[0](x), []),
        "its weight apart": (lambda: layers[0](x), weights),
        "without memory": (lambda: shapes(rows), []),
        "a network's loss": (lambda: net(x).square().mean(), weights),
        "and one dropped": (lambda: with_log(net, x), weights),
        "computed twice": (lambda: checkpoint(net, x, use_reentrant=False), weights),
        "a sparse product": (lambda: torch.sparse.mm(sparse, x.T), [x]),
    }
    saved = {name: saved_bytes(*work) for name, work in works.items()}
    for name, size in saved.items():
        print(f"{name:17}{size:8,} bytes, {size / x.nbytes:4.2f} times its input")
    result = {"saved_bytes": saved, "input_bytes": x.nbytes}
    return result | {"weight_bytes": layers[0].weight.nbytes}


def derive(results: dict) -> dict:
    """Names for expressions."""
    saved = results["saved_bytes"]
    return {
        "layer": saved["a layer"],
        "apart": saved["its weight apart"],
        "on_meta": saved["without memory"],
        "one_loss": saved["a network's loss"],
        "with_dropped": saved["and one dropped"],
        "twice": saved["computed twice"],
    }


if __name__ == "__main__":
    main()
