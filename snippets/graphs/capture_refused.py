# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""What a capture refuses, and what it says: each tried in a process of its own."""

import traceback
from concurrent.futures import ProcessPoolExecutor
from textwrap import shorten

import torch


def item(x: torch.Tensor) -> None:
    x.sum().item()


def nonzero(x: torch.Tensor) -> None:
    x.nonzero()


def from_list(x: torch.Tensor) -> None:
    torch.tensor([1.0, 2.0], device=x.device)


def adam(x: torch.Tensor) -> None:
    torch.optim.Adam([x]).step()


def clip(x: torch.Tensor) -> None:
    torch.nn.utils.clip_grad_norm_([x], 1.0)


def refusal(work) -> str:
    """The error that a capture of `work(x)` ends with; empty if it can be captured.

    x is a parameter with a gradient. Afterwards this process may be unable to use the
    GPU.
    """
    x = torch.nn.Parameter(torch.ones(2, device="cuda"))
    x.grad = torch.ones_like(x)
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
    errors = {}
    for work in (item, nonzero, from_list, adam, clip):
        with ProcessPoolExecutor(1) as child:
            said = errors[work.__name__] = child.submit(refusal, work).result()
        shown = shorten(said, 78, placeholder=" …") or "can be captured"
        print(f"{work.__name__:10}{shown}")
    return {"errors": errors}


if __name__ == "__main__":
    main()
