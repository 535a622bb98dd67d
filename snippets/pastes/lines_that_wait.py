"""File and line of each wait in `step`, by PyTorch's debug mode."""

import warnings

import torch


def lines_that_wait(step):
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True, action="always") as caught:
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    found = [each for each in caught if "synchronizing CUDA" in str(each.message)]
    return sorted({f"{each.filename}:{each.lineno}" for each in found})
