# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 240
# launcher = "torchrun"
# [tool.overlap.missing]
# 2 = "not recorded yet"
# 4 = "not recorded yet"
# 8 = "not recorded yet"
# ///
"""DDP with torch.compile and four times the rows: does the GPU or the CPU decide?"""

import os
import tempfile
from copy import deepcopy
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from snippets.timing.pictures import bars
from snippets.training.ddp_bf16 import exchange, profiled
from snippets.training.ddp_compile import (
    LAYERS,
    TOKENS,
    WAYS,
    WIDTH,
    Stack,
    eager,
    forward_backward,
    timed,
)
from snippets.training.ddp_equality import farthest, gradients
from snippets.training.waiting_ranks import meet

#: rows for each GPU, and how it is compiled
CASES = [(8, "unsplit"), (32, "unsplit"), (32, "before")]


def kernels_ms(events: list[list]) -> float:
    """Milliseconds of kernels and copies in `lanes` that are no all-reduces."""
    on_gpu = [event for event in events if "stream" in event[0]]
    return sum(e[2] for e in on_gpu if "nccl" not in e[3].lower()) / 1e3


def compared(name: str, model: nn.Module, group, rows: torch.Tensor) -> dict:
    """DDP compiled in one of WAYS beside DDP that is not, in turns."""
    torch._dynamo.reset()
    wrap, split = WAYS[name]
    torch._dynamo.config.optimize_ddp = split
    models = {
        "eager": eager(deepcopy(model), group),
        "compiled": wrap(deepcopy(model), group),
    }
    found = {n: gradients(each, rows) for n, each in models.items()}
    error = farthest(found["compiled"], found["eager"])
    del found
    works = {n: partial(forward_backward, each, rows) for n, each in models.items()}
    result = timed(works) | {"error": error, "kernels_ms": {}, "exchange_ms": {}}
    for each, work in works.items():
        events = profiled(work)
        result["kernels_ms"][each] = kernels_ms(events)
        result["exchange_ms"][each] = exchange(events)
    return result


def main() -> dict:
    device, group = meet()
    torch.set_float32_matmul_precision("high")  # TF32
    torch.manual_seed(0)  # the same model on all ranks
    model = Stack(LAYERS, WIDTH).to(device)
    torch.manual_seed(1 + group.rank())  # each rank has rows of its own
    torch._dynamo.config.automatic_dynamic_shapes = False  # each size of its own
    cases = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        for count, name in CASES:
            rows = torch.randn(count, TOKENS, WIDTH, device=device)
            case = {"rows": count, "way": name} | compared(name, model, group, rows)
            assert case["error"] < 1e-2, f"{name}: wrong gradients"
            cases.append(case)
            if group.rank() == 0:
                print(
                    f"{count:>3} rows, {name:<8}{case['ms']['compiled']:6.2f} ms,",
                    f"kernels {case['kernels_ms']['compiled']:6.2f};",
                    f"eager {case['ms']['eager']:6.2f} ms,",
                    f"kernels {case['kernels_ms']['eager']:6.2f}",
                )
    ranks = group.size()
    dist.destroy_process_group()
    return {"ranks": ranks, "cases": cases}


def plot(results: dict, ceilings: dict):
    titles = {"before": "compiled, cut", "unsplit": "compiled, not cut"}
    groups = {}
    for case in results["cases"]:
        groups[f"{titles[case['way']]}, {case['rows']} rows"] = case["gain"]
    return bars(groups, {"DDP, not compiled": 1}, "times as fast")


if __name__ == "__main__":
    main()
