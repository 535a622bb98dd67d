# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Ask nvidia-smi while a process starts CUDA, allocates, computes and frees."""

import os
import subprocess
from collections.abc import Iterator

import torch

N = 2**14  # a matrix of float32 has 1 GiB


def used_mib() -> int:
    """MiB in use on this process's first GPU, as `nvidia-smi` shows them."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    asked = [f"--id={gpu}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    shown = subprocess.run(["nvidia-smi", *asked], capture_output=True, check=True)
    return int(shown.stdout)


def story() -> Iterator[str]:
    """What a process does to memory; yields after each moment what was done."""
    yield "before CUDA"
    torch.cuda.synchronize()  # the first call that needs a context makes it
    yield "context"
    matrix = torch.empty(N, N, device="cuda")
    yield "+ 1 GiB, not filled"
    matrix.fill_(1)
    yield "one small kernel"
    torch.mm(matrix[:512, :512], matrix[:512, :512])
    yield "first matrix product"
    del matrix
    yield "del"
    torch.cuda.empty_cache()
    yield "empty_cache()"


def torch_says_mib() -> int | str:
    """PyTorch's own question to NVML, or why it cannot ask."""
    try:
        return torch.cuda.device_memory_used() >> 20
    except Exception as error:
        return str(error)


def main() -> dict:
    rows = []
    for moment in story():
        held, kept = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        row = {"moment": moment, "smi": used_mib(), "tensors": held >> 20}
        rows.append(row | {"reserved": kept >> 20})
    for row in rows:
        row["outside"] = row["smi"] - rows[0]["smi"] - row["reserved"]
        shown = "{moment:<21}tensors {tensors:5}, reserved {reserved:5}, outside"
        print((shown + " {outside:4}, nvidia-smi {smi:5} MiB").format(**row))
    torch_says = torch_says_mib()
    print(f"then torch.cuda.device_memory_used(): {torch_says} MiB")
    return {"mib": rows, "torch_says_mib": torch_says}


if __name__ == "__main__":
    main()
