# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 300
# launcher = "torchrun"
# ranks = 2
# ///
"""Why FSDP may save nothing: memory at the peak of training, on two ranks of the CPU."""

import ctypes
import gc
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.training.built_in_parts import mlp, of_all_ranks, peak_gb, sharded

LAYERS, WIDTH = 16, 512
FEW, MANY = 8, 2048  # rows of a batch on each rank; MANY have many activations
STEPS = 2


def split(way: str, model: nn.Sequential) -> nn.Module:
    """The model in DDP, or in parts by one of the ways to call `fully_shard`."""
    mesh = DeviceMesh("cpu", range(dist.get_world_size()))
    if way == "ddp":
        return DistributedDataParallel(model, gradient_as_bucket_view=True)
    if way == "one_group":
        return fully_shard(model, mesh=mesh)
    return sharded(model, mesh, reshard_after_forward=way != "kept")


def train(way: str) -> None:
    """Build a model, split it, and train it for a few steps of two parts each."""
    torch.manual_seed(0)
    model = mlp(LAYERS, WIDTH)
    before = list(model.parameters()) if way == "old_parameters" else []
    model = split(way, model)  # type: ignore
    adam = torch.optim.Adam(model.parameters())
    rows = torch.randn(MANY if way == "many_rows" else FEW, WIDTH)
    for _ in range(STEPS):
        adam.zero_grad()
        for last in (False, True):
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(last or way != "not_exchanged")
            model(rows).square().mean().backward()
        adam.step()
    del before  # who keeps the parameters from before the split keeps all of them


WAYS = {
    "ddp": "DDP",
    "fsdp": "FSDP, a group for each layer",
    "one_group": "… one group for all layers",
    "kept": "… parameters kept after forward",
    "not_exchanged": "… exchanges gradients in the last part only",
    "old_parameters": "… and the program keeps the old parameters",
    "many_rows": "… many rows: activations",
}


def main() -> dict:
    dist.init_process_group("gloo")
    ctypes.CDLL(None).mallopt(-3, 2**17)  # what is freed goes back at once (glibc)
    parameters = sum(p.numel() for p in mlp(LAYERS, WIDTH).parameters())
    peaks = {}
    for way, text in WAYS.items():
        train(way)  # what is made only once is not counted
        gc.collect()
        _, gb = peak_gb(partial(train, way), torch.device("cpu"))
        peaks[way] = of_all_ranks(gb)
        gc.collect()  # FSDP has cycles
        if dist.get_rank() == 0:
            each = 1e9 * max(peaks[way]) / parameters
            print(f"{text:<46}{each:5.1f} bytes a parameter")
    result = {
        "ranks": dist.get_world_size(),
        "parameters": parameters,
        "layers": LAYERS,
    }
    dist.destroy_process_group()
    return result | {"peak_gb": peaks, "rows": {"few": FEW, "many": MANY}}


def derive(results: dict) -> dict:
    """Bytes a parameter at the peak, on the rank that needs least; what each way adds to FSDP's."""
    peaks = results["peak_gb"].items()
    each = {way: 1e9 * min(of) / results["parameters"] for way, of in peaks}
    return {"each": each, "adds": {way: of - each["fsdp"] for way, of in each.items()}}


def plot(results: dict, ceilings: dict):
    each = derive(results)["each"]
    shown = {text: each[way] for way, text in WAYS.items()}
    return bars(shown, {}, "bytes a parameter, at the peak")


if __name__ == "__main__":
    main()
