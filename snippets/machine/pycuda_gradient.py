# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""A kernel of pycuda's with a gradient: backward() runs in another thread."""

import threading
from typing import Any, ClassVar

import torch

from snippets.machine.pycuda_kernel import double_
from snippets.machine.pycuda_threads import errors

SIZE = 1000


class Twice(torch.autograd.Function):
    """2x by pycuda's kernel, of a float32 tensor on a GPU; its gradient by the same."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        y = x.detach().clone(memory_format=torch.contiguous_format)
        double_(y)  # pushes PyTorch's context, in this thread
        return y

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        (grad,) = grads
        grad = grad.clone(memory_format=torch.contiguous_format)
        double_(grad)  # and in the thread of backward()
        return grad


class Unpushed(torch.autograd.Function):
    """Does nothing, and notes in backward() what pycuda says if nothing is pushed there."""

    said: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        Unpushed.said["errors"] = errors(torch.ones(SIZE, device=grads[0].device))
        Unpushed.said["same_thread"] = (
            threading.current_thread() is threading.main_thread()
        )
        return grads[0]


def main() -> dict:
    torch.manual_seed(0)
    weight = torch.rand(SIZE, device="cuda", requires_grad=True)
    (Twice.apply(weight) ** 3).sum().backward()
    gradient = weight.grad.clone()
    weight.grad = None
    ((2 * weight) ** 3).sum().backward()
    torch.testing.assert_close(gradient, weight.grad)
    right = int(torch.isclose(gradient, weight.grad).sum())
    Unpushed.apply(weight).sum().backward()
    told = Unpushed.said
    print(f"the gradient is PyTorch's in {right:,} of {SIZE:,} elements")
    print(f"backward() runs in the thread that called it: {told['same_thread']}")
    for name, error in told["errors"].items():
        print(f"    nothing pushed there, {name}: {error or 'works'}")
    try:
        touched = "works"
        _ = weight.__cuda_array_interface__
    except RuntimeError as error:
        touched = str(error).splitlines()[0]
    print(f"a weight, passed itself: {touched}")
    return {"elements": SIZE, "right": right, "weight": touched} | told


if __name__ == "__main__":
    main()
