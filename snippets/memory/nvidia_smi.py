# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# ///
"""Ask nvidia-smi while a process starts CUDA, allocates, computes and frees."""

import subprocess

import torch

from snippets.pictures import Picture, stacked


def used_mib() -> int:
    """MiB in use on this process's first GPU, as `nvidia-smi` shows them."""
    # by its UUID: nvidia-smi and CUDA may number GPUs differently
    gpu = f"--id=GPU-{torch.cuda.get_device_properties(0).uuid}"
    asked = [gpu, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    shown = subprocess.run(["nvidia-smi", *asked], capture_output=True, check=True)
    return int(shown.stdout)


def story():
    """What a process does to memory; yields after each moment what was done."""
    yield "before CUDA"
    torch.cuda.synchronize()  # the first call that needs a context makes it
    yield "context"
    matrix = torch.empty(2**14, 2**14, device="cuda")  # float32: 1 GiB
    yield "+ 1 GiB, not filled"
    matrix.fill_(1)
    yield "one small kernel"
    torch.mm(matrix[:512, :512], matrix[:512, :512])
    yield "first matrix product"
    del matrix
    yield "del"
    torch.cuda.empty_cache()
    yield "empty_cache()"
    torch._C._cuda_clearCublasWorkspaces()  # PyTorch's, kept for later products
    torch.cuda.empty_cache()
    yield "and cuBLAS's workspace"


def main() -> dict:
    before, rows = used_mib(), []
    for moment in story():
        held, kept = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        row = {"tensors": held >> 20, "reserved": kept >> 20, "smi": used_mib()}
        row["outside"] = row["smi"] - before - row["reserved"]
        print(f"{moment:<23}", *(f"{name} {mib:5}" for name, mib in row.items()), "MiB")
        rows.append(row)
    torch_says = torch.cuda.device_memory_used() >> 20
    print(f"then torch.cuda.device_memory_used(): {torch_says} MiB")
    return {"mib": rows, "torch_says_mib": torch_says}


def derive(results: dict) -> dict:
    """By how much nvidia-smi moves with each moment, and what empty_cache() gives back."""
    _, context, tensor, _, product, deleted, emptied, _ = results["mib"]
    return {
        "smi_moves": {
            "tensor": tensor["smi"] - context["smi"],
            "deleted": deleted["smi"] - product["smi"],
            "emptied": deleted["smi"] - emptied["smi"],
        },
        "emptied_mib": deleted["reserved"] - emptied["reserved"],
    }


def plot(results: dict, ceilings: dict):
    rows = results["mib"]
    names = ["before CUDA", "context", "+ 1 GiB", "one small kernel", "first matmul"]
    names += ["del", "empty_cache()", "cuBLAS's cleared"]
    by_name = dict(zip(names, rows, strict=True)).items()
    parts = {
        "tensors": {name: row["tensors"] for name, row in by_name},
        "cache": {name: row["reserved"] - row["tensors"] for name, row in by_name},
        "outside PyTorch": {
            name: row["smi"] - row["reserved"] for name, row in by_name
        },
    }
    texts = {name: f"{row['smi']:,}" for name, row in by_name}
    picture = stacked(parts, "MiB", texts)
    _, cache, outside = picture.panels[0].marks
    cache.color, cache.light = "ceiling", True  # as in the other pictures of the page
    outside.color = 7
    panels = []
    of_cublas = rows[5]["tensors"]  # the matmul has made it; all else is deleted
    for title, row in {"before del": rows[4], "after del": rows[5]}.items():
        account = {
            "your tensor": row["tensors"] - of_cublas,
            "workspace of cuBLAS": of_cublas,
            "cache": row["reserved"] - row["tensors"],
            "context": row["smi"] - row["reserved"],
        }
        # each counts what the one before counts, and more
        counted = {"memory_allocated()": 2, "memory_reserved()": 3, "nvidia-smi": 4}
        parts = {
            name: {counter: mib for counter, n in counted.items() if place < n}
            for place, (name, mib) in enumerate(account.items())
        }
        sums = (row["tensors"], row["reserved"], row["smi"])
        texts = {of: f"{mib:,}" for of, mib in zip(counted, sums, strict=True)}
        (panel,) = stacked(parts, "MiB", texts).panels
        panel.title, panel.x.high = title, 1.2 * rows[4]["smi"]
        for mark, color in zip(panel.marks, (1, 6, cache.color, 7), strict=True):
            mark.color, mark.light = color, color == cache.color
        panels.append(panel)
    brief = Picture(panels, columns=2)
    return picture, {"account": brief}


if __name__ == "__main__":
    main()
