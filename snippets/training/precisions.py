# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""One transformer's step in fp32, TF32, bf16 and fp16: time, memory, loss, and waits."""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from random import sample
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from snippets.pictures import bars
from snippets.timing.lanes import lanes
from snippets.training.models import transformer

LAYERS, WIDTH, BATCH, TOKENS, VOCABULARY = 6, 1024, 32, 512, 512
STEPS, RATE, TRUE = 40, 3e-4, 0.9  # share of targets that follow the rule
WAYS = ("fp32", "tf32", "bf16", "bf16_weights", "fp16", "fp16_unfused", "fp16_unscaled")
ROUNDS, WARMUP = 9, 2
BASES = ("fp32", "tf32")  # what each way is compared with
KINDS = {  # of kernels, by what stands in their names; the first that fits
    "attention": ("fmha", "flash", "sdpa"),
    "matmuls": ("gemm", "gemv", "nvjet", "cutlass", "xmma", "splitK"),
    "optimizer": ("multi_tensor",),
}


def network() -> nn.Module:
    """The same network each time: an embedding, blocks, and scores."""
    torch.manual_seed(0)
    ends = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
    return nn.Sequential(ends[0], transformer(LAYERS, WIDTH), ends[1])


def batches(steps: int, device: str) -> list[tuple[Tensor, Tensor]]:
    """Tokens and targets: nine of ten targets are a fixed function of their token."""
    torch.manual_seed(1)
    rule, made = torch.randperm(VOCABULARY, device=device), []
    for _ in range(steps):
        tokens, noise = torch.randint(VOCABULARY, (2, BATCH, TOKENS), device=device)
        follows = torch.rand(BATCH, TOKENS, device=device) < TRUE
        made.append((tokens, torch.where(follows, rule[tokens], noise)))
    return made


def least_loss() -> float:
    """What a network loses that knows the rule, and no more."""
    right = TRUE + (1 - TRUE) / VOCABULARY
    wrong = (1 - TRUE) / VOCABULARY
    return -right * math.log(right) - (VOCABULARY - 1) * wrong * math.log(wrong)


def training_step(net: nn.Module, way: str) -> Callable[[Tensor, Tensor], Tensor]:
    """A step in one of WAYS. AdamW is fused, but for "fp16_unfused"."""
    device = next(net.parameters()).device.type
    optimizer = torch.optim.AdamW(net.parameters(), RATE, fused=way != "fp16_unfused")
    scaled = way in ("fp16", "fp16_unfused")
    scaler = torch.amp.GradScaler(device, enabled=scaled)
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(way.split("_")[0])
    region = nullcontext()
    if low is not None and way != "bf16_weights":
        region = torch.autocast(device, low)
    products = "high" if way == "tf32" else "highest"

    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        torch.set_float32_matmul_precision(products)
        optimizer.zero_grad()
        with region:
            scores = net(tokens)
            loss = F.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def both_clocks(work: Callable[..., Any]) -> dict[str, float]:
    """Milliseconds until `work()` is back, and until the GPU has finished it."""
    torch.accelerator.synchronize()
    start = time.perf_counter()
    work()
    returned = 1e3 * (time.perf_counter() - start)
    torch.accelerator.synchronize()
    return {"returned_ms": returned, "ms": 1e3 * (time.perf_counter() - start)}


def kind_of(kernel: str) -> str:
    """Which of KINDS a kernel with this name is; "other" if none."""
    for kind, parts in KINDS.items():
        if any(part in kernel for part in parts):
            return kind
    return "other"


def in_kernels(work: Callable[..., Any]) -> dict[str, float]:
    """Milliseconds in which the kernels of `work()` run, of all and of each kind."""
    found = dict.fromkeys(["kernels_ms", *(f"{kind}_ms" for kind in KINDS)], 0.0)
    found |= {"other_ms": 0.0, "kernels": 0}
    for lane, _, us, name in lanes(work):
        if lane.startswith("CPU"):
            continue
        found["kernels"] += 1
        found["kernels_ms"] += us / 1e3
        found[f"{kind_of(name)}_ms"] += us / 1e3
    return found


def medians(rows: list[dict[str, float]]) -> dict:
    """The median of each key, and under `…_trials` all that it had."""
    trials = {key: [row[key] for row in rows] for key in rows[0]}
    found = {key: median(each) for key, each in trials.items()}
    return found | {f"{key}_trials": each for key, each in trials.items()}


def timed(steps: dict[str, Callable[..., Any]]) -> dict[str, dict]:
    """Both clocks of each step, in turn, and how many times as fast as fp32 and TF32."""
    rounds = []
    for _ in range(ROUNDS):  # in another order: none always follows the same other
        order = sample(list(steps), len(steps))
        rounds.append({way: both_clocks(steps[way]) for way in order})
    found = {}
    for way in steps:
        rows = []
        for each in rounds[WARMUP:]:
            gains = {f"{b}_gain": each[b]["ms"] / each[way]["ms"] for b in BASES}
            rows.append(each[way] | gains)
        found[way] = medians(rows)
    return found


def underflow(net: nn.Module) -> float:
    """Share of the gradients' numbers that are 0."""
    zero = total = 0
    for parameter in net.parameters():
        zero += int((parameter.grad == 0).sum())
        total += parameter.numel()
    return zero / total


def trained(
    way: str, rows: list[tuple[Tensor, Tensor]]
) -> tuple[dict, Callable[..., Any]]:
    """Train a new network in this way: losses, peak memory; and its step."""
    net = network().to(rows[0][0].device)
    if way == "bf16_weights":
        net.bfloat16()
    step = training_step(net, way)
    step(*rows[0])
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    losses = [float(step(*batch)) for batch in rows[1:]]
    peak = torch.cuda.max_memory_allocated()
    state = sum(p.nbytes for p in net.parameters())
    found = {"losses": losses, "zero_gradients": underflow(net)}
    found |= {"weights_mib": state / 2**20, "peak_mib": peak / 2**20}
    return found | {"kept_mib": before / 2**20}, step


def main() -> dict:
    torch.set_float32_matmul_precision("highest")
    rows = batches(1 + STEPS, "cuda")
    with FlopCounterMode(display=False) as counter:
        training_step(network().to("cuda"), "bf16")(*rows[0])
    result: dict = {"flop": counter.get_total_flops(), "least_loss": least_loss()}
    by_operator = counter.get_flop_counts()["Global"]
    attention = [n for name, n in by_operator.items() if "attention" in str(name)]
    result["attention_flop"] = sum(attention)
    result["ways"], steps = {}, {}
    others = torch.cuda.memory_allocated()
    for way in WAYS:
        row, step = trained(way, rows)
        for key in ("peak_mib", "kept_mib"):
            row[key] -= others / 2**20  # networks of the ways before
        result["ways"][way], steps[way] = row, partial(step, *rows[0])
        others = torch.cuda.memory_allocated()
    first = {way: row["losses"][0] for way, row in result["ways"].items()}
    for way in WAYS:
        torch.testing.assert_close(first[way], first["fp32"], rtol=0.05, atol=0)

    times = timed(steps)
    for way, step in steps.items():
        row = result["ways"][way] | times[way]
        row |= medians([in_kernels(step) for _ in range(3)])
        result["ways"][way] = row
        rate = result["flop"] / row["ms"] / 1e9
        print(f"{way:13}{row['ms']:7.2f} ms a step, {rate:4.0f} TFLOP/s,", end=" ")
        print(f"back after {row['returned_ms']:6.2f},", end=" ")
        print(f"kernels {row['kernels_ms']:6.2f}, {row['peak_mib']:6.0f} MiB,", end=" ")
        print(f"loss {row['losses'][0]:.2f} → {row['losses'][-1]:.3f}")
    torch.set_float32_matmul_precision("highest")
    return result


def derive(results: dict) -> dict:
    """Shares of a step, kernels but matmuls, and last losses beside float32's."""
    ways = results["ways"]
    busy = ("fp32", "tf32", "bf16", "bf16_weights", "fp16")
    alike = ("tf32", "bf16", "bf16_weights", "fp16", "fp16_unfused")
    last = ways["fp32"]["losses"][-1]
    others_ms = {
        way: ways[way]["kernels_ms"] - ways[way]["matmuls_ms"]
        for way in ("fp32", "tf32")
    }
    scaled = ("fp32", "fp16", "fp16_unscaled")
    half = ("fp16", "fp16_unfused")
    return {
        "others_off": abs(others_ms["tf32"] / others_ms["fp32"] - 1),
        "zeros": {way: ways[way]["zero_gradients"] for way in scaled},
        "last_loss": {way: ways[way]["losses"][-1] for way in scaled},
        "returned_share": {
            way: ways[way]["returned_ms"] / ways[way]["ms"] for way in half
        },
        "unfused_kernels": ways["fp16_unfused"]["kernels_ms"]
        / ways["fp16_unfused"]["ms"],
        "kernels_share": [ways[way]["kernels_ms"] / ways[way]["ms"] for way in busy],
        "loss_off": [abs(ways[way]["losses"][-1] / last - 1) for way in alike],
    }


def plot(results: dict, ceilings: dict):
    labels = {
        "fp32": "float32",
        "tf32": "TF32",
        "bf16": "bf16 autocast",
        "bf16_weights": "weights in bf16, too",
        "fp16": "fp16 autocast, scaled",
    }
    steps = {label: results["ways"][way]["ms"] for way, label in labels.items()}
    return bars(steps, {}, unit="ms per step")


if __name__ == "__main__":
    main()
