# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 90
# launcher = "torchrun"
# ranks = 2
# take = ["whole_on_first"]
# ///
"""Save a split model: a rank that gathers it alone hangs; all together do not."""

import gc
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh

from snippets.training.built_in_parts import mlp, sharded

LAYERS, WIDTH = 2, 64
LIMIT_S = 4


def whole_on_first(model: nn.Module) -> dict[str, Any]:
    """All parameters and buffers, whole, on rank 0's CPU; {} on the others.

    Every rank must call it: it gathers each parameter from all ranks.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(model, options=options)


def split_model() -> nn.Module:
    """A model in parts, of a group of its own whose calls wait LIMIT_S seconds."""
    group = dist.new_group(backend="gloo", timeout=timedelta(seconds=LIMIT_S))
    torch.manual_seed(0)
    return sharded(mlp(LAYERS, WIDTH), DeviceMesh.from_group(group, "cpu"))


def alone(model: nn.Module) -> dict:
    """What rank 0 gets while the other ranks do not call: after how long, and how."""
    start, says = time.perf_counter(), ""
    if dist.get_rank() == 0:
        try:
            whole_on_first(model)
        except RuntimeError as error:
            says = str(error).splitlines()[0].split("] ")[-1]
    seconds = time.perf_counter() - start
    dist.barrier()  # the others wait here, in another group, with a longer timeout
    return {"seconds": seconds, "says": says}


def together(model: nn.Module) -> dict:
    """How many tensors each rank gets, and whether those of rank 0 are the model's."""
    state = whole_on_first(model)
    torch.manual_seed(0)
    expected = mlp(LAYERS, WIDTH).state_dict()
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0)
    counts: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(counts, len(state))
    return {"tensors": counts, "of": len(expected)}


def main() -> dict:
    dist.init_process_group("gloo")
    model = split_model()
    gathered = together(model)
    parts = len(model.state_dict()) if dist.get_rank() == 0 else 0
    failed = alone(model)  # last: its group does not work any more after that
    result = {"ranks": dist.get_world_size(), "limit_s": LIMIT_S, "parts": parts}
    result |= {"together": gathered, "alone": failed}
    if dist.get_rank() == 0:
        print(f"rank 0 alone:  {failed['says']!r} after {failed['seconds']:.1f} s")
        print(f"all ranks:     tensors on each {gathered['tensors']}")
        print(f"own parts:     {parts} tensors on rank 0, which calls alone")
    del model
    gc.collect()  # FSDP has cycles, and no model may outlive its process group
    dist.destroy_process_group()
    return result


if __name__ == "__main__":
    main()
