# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2]
# timeout = 300
# launcher = "torchrun"
# ranks = 2
# take = ["load_each", "load_first", "load_parts"]
# ///
"""One file with all weights, a model in parts: who reads it, and what that takes."""

import ctypes
import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.format_utils import torch_save_to_dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from snippets.pictures import Axis, Bars, Panel, Picture
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for
from snippets.training.built_in_parts import (
    mlp,
    of_all_ranks,
    process_bytes,
    sharded,
)
from snippets.training.dp_vs_ddp import slowest_rank

LAYERS, WIDTH = 16, 2048


def empty_parts(layers: int, width: int, mesh: DeviceMesh) -> nn.Module:
    """The model, split: this rank has memory for its parts, and nothing in it yet."""
    with torch.device("meta"):
        model = mlp(layers, width)
    return sharded(model, mesh, model).to_empty(device=mesh.device_type)


def load_each(model: nn.Module, path: Path, mmap: bool = True) -> None:
    """Each rank opens the file, and keeps its part of each tensor.

    The model is split, and each rank has memory for its parts. With `mmap` the file is
    mapped, and read tensor by tensor; without, each rank reads all of it first.
    """
    weights = torch.load(path, map_location="cpu", mmap=mmap, weights_only=True)
    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, weights, options=options)


def load_first(model: nn.Module, path: Path) -> None:
    """Rank 0 opens the file, and sends each tensor to all ranks.

    The model is split, and each rank has memory for its parts. No other rank needs to
    see the file. CPU tensors need a backend, too: "cpu:gloo,cuda:nccl". Where the file
    is not there, or has other names than the model, rank 0 alone raises: so the job must
    end with it, as under torchrun. Each tensor becomes the model's dtype.
    """
    weights = {}
    if dist.get_rank() == 0:
        weights = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, weights, options=options)


def load_parts(model: nn.Module, folder: Path) -> None:
    """Each rank reads its part alone, of what `torch_save_to_dcp` made of the file.

    The model is split, and each rank has memory for its parts. Tensors alone, in the
    model's dtypes. CheckpointException for a name that the file lacks; what only the
    file has is left out, and nothing says so.
    """
    weights = model.state_dict()  # its tensors are the model's own: read in place
    dcp.load(weights, checkpoint_id=folder)  # type: ignore


@contextmanager
def watched(peaks: dict[str, float]) -> Iterator[None]:
    """How far memory of this process grows at most meanwhile, in 10⁹ bytes.

    host: without pages of mapped files, by samples every 2 ms (Linux, glibc). gpu: of
    tensors, 0 on the CPU.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free goes back to the system
    on_gpu = torch.cuda.is_available()
    gpu_before, before = torch.cuda.memory_allocated(), process_bytes("RssAnon")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    done, samples = threading.Event(), [before]

    def sample() -> None:
        while not done.wait(0.002):
            samples.append(process_bytes("RssAnon"))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
        wait_for()
    finally:
        done.set()
        thread.join()
    samples.append(process_bytes("RssAnon"))
    peaks["host"] = (max(samples) - before) / 1e9
    peaks["gpu"] = max(0, torch.cuda.max_memory_allocated() - gpu_before) / 1e9


def is_right(model: nn.Module, path: Path) -> bool:
    """Whether each number of this rank's parts is that of the file."""
    expected = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for name, parameter in model.named_parameters():
        part = expected[name].chunk(ranks)[rank]
        if not torch.equal(parameter.detach().to_local().cpu(), part):
            return False
    return True


def main() -> dict:
    device, backend = torch.device("cpu"), "gloo"
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (ranks,))
    named: list[Any] = [tempfile.mkdtemp(prefix="weights") if rank == 0 else None]
    dist.broadcast_object_list(named)
    folder = Path(named[0])
    path, parts = folder / "weights.pt", folder / "parts"
    result = {"ranks": ranks, "convert_s": 0.0}
    if rank == 0:
        torch.manual_seed(0)
        torch.save(mlp(LAYERS, WIDTH).state_dict(), path)
        start = time.perf_counter()
        torch_save_to_dcp(path, parts)  # once, by one process, in host memory
        result["convert_s"] = time.perf_counter() - start
    dist.barrier()
    result["file_gb"] = path.stat().st_size / 1e9
    loads: dict[str, Callable[[nn.Module], None]] = {
        "read": partial(load_each, path=path, mmap=False),
        "each": partial(load_each, path=path),
        "first": partial(load_first, path=path),
        "parts": partial(load_parts, folder=parts),
    }
    peaks, right, works = {"host": {}, "gpu": {}}, {}, {}
    for name, load in loads.items():

        def work(load=load) -> nn.Module:
            model = empty_parts(LAYERS, WIDTH, mesh)
            load(model)
            return model

        works[name] = work
        work()  # connections are made, files are in memory
        each: dict[str, float] = {}
        with watched(each):
            model = work()
        right[name] = sum(of_all_ranks(is_right(model, path)))
        del model
        for place, gb in each.items():
            peaks[place][name] = of_all_ranks(gb)
    times = take_turns(works, warmup=0, trials=3, clock=slowest_rank)
    result |= recorded(times) | {"peak_gb": peaks, "right_ranks": right}
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
        print(f"a file of {result['file_gb']:.2f} GB, {ranks} ranks")
        for name, ms in result["ms"].items():
            host, gpu = (
                " ".join(f"{gb:.2f}" for gb in peaks[place][name])
                for place in ("host", "gpu")
            )
            print(f"{name:<6}{ms:7.0f} ms, host {host} GB, GPU {gpu} GB")
    del works
    gc.collect()  # FSDP has cycles, and no model may outlive its process group
    dist.destroy_process_group()
    return result


TITLES = {
    "read": "each reads all, keeps its part",
    "each": "each maps the file",
    "first": "rank 0 maps it, and sends",
    "parts": "each reads its part\n(converted before)",
}


def derive(results: dict) -> dict:
    """Peaks of a rank: in the host's memory in files, on the GPU in parts of a rank."""
    host_gb, file_gb = results["peak_gb"]["host"], results["file_gb"]
    gpu_gb, ranks = results["peak_gb"]["gpu"], results["ranks"]
    return {
        "files_held": {
            "once": max(host_gb["first"] + host_gb["parts"]) / file_gb,
            "in_each": min(host_gb["read"]) / file_gb,
        },
        "parts_on_gpu": {
            "first": max(gpu_gb["first"]) * ranks / file_gb,
            "each": min(gpu_gb["each"]) * ranks / file_gb,
        },
    }


def plot(results: dict, ceilings: dict):
    host = {text: max(results["peak_gb"]["host"][n]) for n, text in TITLES.items()}
    gpu = {text: max(results["peak_gb"]["gpu"][n]) for n, text in TITLES.items()}
    size, panels = results["file_gb"], []
    for title, peaks in {"in the host": host, "on the GPU": gpu}.items():
        if max(peaks.values()) > 0:
            shares = {text: gb / size for text, gb in peaks.items()}
            texts = {text: f"{share:.2f}" for text, share in shares.items()}
            panels.append(Panel([Bars(shares, color=1, texts=texts)], title=title))
    panels[-1].x = Axis("peak of a rank, as a multiple of the file")
    return Picture(panels)


if __name__ == "__main__":
    main()
