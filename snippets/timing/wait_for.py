# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# take = ["wait_for"]
# ///
"""Wait for every device that this process uses, and for no other."""

import time
from collections.abc import Iterable

import torch


def used_devices() -> list[int]:
    """Numbers of the accelerator devices that may hold work of this process.

    CUDA devices without a context are left out: to wait for one would make its context,
    hundreds of megabytes. Of another accelerator (XPU, MPS …) all devices are named;
    without accelerator the CPU has finished whatever has returned: an empty list.
    """
    if torch.cuda.is_initialized():
        devices = range(torch.cuda.device_count())
        return [i for i in devices if torch._C._cuda_hasPrimaryContext(i)]  # type: ignore
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type == "cuda":
        return []
    return list(range(torch.accelerator.device_count()))


def wait_for(devices: Iterable[int] | None = None) -> None:
    """Block until these devices, by number, have finished all their work.

    By default all that are in use; `[0]` is the first GPU alone, and 0 a TypeError.
    """
    for device in used_devices() if devices is None else devices:
        torch.accelerator.synchronize(device)


def main() -> dict:
    before = used_devices()
    x = torch.ones(1, device="cuda" if torch.cuda.is_available() else "cpu")
    used, start = used_devices(), time.perf_counter()
    if x.is_cuda:
        torch.cuda._sleep(100_000_000)  # the GPU counts clock cycles
    returned = time.perf_counter()
    wait_for()
    waited = time.perf_counter()
    print(
        f"devices in use: {before} before the first tensor, then {used} of {x.device}"
    )
    print(f"the call returned after {1e3 * (returned - start):.3f} ms")
    print(f"the wait ended after    {1e3 * (waited - start):.3f} ms")
    ms = {"returned": 1e3 * (returned - start), "waited": 1e3 * (waited - start)}
    return {"before": before, "used": used, "ms": ms}


if __name__ == "__main__":
    main()
