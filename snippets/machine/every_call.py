# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [0, 1, 2, 4]
# missing = { 0 = "not recorded yet", 4 = "not recorded yet" }
# timeout = 240
# ///
"""Every call and block of the five articles: what it printed, prints now, and warns.

An entry is the article's own unless its `ours` says what is not; a block that is written
anew, does what the article's does. Training on shared parameters is in hogwild_broken.

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
After Dive into DL PyTorch, by ShusenTang; Apache License 2.0.
After a post by u_16099226 on 51CTO, which names no licence.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch

from snippets.machine.as_printed import ALONE, CLASS, GRIDS, K80, RACE, SQ, grid_cell

#: Runs entries in one process; those of one space share their names, as in a notebook.
RUNNER = """
def all_entries():
    import ast, io, json, sys, time, warnings
    from contextlib import redirect_stdout

    def ran(code, names):
        *lines, last = ast.parse(code).body
        value = None
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(lines, []), "entry", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "entry", "eval"), names)
        else:
            exec(compile(ast.Module([*lines, last], []), "entry", "exec"), names)
        return "" if value is None else repr(value)

    entries, spaces, rows = json.load(sys.stdin), {"main": globals()}, []
    for space, code in entries:
        names = spaces.setdefault(space, {"__name__": "__main__"})
        now = error = ""
        said = io.StringIO()
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught, redirect_stdout(said):
            warnings.simplefilter("always")
            try:
                now = ran(code, names)
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}".strip().splitlines()[0]
        seconds = time.perf_counter() - start
        told = {f"{w.category.__name__}: {w.message}".splitlines()[0] for w in caught}
        row = {"now": said.getvalue() + now, "error": error, "warned": sorted(told)}
        rows.append(row | {"seconds": seconds})
    with open(sys.argv[1], "w") as file:
        json.dump(rows, file)

all_entries()
"""
CLOCK = """
import time

class Benchmark:
    def __init__(self, name="Done"):
        self.name = name

    def __enter__(self):
        self.start = time.time()

    def __exit__(self, *exc_info):
        print(f"{self.name}: {time.time() - self.start:.4f} sec")
"""
D2L = f"""
import numpy, os, subprocess, torch
from types import SimpleNamespace
{CLOCK}
d2l = SimpleNamespace(
    Benchmark=Benchmark,
    try_gpu=lambda: torch.device("cuda:0" if torch.cuda.is_available() else "cpu"),
)
"""
WARM = """
device = d2l.try_gpu()
a = torch.randn(size=(1000, 1000), device=device)
b = torch.mm(a, a)
"""
BY_NUMPY = """
with d2l.Benchmark('numpy'):
    for _ in range(10):
        a = numpy.random.normal(size=(1000, 1000))
        b = numpy.dot(a, a)
"""
BY_TORCH = """
with d2l.Benchmark('torch'):
    for _ in range(10):
        a = torch.randn(size=(1000, 1000), device=device)
        b = torch.mm(a, a)
"""
WAITED = """
with d2l.Benchmark():
    for _ in range(10):
        a = torch.randn(size=(1000, 1000), device=device)
        b = torch.mm(a, a)
    torch.cuda.synchronize(device)
"""
GRAPH = """
x = torch.ones((1, 2), device=device)
y = torch.ones((1, 2), device=device)
z = x * y + 2
z
"""
FANCY = """
def add(a, b):
    return a + b

def fancy_func(a, b, c, d):
    e = add(a, b)
    f = add(c, d)
    g = add(e, f)
    return g

fancy_func(1, 2, 3, 4)
"""
SYMBOLIC = """
program = '''
def add(a, b):
    return a + b

print(add(add(1, 2), add(3, 4)))
'''
exec(compile(program, '', 'exec'))
"""
SCORES = """
import torch

device = torch.device('cuda')

def dCKA(features, x, y, device):
    a, b = features - features.mean(0), x - x.mean(0)
    return (a.T @ b).square().sum() / ((a.T @ a).norm() * (b.T @ b).norm())

x = torch.randn(4096, 512, device=device)
features_mlp, features_cnn, features_resnet = torch.randn(3, 4096, 512, device=device)
"""
THREE = """
dcka_mlp = dCKA(features_mlp, x, x, device).to(device)
dcka_cnn = dCKA(features_cnn, x, x, device).to(device)
dcka_resnet = dCKA(features_resnet, x, x, device).to(device)
"""
STREAMS = """
stream1, stream2, stream3 = (torch.cuda.Stream() for _ in range(3))
with torch.cuda.stream(stream1):
    on_mlp = dCKA(features_mlp, x, x, device).to(device)
with torch.cuda.stream(stream2):
    on_cnn = dCKA(features_cnn, x, x, device).to(device)
with torch.cuda.stream(stream3):
    on_resnet = dCKA(features_resnet, x, x, device).to(device)
torch.cuda.synchronize()
[bool(torch.isclose(a, b)) for a, b in [
    (on_mlp, dcka_mlp), (on_cnn, dcka_cnn), (on_resnet, dcka_resnet)]]
"""
PARALLEL = """
module = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 4), nn.Softmax())
module, inp = module.cuda(), torch.ones((30, 20)).cuda()
replicas = nn.parallel.replicate(module, [0])
inputs = nn.parallel.scatter(inp, [0])
outputs = nn.parallel.parallel_apply(replicas, inputs)
nn.parallel.gather(outputs, 0).shape
"""
SEVERAL = """
x = torch.Tensor([1., 2.]).to({0})
y = torch.Tensor([3., 4.]).to({0})
z = x + y
z
"""
TWENTY_THOUSAND = """
def run(x):
    for _ in range(20000):
        y = torch.mm(x, x)
"""
ON_TWO = """
x_gpu1 = torch.rand(size=(100, 100), device='cuda:0')
x_gpu2 = torch.rand(size=(100, 100), device='cuda:1')
"""
TIMED = """
with Benchmark('{}'):
    {}
    torch.cuda.synchronize()
"""
SQUARES = """
import numpy as np

def square_all(numbers):
    squares = np.zeros_like(numbers)
    for i in range(numbers.shape[0]):
        for j in range(numbers.shape[1]):
            squares[i][j] = numbers[i][j] ** 2
    return squares

def in_processes(square, parts):
    children = [Process(target=square, args=(part,)) for part in parts]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return [child.exitcode for child in children]

def in_pool(square, parts):
    with Pool(2) as pool:
        return pool.map(square, parts)

numbers = np.random.randint(1, 9, (1024, 1000))
halves = np.array_split(numbers, 2)
"""
SIZES = """
def square_each(numbers):
    squares = np.zeros_like(numbers)
    for i in range(numbers.shape[0]):
        squares[i] = numbers[i] ** 2
    return squares

sizes = [10, 100, 1000, 10_000, 100_000, 1_000_000]
rows = [np.random.randint(1, 7, (size,)) for size in sizes]
pairs = [np.split(row, 2) for row in rows]
"""
SOME = """
import queue
from threading import Thread

import numpy as np

def square_some(numbers):
    squares = np.zeros_like(numbers)
    for i in range(numbers.shape[0]):
        for j in range(numbers.shape[0]):
            squares[i][j] = numbers[i][j] * numbers[i][j]
    return squares

q = queue.Queue()

def in_threads(parts):
    threads = [Thread(target=lambda part: q.put(square_some(part)), args=(part,))
               for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [q.get() for _ in parts]

numbers = np.random.randint(1, 10, (1000, 10000))
halves = np.array_split(numbers, 2)
"""
EACH_ELEMENT = """
import torch

def as_written(arr):
    for i in range(arr.shape[0]):
        for j in range(arr.shape[1]):
            arr[i][j] += i + j
            arr[i][j] *= arr[i][j]
"""
DOUBLE = '''
try:
    SourceModule("""
    __global__ void double(float *a)
    {
        int idx = threadIdx.x + threadIdx.y * blockDim.x;
        a[idx] *= 2;
    }
    """)
except Exception as error:
    print(next(line for line in str(error).splitlines() if "error:" in line))
'''
KERNELS = "import numpy\nimport pycuda.driver as cuda\nimport pycuda.autoinit\n"
KERNELS += "from pycuda.compiler import SourceModule"


def entry(key: str, code: str, then: str = "", needs: int = 0, **more) -> dict:
    """A call or block; `needs` so many GPUs.

    `ours` says what of it is not the article's; with `timed`, seconds are what it is
    about; with `pycuda`, it needs that.
    """
    about = {"ours": "", "timed": False, "pycuda": False, "space": "main"}
    return {"key": key, "code": code, "then": then, "needs": needs} | about | more


def part_1() -> list[dict]:
    """Article D: the cells of its notebook, then the calls that only its text has."""
    on_gpu, notebook = {"needs": 1}, {"pycuda": True, "needs": 1}
    two = "tensor([1., 2.], device='cuda:0')"
    own = "a comparison of ours"
    return [
        entry("D imports", "import torch\nfrom torch import nn"),
        entry("D driver", "import pycuda.driver as cuda\ncuda.init()", **notebook),
        entry("is_available", "torch.cuda.is_available()", "True"),
        entry("current_device", "torch.cuda.current_device()", "0", 1),
        entry("Device.name", "cuda.Device(0).name()", "'Tesla K80'", **notebook),
        entry("get_device_name", "torch.cuda.get_device_name(0)", "'Tesla K80'", 1),
        entry("class", CLASS, K80, **notebook, ours="without two of its methods"),
        entry("mem_info", "aboutCudaDevices().mem_info()", **notebook),
        entry(
            "attributes",
            "len(aboutCudaDevices().attributes())",
            **notebook,
            ours="how many there are",
        ),
        entry("nothing allocated", "torch.cuda.memory_allocated()", "0", 1),
        entry(
            "cuda.FloatTensor",
            "mat_a = torch.cuda.FloatTensor((100., 100.))\nmat_a",
            "tensor([100., 100.], device='cuda:0')",
            1,
        ),
        entry("memory_allocated", "torch.cuda.memory_allocated()", "512", 1),
        entry("memory_cached", "torch.cuda.memory_cached()", "1048576", 1),
        entry("empty_cache", "torch.cuda.empty_cache()", **on_gpu),
        entry(
            "FloatTensor",
            "Mat_cpu = torch.FloatTensor([1., 2.])\nMat_cpu",
            "tensor([1., 2.])",
        ),
        entry("DoubleTensor", "torch.DoubleTensor([1., 2.])"),
        entry(
            "Tensor.cuda",
            "Mat_gpu = Mat_cpu.cuda()\nMat_gpu, Mat_cpu",
            f"({two}, tensor([1., 2.]))",
            1,
        ),
        entry(
            "of a list",
            "Mat_gpu2 = torch.cuda.FloatTensor([1., 2.])\nMat_gpu2",
            two,
            1,
        ),
        entry("get_device", "Mat_gpu.get_device()", "0", 1),
        entry("Softmax", SQ),
        entry("Softmax called", "sq(torch.ones(3, 20)).shape", ours=own),
        entry("Module.cuda", "model = sq.cuda()", **on_gpu),
        entry("is_cuda", "next(model.parameters()).is_cuda", "True", 1),
        entry(
            "is_cuda, split",
            "split = nn.Sequential(nn.Linear(2, 2).cuda(), nn.Linear(2, 2))\n"
            "[next(layer.parameters()).is_cuda for layer in (split, split[1])]",
            **on_gpu,
            ours=own,
        ),
        entry(
            "is_cuda, no parameters",
            "next(nn.ReLU().cuda().parameters()).is_cuda",
            **on_gpu,
            ours=own,
        ),
        entry(
            "on the CPU",
            "model_cpu = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 4),"
            " nn.Softmax())\ncpu_inp = torch.ones((100000, 20))\n"
            "res = model_cpu(cpu_inp)\n",
            "28 ms",
            timed=True,
            ours="one call, cold",
        ),
        entry(
            "on the GPU",
            "gpu_inp = torch.ones((100000, 20), dtype=torch.float32).cuda()\n"
            "for i in range(10):\n  res = model(gpu_inp[i*1000:i*1000+1000])",
            "3.61 ms",
            1,
            timed=True,
            ours="one call, cold",
        ),
        entry("set_device", "torch.cuda.set_device(0)", **on_gpu),
        entry(
            "one GPU",
            "cuda0 = torch.device('cuda:0')\n" + SEVERAL.format("cuda0"),
            "tensor([4., 6.], device='cuda:0')",
            1,
        ),
        entry(
            "three GPUs",
            "cuda2 = torch.device('cuda:2')\n" + SEVERAL.format("cuda2"),
            needs=3,
        ),
        entry("race", RACE, **on_gpu, ours="its last line compares"),
        entry("replicate", PARALLEL, "torch.Size([30, 4])", 1),
        entry(
            "DataParallel",
            "model = nn.DataParallel(model, device_ids=[0])\nmodel(inp).shape",
            "torch.Size([30, 4])",
            1,
        ),
        entry(
            "share_memory_",
            "torch.zeros(2).share_memory_().is_shared()",
        ),
        entry(
            "Queue, Pipe, Array",
            "import torch.multiprocessing as mp\nq = mp.Queue()\nq.put(torch.ones(2))\n"
            "here, there = mp.Pipe()\nhere.send(torch.ones(2))\n"
            "q.get().tolist(), there.recv().tolist(), mp.Array('d', 2)[:]",
            ours="the names only are the article's",
        ),
    ]


def articles() -> list[dict]:
    """Articles A, B, C and E: a space of names for each."""
    printed = "{:.4f} s".format
    first, second, both = map(printed, (0.2989, 0.3518, 0.5076))
    a = {"space": "A"}
    c = {"space": "C", "needs": 1}
    e = {"space": "E"}
    two = {"space": "E", "needs": 2, "timed": True}
    return [
        entry("A imports", "from mxnet import autograd, gluon, np, npx", **a),
        entry("A names", D2L, **a, ours="stands for d2l, which is not installed"),
        entry("try_gpu", WARM, **a),
        entry("by numpy", BY_NUMPY, printed(1.0704), **a, timed=True),
        entry("by torch", BY_TORCH, printed(0.0013), **a, timed=True),
        entry("waited for", WAITED, printed(0.0049), 1, **a, timed=True),
        entry("x * y + 2", GRAPH, "tensor([[3., 3.]], device='cuda:0')", **a),
        entry("fancy_func", FANCY, "10", space="B"),
        entry("symbolic", SYMBOLIC, space="B", ours="its program is described only"),
        entry(
            "hybridize",
            "from mxnet.gluon import nn\nnet = nn.HybridSequential()\nnet.hybridize()",
            space="B",
        ),
        entry("C names", SCORES, **c, ours="the post does not say what dCKA does"),
        entry("three lines", THREE, **c),
        entry("three blocks", STREAMS, **c, ours="its last line compares"),
        entry("E names", f"import torch\n{CLOCK}", **e, ours="prints as D2L's does"),
        entry("two GPUs", "assert torch.cuda.device_count() >= 2", **e),
        entry("run", TWENTY_THOUSAND, **e),
        entry("tensors", ON_TWO, needs=2, **e),
        entry("first GPU", TIMED.format("first GPU", "run(x_gpu1)"), first, **two),
        entry(
            "second GPU",
            TIMED.format("second GPU", "run(x_gpu2)"),
            second,
            **two,
        ),
        entry(
            "both GPUs",
            TIMED.format("both GPUs", "run(x_gpu1)\n    run(x_gpu2)"),
            both,
            **two,
        ),
    ]


def workers() -> list[dict]:
    """Part 3's notebook: processes, threads, and a loop over a tensor.

    New processes are forked, as they were then on Linux.
    """
    ours = "written anew"
    whole = {"ours": ours, "timed": True}
    tenth = {"ours": f"{ours}; a tenth of the columns", "timed": True}
    hundredth = {"ours": f"{ours}; a hundredth of the elements", "timed": True}
    hundredth |= {"space": "elements"}
    threads = {"space": "threads"}
    fork = "import multiprocessing\nmultiprocessing.set_start_method('fork')\n"
    zeros = "as_written(torch.zeros((100, 100){}))"
    return [
        entry("workers", fork + "from multiprocessing import Pool, Process"),
        entry("squares", SQUARES, ours=ours),
        entry("loop", "squares = square_all(numbers)", **tenth),
        entry("Pool", "squares = in_pool(square_all, halves)", "6.78 s", **tenth),
        entry("Process", "codes = in_processes(square_all, halves)", "8.02 s", **tenth),
        entry("sizes", SIZES, ours=ours),
        entry("sizes, loop", "for row in rows: square_each(row)", "431 ms", **whole),
        entry(
            "sizes, Pool",
            "for pair in pairs: in_pool(square_each, pair)",
            "1.91 s",
            **whole,
        ),
        entry(
            "sizes, Process",
            "for pair in pairs: in_processes(square_each, pair)",
            "1.01 s",
            **whole,
        ),
        entry("threads", SOME, ours=ours, **threads),
        entry("one thread", "all = square_some(numbers)", "954 ms", **whole, **threads),
        entry("two threads", "two = in_threads(halves)", "496 ms", **whole, **threads),
        entry(
            "elements squared",
            "int((all != 0).sum()), int(sum((part != 0).sum() for part in two))",
            **threads,
            ours="a count of ours",
        ),
        entry("empty", "q.empty()", "True", **threads),
        entry("elements", EACH_ELEMENT, ours=ours, space="elements"),
        entry("CPU tensor", zeros.format(""), "23.8 s", **hundredth),
        entry("GPU tensor", zeros.format(", device='cuda'"), "231 s", 1, **hundredth),
    ]


def kernels() -> list[dict]:
    """Part 3's notebook: the index of a thread in five grids of blocks."""
    on_gpu = {"needs": 1, "pycuda": True}
    put = "put together from its lines"
    names = ["1D grid, 1D block", "1D grid, 2D block", "1D grid, 3D block"]
    names += ["2D grid, 3D block"]
    cells = [(name, *grid_cell(g)) for name, g in zip(names, GRIDS, strict=True)]
    alone = repr([[float(x) for x in range(3990, 4000)]])
    return [
        entry("SourceModule", KERNELS, **on_gpu),
        entry("double", DOUBLE, **on_gpu, ours="shows the message of the compiler"),
        *(entry(*cell, **on_gpu, ours=put) for cell in cells),
        entry("one thread alone", ALONE, alone, **on_gpu),
    ]


def missing(wants: dict, gpus: int) -> str:
    """What this machine lacks for an entry."""
    if wants["needs"] > gpus:
        return f"needs {wants['needs']} GPU{'s' * (wants['needs'] > 1)}"
    return "needs pycuda" if wants["pycuda"] and not find_spec("pycuda") else ""


def in_one_process(entries: list[dict], limit_s: int = 100) -> list[dict]:
    """What each entry that can be run here prints and warns, run in a new process.

    If it ends early or takes too long, it ends with all that it started: RuntimeError.
    """
    gpus = torch.cuda.device_count()
    lacks = [missing(wants, gpus) for wants in entries]
    ours = [e for e, lack in zip(entries, lacks, strict=True) if not lack]
    with tempfile.TemporaryDirectory() as folder:
        told, said = Path(folder) / "rows.json", Path(folder) / "said.txt"
        with said.open("w") as file:
            child = subprocess.Popen(
                [sys.executable, "-c", RUNNER, str(told)],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                text=True,
                start_new_session=True,
            )
            try:
                typed = json.dumps([[e["space"], e["code"]] for e in ours])
                child.communicate(typed, timeout=limit_s)
            except subprocess.TimeoutExpired:
                pass
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
        if not told.exists():
            last = said.read_text()[-500:]
            raise RuntimeError(f"ended early, with {child.returncode}: {last}")
        found = iter(json.loads(told.read_text()))
    nothing = {"now": "", "error": "", "warned": [], "seconds": None}
    rows = []
    for each, lack in zip(entries, lacks, strict=True):
        row = {"key": each["key"], "code": each["code"].strip(), "lacks": lack}
        row |= {"then": each["then"], "ours": each["ours"], "timed": each["timed"]}
        row |= dict(nothing) if lack else next(found)
        rows.append(row)
    return rows


def main() -> dict:
    groups = (part_1(), articles(), workers(), kernels())
    rows = [row for group in groups for row in in_one_process(group)]
    for row in rows:
        print(f"{row['key']}: {row['code'].splitlines()[-1].strip()[:60]}")
        for name in ("then", "now", "error", "lacks"):
            if row[name]:
                print(f"    {name:8}{' '.join(row[name].split())[:100]}")
        for warning in row["warned"]:
            print(f"    warned  {warning[:100]}")
    return {"entries": {row["key"]: row for row in rows}}


def told_now(row: dict) -> str:
    """What an entry printed, in one line; where time is its subject, the time."""
    if row["lacks"] or row["error"]:
        return row["lacks"] or row["error"]
    text = " ".join(row["now"].split())
    if row["timed"] and "sec" not in text:
        return f"{row['seconds']:.4f} s"
    return text or "nothing"


def derive(results: dict) -> dict:
    """Of each entry what a table says; how many print the same now, and which not."""
    from textwrap import shorten

    def says(row: dict) -> str:
        """What it prints, and after a sign what it warns."""
        text = shorten(told_now(row).rstrip(":"), 60, placeholder=" …")
        warned = shorten("; ".join(row["warned"]), 120, placeholder=" …")
        return f"{text} ⚠ {warned}" if warned else text

    rows = results["entries"]
    ran = {key: row for key, row in rows.items() if not row["lacks"]}
    told = {k: row for k, row in ran.items() if row["then"] and not row["timed"]}
    same = [k for k, r in told.items() if r["then"].split() == r["now"].split()]
    return {
        "says": {key: says(row) for key, row in rows.items()},
        "printed_then": len(told),
        "same": same,
        "other": [key for key in told if key not in same],
        "failed": [key for key, row in ran.items() if row["error"]],
        "warned": [key for key, row in ran.items() if row["warned"]],
        "not_run": [key for key in rows if key not in ran],
    }


if __name__ == "__main__":
    main()
