"""What a test on a GPU must leave as it found it, and how that is put back.

Tests share a process. What one of them leaves behind lets another one fail, and only in some orders.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import torch

from overlap.run import worker


def gpus() -> range:
    """The numbers of all GPUs."""
    return range(torch.cuda.device_count())


def streams() -> list[torch.cuda.Stream]:
    """The current stream of each GPU."""
    return [torch.cuda.current_stream(gpu) for gpu in gpus()]


def set_streams(before: list[torch.cuda.Stream]) -> None:
    """Make each stream the current one of its GPU; the current GPU stays."""
    current = torch.cuda.current_device()
    for stream in before:
        torch.cuda.set_stream(stream)
    torch.cuda.set_device(current)


def set_profiler(enabled: bool) -> None:
    """Stop a profiler that was not there before. One that is gone cannot be brought back."""
    if not enabled:
        torch.autograd._disable_profiler()
        torch.autograd.profiler._run_on_profiler_stop()


def set_history(enabled: bool) -> None:
    """Record each allocation from now on, or stop that."""
    torch.cuda.memory._record_memory_history("all" if enabled else None)


def allocator_settings() -> dict[str, Any]:
    """Each setting, and under `PYTORCH_CUDA_ALLOC_CONF` the text that it was set by."""
    return torch.cuda.memory._snapshot()["allocator_settings"]


def set_allocator_settings(before: dict[str, Any]) -> None:
    """Set them by their text; what it leaves out of splits, rounding and collection gets its default."""
    text = before["PYTORCH_CUDA_ALLOC_CONF"]
    if "expandable_segments" not in text:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    torch._C._accelerator_setAllocatorSettings(text)


def fractions() -> list[float]:
    """How much of each GPU's memory PyTorch may take."""
    return [torch.cuda.get_per_process_memory_fraction(gpu) for gpu in gpus()]


def set_fractions(before: list[float]) -> None:
    for gpu, fraction in enumerate(before):
        torch.cuda.set_per_process_memory_fraction(fraction, gpu)


def set_precision(before: str) -> None:
    """PyTorch has an older name of this setting too, which has to agree."""
    torch.set_float32_matmul_precision("high" if before == "tf32" else "highest")
    torch.backends.cuda.matmul.fp32_precision = before


def children() -> set[int]:
    """The process ids of this process's children that have not ended.

    Python's resource tracker is left out, which knows what all other processes share, and the book's own fork
    server, which computes nothing.
    """
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(path.parent.name))
    tracker: Any = vars(resource_tracker)["_resource_tracker"]
    server: Any = vars(worker.SERVER)["_process"]
    return found - {tracker._pid, server and server.pid}


def kill_others(before: set[int]) -> None:
    """End the children that were not there before."""
    for child in children() - before:
        os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def stop_servants() -> None:
    """Stop what Python and PyTorch keep to start processes and to compile; it starts anew when it is needed.

    A server that forks gives its children the environment that it found at its own start.
    """
    server: Any = vars(forkserver)["_forkserver"]
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)  # it would wait for all that inherited its pipe
        server._stop()
    if compiling := sys.modules.get("torch._inductor.async_compile"):
        compiling.shutdown_compile_workers()


#: What is looked at: how it is read, and how it is set. The current GPU comes last: all others may change it.
PARTS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "current stream": (streams, set_streams),
    "profiler": (torch.autograd._profiler_enabled, set_profiler),
    "memory history": (lambda: torch._C._cuda_isHistoryEnabled(), set_history),
    "allocator settings": (allocator_settings, set_allocator_settings),
    "memory fraction": (fractions, set_fractions),
    "precision of float32 products": (lambda: torch.backends.cuda.matmul.fp32_precision, set_precision),
    "child processes": (children, kill_others),
    "current GPU": (torch.cuda.current_device, torch.cuda.set_device),
}


def state() -> dict[str, Any]:
    """All parts, as they are."""
    stop_servants()
    return {name: read() for name, (read, _) in PARTS.items()}


def restored(before: dict[str, Any]) -> list[str]:
    """Put back what has changed since `before`; what that was, in words.

    All work is waited for, so that an error is raised here, behind the test that made it.
    """
    for gpu in gpus():
        torch.cuda.synchronize(gpu)
    changed = []
    for name, now in state().items():
        if now != before[name]:
            changed.append(f"{name}: {before[name]} before, {now} after")
            PARTS[name][1](before[name])
    torch.cuda.empty_cache()
    return changed
