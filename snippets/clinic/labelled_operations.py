# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Operations, labelled by what should bind them: does the judge agree?"""

from functools import partial

import torch
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from snippets.clinic.which_bound import judged, measured_ceilings

N = 4096


def launch_bound(best: dict) -> dict[str, tuple]:
    """Too small for this GPU; also a copy may be."""
    x = torch.randn(128, 128, device="cuda")
    row, once = x[0].cpu().pin_memory(), x.nbytes / best["memory"]
    send = partial(x[0].copy_, row, non_blocking=True)
    number_by_number = {"memory": 2 * once, "compute": 5 * x.numel() / best["fp32"]}
    product = {"memory": 2 * once, "compute": 2 * 128**3 / best["fp32"]}
    one_row = {"memory": row.nbytes / best["memory"], "copy": row.nbytes / best["copy"]}
    return {
        "add, 64 KiB": (partial(torch.add, x, 1), number_by_number),
        "softmax, 64 KiB": (partial(torch.softmax, x, 1), number_by_number),
        "product of 128": (partial(torch.mm, x, x), product),
        "copy, 512 B": (send, one_row),
    }


def memory_bound(best: dict) -> dict[str, tuple]:
    """A few FLOP for each number that is read; there is a gibibyte of them."""
    x = torch.randn(4 * N, 4 * N, device="cuda")
    once, flop = x.nbytes / best["memory"], x.numel() / best["fp32"]
    norm, by_vector = partial(layer_norm, x, x.shape[1:]), partial(torch.mv, x, x[0])
    return {
        "add, 1 GiB": (partial(torch.add, x, 1), {"memory": 2 * once, "compute": flop}),
        "layer norm, 1 GiB": (norm, {"memory": 2 * once, "compute": 5 * flop}),
        "matrix by vector": (by_vector, {"memory": once, "compute": 2 * flop}),
    }


def compute_bound(best: dict) -> dict[str, tuple]:
    """Many FLOP for each number that is read."""
    x, works = torch.randn(N, N, device="cuda"), {}
    for name, y in {"fp32": x, "bf16": x.bfloat16()}.items():
        least = {"memory": 2 * y.nbytes / best["memory"]}  # y is read once
        least["compute"] = 2 * N**3 / best[name]
        works[f"product, {name}"] = partial(torch.mm, y, y), least
    q = y.view(4, 16, N, 64)
    attention = partial(scaled_dot_product_attention, q, q, q)
    compute = 4 * N * q.numel() / best["bf16"]  # over as many bytes as the matmul
    return works | {"attention, bf16": (attention, least | {"compute": compute})}


def copy_bound(best: dict) -> dict[str, tuple]:
    """Over PCIe, from pinned memory and from ordinary memory."""
    x = torch.randn(N, N)
    to = x.to("cuda")
    least = {"memory": x.nbytes / best["memory"], "copy": x.nbytes / best["copy"]}
    pinned = partial(to.copy_, x.pin_memory(), non_blocking=True)
    pageable = partial(to.copy_, x)
    return {"copy, pinned": (pinned, least), "copy, pageable": (pageable, least)}


def none_bound(best: dict) -> dict[str, tuple]:
    """A GPU that is busy and far from each of its roofs."""
    x, place = torch.randn(2**22, device="cuda"), torch.zeros(1, device="cuda")
    index = torch.zeros(len(x), dtype=torch.long, device="cuda")
    softmax = partial(torch.softmax, x[None], 1)  # one row is one block, on one SM
    add = partial(place.index_add_, 0, index, x)  # all wait for the same place
    once, flop = x.nbytes / best["memory"], x.numel() / best["fp32"]
    return {
        "softmax of one row": (softmax, {"memory": 2 * once, "compute": 5 * flop}),
        "add to one place": (add, {"memory": 3 * once, "compute": flop}),
    }


def main() -> dict:
    best, rows = measured_ceilings(), {}
    labels = (launch_bound, memory_bound, compute_bound, copy_bound, none_bound)
    for label in labels:
        for name, work in label(best).items():
            rows[name] = judged(name, *work) | {"label": label.__name__.split("_")[0]}
    right = sum(row["bound"] == row["label"] for row in rows.values())
    print(f"{right} of {len(rows)} as labelled")
    return {"rows": rows, "right": right}


if __name__ == "__main__":
    main()
