# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Which copies wait for the GPU? Direction, pinned memory, `non_blocking` and size."""

from collections.abc import Callable
from functools import partial

import torch

from snippets.asynchrony.waits import report

KIB = (4, 32, 64, 65, 128, 1024)


def copy_lines() -> dict[str, Callable]:
    """Copies of 16 MiB, small ones without pinned memory, and getting pinned memory."""
    gpu = torch.rand(2**22, device="cuda")
    hosts = {"host": torch.rand(2**22), "pinned": torch.rand(2**22, pin_memory=True)}
    lines, pinned_before = {}, []
    for name, host in hosts.items():
        for way, non_blocking in {"": False, ", non_blocking": True}.items():
            to_gpu = partial(gpu.copy_, host, non_blocking=non_blocking)
            to_host = partial(host.copy_, gpu, non_blocking=non_blocking)
            lines |= {f"{name} to GPU{way}": to_gpu, f"GPU to {name}{way}": to_host}
    for kib in KIB:
        host, target = torch.rand(kib * 256), torch.rand(kib * 256, device="cuda")
        copy = partial(target.copy_, host, non_blocking=True)
        lines[f"host to GPU, non_blocking, {kib} KiB"] = copy

    def pin_more_memory() -> None:
        pinned_before.append(torch.empty(2**18, pin_memory=True))

    lines["gpu.to('cpu', non_blocking=True)"] = lambda: gpu.to("cpu", non_blocking=True)
    return lines | {"torch.empty(2**18, pin_memory=True), new": pin_more_memory}


def main() -> dict:
    result = report(copy_lines())
    at_once = {kib: f"host to GPU, non_blocking, {kib} KiB" for kib in KIB}
    small = [kib for kib, line in at_once.items() if line in result["returns"]]
    print(f"from ordinary memory at once: {small} KiB of {list(KIB)}")
    return result | {"kib": KIB, "small_kib": small}


if __name__ == "__main__":
    main()
