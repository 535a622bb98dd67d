# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [2, 4, 8]
# once = { hand_vs_dp = "sums", hand_vs_one_gpu = "sums", model_gb = "bytes" }
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""nn.DataParallel taken apart into its four primitives, and each of them timed."""

import torch
from torch import nn
from torch.nn.parallel import gather, parallel_apply, replicate, scatter

from snippets.timing.lanes import draw_lanes, lanes
from snippets.timing.take_turns import recorded, take_turns

WIDTH, LAYERS, ROWS = 8192, 6, 4096  # rows for each GPU


def by_hand(model: nn.Module, rows: torch.Tensor, gpus: list[int]) -> torch.Tensor:
    """One forward pass the way of nn.DataParallel; rows and outputs on gpus[0]."""
    replicas = replicate(model, gpus)
    outputs = parallel_apply(replicas, scatter(rows, gpus))
    return gather(outputs, gpus[0])


def mlp(width: int) -> nn.Sequential:
    """Linear layers (width, width) on GPU 0, each with a ReLU."""
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers).to("cuda")


def main() -> dict:
    torch.set_float32_matmul_precision("high")  # TF32
    gpus = list(range(torch.cuda.device_count()))
    model = mlp(WIDTH)
    rows = torch.randn(ROWS * len(gpus), WIDTH, device="cuda")
    module = nn.DataParallel(model, gpus)
    with torch.no_grad():
        replicas, parts = replicate(model, gpus), scatter(rows, gpus)
        outputs = parallel_apply(replicas, parts)
        works = {
            "replicate": lambda: replicate(model, gpus),
            "scatter": lambda: scatter(rows, gpus),
            "parallel_apply": lambda: parallel_apply(replicas, parts),
            "gather": lambda: gather(outputs, gpus[0]),
            "one_gpu": lambda: model(rows[:ROWS]),
        }
        times = take_turns(works)
        hand, one = by_hand(model, rows, gpus), model(rows)
        differ = {
            "hand_vs_dp": float((hand - module(rows)).abs().max()),
            "hand_vs_one_gpu": float((hand - one).abs().max() / one.abs().max()),
        }
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
        events.append([lane, start, us, name])
    return draw_lanes({"DataParallel: forward and backward": events})


if __name__ == "__main__":
    main()
