"""Proof that a run used the GPUs it names, without touching its times.

What a process did on each GPU is read once, when `main()` has returned and before its result is written: PyTorch counts the blocks that its
allocator handed out and the most bytes that were in use at once, whoever asks or not, and knows on which GPU the process has a context.
Nothing runs beside the measurement, and nothing is added to a launch. Kernels have no such counter: only a profiler sees them, and it
costs microseconds a launch. So they are counted in a further run of the same code on such a machine, later and beside others, under the
profiler; its times are thrown away.

What cannot be read is left out, and fails no run: a snippet that has a profiler of its own, or lets other processes do the work, has no
number of kernels, and if one of its GPUs is untouched by the process itself, no proof at all.
"""

import contextlib
import json
import resource
from collections.abc import Callable, Iterable
from pathlib import Path

#: Where a process leaves its proof, beside its result: one file for each rank.
FILES = "worked-{}.json"
#: The same for the kernels of a rank on each GPU, in a run that counts them.
KERNELS = "kernels-{}.json"
_COUNTERS = (("allocation", "allocated"), ("allocated_bytes", "peak"))


def write(folder: Path, rank: int, others: bool) -> None:
    """Leave in `folder` what this process did on each GPU it sees; `others`: whether a child of it is still alive. It never fails a run."""
    with contextlib.suppress(Exception):
        found = worked()
        alone = not others and not _had_children()
        if alone or not untouched(found):
            (folder / FILES.format(rank)).write_text(json.dumps(found))


def worked() -> list[dict]:
    """Of each visible GPU: whether this process has a `context` there, `allocations` and most `bytes` at once of PyTorch's allocator."""
    import torch

    known = getattr(torch._C, "_cuda_hasPrimaryContext", lambda gpu: False)
    started, found = torch.cuda.is_initialized(), []
    contexts = [bool(known(gpu)) for gpu in range(torch.cuda.device_count())]  # before anything here could make one
    for gpu, context in enumerate(contexts):
        stats = torch.cuda.memory_stats(gpu) if started else {}
        allocations, most = (int(stats.get(f"{name}.all.{kind}", 0)) for name, kind in _COUNTERS)
        found.append({"context": context or allocations > 0, "allocations": allocations, "bytes": most})
    return found


def _had_children() -> bool:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime > 0


def read(folder: Path, ranks: int) -> list[dict] | None:
    """What all ranks did together; None where one of them says nothing."""
    try:
        said = [json.loads((folder / FILES.format(rank)).read_text()) for rank in range(ranks)]
        return [_together(parts) for parts in zip(*said, strict=True)]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _together(parts: Iterable[dict]) -> dict:
    parts = list(parts)
    sums = {key: sum(part[key] for part in parts) for key in ("allocations", "bytes")}
    return {"context": any(part["context"] for part in parts)} | sums


def untouched(said: list[dict]) -> list[int]:
    """The GPUs on which nothing was done, counted from 0."""
    return [gpu for gpu, work in enumerate(said) if not (work["context"] or work["allocations"] or work.get("kernels"))]


def kernels(main: Callable[[], object]) -> list[int]:
    """How many kernels `main` starts on each visible GPU, counted by PyTorch's profiler; its times are worth nothing.

    Nothing is known where `main` has a profiler of its own, which ends this one.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    counts = [0] * torch.cuda.device_count()
    if not counts:
        return counts  # the profiler refuses to look for what cannot be
    returned = False
    try:
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            main()
            for gpu in range(len(counts)):
                torch.cuda.synchronize(gpu)
            returned = True
    except RuntimeError:
        if not returned:
            raise
        return []
    for event in profiled.profiler.kineto_results.events():
        if _is_kernel(event) and 0 <= event.device_index() < len(counts):
            counts[event.device_index()] += 1
    return counts


def read_kernels(folder: Path, ranks: int) -> list[int]:
    """How many kernels all ranks together started on each GPU; nothing where one of them says nothing."""
    try:
        said = [json.loads((folder / KERNELS.format(rank)).read_text()) for rank in range(ranks)]
        return [sum(counts) for counts in zip(*said, strict=True)]
    except (OSError, ValueError, TypeError):
        return []


def _is_kernel(event) -> bool:
    on_gpu = "cuda" in str(event.device_type()).lower()
    return on_gpu and not event.is_user_annotation() and not event.name().startswith(("Memcpy", "Memset"))
