# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# once = { gpu_us = "from one profile of twenty calls" }
# ///
"""Twelve operations, labelled by what should bind them: does the judge agree?"""

from functools import partial

import torch
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from snippets.clinic.which_bound import Op, judged, measured_ceilings

N = 4096


def launch_bound() -> dict[str, Op]:
    """Too small for this GPU; also a copy may be."""
    x = torch.randn(128, 128, device="cuda")
    row, both = x[0].cpu().pin_memory(), 2 * x.nbytes
    send = partial(x[0].copy_, row, non_blocking=True)
    return {
        "add, 64 KiB": Op(partial(torch.add, x, 1), memory_bytes=both),
        "product of 128": Op(partial(torch.mm, x, x), flop=2 * 128**3),
        "softmax, 64 KiB": Op(partial(torch.softmax, x, 1), memory_bytes=both),
        "copy, 512 B": Op(send, copy_bytes=row.nbytes),
    }


def memory_bound() -> dict[str, Op]:
    """A few FLOP for each number that is read: a gibibyte of them."""
    x = torch.randn(4 * N, 4 * N, device="cuda")
    norm, once, both = partial(layer_norm, x, x.shape[1:]), x.nbytes, 2 * x.nbytes
    flop = 2 * x.numel()
    return {
        "add, 1 GiB": Op(partial(torch.add, x, 1), x.numel(), memory_bytes=both),
        "layer norm, 1 GiB": Op(norm, 5 * x.numel(), memory_bytes=both),
        "matrix by vector": Op(partial(torch.mv, x, x[0]), flop, memory_bytes=once),
    }


def compute_bound() -> dict[str, Op]:
    """Many FLOP for each number that is read."""
    x = torch.randn(N, N, device="cuda")
    half = x.bfloat16()
    q = half.view(4, 16, N, 64)
    attention, flop = partial(scaled_dot_product_attention, q, q, q), 2 * N**3
    return {
        "product, float32": Op(partial(torch.mm, x, x), flop, "fp32", 3 * x.nbytes),
        "product, bf16": Op(
            partial(torch.mm, half, half), flop, "bf16", 3 * half.nbytes
        ),
        "attention, bf16": Op(attention, 4 * N * q.numel(), "bf16", 4 * q.nbytes),
    }


def copy_bound() -> dict[str, Op]:
    """Over PCIe, from pinned memory and from ordinary memory."""
    x = torch.randn(N, N)
    to, pinned = torch.empty_like(x, device="cuda"), x.pin_memory()
    send = partial(to.copy_, pinned, non_blocking=True)
    return {
        "copy, pinned": Op(send, copy_bytes=x.nbytes),
        "copy, pageable": Op(partial(to.copy_, x), copy_bytes=x.nbytes),
    }


def main() -> dict:
    ops = {
        "launch": launch_bound(),
        "memory": memory_bound(),
        "compute": compute_bound(),
        "copy": copy_bound(),
    }
    ceilings, rows = measured_ceilings(), {}
    for label, some in ops.items():
        for name, row in judged(some, ceilings).items():
            rows[name] = row | {"label": label}
    right = sum(row["bound"] == row["label"] for row in rows.values())
    print(f"{right} of {len(rows)} as labelled")
    return {"rows": rows, "right": right}


if __name__ == "__main__":
    main()
