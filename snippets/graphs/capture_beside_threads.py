# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# timeout = 120
# ///
"""A graph is captured while another thread works: which calls of it end the capture?"""

import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import product
from multiprocessing import get_context

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

MODES = ("global", "thread_local", "relaxed")  # of `capture_error_mode`
ROWS = 2**22


class Slow(Dataset):
    """Items that come one by one while the main thread captures."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, i: int) -> Tensor:
        time.sleep(0.04)
        return torch.full((2**18,), float(i))


def pins() -> Callable[[], object]:
    """Pin a batch: new memory."""
    batch = torch.ones(ROWS)
    return batch.pin_memory


def pins_again() -> Callable[[], object]:
    """Pin a batch where another lay that was copied to the GPU and dropped."""
    batch = torch.ones(ROWS)
    old = batch.pin_memory()
    old.to("cuda", non_blocking=True)
    del old
    return batch.pin_memory


def copies() -> Callable[[], object]:
    """Copy a pinned batch into memory that is there, in a stream of its own."""
    batch, room = torch.ones(ROWS).pin_memory(), torch.empty(ROWS, device="cuda")
    side = torch.cuda.Stream()

    def copy() -> None:
        with torch.cuda.stream(side):
            room.copy_(batch, non_blocking=True)

    return copy


def waits() -> Callable[[], object]:
    """Wait for an event of a stream of its own."""
    side = torch.cuda.Stream()
    event = side.record_event()
    return event.synchronize


def makes_a_tensor() -> Callable[[], object]:
    """Make a tensor for which the allocator has no memory yet."""
    return lambda: torch.empty(2**28, device="cuda")


def loads() -> Callable[[], object]:
    """A `DataLoader` that pins what two workers bring."""
    loader = DataLoader(Slow(), num_workers=2, prefetch_factor=8, pin_memory=True)
    batches = iter(loader)
    next(batches)

    def load() -> None:
        time.sleep(0.3)  # its own thread pins meanwhile

    def rest() -> None:
        for _ in batches:
            pass

    load.rest = rest  # type: ignore
    return load


ACTIONS = (pins, pins_again, copies, waits, makes_a_tensor, loads)


def error_of(work: Callable[[], object]) -> str:
    """The error that `work()` ends with, the first one of a chain; empty if none."""
    try:
        work()
    except RuntimeError as error:
        first: BaseException = error
        while first.__context__:
            first = first.__context__
        lines = traceback.format_exception_only(first)[0].splitlines()
        named = [line for line in lines if "CUDA error" in line]
        return (named or lines)[0]
    return ""


def beside_a_capture(case: tuple[int, str]) -> dict:
    """Capture x + 1 while another thread acts; errors of both, and whether it replays."""
    action, mode = ACTIONS[case[0]], case[1]
    x, graph = torch.ones(1024, device="cuda"), torch.cuda.CUDAGraph()
    x + 1
    act, result, found = action(), [], {}
    torch.cuda.synchronize()

    def capture() -> None:
        with (
            ThreadPoolExecutor(1) as other,
            torch.cuda.graph(graph, capture_error_mode=mode),
        ):
            result.append(x + 1)
            found["thread"] = other.submit(error_of, act).result()

    found["capture"] = error_of(capture)
    if hasattr(act, "rest"):
        found["thread"] = error_of(act.rest)
    if found["capture"]:
        return found | {"right": False}
    x.fill_(5)
    graph.replay()
    return found | {"right": bool((result[0] == 6).all())}


def main() -> dict:
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    cases = list(product(range(len(ACTIONS)), MODES))
    with ProcessPoolExecutor(3, context, max_tasks_per_child=1) as processes:
        rows = list(processes.map(beside_a_capture, cases))
    found: dict[str, dict] = {action.__name__: {} for action in ACTIONS}
    for (action, mode), row in zip(cases, rows, strict=True):
        found[ACTIONS[action].__name__][mode] = row
    for action, by_mode in found.items():
        words = [mode for mode, row in by_mode.items() if row["right"]]
        print(f"{action:15} can be captured beside in: {', '.join(words) or 'no mode'}")
    return {"found": found}


def derive(results: dict) -> dict:
    """By mode, what a capture harms, and what is told that a stream is capturing."""
    modes = {mode: [] for row in results["found"].values() for mode in row}
    unharmed, stopped = modes, {mode: [] for mode in modes}
    for action, row in sorted(results["found"].items()):
        for mode, outcome in row.items():
            if outcome["right"] and outcome["thread"] == outcome["capture"] == "":
                unharmed[mode].append(action)
            if not outcome["right"] and "stream is capturing" in outcome["thread"]:
                stopped[mode].append(action)
    harmed = {}
    for mode, actions in unharmed.items():
        harmed[mode] = [
            name for name in sorted(results["found"]) if name not in actions
        ]
    return {"unharmed": unharmed, "harmed": harmed, "stopped": stopped}


if __name__ == "__main__":
    main()
