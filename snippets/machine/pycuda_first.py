# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 300
# ///
"""pycuda's imports before PyTorch's first use of the GPU, or after it; more contexts."""

import ctypes
import multiprocessing
import time
from collections.abc import Callable
from statistics import median
from threading import Thread

import torch

from snippets.machine.pycuda_beside_torch_broken import (
    ELEMENTS,
    autoinit,
    beside_a_thread,
)
from snippets.machine.pycuda_capture import in_a_process
from snippets.machine.pycuda_context import (
    primary_context,
    pycuda_driver,
    torch_context,
)
from snippets.machine.pycuda_contexts import autoprimaryctx
from snippets.machine.pycuda_exit import end_of
from snippets.timing.take_turns import recorded, take_turns

TRIALS = 3
CONTEXTS = 2


def start_torch() -> None:
    """PyTorch's first kernel."""
    torch.ones(1, device="cuda")
    torch.cuda.synchronize()


STEPS: dict[str, Callable[[], None]] = {
    "autoinit": autoinit,
    "autoprimaryctx": autoprimaryctx,
    "torch": start_torch,
}
ORDERS = {
    "torch, autoinit": ["torch", "autoinit"],
    "autoinit, torch": ["autoinit", "torch"],
    "autoprimaryctx, torch": ["autoprimaryctx", "torch"],
}
LINES = {
    "autoinit": "import pycuda.autoinit",
    "autoprimaryctx": "import pycuda.autoprimaryctx",
    "torch": "import torch; torch.ones(1, device='cuda')",
}


def current_context() -> int:
    """The address of the driver's current context in this thread; 0 without one."""
    context = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    return context.value or 0


def context_of_a_thread() -> int:
    """The context in which another thread of PyTorch works."""
    found = []

    def work() -> None:
        start_torch()
        found.append(current_context())

    thread = Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


def take_steps(order: str, pipe) -> None:
    """In a fresh process: each step, and a word to the parent, which reads the memory."""
    pycuda_driver()  # its import is not what is measured
    pipe.send({})
    pipe.recv()
    for name in ORDERS[order]:
        start = time.perf_counter()
        STEPS[name]()
        ms = 1e3 * (time.perf_counter() - start)
        pipe.send({"ms": ms, "context": current_context()})
        pipe.recv()
    last = {"context": current_context(), "thread": context_of_a_thread()}
    beside_a_thread()  # warm up
    time.sleep(2)  # what its thread launched has ended, in whichever context
    pipe.send(last | beside_a_thread())
    pipe.recv()


def steps_of(order: str) -> dict:
    """Milliseconds and MiB of each step, and the order of PyTorch's threads after them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    here, there = context.Pipe()
    process = context.Process(target=take_steps, args=(order, there))
    process.start()
    there.close()
    said, free = [], []
    for _ in range(len(ORDERS[order]) + 2):
        try:
            said.append(here.recv())
        except EOFError:
            process.join()
            return {"died": process.exitcode}
        free.append(torch.cuda.mem_get_info()[0] / 2**20)
        here.send("read")
    process.join()
    row: dict = {"ms": {}, "mib": {}}
    for i, name in enumerate(ORDERS[order], 1):
        row["ms"][name] = said[i]["ms"]
        row["mib"][name] = free[i - 1] - free[i]
    first, last = said[1]["context"], said[-1]
    row["torch_in_the_first"] = last["context"] == first
    row["thread_in_the_same"] = last["thread"] == last["context"]
    return row | {"wrong": last["wrong"], "waited_ms": last["waited_ms"]}


def medians(rows: list[dict]) -> dict:
    """Of the trials of one order; a process that died is told."""
    died = [row for row in rows if "died" in row]
    if died:
        return died[0]
    steps = {
        key: {name: median([row[key][name] for row in rows]) for name in rows[0][key]}
        for key in ("ms", "mib")
    }
    trials = {
        f"{key}_trials": {
            name: [row[key][name] for row in rows] for name in rows[0][key]
        }
        for key in ("ms", "mib")
    }
    rest = {
        key: [row[key] for row in rows]
        for key in ("torch_in_the_first", "thread_in_the_same", "wrong", "waited_ms")
    }
    return steps | trials | rest


def own_contexts() -> dict:
    """Two contexts of one's own on PyTorch's GPU, one after the other: MiB and ms each."""
    start_torch()
    gpu, rows, keep = pycuda_driver().Device(0), [], []
    for _ in range(CONTEXTS):
        free = torch.cuda.mem_get_info()[0]
        start = time.perf_counter()
        keep.append(gpu.make_context())
        ms = 1e3 * (time.perf_counter() - start)
        keep[-1].pop()
        rows.append({"ms": ms, "mib": (free - torch.cuda.mem_get_info()[0]) / 2**20})
    return {"rows": rows}


def detached() -> dict:
    """MiB that come back when such contexts are given up."""
    start_torch()
    gpu = pycuda_driver().Device(0)
    keep = [gpu.make_context() for _ in range(CONTEXTS)]
    for context in keep:
        context.pop()
    free = torch.cuda.mem_get_info()[0]
    for context in keep:
        context.detach()
    return {"mib": (torch.cuda.mem_get_info()[0] - free) / 2**20}


def retained() -> dict:
    """PyTorch's context, retained in two objects: MiB and ms each, and is it one?"""
    start_torch()
    gpu, rows, keep = pycuda_driver().Device(0), [], []
    here = current_context()
    for _ in range(CONTEXTS):
        free = torch.cuda.mem_get_info()[0]
        start = time.perf_counter()
        keep.append(gpu.retain_primary_context())
        ms = 1e3 * (time.perf_counter() - start)
        keep[-1].push()
        same = current_context() == here
        keep[-1].pop()
        mib = (free - torch.cuda.mem_get_info()[0]) / 2**20
        rows.append({"ms": ms, "mib": mib, "same": same})
    return {"rows": rows}


def pushes() -> dict:
    """Microseconds of a push and a pop, of the block around them, and of PyTorch's block."""
    start_torch()
    context = primary_context()

    def push_and_pop() -> None:
        context.push()
        context.pop()

    def block() -> None:
        with torch_context():
            pass

    def block_of_torch() -> None:
        with torch.cuda.device(0):
            pass

    works = {
        "push, pop": push_and_pop,
        "torch_context": block,
        "torch.cuda.device": block_of_torch,
    }
    return recorded(take_turns(works, trials=15, calls=1000), "us")


def main() -> dict:
    pycuda_driver()  # says so if pycuda is missing
    start_torch()  # so that this process can read how much memory is free
    orders = {name: medians([steps_of(name) for _ in range(TRIALS)]) for name in ORDERS}
    ends = {
        name: end_of("; ".join(LINES[step] for step in steps))
        for name, steps in ORDERS.items()
    }
    more = {
        work.__name__: in_a_process(work) for work in (own_contexts, detached, retained)
    }
    push = in_a_process(pushes)
    for name, row in orders.items():
        print(f"{name}: exit code {ends[name]['exit']}", *ends[name]["said"])
        if "died" in row:
            print(f"    died: {row['died']}")
            continue
        for step, ms in row["ms"].items():
            print(f"    {step:15}{ms:6.0f} ms, {row['mib'][step]:5.0f} MiB")
        print(f"    PyTorch in the context of the first: {row['torch_in_the_first']}")
        print(f"    another thread in the same: {row['thread_in_the_same']}")
        print(f"    read early: {row['wrong']} of {ELEMENTS:,}")
    for name in ("own_contexts", "retained"):
        for row in more[name].get("rows", []):
            print(f"{name:13}{row['ms']:8.3f} ms, {row['mib']:5.0f} MiB")
    print(f"detached: {more['detached']}")
    for name, us in push.get("us", {}).items():
        print(f"{name:20}{us:6.2f} µs")
    return {"elements": ELEMENTS, "orders": orders, "ends": ends, "push": push} | more


def derive(results: dict) -> dict:
    """Orders in which nothing is read early, or PyTorch is in the first step's context.

    `apart` are those in which two threads of PyTorch work in two contexts; the MiB of
    contexts are the least of one's own, and all of those that were retained.
    """
    rows = {name: row for name, row in results["orders"].items() if "wrong" in row}
    own = results["own_contexts"].get("rows", [])
    kept = results["retained"].get("rows", [])
    return {
        "in_order": [name for name in rows if max(rows[name]["wrong"]) == 0],
        "in_the_first": [
            name for name in rows if all(rows[name]["torch_in_the_first"])
        ],
        "apart": [name for name in rows if not any(rows[name]["thread_in_the_same"])],
        "own_mib": min([row["mib"] for row in own], default=0),
        "retained_mib": sum(row["mib"] for row in kept),
        "one_context": all(row["same"] for row in kept),
    }


if __name__ == "__main__":
    main()
