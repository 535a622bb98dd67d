# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 300
# launcher = "torchrun"
# ///
"""Context parallel: the tokens of one sequence on several GPUs, and what it gains."""

import gc
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import _attention, context_parallel
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import Axis, Bars, Panel, Picture
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.ddp_equality import of_all_ranks
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_options import memory_gb
from snippets.training.waiting_ranks import meet

HEADS, HEAD, LAYERS = 16, 128, 2  # a layer is HEADS * HEAD wide
TOKENS = {"short": 8192, "long": 65536}  # twice the ranks divide them
STEPS = {"short": 40, "long": 4}  # between two waits
TRIALS = 5
DTYPE = torch.bfloat16
CHECKED = 2048  # tokens of the transformer, where it is compared in float32
LIMITS = {torch.bfloat16: 0.02, torch.float32: 1e-3}  # of a tensor's norm
#: where a rank's tokens lie in the sequence
WAYS = ("balanced", "in_order")


class Attention(nn.Module):
    """Causal attention alone, of x (1, 3 * heads, tokens, head): q, k and v."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = x.chunk(3, 1)
        # by its module: context_parallel puts another function there
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Layer(nn.Module):
    """A layer of a transformer with causal attention, on x (1, tokens, width)."""

    def __init__(self) -> None:
        super().__init__()
        width = HEADS * HEAD
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        linear = partial(nn.Linear, bias=False)  # the gradient of k's would be noise
        self.q, self.k, self.v, self.out = (linear(width, width) for _ in range(4))
        self.up, self.down = linear(width, 4 * width), linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.before(x)
        q, k, v = (
            each(rows).unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
            for each in (self.q, self.k, self.v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.between(x))))


def passes(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Output, and gradients of x and of the weights, for the mean loss over x's tokens."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    output = model(x)
    output.float().square().mean().backward()
    grads = [x.grad, *(parameter.grad for parameter in model.parameters())]
    return [output.detach(), *(grad for grad in grads if grad is not None)]


def shared(model: nn.Module, x: Tensor, dim: int, mesh: DeviceMesh) -> list[Tensor]:
    """Outputs and gradients of this rank's tokens; x is the whole sequence, its tokens in dimension dim.

    Weights' gradients are those of all tokens if the model is wrapped in DDP.
    """
    mine = x.clone()  # it is cut in place
    with context_parallel(
        mesh, buffers=[mine], buffer_seq_dims=[dim], no_restore_buffers={mine}
    ):
        return passes(model, mine)  # the backward pass, too, is in the context


def balance(on: bool) -> None:
    """Whether ranks share causal attention evenly, as they do by default.

    PyTorch 2.11 to 2.13 have no public switch.
    """
    _attention._cp_options.enable_load_balance = on


def tokens_of(x: Tensor, dim: int, way: str, rank: int, ranks: int) -> Tensor:
    """The part of x that this rank has.

    Balanced, it is a part from the head and one as far from the tail.
    """
    if way == "in_order":
        return x.chunk(ranks, dim)[rank].contiguous()
    parts = x.chunk(2 * ranks, dim)
    return torch.cat([parts[rank], parts[2 * ranks - 1 - rank]], dim)


def off(found: list[Tensor], expected: list[Tensor]) -> float:
    """How far tensors are from those expected, each relative to its norm; the farthest."""
    shares = []
    for f, e in zip(found, expected, strict=True):
        apart = (f.float() - e.float()).norm() / e.float().norm()
        shares.append(float(apart))
    assert all(share == share for share in shares), "a gradient is NaN"
    return max(shares)


def errors(
    model: nn.Module, ddp: nn.Module, x: Tensor, dim: int, mesh: DeviceMesh
) -> dict[str, float]:
    """How far each way is from one GPU with all tokens, in the farthest rank.

    "alone" exchanges no keys and values: the attention of later tokens is then wrong.
    """
    rank, ranks = mesh.get_local_rank(), mesh.size()
    output, grad, *weights = passes(model, x)
    # q, k and v, where x is all three, have gradients of unlike sizes
    three = 1 if weights else 3
    found = {}
    for way in (*WAYS, "alone"):
        balance(way != "in_order")
        cut = partial(tokens_of, dim=dim, way=way, rank=rank, ranks=ranks)
        alone = way == "alone"
        mine = passes(ddp, cut(x)) if alone else shared(ddp, x, dim, mesh)
        # the mean over fewer tokens: each counts as many times as much
        expected = [cut(output), *(ranks * cut(grad)).chunk(three, 1), *weights]
        results = [mine[0], *mine[1].chunk(three, 1), *mine[2:]]
        found[way] = max(of_all_ranks(off(results, expected), torch.device("cpu")))
    balance(True)
    return found


def in_turns(
    model: nn.Module, ddp: nn.Module, x: Tensor, dim: int, mesh: DeviceMesh, steps: int
) -> dict[str, Any]:
    """Peaks of memory in the fullest rank, then times; one GPU has all tokens."""

    def work(way: str) -> None:
        balance(way == "balanced")
        shared(ddp, x, dim, mesh)

    works: dict[str, Callable[[], object]] = {way: partial(work, way) for way in WAYS}
    alone = partial(passes, model, x)
    works["one_gpu"] = alone if dist.get_rank() == 0 else lambda: None  # others wait
    gb = {}
    for name, each in works.items():
        gc.collect()
        peak = memory_gb(each, torch.cuda.memory_allocated())["peak"]
        gb[name] = max(of_all_ranks(peak, torch.device("cpu")))
        model.zero_grad()
    times = take_turns(works, 1, TRIALS, calls=steps, clock=slowest_rank)
    gains = {way: ratios(times["one_gpu"], times[way]) for way in WAYS}
    result = {"gb": gb} | recorded(times)
    result["speedup"] = {way: median(each) for way, each in gains.items()}
    return result | {"speedup_trials": gains}


def checked(
    model: nn.Module, ddp: nn.Module, x: Tensor, dim: int, mesh: DeviceMesh
) -> dict[str, float]:
    """These errors, of which those of both ways must be rounding, and the last not."""
    found = errors(model, ddp, x, dim, mesh)
    for way in WAYS:
        limit = LIMITS[x.dtype]
        assert found[way] < limit < found["alone"] / 2, f"{way} is wrong: {found}"
    return found


def wrapped(
    dtype: torch.dtype, device: torch.device, group: dist.ProcessGroup
) -> tuple[nn.Module, nn.Module]:
    """A transformer, the same on all ranks, and one in DDP that begins alike."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer() for _ in range(LAYERS))).to(device, dtype)
    ddp = DistributedDataParallel(
        deepcopy(model), process_group=group, gradient_as_bucket_view=True
    )
    return model, ddp


def main() -> dict:
    device, group = meet()
    mesh, width = DeviceMesh.from_group(group, device.type), HEADS * HEAD
    result: dict[str, Any] = {"ranks": group.size(), "layers": LAYERS, "tokens": TOKENS}
    exact = wrapped(torch.float32, device, group)
    rows = torch.randn(1, CHECKED, width, device=device)  # one seed for all ranks
    # on a GPU flash attention takes no float32
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION]):
        result["transformer_error"] = checked(*exact, rows, 1, mesh)
    transformer = wrapped(DTYPE, device, group)
    del exact
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for length, tokens in TOKENS.items():
            torch.manual_seed(1)
            with device:
                heads = torch.randn(1, 3 * HEADS, tokens, HEAD, dtype=DTYPE)
                rows = torch.randn(1, tokens, width, dtype=DTYPE)
            # what is timed, and which dimension of its input tokens are
            cases = {
                "attention": (Attention(), Attention(), heads, 2, mesh),
                "transformer": (*transformer, rows, 1, mesh),
            }
            result[length] = {"error": checked(*cases["attention"])}
            for name, case in cases.items():
                result[length][name] = in_turns(*case, STEPS[length])
    if group.rank() == 0:
        tell(result)
    del transformer, cases, case  # no model of DDP may outlive its process group
    gc.collect()
    dist.destroy_process_group()
    return result


def tell(result: dict) -> None:
    """Print errors, then a line for each measurement."""
    shown = {"transformer, float32": result["transformer_error"]}
    shown |= {f"attention, {length}": result[length]["error"] for length in TOKENS}
    for name, shares in shown.items():
        print(f"{name:<21}", *(f"{way} {share:.1e}" for way, share in shares.items()))
    for length, tokens in TOKENS.items():
        for name in ("attention", "transformer"):
            each = result[length][name]
            for way, ms in each["ms"].items():
                gain = each["speedup"].get(way, 1)
                print(f"{tokens:>6} {name:<12}{way:<9}{ms:9.2f} ms", end=" ")
                print(f"{gain:5.2f}×{each['gb'][way]:7.2f} GB")


def derive(results: dict) -> dict:
    """What both GPUs save of one's peak, and take of its time, for the long sequence."""
    derived = {}
    for name in ("attention", "transformer"):
        gb = results["long"][name]["gb"]
        derived[name] = {way: gb[way] / gb["one_gpu"] for way in WAYS}
    errors = [results["transformer_error"]]
    errors += [results[length]["error"] for length in results["tokens"]]
    return {
        "peak_of_one": derived,
        "most_off": max(each[way] for each in errors[1:] for way in WAYS),
        "least_alone": min(each["alone"] for each in errors),
    }


def plot(results: dict, ceilings: dict):
    titles = {"one_gpu": "one GPU, all tokens", "balanced": "two GPUs, balanced"}
    titles["in_order"] = "two GPUs, in order"
    panels = []
    for unit, key in {"GB at the peak": "gb", "ms a step": "ms"}.items():
        of_way = results["long"]["transformer"][key]
        values = {title: of_way[way] for way, title in titles.items()}
        panels.append(Panel([Bars(values, color=1)], Axis(unit)))
    return Picture(panels)


if __name__ == "__main__":
    main()
