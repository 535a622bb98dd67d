# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["warned"]
# ///
"""Which waits does PyTorch's debug mode see? Ask it about lines that wait or do not."""

import warnings
from collections.abc import Callable

import torch

from snippets.asynchrony.blockers import value_lines
from snippets.asynchrony.copies_that_wait import copy_lines
from snippets.asynchrony.data_blockers import data_lines
from snippets.asynchrony.index_blockers import index_lines
from snippets.asynchrony.training_blockers import optimizer_lines
from snippets.asynchrony.waits import waits


def warned(function: Callable[[], object]) -> int:
    """How often PyTorch's debug mode warns that `function()` synchronises.

    The mode and Python's filter of warnings are set meanwhile for all threads, and put
    back: other warnings of `function` are not seen. Not all that waits is warned of: `waits` measures it.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            function()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("synchronizing CUDA operation" in str(each.message) for each in caught)


def main() -> dict:
    lines = value_lines() | index_lines() | copy_lines()
    lines |= optimizer_lines() | data_lines()
    waiting = {line: waits(function) for line, function in lines.items()}
    warnings_of = {line: warned(function) for line, function in lines.items()}
    missed = [line for line in lines if waiting[line] and not warnings_of[line]]
    accused = [line for line in lines if warnings_of[line] and not waiting[line]]
    print(f"of {len(lines)} lines {sum(waiting.values())} wait")
    for line in missed:
        print(f"waits without a warning:        {line}")
    for line in accused:
        print(f"warned of, but does not wait:   {line}")
    verdicts = {"waits": waiting, "warnings": warnings_of}
    return verdicts | {"missed": missed, "accused": accused, "lines": len(lines)}


def derive(results: dict) -> dict:
    """What the mode misses, but for small copies; what of it is not named here."""
    named = {
        "GPU to host, non_blocking",
        "event.synchronize()",
        "host to GPU, non_blocking",
        "torch.cuda.empty_cache()",
        "torch.cuda.synchronize()",
    }
    missed = sorted(line for line in results["missed"] if "KiB" not in line)
    otherwise = sorted(named.symmetric_difference(missed))
    return {"missed_large": missed, "missed_otherwise": otherwise}


if __name__ == "__main__":
    main()
