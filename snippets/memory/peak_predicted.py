# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["predicted"]
# ///
"""Predict a training step's peak of memory by a dry run that allocates nothing."""

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint_sequential
from torch.utils.weak import WeakIdKeyDictionary

BLOCKS, WIDTH, WORDS, TOKENS = 4, 1024, 16384, 8192


class Peak(TorchDispatchMode):
    """The most bytes that tensors on a kind of device hold, and by which operation."""

    def __init__(self, device: str):
        super().__init__()
        self.device, self.bytes, self.by = torch.device(device).type, 0, ""
        self.sizes = WeakIdKeyDictionary()  # a storage that dies takes its entry along

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **kwargs)  # type: ignore
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == self.device:
                self.sizes[tensor.untyped_storage()] = tensor.untyped_storage().nbytes()
        held, node = sum(self.sizes.values()), torch._C._current_autograd_node()
        if held > self.bytes:
            self.bytes, self.by = held, f"{node.name() if node else 'forward'}: {func}"
        return result


def predicted(work: Callable[[], object], device: str = "cuda") -> tuple[int, str]:
    """Peak of `work()` in bytes, and by whom; nothing is allocated or computed. Use:

        def step():
            net = torch.nn.Linear(4096, 4096, device="cuda")
            optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
            for _ in range(2):
                net(torch.randn(512, 4096, device="cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

        peak, operation = predicted(step)

    Two steps, for the first makes the optimizer's state. The peak is that of tensors:
    what the allocator rounds up and keeps, workspaces of libraries, memory that an
    operation uses inside, and the context come on top. `device` is the kind whose
    memory counts, "cpu" for work on the CPU; of several GPUs all are added. (0, "") says
    that `work` has no tensor there: perhaps it needs the other `device`. Each operation
    takes the CPU's time, also without its arithmetic: large models take long.

    `work` makes its model, optimizer and data itself: AssertionError for a real tensor
    from outside, DataDependentOutputException for what reads a value, as `.item()`
    does, DynamicOutputShapeException for a size that depends on values, as that of
    `nonzero`, and NotImplementedError for a sparse tensor, which has no storage to
    count, as the gradient of `Embedding(sparse=True)`. Say `foreach=True` (or
    `fused=True`) to the optimizer: its default on a GPU is another for fake tensors.

    For "cuda" it needs a PyTorch that was built with CUDA, and for a backward pass a
    GPU of any size. Without these PyTorch raises a RuntimeError, or in attention aborts
    the process. There make everything on the CPU, and say "cpu": the sizes of tensors
    are the same, but its operations may keep other ones.
    """
    with FakeTensorMode(), Peak(device) as peak:
        work()
    return peak.bytes, peak.by


def measured(work: Callable[[], object]) -> int:
    """Peak of `work()` in bytes, by the allocator's counter."""
    gc.collect()  # a model and its optimizer hold each other
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_allocated() - before


def two_steps(loss=cross_entropy, bf16=False, parts=1, device="cuda") -> None:
    """Train a transformer; all parts but the last run twice and keep nothing."""
    with torch.device(device):
        blocks = [nn.TransformerEncoderLayer(WIDTH, 16, 4096, 0) for _ in range(BLOCKS)]
        net = nn.Sequential(*blocks, nn.Linear(WIDTH, WORDS))
        x, words = torch.randn(1024, TOKENS // 1024, WIDTH), torch.arange(TOKENS)
    # the default on a GPU, but not for fake tensors: said, so that both do the same
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    for _ in range(2):
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            y = checkpoint_sequential(net, parts, x, False, preserve_rng_state=False)
            value = loss(y.flatten(0, 1), words)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()


def main() -> dict:
    two_steps()  # libraries take their workspaces
    cases = {"fp32": {}, "toy loss": {"loss": lambda y, _: y.square().mean()}}
    cases |= {"bf16": {"bf16": True}, "recomputed": {"bf16": True, "parts": 4}}
    rows = []
    for name, case in cases.items():
        dry, by = predicted(lambda case=case: two_steps(**case))
        real = measured(lambda case=case: two_steps(**case))
        print(f"{name:<10}{dry >> 20:6} MiB, measured {real >> 20:6}; {by}")
        rows.append({"case": name, "predicted": dry, "measured": real, "by": by})
    return {"cases": rows}


def derive(results: dict) -> dict:
    """How far forecasts are off, what holds most, and what two changes save."""
    cases = results["cases"]
    fp32, _, bf16, checkpoints = (case["measured"] for case in cases)
    return {
        "bf16_takes": bf16 / fp32,
        "checkpoints_take": checkpoints / bf16,
        "in_the_loss": [
            "LossBackward0" in case["by"].partition(":")[0] for case in cases
        ],
        "off": [abs(case["predicted"] / case["measured"] - 1) for case in cases],
        "by": [case["by"].partition(":")[0] for case in cases],
    }


if __name__ == "__main__":
    main()
