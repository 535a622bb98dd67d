# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Operations, labelled by what should bind them: does the judge agree?"""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from snippets.clinic.which_bound import judged, measured_ceilings
from snippets.timing.benchmark import Timing
from snippets.timing.kernel_time import gpu_clock

N = 4096


def add(mib: int, best: dict) -> tuple:
    """Add 1 to so many MiB, and what that needs at least."""
    x = torch.randn(mib * 2**18, device="cuda")
    least = {"memory": 2 * x.nbytes / best["memory"]}
    return partial(torch.add, x, 1), least | {"compute": x.numel() / best["fp32"]}


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
        **{f"add, {mib} MiB": add(mib, best) for mib in (2, 4, 8)},
    }


def memory_bound(best: dict) -> dict[str, tuple]:
    """A few FLOP for each number that is read; there is a gibibyte of them."""
    x = torch.randn(4 * N, 4 * N, device="cuda")
    once, flop = x.nbytes / best["memory"], x.numel() / best["fp32"]
    norm, by_vector = partial(layer_norm, x, x.shape[1:]), partial(torch.mv, x, x[0])
    return {
        "add, 32 MiB": add(32, best),
        "add, 1 GiB": add(1024, best),
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
    """Over PCIe, from pinned memory."""
    x = torch.randn(N, N)
    to = x.to("cuda")
    least = {"memory": x.nbytes / best["memory"], "copy": x.nbytes / best["copy"]}
    pinned = partial(to.copy_, x.pin_memory(), non_blocking=True)
    return {"copy, pinned": (pinned, least)}


def unlabelled(best: dict) -> dict[str, tuple]:
    """Between two answers: a launch is as long as its kernel, or the host copies, too."""
    x = torch.randn(N, N)
    least = {"memory": x.nbytes / best["memory"], "copy": x.nbytes / best["copy"]}
    pageable = partial(x.to("cuda").copy_, x)
    return {"add, 16 MiB": add(16, best), "copy, pageable": (pageable, least)}


def none_bound(best: dict) -> dict[str, tuple]:
    """A GPU that is busy and far from each of its roofs."""
    x, place = torch.randn(2**22, device="cuda"), torch.zeros(1, device="cuda")
    index = torch.zeros(len(x), dtype=torch.long, device="cuda")
    softmax = partial(torch.softmax, x[None], 1)  # one row is one block, on one SM
    to_one = partial(place.index_add_, 0, index, x)  # all wait for the same place
    once, flop = x.nbytes / best["memory"], x.numel() / best["fp32"]
    apart = torch.randn(2**28, device="cuda").bfloat16()[::32]  # one in 64 bytes
    twice = {"memory": 4 * apart.numel() / best["memory"], "compute": 0.0}
    return {
        "softmax of one row": (softmax, {"memory": 2 * once, "compute": 5 * flop}),
        "add to one place": (to_one, {"memory": 3 * once, "compute": flop}),
        "copy, strided": (apart.contiguous, twice),
    }


def queued_us(work: Callable[[], object]) -> dict:
    """Microseconds of a call whose launch came long before: what launches do not take."""
    times = Timing([gpu_clock(work) for _ in range(5)])
    return {"queued_us": 1e6 * times.median, "queued_us_trials": times.us()}


def main() -> dict:
    best, works, names = measured_ceilings(), {}, {}
    for label in (launch_bound, memory_bound, compute_bound, copy_bound, none_bound):
        some = label(best)
        works |= some
        names |= dict.fromkeys(some, label.__name__.split("_")[0])
    works |= unlabelled(best)
    rows = judged(works)
    for name, label in names.items():
        rows[name]["label"] = label
    for name, (work, _) in works.items():
        if name.startswith("add,"):
            rows[name] |= queued_us(work)
    right = sum(rows[name]["bound"] == label for name, label in names.items())
    print(f"{right} of {len(names)} as labelled")
    return {"rows": rows, "labelled": len(names), "right": right}


def derive(results: dict) -> dict:
    """The GPU's share of an operation's call, and a limit's share of the GPU's time."""
    busy, roof, named = {"launch": [], "others": []}, {}, []
    each = {}
    for name, row in results["rows"].items():
        if "wall_us_trials" not in row:
            continue
        of_call = row["gpu_us"] / min(row["wall_us_trials"])
        of_gpu = max(row["least_us"].values()) / row["gpu_us"]
        each[name] = {"busy": of_call, "roof": of_gpu}
        label = row.get("label")
        if label:
            busy["launch" if label == "launch" else "others"].append(of_call)
            roof.setdefault(label, []).append(of_gpu)
        if label in ("memory", "compute", "copy"):
            named.append(max(row["least_us"], key=row["least_us"].get) == label)
    rows = results["rows"]
    adds = [rows[f"add, {mib} MiB"] for mib in (2, 4, 8)]
    small_adds = {
        "memory": min(row["least_us"]["memory"] / row["wall_us"] for row in adds),
        "gpu": max(row["gpu_us"] / row["wall_us"] for row in adds),
        "queued": max(row["queued_us"] / row["wall_us"] for row in adds),
    }
    large = rows["add, 32 MiB"]
    additions = {
        "small_adds": small_adds,
        "large_add_queued": large["queued_us"] / large["wall_us"],
    }
    if not each:
        return additions
    shares = {"share": each}
    shares["judged"] = {
        "launch_busy": max(busy["launch"]),
        "others_busy": min(busy["others"]),
        "roof": min(roof["memory"] + roof["compute"] + roof["copy"]),
        "none_roof": max(roof["none"]),
    }
    softmax, one_place, strided = (
        each[name]
        for name in ("softmax of one row", "add to one place", "copy, strided")
    )
    shares["far"] = {
        "roof": max(softmax["roof"], one_place["roof"]),
        "strided_roof": strided["roof"],
        "busy": min(share["busy"] for share in (softmax, one_place, strided)),
    }
    return shares | additions | {"roofs_are_named": all(named)}


if __name__ == "__main__":
    main()
