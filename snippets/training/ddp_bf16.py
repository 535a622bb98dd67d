# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""bf16 with DDP: what autocast, hooks and bf16 weights send, take, and change."""

from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from statistics import median
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.take_turns import both_orders, ratios, recorded
from snippets.training.ddp_equality import gradients
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_step_profile import by_name, gpu_account, gpu_steps
from snippets.training.models import transformer
from snippets.training.waiting_ranks import meet

ROWS, TOKENS, WIDTH = 32, 512, 1024  # so many rows that the GPU needs the time
CHECK_TOKENS = 64  # one device must hold the whole batch
#: whether autocast computes in bf16, what is done to gradients on their way
WAYS = {
    "tf32": (False, None),
    "tf32_bf16_hook": (False, "bf16"),
    "autocast": (True, None),
    "autocast_bf16_hook": (True, "bf16"),
    "autocast_fp16_hook": (True, "fp16"),
    "autocast_powersgd": (True, "powersgd"),
    "bf16_weights": (False, None),
}
NOT_TIMED = ("autocast_fp16_hook",)  # it sends what the bf16 hook sends
PROFILED = ("autocast_alone", "autocast", "autocast_bf16_hook", "autocast_powersgd")


def register(ddp: DistributedDataParallel, hook: str | None, group) -> None:
    """Have DDP send its buckets in another form; float32 comes out on the other side."""
    if hook == "float32":  # what DDP does without a hook
        ddp.register_comm_hook(group, default_hooks.allreduce_hook)
    if hook == "bf16":
        ddp.register_comm_hook(group, default_hooks.bf16_compress_hook)
    if hook == "fp16":
        ddp.register_comm_hook(group, default_hooks.fp16_compress_hook)
    if hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            group, matrix_approximation_rank=2, start_powerSGD_iter=2
        )
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def passes(model: nn.Module, rows: Tensor, autocast: bool) -> list[Tensor]:
    """Gradients after a forward and a backward pass, the forward in bf16 if asked."""
    model.zero_grad()
    lower = torch.autocast(rows.device.type, torch.bfloat16)
    with lower if autocast else nullcontext():
        output = model(rows)
    output.float().square().mean().backward()
    return [parameter.grad for parameter in model.parameters()]


def sent(model: nn.Module, hook: str, group, rows: Tensor, autocast: bool) -> float:
    """GB that a hook gives to `all_reduce` in the third pass of the model in DDP."""
    ddp = DistributedDataParallel(model, process_group=group)
    register(ddp, hook, group)
    rows = rows.to(next(model.parameters()).dtype)
    for _ in range(2):
        passes(ddp, rows, autocast)
    bytes_sent, all_reduce = [], dist.all_reduce

    def counted(tensor: Tensor, *arguments, **options):
        bytes_sent.append(tensor.nbytes)
        return all_reduce(tensor, *arguments, **options)

    with patch.object(dist, "all_reduce", counted):
        passes(ddp, rows, autocast)
    return sum(bytes_sent) / 1e9


def apart(found: list[Tensor], expected: list[Tensor]) -> float:
    """Length of the difference of two gradients, as a share of the second's length."""
    errors = [(f.float() - e).norm() for f, e in zip(found, expected, strict=True)]
    whole = torch.stack([e.norm() for e in expected]).norm()
    return float(torch.stack(errors).norm() / whole)


def main() -> dict:
    device, group = meet()
    torch.manual_seed(0)  # the same model and batch on all ranks
    with device:
        model = transformer(width=WIDTH)
        batch = torch.randn(group.size() * ROWS, CHECK_TOKENS, WIDTH)
        rows = torch.randn(ROWS, TOKENS, WIDTH)
    expected = gradients(model, batch)  # one device, the whole batch, float32
    own = batch.chunk(group.size())[group.rank()]
    torch.set_float32_matmul_precision("high")  # TF32
    works, sent_gb, differ = {}, {}, {}
    for name, (autocast, hook) in WAYS.items():
        dtype = torch.bfloat16 if name == "bf16_weights" else torch.float32
        copy = deepcopy(model).to(dtype)
        # without a hook C++ sends the buckets; in Python the same can be counted
        sent_gb[name] = sent(deepcopy(copy), hook or "float32", group, own, autocast)
        ddp = DistributedDataParallel(copy, process_group=group)
        register(ddp, hook, group)
        for _ in range(3):  # buckets are made anew, and PowerSGD begins later
            found = passes(ddp, own.to(dtype), autocast)
        differ[name] = apart(found, expected)
        if name not in NOT_TIMED:
            works[name] = partial(passes, ddp, rows.to(dtype), autocast)
    alone = deepcopy(model)
    differ["tf32_alone"] = apart(passes(alone, own, False), expected)
    works["autocast_alone"] = partial(passes, alone, rows, True)
    # in its first ten steps DDP waits for the GPU, for its statistics
    times = both_orders(works, warmup=6, trials=6, clock=slowest_rank)
    result = recorded(times) | {"ranks": group.size(), "differ": differ}
    result |= {"sent_gb": sent_gb, "gpu": {}, "gain": {}, "gain_trials": {}}
    for name in [each for each in PROFILED if each in works]:
        steps = gpu_steps(works[name], trials=3)
        result["gpu"][name] = by_name([gpu_account(step) for step in steps])
    for name in works:
        without = "tf32" if name.startswith("tf32") else "autocast"
        gains = ratios(times[without], times[name])
        result["gain_trials"][name], result["gain"][name] = gains, median(gains)
    if group.rank() == 0:
        for name, gb in sent_gb.items():
            print(
                f"{name:<19}{gb:.3f} GB sent, gradients differ by {differ[name]:.1e},",
                f"{result['ms'][name]:6.2f} ms" if name in works else "not timed",
            )
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """What ways send, and how far gradients differ, in shares of autocast's; most gain."""
    shares = {}
    for key, name in (("sent_gb", "sends"), ("differ", "differs")):
        of = results[key]["autocast"]
        shares[name] = {way: value / of for way, value in results[key].items()}
    hooks = ("autocast_bf16_hook", "tf32_bf16_hook", "autocast_powersgd")
    return shares | {"most_gain": max(results["gain"][way] for way in hooks)}


def plot(results: dict, ceilings: dict):
    names = {"tf32": "TF32", "tf32_bf16_hook": "TF32, bf16 hook"}
    names |= {"autocast": "autocast", "autocast_bf16_hook": "autocast, bf16 hook"}
    names |= {
        "bf16_weights": "bf16 parameters",
        "autocast_powersgd": "autocast, PowerSGD",
    }
    differ = {text: 100 * results["differ"][name] for name, text in names.items()}
    return bars(differ, {}, "difference of gradients, %", log=True)


if __name__ == "__main__":
    main()
