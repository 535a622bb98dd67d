# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 600
# ///
"""A network exported, compiled ahead of time, and called from C++ without Python."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch._inductor import aoti_compile_and_package, aoti_load_package

from snippets.graphs.network_in_a_file import mlp
from snippets.timing.take_turns import take_turns

CALLS = 300  # of a trial
TRIALS = 9
MAIN = """
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>

int main(int count, char** words) {
  torch::inductor::AOTIModelPackageLoader model(words[1]);
  int calls = std::atoi(words[2]);
  at::Tensor x = at::linspace(-1, 1, 512).view({1, 512});
  at::Tensor y = model.run({x})[0];
  for (int i = 0; i < calls; i++) model.run({x});  // warm up
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; i++) model.run({x});
  std::chrono::duration<double> s = std::chrono::steady_clock::now() - begin;
  auto values = y.contiguous();
  for (int i = 0; i < values.numel(); i++)
    std::printf("%.9g ", values.data_ptr<float>()[i]);
  std::printf("%.9g\\n", s.count() / calls);
}
"""


def packaged(net: nn.Module, x: torch.Tensor, path: Path) -> str:
    """A file with the network, compiled ahead of time for inputs of x's shape."""
    with torch.no_grad():
        program = torch.export.export(net, (x,))
        return aoti_compile_and_package(program, package_path=str(path))


def built(folder: Path) -> Path:
    """The C++ program, linked with PyTorch's libraries, but with no Python."""
    source, program = folder / "main.cpp", folder / "main"
    source.write_text(MAIN)
    home = Path(torch.__file__).parent
    call = ["g++", "-std=c++20", "-O2", str(source), "-o", str(program)]
    call += [f"-I{home}/include", f"-I{home}/include/torch/csrc/api/include"]
    call += [f"-L{home}/lib", "-ltorch", "-ltorch_cpu", "-lc10"]
    subprocess.run([*call, f"-Wl,-rpath,{home}/lib"], check=True)
    return program


def libraries(program: Path) -> list[str]:
    """Names of the shared libraries that a program loads."""
    lines = subprocess.check_output(["ldd", str(program)], text=True).splitlines()
    return sorted(line.split()[0].rpartition("/")[2] for line in lines)


def called(program: Path, package: str, calls: int) -> tuple[list[float], float]:
    """What the network gives in C++, and seconds of a call, with one thread."""
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    words = [str(program), package, str(calls)]
    *values, seconds = subprocess.check_output(words, text=True, env=one_thread).split()
    return [float(value) for value in values], float(seconds)


def in_python(
    net: nn.Module, package: str, x: torch.Tensor
) -> dict[str, Callable[[], Any]]:
    """Three ways to call it from Python."""
    compiled, loaded = torch.compile(net), aoti_load_package(package)
    return {
        "eager": lambda: net(x),
        "compiled": lambda: compiled(x),
        "package": lambda: loaded(x),
    }


def main() -> dict:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net, x = mlp().eval(), torch.linspace(-1, 1, 512).view(1, 512)
    with TemporaryDirectory() as name, torch.no_grad():
        package = packaged(net, x, Path(name) / "net.pt2")
        size = Path(package).stat().st_size
        program = built(Path(name))
        needs = libraries(program)
        works = in_python(net, package, x)
        expected = net(x)
        for work in works.values():
            torch.testing.assert_close(work(), expected)
        values, _ = called(program, package, CALLS)
        torch.testing.assert_close(torch.tensor([values]), expected)
        us: dict[str, list[float]] = {name: [] for name in [*works, "C++"]}
        for _ in range(TRIALS):
            timings = take_turns(works, warmup=0, trials=1, calls=CALLS)
            for way, timing in timings.items():
                us[way] += [1e6 * s for s in timing.trials]
            us["C++"].append(1e6 * called(program, package, CALLS)[1])
    off = max(abs(a - b) for a, b in zip(values, expected[0].tolist(), strict=True))
    with_python = [library for library in needs if "python" in library]
    result = {"off": off, "package_bytes": size, "libraries": needs}
    result |= {"with_python": with_python, "us_trials": us}
    result["us"] = {way: median(trials) for way, trials in us.items()}
    for way, each in result["us"].items():
        print(f"{way:9}{each:7.1f} µs a call")
    print(f"in C++ off by {off:.1e}; of {len(needs)} libraries Python: {with_python}")
    return result


if __name__ == "__main__":
    main()
