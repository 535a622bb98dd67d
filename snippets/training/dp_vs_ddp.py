# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1, 2, 4, 8]
# launcher = "torchrun"
# missing = { 8 = "no machine with eight GPUs was available when this was recorded" }
# ///
"""DataParallel taken apart into its four primitives, then timed against DistributedDataParallel."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel, gather, parallel_apply, replicate, scatter

from snippets.timing.benchmark import Timing, measure

WIDTH, LAYERS, ROWS, STEPS = 8192, 6, 4096, 5  # rows for each GPU, steps in each trial


def by_hand(model: nn.Module, rows: torch.Tensor, gpus: list[int]) -> torch.Tensor:
    """One forward pass the way of nn.DataParallel; rows and outputs (batch, width) on the first GPU."""
    replicas = replicate(model, gpus)
    outputs = parallel_apply(replicas, scatter(rows, gpus))
    return gather(outputs, gpus[0])


def mlp_and_rows(width: int, batch: int, device) -> tuple[nn.Module, torch.Tensor]:
    """Linear layers (width, width), each with a ReLU, and rows (batch, width); the same numbers on every call."""
    torch.manual_seed(0)
    layers = [(nn.Linear(width, width, device=device), nn.ReLU()) for _ in range(LAYERS)]
    return nn.Sequential(*(layer for pair in layers for layer in pair)), torch.randn(batch, width, device=device)


def train(way: str, model: nn.Module, rows: torch.Tensor, devices: list[int], ranks: int = 1) -> dict:
    """Speed of training on rows (batch, width) in each of the ranks, and the norm of all gradients of the last step."""
    torch.set_float32_matmul_precision("high")  # TF32
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def steps() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(rows).square().mean().backward()
            optimizer.step()

    trials = torch.tensor(measure(steps, devices).trials, dtype=torch.float64) / STEPS
    if ranks > 1:
        dist.all_reduce(trials, dist.ReduceOp.MAX)  # a step has ended when its slowest rank has
    step, norm = Timing(trials.tolist()), nn.utils.get_total_norm([p.grad for p in model.parameters()])
    speed = {"samples_s": ranks * len(rows) / step.median, "spread_ms": 1e3 * step.spread, "ms_trials": step.ms()}
    return {f"{way}_{key}": value for key, value in (speed | {"gradient_norm": float(norm)}).items()}


def data_parallel(gpus: list[int]) -> dict:
    """In one process: the primitives against nn.DataParallel and one GPU, then the speed of the latter two."""
    small, rows = mlp_and_rows(64, 64 * len(gpus), gpus[0])
    hand, module, one = by_hand(small, rows, gpus), nn.DataParallel(small, gpus)(rows), small(rows)
    torch.testing.assert_close(hand, one)
    results = {"hand_vs_dp": (hand - module).abs().max().item(), "hand_vs_one_gpu": (hand - one).abs().max().item()}
    model, rows = mlp_and_rows(WIDTH, ROWS * len(gpus), gpus[0])
    for gpu in gpus:
        torch.cuda.reset_peak_memory_stats(gpu)
    results |= train("dp", nn.DataParallel(model, gpus), rows, gpus)
    results["dp_peak_gb"] = [torch.cuda.max_memory_allocated(gpu) / 1e9 for gpu in gpus]
    return results | train("one_gpu", model, rows[:ROWS], gpus[:1])


def main() -> dict:
    if not torch.cuda.is_available():
        raise SystemExit("dp_vs_ddp needs at least one CUDA GPU, and none is visible here")
    lone = {} if dist.is_torchelastic_launched() else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", **lone)  # gloo waits on the CPU; a rank waiting in NCCL would keep its GPU spinning
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    results = data_parallel(list(range(ranks))) if rank == 0 else {}
    dist.barrier()
    model, rows = mlp_and_rows(WIDTH, ROWS * ranks, rank)
    model = DistributedDataParallel(model, process_group=dist.new_group(backend="nccl"))
    results |= {"ranks": ranks} | train("ddp", model, rows.chunk(ranks)[rank], [rank], ranks)
    dist.destroy_process_group()
    for way in ("one_gpu", "dp", "ddp") if rank == 0 else ():
        print(f"{way:<8} {results[f'{way}_samples_s']:>10,.0f} samples/s")
    return results


def plot(results: dict, ceilings: dict):
    """Samples per second of the three ways under as many times one GPU as there are GPUs."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    thousands = [results[f"{way}_samples_s"] / 1e3 for way in ("one_gpu", "dp", "ddp")]
    ax.bar(["one GPU", "DataParallel", "DDP"], thousands)
    ax.axhline(results["ranks"] * thousands[0], color="gray", linestyle="--", label="one GPU × number of GPUs")
    ax.set(ylabel="thousand samples/s")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1))
    return figure


if __name__ == "__main__":
    main()
