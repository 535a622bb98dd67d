# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# ///
"""Ask nvidia-smi while a process starts CUDA, allocates, computes and frees."""

import subprocess

import torch

from snippets.pictures import stacked


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
    made, deleted = rows[4:6]
    of_cublas = deleted["tensors"]  # the matmul has made it; all else is deleted
    account = {"your tensor": {"before del": made["tensors"] - of_cublas}}
    account |= {name: {} for name in ("cache", "context", "workspace of cuBLAS")}
    for name, row in {"before del": made, "after del": deleted}.items():
        account["cache"][name] = row["reserved"] - row["tensors"]
        account["context"][name] = row["smi"] - row["reserved"]
        account["workspace of cuBLAS"][name] = of_cublas
    texts = {"before del": f"{made['smi']:,}", "after del": f"{deleted['smi']:,}"}
    brief = stacked(account, "MiB", texts)
    for mark, look in zip(brief.panels[0].marks, (1, cache.color, 7, 6), strict=True):
        mark.color, mark.light = look, look == cache.color
    return picture, {"account": brief}


if __name__ == "__main__":
    main()
