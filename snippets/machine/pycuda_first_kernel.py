# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""pycuda's import before PyTorch's first use, or after: where do pycuda's kernels run?"""

import time

import numpy as np
import torch

from snippets.machine.kernel_from_source import SOURCE, by_pycuda
from snippets.machine.pycuda_capture import in_a_process, said
from snippets.machine.pycuda_context import pycuda_driver
from snippets.machine.pycuda_first import ORDERS, STEPS, current_context

ELEMENTS = 10_000_000
BLOCK = 256
TRIALS = 3
CYCLES = 100_000_000  # some 50 ms of earlier work


def doubled(kernel) -> dict:
    """PyTorch fills `a` late with threes, pycuda doubles: how many are not six?

    Neither names a stream: both launch in the default one.
    """
    out, a = torch.zeros(2, ELEMENTS, device="cuda")
    a.fill_(0)  # loads PyTorch's kernels, which would wait below
    assert int((out != 6).sum()) == ELEMENTS
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    a.fill_(3)
    shape = {"grid": (-(-ELEMENTS // BLOCK), 1), "block": (BLOCK, 1, 1)}
    pointers = [np.uintp(x.data_ptr()) for x in (out, a)]
    says = said(lambda: kernel(*pointers, np.int32(ELEMENTS), **shape))
    wrong = int((out != 6).sum())
    torch.cuda.synchronize()
    return {"says": says, "wrong": wrong}


def waited_ms() -> float:
    """How long pycuda's `synchronize` waits for some 50 ms of PyTorch's work."""
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    start = time.perf_counter()
    pycuda_driver().Context.synchronize()
    ms = 1e3 * (time.perf_counter() - start)
    torch.cuda.synchronize()
    return ms


def kernels(order: str) -> dict:
    """In a fresh process: a kernel loaded before PyTorch began, and one loaded after."""
    pycuda_driver()
    loaded, imported = {}, 0
    for name in ORDERS[order]:
        STEPS[name]()
        if name != "torch":
            imported = current_context()
            loaded["early"] = by_pycuda(SOURCE)
    loaded["late"] = by_pycuda(SOURCE)
    row = {"import_is_current": current_context() == imported}
    row["waited_ms"] = waited_ms()
    row["kernels"] = {name: doubled(loaded[name]) for name in reversed(loaded)}
    return row


def main() -> dict:
    pycuda_driver()  # says so if pycuda is missing
    orders = {
        name: [in_a_process(kernels, name) for _ in range(TRIALS)] for name in ORDERS
    }
    for name, rows in orders.items():
        print(name)
        for row in rows:
            if "died" in row:
                print(f"    {row['died']}")
                continue
            context = "the import's" if row["import_is_current"] else "another"
            waited = f"synchronize waits {row['waited_ms']:.1f} ms"
            print(f"    the current context is {context}; {waited}")
            for when, kernel in row["kernels"].items():
                says = kernel["says"] or "works"
                print(f"    loaded {when}: {says}; wrong {kernel['wrong']:,}")
    return {"elements": ELEMENTS, "orders": orders}


def derive(results: dict) -> dict:
    """Orders in which an early kernel fails each time, or one of each kind is right."""
    names: dict[str, list[str]] = {"fails": [], "early_right": [], "late_right": []}
    for order, rows in results["orders"].items():
        kernels = [row.get("kernels", {}) for row in rows]
        early, late = (
            [each.get(when) for each in kernels] for when in ("early", "late")
        )
        if all(kernel and kernel["says"] for kernel in early):
            names["fails"].append(order)
        for key, loaded in (("early_right", early), ("late_right", late)):
            if all(kernel and kernel["wrong"] == 0 for kernel in loaded):
                names[key].append(order)
    return names


if __name__ == "__main__":
    main()
