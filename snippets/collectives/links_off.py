# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 300
# ///
"""NCCL without NVLink, and without shared memory: all-reduces, and a step of DDP."""

import json
import os
import subprocess
import sys
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from snippets.collectives.collectives_zoo import join
from snippets.pictures import over_sizes
from snippets.timing.benchmark import wall_clock
from snippets.timing.take_turns import recorded, take_turns

SETTINGS = {
    "nvlink": {},
    "shared memory": {"NCCL_P2P_DISABLE": "1"},
    "sockets": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
}
SIZES = [2**k for k in (10, 14, 18, 20, 22, 24, 26, 28)]  # bytes
LAYERS, WIDTH, ROWS = 8, 4096, 2048
BUCKETS_MB = (5, 25, 200)
TRIALS = 5


def slowest(work, calls: int) -> float:
    """Seconds of one call in the slowest rank; all begin together."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.all_reduce(torch.zeros(1, device=device))
    seconds = torch.tensor(wall_clock(work, calls), device=device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.item()


def network(device: torch.device) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers).to(device)


def step(model: nn.Module, rows: torch.Tensor) -> None:
    """Gradients of one batch."""
    model.zero_grad()
    model(rows).square().mean().backward()


def wrapped(device: torch.device) -> dict[str, nn.Module]:
    """The network alone, and in DDP with several buckets, and with gradients in bf16."""
    models: dict[str, nn.Module] = {"alone": network(device)}
    for mb in BUCKETS_MB:
        options = {"bucket_cap_mb": mb, "gradient_as_bucket_view": True}
        models[f"{mb} MB"] = DistributedDataParallel(network(device), **options)
    half = DistributedDataParallel(network(device), gradient_as_bucket_view=True)
    hook = default_hooks.bf16_compress_hook
    if device.type == "cpu":  # gloo has no sum in bf16
        hook = default_hooks.fp16_compress_hook
    half.register_comm_hook(None, hook)
    return models | {"16-bit hook": half}


def differ_by(models: dict[str, nn.Module], rows: torch.Tensor) -> dict[str, float]:
    """How far gradients are from the mean of all ranks', as a share of the largest."""
    for model in models.values():
        step(model, rows)
    expected = next(models["alone"].parameters()).grad.clone()  # type: ignore
    dist.all_reduce(expected)
    expected /= dist.get_world_size()
    found = {}
    for name, model in models.items():
        mine = next(model.parameters()).grad
        if name != "alone":
            off = (mine - expected).abs().max() / expected.abs().max()  # type: ignore
            found[name] = off.item()
    return found


def job() -> None:
    """Both ranks: an all-reduce of each size, then steps of DDP, in turn."""
    device = join()
    torch.set_float32_matmul_precision("high")  # TF32
    tensors = {size: torch.zeros(size // 4, device=device) for size in SIZES}
    works = {str(size): partial(dist.all_reduce, x) for size, x in tensors.items()}
    reduced = take_turns(works, trials=TRIALS, calls=10, clock=slowest)
    models = wrapped(device)
    torch.manual_seed(1 + dist.get_rank())
    rows = torch.randn(ROWS, WIDTH, device=device)
    told: dict = {"differ_by": differ_by(models, rows)}
    steps = {name: partial(step, model, rows) for name, model in models.items()}
    told["steps"] = recorded(take_turns(steps, trials=TRIALS, calls=3, clock=slowest))
    told |= {"all_reduce": recorded(reduced), "ranks": dist.get_world_size()}
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    dist.destroy_process_group()


def measured(file: str, setting: dict[str, str], ranks: int) -> dict:
    """What the ranks told with these variables set, and by what NCCL joins them."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += [f"--nproc-per-node={ranks}", file]
    asks = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH"}
    options = {"capture_output": True, "text": True, "timeout": 90}
    done = subprocess.run(torchrun, env=os.environ | asks | setting, **options)  # type: ignore
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(done.stderr[-2000:])
    said = [line for line in done.stdout.splitlines() if " via " in line]
    return json.loads(lines[0]) | {
        "via": sorted({line.split(" via ")[1] for line in said})
    }


def main() -> dict:
    ranks = max(2, torch.cuda.device_count())
    result: dict = {"ranks": ranks, "bytes": SIZES, "told": {}}
    for name, setting in SETTINGS.items():
        told = result["told"][name] = measured(__file__, setting, ranks)
        largest = told["all_reduce"]["ms"][str(SIZES[-1])]
        steps = "  ".join(f"{key} {ms:.1f}" for key, ms in told["steps"]["ms"].items())
        print(f"{name:14}{SIZES[-1] / 2**20:.0f} MiB in {largest:.2f} ms; {steps} ms")
    return result


def derive(results: dict) -> dict:
    """Bus bandwidth by setting and size, in GB/s as nccl-tests count it; DDP's step.

    It is told as a multiple of the step alone, of the default's by the hook, and of
    the shortest by the size of buckets. `sockets_add` is how
    many times as long a kibibyte takes through sockets as in the fastest way.
    """
    n, rates, steps, small = results["ranks"], {}, {}, {}
    for name, told in results["told"].items():
        ms = told["all_reduce"]["ms"]
        small[name] = ms["1024"]
        rates[name] = [
            2 * (n - 1) / n * size / ms[str(size)] / 1e6 for size in results["bytes"]
        ]
        ms = told["steps"]["ms"]
        buckets = [ms[f"{mb} MB"] for mb in BUCKETS_MB]
        steps[name] = {"of_alone": ms["25 MB"] / ms["alone"]}
        steps[name]["hook"] = ms["16-bit hook"] / ms["25 MB"]
        steps[name]["buckets"] = max(buckets) / min(buckets)
    add = small["sockets"] / min(small.values())
    return {"gb_s": rates, "ddp": steps, "sockets_add": add}


def plot(results: dict, ceilings: dict):
    kib = [size // 2**10 for size in results["bytes"]]
    labels = {"xlabel": "size of the tensor", "ylabel": "bus bandwidth, GB/s"}
    return over_sizes(kib, derive(results)["gb_s"], {}, **labels)


if __name__ == "__main__":
    if "RANK" in os.environ:
        job()
    else:
        main()
