# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""What a forked child can still do, after what its parent has done: each case tried."""

import os
from collections.abc import Callable
from functools import partial
from textwrap import shorten

import torch
import torch.multiprocessing as mp


def product() -> str:
    """A matrix product, large enough for several threads of the CPU."""
    x = torch.ones(512, 512)
    return "works" if (x @ x).eq(512).all() else "wrong"


def product_in_one_thread() -> str:
    torch.set_num_threads(1)
    return product()


def use_gpu() -> str:
    total = torch.ones(8, device="cuda").sum()
    return "works" if total.item() == 8 else "wrong"


def is_available_by_nvml() -> bool:
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    return torch.cuda.is_available()


#: what the parent does before it forks, and what its child does then
CPU_CASES = {
    "nothing | product": (torch.get_num_threads, product),
    "product | product": (product, product),
    "product | product in one thread": (product, product_in_one_thread),
}
GPU_CASES = {
    "nothing | use GPU": (torch.get_num_threads, use_gpu),
    "manual_seed | use GPU": (partial(torch.manual_seed, 0), use_gpu),
    "device_count | use GPU": (torch.cuda.device_count, use_gpu),
    "is_available by NVML | use GPU": (is_available_by_nvml, use_gpu),
    "is_available | use GPU": (torch.cuda.is_available, use_gpu),
    "use GPU | use GPU": (use_gpu, use_gpu),
    "use GPU | use GPU, spawned": (use_gpu, use_gpu, "spawn"),
}


def tell(work: Callable[[], object], connection) -> None:
    """In the child: do the work, and say what it gave or which error it ended with."""
    try:
        connection.send(work())
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def child(work: Callable[[], object], method: str = "fork", limit_s: int = 5):
    """What `work()` gives in a child; "no answer" if it takes too long, or has died."""
    ours, theirs = mp.Pipe()
    process = mp.get_context(method).Process(target=tell, args=(work, theirs))
    process.start()
    said = ours.recv() if ours.poll(limit_s) else f"no answer in {limit_s} s"
    process.kill()
    process.join()
    return said


def after(
    touch: Callable[[], object], use: Callable[[], object], method: str = "fork"
) -> str:
    """How `use()` ends in a child that is started after `touch()`."""
    touch()
    return child(use, method, 5 if method == "fork" else 20)


def main() -> dict:
    gpus = child(torch.cuda.device_count)  # whatever it does, it does to the child
    cases = CPU_CASES | (GPU_CASES if gpus else {})
    # each parent is itself a fork of this process, which does nothing at all
    found = {n: child(partial(after, *c), limit_s=30) for n, c in cases.items()}
    for name, said in found.items():
        touch, _, use = name.partition(" | ")
        said = shorten(said.splitlines()[0], 50, placeholder=" …")
        print(f"{touch:<21} then {use:<23}{said}")
    return {"found": found}


def derive(results: dict) -> dict:
    """After what a forked child cannot use the GPU."""
    refusal = "Cannot re-initialize CUDA in forked subprocess"
    found = results["found"]
    return {"refused": sorted(case for case, told in found.items() if refusal in told)}


if __name__ == "__main__":
    main()
