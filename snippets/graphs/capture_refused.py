# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""What a capture refuses, and what it says: each tried in a process of its own."""

import multiprocessing
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch


def item(x: torch.Tensor) -> None:
    x.sum().item()


def nonzero(x: torch.Tensor) -> None:
    x.nonzero()


def from_list(x: torch.Tensor) -> None:
    x.add_(torch.tensor([1.0, 2.0], device=x.device))


def adam(x: torch.Tensor) -> None:
    weight = torch.nn.Parameter(x)
    weight.grad = torch.ones_like(x)
    torch.optim.Adam([weight]).step()


def clip(x: torch.Tensor) -> None:
    weight = torch.nn.Parameter(x)
    weight.grad = torch.ones_like(x)
    torch.nn.utils.clip_grad_norm_([weight], 1.0)


def refusal(work: Callable) -> str:
    """The error that a capture of `work(x)` ends with; empty if it can be captured.

    Afterwards this process may be unable to use the GPU.
    """
    x = torch.ones(2, device="cuda")
    work(x)
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            work(x)
    except RuntimeError as error:
        first = error
        while first.__context__:  # the end of a broken capture raises once more
            first = first.__context__
        return traceback.format_exception_only(first)[0].splitlines()[0]
    return ""


def main() -> dict:
    works = (item, nonzero, from_list, adam, clip)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with ProcessPoolExecutor(len(works), context, max_tasks_per_child=1) as pool:
        errors = list(pool.map(refusal, works))
    found = {work.__name__: said for work, said in zip(works, errors, strict=True)}
    for name, said in found.items():
        print(f"{name:10}{said[:75]}")
    return {"errors": found}


if __name__ == "__main__":
    main()
