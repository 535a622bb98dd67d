# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# take = ["prefetched"]
# ///
"""A prefetcher to take home: the next batch is copied while you work on this one."""

from collections import UserDict
from collections.abc import Callable, Generator, Iterable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from snippets.timing.take_turns import recorded, take_turns

STEPS = 12


Batch = TypeVar("Batch")


def tuple_of(kind: type, parts: list[Any]) -> Any:
    """A tuple of this kind with these parts; TypeError if it cannot be made of them.

    If its constructor does not take the parts as one list, the error is Python's own,
    such as "missing 1 required positional argument". A named tuple is always made.
    """
    if hasattr(kind, "_make"):  # a named tuple
        return kind._make(parts)
    made = kind(parts)
    if list(map(id, made)) != list(map(id, parts)):
        raise TypeError(f"{kind.__name__} is made otherwise: hand over a named tuple")
    return made


def each_tensor(
    batch: Any, change: Callable[[Any], Any], outer: tuple[Any, ...] = ()
) -> Any:
    """A copy of a batch, with `change` of each tensor and of what has a `to` of its own.

    A dict, UserDict, list, tuple, PackedSequence or dataclass keeps its kind; another
    mapping becomes a dict. What is none of these stays what it is. ValueError at a
    batch that contains itself.
    """
    if isinstance(batch, PackedSequence):  # its sizes belong on the CPU
        orders = (batch.sorted_indices, batch.unsorted_indices)
        moved = [None if order is None else change(order) for order in orders]
        return PackedSequence(change(batch.data), batch.batch_sizes, *moved)
    if any(batch is other for other in outer):
        raise ValueError(f"a {type(batch).__name__} of the batch contains itself")
    inner = partial(each_tensor, change=change, outer=(*outer, batch))
    if isinstance(batch, (dict, UserDict)):
        result: Any = copy(batch)
        for name, part in batch.items():
            result[name] = inner(part)
        return result
    if isinstance(batch, list):
        result = copy(batch)
        result[:] = [inner(part) for part in batch]
        return result
    if isinstance(batch, tuple):
        return tuple_of(type(batch), [inner(part) for part in batch])
    if hasattr(batch, "to"):  # a tensor, or an object that knows how to move itself
        return change(batch)
    if isinstance(batch, Mapping):
        return {name: inner(part) for name, part in batch.items()}
    if is_dataclass(batch) and not isinstance(batch, type):
        result = copy(batch)  # no constructor runs, and no field is lost
        for field in fields(batch):
            moved = inner(getattr(batch, field.name))
            object.__setattr__(result, field.name, moved)  # it may be frozen
        return result
    return batch


def moved_to(device: torch.device, source: Any) -> Any:
    """On the device; on the CPU a copy, if a worker of a DataLoader holds its memory.

    Each tensor in a worker's memory keeps a file open, of which a process has few.
    """
    moved = source.to(device)
    if not isinstance(moved, Tensor) or moved.layout != torch.strided:
        return moved
    if moved.device.type == "cpu" and moved.is_shared():
        return moved.clone()
    return moved


def prefetched(
    batches: Iterable[Batch], device: str | torch.device = "cuda"
) -> Generator[Batch, None, None]:
    """Yield the batches on a GPU, each copied while you work on the one before.

    A batch is a tensor, or a tuple, list, mapping or dataclass of batches. What else it
    holds is passed on as it is, so NumPy's arrays stay on the CPU. You may keep a batch.

        for x, y in prefetched(loader):  # DataLoader(..., pin_memory=True)
            train(x, y)

    A subclass of Tensor comes as a plain Tensor on a GPU. Pin the batches, else the
    thread waits for each copy. Nothing hides the copy of a sparse tensor, or of an
    object with a `to(device)` of its own. Do not overwrite a batch: it may not be
    copied yet. Work in the stream that is current when the loop begins: no other stream
    waits for the copies. A batch comes when the next one has been fetched. Without CUDA
    say `device="cpu"`: batches are only moved.
    """
    place = torch.device(device)
    if place.type != "cuda":
        for batch in batches:
            yield each_tensor(batch, partial(moved_to, place))
        return
    working, copying = torch.cuda.current_stream(place), torch.cuda.Stream(place)

    def send(source: Any) -> Any:
        dense = isinstance(source, Tensor) and source.layout == torch.strided
        if not dense or source.is_nested or source.device.type != "cpu":
            return source.to(place)
        to = torch.empty_like(source, device=place)
        copying.wait_stream(working)  # which may still use this memory for another
        with torch.cuda.stream(copying):
            return to.copy_(source, non_blocking=True)

    ahead: list[Batch] = []
    try:
        for batch in batches:
            working.wait_stream(copying)  # the batch before has arrived
            ahead.append(each_tensor(batch, send))
            if len(ahead) == 2:
                yield ahead.pop(0)
        working.wait_stream(copying)
        yield from ahead
    except Exception:  # what had been fetched before the error comes before it
        working.wait_stream(copying)
        yield from ahead
        raise
    finally:
        working.wait_stream(copying)  # a batch that nobody takes is not freed too early


def main() -> dict:
    on_gpu = torch.cuda.is_available()
    device, n = ("cuda", 8192) if on_gpu else ("cpu", 256)
    w = torch.randn(n, n // 4, device=device)
    batches = [torch.full((n // 4, n), i / 8, pin_memory=on_gpu) for i in range(STEPS)]
    kept = list(prefetched(batches, device))
    assert all(torch.equal(got.cpu(), b) for got, b in zip(kept, batches, strict=True))

    def work(source: Iterable[Tensor]) -> None:
        for batch in source:
            torch.mm(batch.to(device, non_blocking=True), w)

    works = {
        "copy": lambda: [batch.to(device, non_blocking=True) for batch in batches],
        "work": lambda: work(kept),
        "plain": lambda: work(batches),
        "prefetched": lambda: work(prefetched(batches, device)),
    }
    result = {"steps": STEPS} | recorded(take_turns(works, trials=7, calls=2))
    print(*(f"{way:<12}{ms:7.2f} ms" for way, ms in result["ms"].items()), sep="\n")
    return result


if __name__ == "__main__":
    main()
