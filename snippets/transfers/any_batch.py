# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# take = ["prefetched_batches"]
# ///
"""A prefetcher for batches of other kinds: packed sequences, dataclasses, sparse tensors."""

import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from snippets.transfers.prefetcher import prefetched


def rebuilt(batch, change: Callable[[Tensor], Tensor]):
    """The batch with each tensor changed; TypeError at a kind that holds what is not known.

    The sizes in a PackedSequence stay: they belong on the CPU.
    """
    if isinstance(batch, Tensor):
        return change(batch)
    if batch is None or isinstance(batch, (str, bytes, int, float, complex)):
        return batch
    if isinstance(batch, PackedSequence):
        orders = [
            rebuilt(order, change)
            for order in (batch.sorted_indices, batch.unsorted_indices)
        ]
        return PackedSequence(change(batch.data), batch.batch_sizes, *orders)
    if isinstance(batch, Mapping):
        return {name: rebuilt(part, change) for name, part in batch.items()}
    if isinstance(batch, (tuple, list)):
        parts: list | dict = [rebuilt(part, change) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        parts = {
            f.name: getattr(batch, f.name) for f in dataclasses.fields(batch) if f.init
        }
        return dataclasses.replace(batch, **rebuilt(parts, change))
    kind = type(batch).__name__
    raise TypeError(
        f"a batch holds tensors, tuples, lists, dicts or dataclasses, not {kind}"
    )


def dense_tensors(batch) -> list[Tensor]:
    """The tensors of a batch that are not sparse, in its order."""
    dense: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:
            dense.append(tensor)
        return tensor

    rebuilt(batch, note)
    return dense


def with_dense(batch, dense: Iterable[Tensor], device: str | torch.device):
    """The batch with these for its tensors; sparse ones are moved to the device here."""
    arrived = iter(dense)

    def on_device(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:
            return next(arrived)
        return tensor.to(device)

    return rebuilt(batch, on_device)


def prefetched_batches(
    batches: Iterable, device: str | torch.device = "cuda"
) -> Generator:
    """Yield the batches on a GPU, each copied while you work on the one before.

    As `prefetched`, for a PackedSequence and dataclasses, too. A sparse tensor is moved
    when its batch is yielded, and nothing hides that. A mapping becomes a dict.
    TypeError at NumPy's arrays and integers and at an Enum: hand over tensors and plain
    values. ValueError at a dataclass with an InitVar that has no default. A dataclass's
    `__post_init__` runs twice more for each batch, with tensors of the CPU and of the GPU.
    """
    waiting: deque = deque()

    def tensors() -> Iterator[list[Tensor]]:
        for batch in batches:
            waiting.append(batch)
            yield dense_tensors(batch)

    with closing(prefetched(tensors(), device)) as moved:
        for dense in moved:
            yield with_dense(waiting.popleft(), dense, device)


@dataclasses.dataclass
class Sample:
    """Two pictures and their names."""

    pixels: Tensor
    names: list[str]


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = [torch.arange(n, dtype=torch.float32) for n in (2, 5, 3)]
    packed = pack_sequence(rows, enforce_sorted=False)
    sample = Sample(torch.ones(2, 3), ["cat", "dog"])
    sparse = torch.eye(4).to_sparse()
    batches = [packed, sample, sparse, {"x": torch.zeros(3), "label": 7}]
    on_device = list(prefetched_batches(batches, device))

    for given, row in zip(rows, unpack_sequence(on_device[0]), strict=True):
        torch.testing.assert_close(row.cpu(), given)
    assert on_device[0].batch_sizes.device.type == "cpu"
    torch.testing.assert_close(on_device[1].pixels.cpu(), sample.pixels)
    torch.testing.assert_close(on_device[2].cpu().to_dense(), torch.eye(4))

    kinds = [type(batch).__name__ for batch in on_device]
    tensors = [on_device[0].data, on_device[1].pixels, on_device[2], on_device[3]["x"]]
    places = [tensor.device.type for tensor in tensors]
    for kind, place in zip(kinds, places, strict=True):
        print(f"{kind:15} on {place}")
    return {"kinds": kinds, "places": places, "device": device}


if __name__ == "__main__":
    main()
