# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# take = ["prefetched"]
# ///
"""A prefetcher to take home: the next batch is copied while you work on this one."""

from collections.abc import Callable, Generator, Iterable, Mapping

import torch
from torch import Tensor

from snippets.timing.take_turns import recorded, take_turns

STEPS = 12


def each_tensor(batch, change: Callable[[Tensor], Tensor]):
    """Each tensor changed; texts and numbers stay, TypeError at anything else."""
    if isinstance(batch, Tensor):
        return change(batch)
    if batch is None or isinstance(batch, (str, bytes, int, float)):
        return batch
    if isinstance(batch, Mapping):
        return {name: each_tensor(part, change) for name, part in batch.items()}
    if isinstance(batch, (tuple, list)):
        parts = [each_tensor(part, change) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    kind = type(batch).__name__
    raise TypeError(f"a batch holds tensors, tuples, lists or dicts, not {kind}")


def prefetched(batches: Iterable, device: str | torch.device = "cuda") -> Generator:
    """Yield the batches on a GPU, each copied while you work on the one before.

    A batch is a tensor, or a tuple, list or mapping (which becomes a dict) of batches;
    texts, numbers and None stay. You may keep it. Hand over a PackedSequence's `data`.

        for x, y in prefetched(loader):  # DataLoader(..., pin_memory=True)
            train(x, y)

    Pin the batches, else the thread waits for each copy. Do not overwrite a batch: it may
    not be copied yet. Work in the stream that is current when the loop begins: no other
    stream waits for the copies. Without CUDA say `device="cpu"`: batches are only moved.
    """
    if torch.device(device).type != "cuda":
        return (yield from (each_tensor(b, lambda t: t.to(device)) for b in batches))
    working, copying = torch.cuda.current_stream(device), torch.cuda.Stream(device)

    def send(source: Tensor) -> Tensor:
        if source.device.type != "cpu":
            return source.to(device)
        to = torch.empty_like(source, device=device)
        copying.wait_stream(working)  # which may still use this memory for another
        with torch.cuda.stream(copying):
            return to.copy_(source, non_blocking=True)

    ahead = []
    try:
        for batch in batches:
            working.wait_stream(copying)  # the batch before has arrived
            ahead.append(each_tensor(batch, send))
            if len(ahead) == 2:
                yield ahead.pop(0)
        working.wait_stream(copying)
        yield from ahead
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
