# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# timeout = 120
# exclusive = false
# take = ["compilations"]
# ///
"""How often does `torch.compile` compile a transformer's block, if batches differ?"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Batch = TypeVar("Batch")
WIDTH, TOKENS = 64, 16
SIZES = (32, 28, 24, 20, 16, 12, 8, 6, 4, 3, 2, 1)  # sequences of a batch


def compilations(
    work: Callable[[Batch], object], batches: Iterable[Batch], **options: Any
) -> list[int]:
    """How many graphs of `work` are compiled after a call with each of the batches.

    `work` is a model, or a function of one batch of any kind. `options` are those of
    `torch.compile` but for its backend: no code is made, each graph runs as it was
    traced. Where a graph breaks, one call compiles several. At the limit of
    recompilations PyTorch gives up with a warning, and the count stays. All that this
    process has compiled is forgotten, before and after.
    """
    count = 0
    counts: list[int] = []

    def keep(graph: torch.fx.GraphModule, *_: object, **how: Any) -> Callable[..., Any]:
        nonlocal count
        count += 1
        return graph.forward

    torch.compiler.reset()
    try:
        compiled = torch.compile(work, backend=keep, **options)
        for batch in batches:
            compiled(batch)
            counts.append(count)
    finally:
        torch.compiler.reset()
    return counts


def of_any_size(batch: Tensor) -> Tensor:
    """A copy of the batch, marked: the next may have another number of sequences."""
    marked = batch.clone()
    torch._dynamo.mark_dynamic(marked, 0)
    return marked


def refuses_a_new_size(work: Callable[[Tensor], Any], batches: list[Tensor]) -> bool:
    """Whether a size that was not compiled is an error, if you ask for that."""
    torch.compiler.reset()
    compiled = torch.compile(work, backend="eager")
    compiled(batches[0])
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled(batches[0])
        try:
            compiled(batches[1])
        except RuntimeError as error:
            return "recompile" in str(error)
    return False


def main() -> dict:
    torch._logging.set_logs(dynamo=logging.ERROR)  # the limit is passed on purpose
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    block = nn.TransformerEncoderLayer(
        WIDTH, 4, 4 * WIDTH, 0, batch_first=True, norm_first=True, device=device
    )
    batches = [torch.randn(size, TOKENS, WIDTH, device=device) for size in SIZES]
    counts = {
        "default": compilations(block, batches),
        "dynamic=False": compilations(block, batches, dynamic=False),
        "dynamic=True": compilations(block, batches, dynamic=True),
        "mark_dynamic": compilations(block, [of_any_size(b) for b in batches[:-1]]),
    }
    print("sequences    ", *(f"{size:3}" for size in SIZES))
    for name, row in counts.items():
        print(f"{name:13}", *(f"{count:3}" for count in row))
    refused = refuses_a_new_size(block, batches)
    print(f"a new size under `fail_on_recompile` is refused: {refused}")
    limit = torch._dynamo.config.recompile_limit
    return {"sizes": SIZES, "counts": counts, "limit": limit, "refused": refused}


if __name__ == "__main__":
    main()
