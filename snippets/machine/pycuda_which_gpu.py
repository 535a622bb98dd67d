# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [2]
# timeout = 120
# exclusive = false
# ///
"""Two GPUs: which one `pycuda.autoprimaryctx` takes, and where PyTorch works after it."""

import os

import torch

from snippets.machine.pycuda_capture import in_a_process
from snippets.machine.pycuda_context import pycuda_driver

#: The variable CUDA_DEVICE, and the GPU that PyTorch was set to.
CASES: dict[str, tuple[str | None, int | None]] = {
    "nothing said": (None, None),
    "CUDA_DEVICE=1": ("1", None),
    "set_device(1)": (None, 1),
    "CUDA_DEVICE=1, set_device(0)": ("1", 0),
    "CUDA_DEVICE=0, set_device(1)": ("0", 1),
}


def taken(variable: str | None, chosen: int | None) -> dict[str, int]:
    """GPUs by number: pycuda's after the import, PyTorch's before it and after it."""
    os.environ.pop("CUDA_DEVICE", None)
    if variable is not None:
        os.environ["CUDA_DEVICE"] = variable
    if chosen is not None:
        torch.cuda.set_device(chosen)
    before = torch.ones(1, device="cuda").get_device()
    driver = pycuda_driver()
    import pycuda.autoprimaryctx as automatic

    places = [driver.Device(i).pci_bus_id() for i in range(driver.Device.count())]
    here = driver.Context.get_device()
    return {
        "before": before,
        "pycuda": places.index(automatic.device.pci_bus_id()),
        "pycuda_works_in": places.index(here.pci_bus_id()),
        "current": torch.cuda.current_device(),
        "tensor": torch.ones(1, device="cuda").get_device(),
    }


def main() -> dict:
    pycuda_driver()  # says so if pycuda is missing
    rows = {name: in_a_process(taken, *case) for name, case in CASES.items()}
    for name, row in rows.items():
        print(f"{name}: " + ", ".join(f"{key} {gpu}" for key, gpu in row.items()))
    return {"gpus": torch.cuda.device_count(), "rows": rows}


if __name__ == "__main__":
    main()
