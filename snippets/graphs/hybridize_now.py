# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""D2L's small network, a thousand calls in each form that PyTorch has today, and once out into a file and back."""

import io
import os
import shutil
import warnings
from collections.abc import Callable
from statistics import median

import torch
from torch import nn

from snippets.timing.benchmark import measure, wait_for


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 2))


def scripted(net: nn.Module) -> tuple[Callable, list[str]]:
    """The old way, `torch.jit.script`, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        script = torch.jit.script(net)
    return script, sorted({f"{warning.category.__name__}: {warning.message}" for warning in caught})


def captured(net: nn.Module, x: torch.Tensor) -> Callable:
    """A call that copies its input into the captured one and replays all launches of the network at once."""
    held = x.clone()
    net(held)
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        y = net(held)

    def call(x: torch.Tensor) -> torch.Tensor:
        held.copy_(x)
        graph.replay()
        return y

    return call


def exported(net: nn.Module, x: torch.Tensor) -> tuple[Callable, int]:
    """The network after a round trip through a file in memory, and the bytes of that file."""
    file = io.BytesIO()
    torch.export.save(torch.export.export(net, (x,)), file)
    file.seek(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")  # and nobody will write to it
        return torch.export.load(file).module(), len(file.getvalue())


def launches(call: Callable, x: torch.Tensor) -> int:
    """How often one call makes the CPU launch something."""
    with torch.profiler.profile(acc_events=True) as profiler:
        call(x)
        wait_for()
    return sum("Launch" in event.name for event in profiler.events())


def call_us(call: Callable, x: torch.Tensor) -> float:
    """Microseconds per call, of a thousand in a row."""
    return 1e3 * measure(lambda: [call(x) for _ in range(1000)], warmup=0, trials=1).median


@torch.no_grad()
def main() -> dict:
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        raise SystemExit("torch.compile uses Triton here, and Triton a C compiler: install gcc, or name one in CC")
    warnings.filterwarnings("ignore", "TensorFloat32")  # TF32 would be another network: the results would differ
    torch.manual_seed(0)
    net, x, other = mlp().cuda(), *torch.randn(2, 1, 512, device="cuda")
    (script, script_warns), (loaded, file_bytes) = scripted(net), exported(net, x)
    ways = {"eager": net, "script": script, "compile": torch.compile(net)}
    ways |= {"reduce_overhead": torch.compile(net, mode="reduce-overhead"), "graph": captured(net, x)}
    rounds = [{name: call_us(way, x) for name, way in ways.items()} for _ in range(17)][2:]  # in turn, two to warm up
    results = {"us": {}, "us_trials": {}, "speedup": {}, "speedup_trials": {}, "launches": {}, "differs_by": {}}
    for name, way in ways.items():
        torch.testing.assert_close(way(other), net(other), rtol=1e-4, atol=1e-5)
        results["differs_by"][name] = float((way(other) - net(other)).abs().max())
        results["us_trials"][name] = us = [each[name] for each in rounds]
        results["speedup_trials"][name] = faster = [each["eager"] / each[name] for each in rounds]
        results["us"][name], results["speedup"][name] = median(us), median(faster)
        results["launches"][name] = launches(way, x)
        print(f"{name:17}{results['us'][name]:8.1f} µs a call, {results['launches'][name]:2} launches")
    results |= {"script_warns": script_warns, "loaded_equal": torch.equal(loaded(other), net(other))}
    print(f"exported: {file_bytes:,} bytes; read back, it gives the same numbers: {results['loaded_equal']}")
    return results | {"file_bytes": file_bytes, "parameters": sum(p.numel() for p in net.parameters())}


if __name__ == "__main__":
    main()
