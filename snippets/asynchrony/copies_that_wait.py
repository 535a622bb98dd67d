# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Which copies wait for the GPU? Direction, pinned memory, `non_blocking` and size."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from snippets.asynchrony.waits import report

KIB = (4, 64, 256, 1024, 2048, 4096, 8192, 16384)


def copy_lines() -> dict[str, Callable[..., Any]]:
    """Copies of 16 MiB in all ways, of each size of KIB from ordinary memory."""
    gpu = torch.rand(2**22, device="cuda")
    hosts = {"host": torch.rand(2**22), "pinned": torch.rand(2**22, pin_memory=True)}
    lines = {}
    for name, host in hosts.items():
        for way, non_blocking in {"": False, ", non_blocking": True}.items():
            to_gpu = partial(gpu.copy_, host, non_blocking=non_blocking)
            to_host = partial(host.copy_, gpu, non_blocking=non_blocking)
            lines |= {f"{name} to GPU{way}": to_gpu, f"GPU to {name}{way}": to_host}
    for kib in KIB:
        host, target = torch.rand(kib * 256), torch.rand(kib * 256, device="cuda")
        copy = partial(target.copy_, host, non_blocking=True)
        lines[f"host to GPU, non_blocking, {kib} KiB"] = copy

    lines["gpu.to('cpu', non_blocking=True)"] = lambda: gpu.to("cpu", non_blocking=True)
    return lines


def arrives(host: torch.Tensor) -> bool:
    """Whether the ones in `host` reach the GPU, if overwritten right after the call."""
    target = torch.zeros(host.shape, device="cuda")
    torch.cuda._sleep(30_000_000)  # cycles: about 15 ms of earlier work
    target.copy_(host, non_blocking=True)
    host.zero_()
    return bool(target.all())


def main() -> dict:
    result = report(copy_lines())
    small = [int(line.split()[-2]) for line in result["returns"] if "KiB" in line]
    safe = {"ordinary": [kib for kib in KIB if arrives(torch.ones(kib * 256))]}
    safe["pinned"] = [kib for kib in KIB if arrives(torch.ones(kib * 256).pin_memory())]
    print(f"sent whole, though overwritten next: {safe} KiB")
    return result | {"kib": KIB, "small_kib": small, "safe_kib": safe}


def derive(results: dict) -> dict:
    """For what share of its time a copy of 16 MiB waits, ahead and in other ways."""
    shares = {
        line: row["share"]
        for line, row in results["lines"].items()
        if "KiB" not in line
    }
    ahead = {"pinned to GPU, non_blocking", "GPU to pinned, non_blocking"}
    ahead.add("gpu.to('cpu', non_blocking=True)")
    return {
        "ahead_share": [share for line, share in shares.items() if line in ahead],
        "waiting_share": [share for line, share in shares.items() if line not in ahead],
    }


if __name__ == "__main__":
    main()
