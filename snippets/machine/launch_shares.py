# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 300
# ///
"""How Python, PyTorch and the driver share a launch: the same calls from C++."""

import ctypes
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from snippets.pictures import Bars, stacked
from snippets.timing.take_turns import take_turns
from snippets.timing.wait_for import wait_for

CALLS = 500  # fewer than the launch queue holds, so that none waits for room
KERNEL = 'extern "C" __global__ void plus_one(float *x) { x[0] += 1; }'
SOURCE = """
#include <ATen/ATen.h>

using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, unsigned, void*, void**, void**);

extern "C" int launches(Launch launch, void* kernel, void* stream, void* x, int calls) {
  void* arguments[] = {&x};
  int failed = 0;
  for (int i = 0; i < calls; i++)
    failed |= launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
  return failed;
}

extern "C" void in_place(at::Tensor* x, int calls) {
  for (int i = 0; i < calls; i++) x->add_(1);
}

extern "C" void new_tensor(at::Tensor* x, int calls) {
  for (int i = 0; i < calls; i++) at::Tensor y = x->add(1);
}

extern "C" at::Tensor* made(int size, bool requires_grad) {
  at::Tensor x = at::zeros({size}, at::kCUDA);
  return new at::Tensor(x.set_requires_grad(requires_grad));
}

extern "C" double first(at::Tensor* x) { return x->cpu().data_ptr<float>()[0]; }
"""


def library(folder: Path) -> ctypes.CDLL:
    """The C++ functions, compiled and loaded into this process, where PyTorch runs."""
    source, shared = folder / "calls.cpp", folder / "calls.so"
    source.write_text(SOURCE)
    home = Path(torch.__file__).parent
    call = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", str(source)]
    call += ["-o", str(shared), f"-I{home}/include", f"-L{home}/lib"]
    subprocess.run([*call, "-ltorch", "-ltorch_cpu", "-lc10"], check=True)
    functions = ctypes.CDLL(str(shared))
    functions.made.restype = ctypes.c_void_p
    functions.first.restype = ctypes.c_double
    return functions


def by_the_driver(functions: ctypes.CDLL, x: Tensor) -> Callable[[int], None]:
    """A function that launches a kernel so many times, with the driver's call alone."""
    kernel = torch.cuda._compile_kernel(KERNEL, "plus_one")
    kernel((1, 1, 1), (1, 1, 1), [x])
    launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def call(calls: int) -> None:
        pointer = ctypes.c_void_p(x.data_ptr())
        if functions.launches(launch, kernel.func, stream, pointer, calls):
            raise RuntimeError("the driver refused a launch")

    return call


def in_place(x: Tensor, calls: int) -> None:
    for _ in range(calls):
        x.add_(1)


def new_tensor(x: Tensor, calls: int) -> None:
    for _ in range(calls):
        x + 1


def nothing(calls: int) -> None:
    for _ in range(calls):
        pass


def returned(work: Callable[[int], object], calls: int) -> float:
    """Seconds of the CPU for one of `calls` calls: it stops when they have returned."""
    wait_for()
    start = time.perf_counter()
    work(calls)
    return (time.perf_counter() - start) / calls


def works(functions: ctypes.CDLL) -> dict[str, Callable[[int], object]]:
    """What is timed, by name; AssertionError if a call does not add."""
    one, none = torch.zeros(1, device="cuda"), torch.zeros(0, device="cuda")
    graded = torch.zeros(1, device="cuda", requires_grad=True)

    def cpp(name: str, size: int = 1, grad: bool = False) -> Any:
        x = functions.made(size, grad)
        return partial(getattr(functions, name), ctypes.c_void_p(x)), x

    added, x = cpp("in_place")
    added(CALLS)
    assert functions.first(ctypes.c_void_p(x)) == CALLS
    driver = by_the_driver(functions, one)
    one.zero_()
    driver(CALLS)
    in_place(one, CALLS)
    assert one.item() == 2 * CALLS
    return {
        "driver": driver,
        "cpp": added,
        "cpp_new": cpp("new_tensor")[0],
        "cpp_graded": cpp("new_tensor", grad=True)[0],
        "cpp_empty": cpp("in_place", size=0)[0],
        "python": partial(in_place, one),
        "python_new": partial(new_tensor, one),
        "python_graded": partial(new_tensor, graded),
        "python_empty": partial(in_place, none),
        "loop": nothing,
    }


def main() -> dict:
    with TemporaryDirectory() as folder:
        timed: Any = works(library(Path(folder)))
        clock: Any = returned
        turns = take_turns(timed, trials=31, calls=CALLS, clock=clock)
    trials = {name: turns[name].us() for name in turns}
    us = {name: median(each) for name, each in trials.items()}
    for name, each in us.items():
        print(f"{name:14}{each:6.2f} µs a call")
    return {"calls": CALLS, "us": us, "us_trials": trials}


def derive(results: dict) -> dict:
    """µs of a call that each takes: Python, PyTorch (its C++ code), and the driver.

    Of the driver it is one launch; of PyTorch what the same loop in C++ takes longer;
    of Python what a loop in Python takes longer than that one.
    """
    us = results["us"]
    shares = {}
    for name, kind in {"in_place": "", "new": "_new", "graded": "_graded"}.items():
        cpp, python = us["cpp" + kind], us["python" + kind]
        shares[name] = {
            "python": python - cpp,
            "pytorch": cpp - us["driver"],
            "driver": us["driver"],
        }
    return {"shares": shares}


def plot(results: dict, ceilings: dict):
    calls = {"x.add_(1)": "in_place", "y = x + 1": "new"}
    calls["y = x + 1, with a gradient"] = "graded"
    names = {"driver": "driver", "pytorch": "PyTorch's C++", "python": "Python"}
    shares = derive(results)["shares"]
    parts = {}
    for part, label in names.items():
        parts[label] = {call: shares[key][part] for call, key in calls.items()}
    picture = stacked(parts, "µs of the CPU for a call")
    for mark, color in zip(
        picture.panels[0].marks, ("muted", 1, "python"), strict=True
    ):
        assert isinstance(mark, Bars)
        mark.color = color
    return picture


if __name__ == "__main__":
    main()
