# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# [tool.overlap.missing]
# 4 = "not recorded yet"
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

from snippets.timing.lanes import lanes
from snippets.timing.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.ddp_equality import gradients
from snippets.training.ddp_timeline import overlap
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.models import transformer
from snippets.training.waiting_ranks import meet

ROWS, TOKENS, WIDTH = 8, 512, 1024  # rows for each GPU
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


def register(ddp: DistributedDataParallel, hook: str | None, group) -> None:
    """Have DDP send its buckets in another form; float32 comes out on the other side."""
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


def sent_bytes(work) -> int:
    """Bytes of the tensors that hooks, written in Python, give to `all_reduce`."""
    sent, all_reduce = [], dist.all_reduce

    def counted(tensor: Tensor, *arguments, **options):
        sent.append(tensor.nbytes)
        return all_reduce(tensor, *arguments, **options)

    with patch.object(dist, "all_reduce", counted):
        work()
    return sum(sent)


def apart(found: list[Tensor], expected: list[Tensor]) -> float:
    """Length of the difference of two gradients, as a share of the second's length."""
    errors = [(f.float() - e).norm() for f, e in zip(found, expected, strict=True)]
    whole = torch.stack([e.norm() for e in expected]).norm()
    return float(torch.stack(errors).norm() / whole)


def exchange(events: list[list]) -> dict[str, float]:
    """Milliseconds of all-reduces in `lanes`, and how many of them others hide."""
    on_gpu = [event for event in events if "stream" in event[0]]
    nccl = [event for event in on_gpu if "nccl" in event[3].lower()]
    others = [event for event in on_gpu if "nccl" not in event[3].lower()]
    hidden = sum(overlap(a, b) for a in nccl for b in others)
    return {"all_reduce": sum(e[2] for e in nccl) / 1e3, "hidden": hidden / 1e3}


def profiled(work) -> list[list]:
    """`lanes` of `work`, which all ranks begin together.

    `lanes` profiles twice and gives the second; the first is left empty here.
    """
    turns = iter([list, lambda: [dist.barrier(), work()]])
    return lanes(lambda: next(turns)())


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
    works, gradients_gb, sent_gb, differ = {}, {}, {}, {}
    for name, (autocast, hook) in WAYS.items():
        dtype = torch.bfloat16 if name == "bf16_weights" else torch.float32
        copy = deepcopy(model).to(dtype)
        ddp = DistributedDataParallel(copy, process_group=group)
        register(ddp, hook, group)
        check = partial(passes, ddp, own.to(dtype), autocast)
        for _ in range(2):  # buckets are made anew, and PowerSGD begins later
            check()
        found = check()
        differ[name] = apart(found, expected)
        gradients_gb[name] = sum(gradient.nbytes for gradient in found) / 1e9
        # without a hook C++ sends the buckets, which hold all gradients
        sent_gb[name] = gradients_gb[name]
        if hook is not None:
            sent_gb[name] = sent_bytes(check) / 1e9
        works[name] = partial(passes, ddp, rows.to(dtype), autocast)
    model.zero_grad()
    alone = deepcopy(model)
    differ["tf32_alone"] = apart(passes(alone, own, False), expected)
    works["tf32_alone"] = partial(passes, alone, rows, False)
    works["autocast_alone"] = partial(passes, deepcopy(model), rows, True)
    # in its first ten steps DDP waits for the GPU, for its statistics
    times = take_turns(works, warmup=8, trials=11, clock=slowest_rank)
    result = recorded(times) | {"ranks": group.size(), "differ": differ}
    result |= {"gradients_gb": gradients_gb, "sent_gb": sent_gb}
    result["exchange_ms"] = {n: exchange(profiled(work)) for n, work in works.items()}
    gains = ratios(times["autocast"], times["autocast_bf16_hook"])
    result |= {"hook_gain": median(gains), "hook_gain_trials": gains}
    if group.rank() == 0:
        for name, gb in sent_gb.items():
            print(
                f"{name:<19}{result['ms'][name]:6.2f} ms, {gb:.3f} GB sent,",
                f"gradients differ by {differ[name]:.1e}",
            )
    dist.destroy_process_group()
    return result


def plot(results: dict, ceilings: dict):
    names = {"tf32": "TF32", "tf32_bf16_hook": "TF32, bf16 hook"}
    names |= {"autocast": "autocast", "autocast_bf16_hook": "autocast, bf16 hook"}
    names |= {"bf16_weights": "bf16 weights", "autocast_powersgd": "autocast, PowerSGD"}
    differ = {text: 100 * results["differ"][name] for name, text in names.items()}
    return bars(differ, {}, "% of the gradients' length", log=True)


if __name__ == "__main__":
    main()
