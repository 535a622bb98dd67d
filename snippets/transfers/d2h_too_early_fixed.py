# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: wait on an event, and only then read a device-to-host copy."""

import torch
from torch import Tensor

from snippets.transfers.d2h_too_early_broken import attempts


def fetch(on_gpu: Tensor) -> Tensor:
    """Copy to the host, and wait for this copy, not for the whole device."""
    on_host = on_gpu.to("cpu", non_blocking=True)
    landed = torch.cuda.current_stream(on_gpu.device).record_event()
    landed.synchronize()
    return on_host


def main() -> dict:
    return attempts(fetch)


if __name__ == "__main__":
    main()
