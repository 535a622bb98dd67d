# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""nn.DataParallel taken apart into its four primitives, and each of them timed."""

import torch
from torch.nn.parallel import DataParallel, gather, parallel_apply, replicate, scatter

from snippets.pictures import timelines
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns
from snippets.training.ddp_equality import farthest
from snippets.training.dp_vs_ddp import mlp

WIDTH, LAYERS, ROWS = 8192, 6, 4096  # rows for each GPU


def by_hand(
    model: torch.nn.Module, rows: torch.Tensor, gpus: list[int]
) -> torch.Tensor:
    """One forward pass the way of nn.DataParallel; rows and outputs on gpus[0].

    There must be rows for each GPU.
    """
    outputs = parallel_apply(replicate(model, gpus), scatter(rows, gpus))
    return gather(outputs, gpus[0])


def main() -> dict:
    torch.set_float32_matmul_precision("high")  # TF32
    gpus = list(range(torch.cuda.device_count()))
    model = mlp(LAYERS, WIDTH)
    rows = torch.randn(ROWS * len(gpus), WIDTH, device="cuda")
    module = DataParallel(model, gpus)
    with torch.no_grad():
        replicas, parts = replicate(model, gpus), scatter(rows, gpus)
        outputs = parallel_apply(replicas, parts)
        works = {"replicate": lambda: replicate(model, gpus)}
        works["scatter"] = lambda: scatter(rows, gpus)
        works["parallel_apply"] = lambda: parallel_apply(replicas, parts)
        works["gather"] = lambda: gather(outputs, gpus[0])
        works["one_gpu"] = lambda: model(rows[:ROWS])
        times = take_turns(works)
        hand = by_hand(model, rows, gpus)
        expected = {"hand_vs_dp": module(rows), "hand_vs_one_gpu": model(rows)}
        differ = {name: farthest([hand], [right]) for name, right in expected.items()}
    for name, timing in times.items():
        print(f"{name:<14} {1e3 * timing.median:6.2f} ms")
    model_gb = sum(p.nbytes for p in model.parameters()) / 1e9
    events = lanes(lambda: module(rows).square().mean().backward())
    return recorded(times) | differ | {"model_gb": model_gb, "events": events}


def plot(results: dict, ceilings: dict):
    kinds = {"nccl": "NCCL", "Memcpy": "copies"}
    events = []
    for lane, start, us, name in results["events"]:
        if "stream" in lane:
            kind = next((kinds[part] for part in kinds if part in name), "compute")
            lane = f"{lane.partition(',')[0]}, {kind}"
        elif "Synchronize" in name:
            lane = "CPU waits"
        events.append([lane, start / 1e3, us / 1e3, name])
    return timelines({"DataParallel: forward and backward": events}, "ms")


if __name__ == "__main__":
    main()
