# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1", "cupy-cuda13x", "cuda-core"]
# [tool.overlap]
# gpus = [1]
# timeout = 420
# ///
"""One kernel by four libraries, on tensors, in PyTorch's stream: order, cost, a graph."""

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import version
from itertools import count
from statistics import median
from tempfile import mkdtemp

import numpy as np
import torch

from snippets.machine.kernel_from_source import SOURCE, by_pycuda, by_torch
from snippets.machine.launch_cost import CALLS, launch_clock
from snippets.machine.pycuda_capture import in_a_process, said
from snippets.machine.pycuda_context import pycuda_driver, torch_context
from snippets.machine.pycuda_stream_kept import kept_stream
from snippets.timing.take_turns import both_orders, recorded

BLOCK = 256
SMALL, LARGE = 1024, 10_000_000  # elements, where launches are timed, and for the order
PROCESSES = 3  # in which a first kernel is timed
SOURCES = 7  # that are compiled after it


def blocks_for(a: torch.Tensor) -> int:
    """As many blocks as the elements need."""
    return -(-a.numel() // BLOCK)


class StreamHandle:
    """PyTorch's stream for others, by the protocol that CuPy and cuda.core read."""

    def __init__(self, stream: torch.cuda.Stream):
        self.stream = stream  # which must live as long

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream.cuda_stream


class Compiled:
    """PyTorch's own: it takes tensors, and the current stream where none is named."""

    def __init__(self):
        self.version = torch.__version__

    def stream(self) -> torch.cuda.Stream:
        """A stream for PyTorch in which this library can launch."""
        return torch.cuda.Stream()

    def kernel(self, source: str):
        return by_torch(source)

    def told(self, kernel, out: torch.Tensor, a: torch.Tensor) -> None:
        """Launch, in PyTorch's current stream."""
        kernel((blocks_for(a), 1, 1), (BLOCK, 1, 1), [out, a, a.numel()])

    def untold(self, kernel, out, a) -> Callable[[], object]:
        """A launch for which no stream is named."""
        return lambda: self.told(kernel, out, a)

    def passes(self, kernel, out, a) -> dict[str, Callable[[], object]]:
        """Ways to pass a tensor, each a launch."""
        return {"tensor": lambda: self.told(kernel, out, a)}

    def launches(self, kernel, out, a) -> dict[str, Callable[[], object]]:
        """Launches to be timed, in PyTorch's current stream."""
        return {"": lambda: self.told(kernel, out, a)}


class Pycuda(Compiled):
    """pycuda launches in streams of its own alone: PyTorch has to work in one of them."""

    def __init__(self):
        pycuda_driver()
        import_module("pycuda.compiler")
        self.version = version("pycuda")

    def stream(self) -> torch.cuda.Stream:
        return kept_stream()[1]

    def kernel(self, source: str):
        return by_pycuda(source)

    def told(self, kernel, out, a) -> None:
        shape = {"grid": (blocks_for(a), 1), "block": (BLOCK, 1, 1)}
        kernel(out, a, np.int32(a.numel()), **shape, stream=kept_stream()[0])

    def untold(self, kernel, out, a):
        shape = {"grid": (blocks_for(a), 1), "block": (BLOCK, 1, 1)}
        return lambda: kernel(out, a, np.int32(a.numel()), **shape)

    def passes(self, kernel, out, a):
        shape = {"grid": (blocks_for(a), 1), "block": (BLOCK, 1, 1)}
        shape["stream"], n = kept_stream()[0], np.int32(a.numel())
        pointers = [np.uintp(x.data_ptr()) for x in (out, a)]
        return {
            "tensor": lambda: kernel(out, a, n, **shape),
            "pointer": lambda: kernel(*pointers, n, **shape),
        }

    def launches(self, kernel, out, a):
        stream, n = kept_stream()[0], a.numel()
        grid, block = (blocks_for(a), 1), (BLOCK, 1, 1)
        prepared = self.kernel(SOURCE).prepare("PPi")
        return {
            "": lambda: kernel(
                out, a, np.int32(n), grid=grid, block=block, stream=stream
            ),
            "prepared": lambda: prepared.prepared_async_call(
                grid, block, stream, out.data_ptr(), a.data_ptr(), n
            ),
        }


class Cupy(Compiled):
    """CuPy takes its own arrays, which can be views of tensors, and its current stream."""

    def __init__(self):
        os.environ["CUPY_CACHE_DIR"] = mkdtemp()  # nothing is found that was kept
        import cupy

        self.cupy, self.version = cupy, cupy.__version__

    def kernel(self, source: str):
        kernel = self.cupy.RawKernel(source, "twice")
        kernel.compile()
        return kernel

    def of(self, stream: torch.cuda.Stream):
        """PyTorch's stream as CuPy's."""
        streams = self.cupy.cuda
        if hasattr(streams.Stream, "from_external"):  # since CuPy 14
            return streams.Stream.from_external(StreamHandle(stream))
        return streams.ExternalStream(stream.cuda_stream)

    def told(self, kernel, out, a) -> None:
        with self.of(torch.cuda.current_stream()):
            views = [self.cupy.from_dlpack(x) for x in (out, a)]
            kernel((blocks_for(a),), (BLOCK,), (*views, np.int32(a.numel())))

    def kept(self, kernel, out, a) -> Callable[[], object]:
        """A launch in CuPy's current stream, whichever that is, of views made before."""
        views = [self.cupy.from_dlpack(x) for x in (out, a)]
        grid, args = (blocks_for(a),), (*views, np.int32(a.numel()))
        return lambda: kernel(grid, (BLOCK,), args)

    untold = kept

    def passes(self, kernel, out, a):
        grid, n = (blocks_for(a),), np.int32(a.numel())
        stream = self.of(torch.cuda.current_stream())

        def launch(view: Callable[[torch.Tensor], object]) -> None:
            with stream:
                kernel(grid, (BLOCK,), (view(out), view(a), n))

        return {
            "tensor": lambda: launch(lambda x: x),
            "DLPack": lambda: launch(self.cupy.from_dlpack),
            "CUDA array interface": lambda: launch(self.cupy.asarray),
            "pointer": lambda: launch(lambda x: x.data_ptr()),
        }

    def launches(self, kernel, out, a):
        self.of(torch.cuda.current_stream()).use()  # from here on, in this thread
        return {
            "": lambda: self.told(kernel, out, a),
            "kept": self.kept(kernel, out, a),
        }


class Core(Compiled):
    """cuda.core takes addresses, and must be given a stream."""

    def __init__(self):
        core = import_module("cuda.core")
        if not hasattr(core, "launch"):  # its first releases
            core = import_module("cuda.core.experimental")
        self.core = core
        self.version = import_module("cuda.core").__version__
        self.device = core.Device(torch.cuda.current_device())
        self.device.set_current()  # the primary context, which is PyTorch's

    def kernel(self, source: str):
        major, minor = torch.cuda.get_device_capability()
        options = self.core.ProgramOptions(std="c++17", arch=f"sm_{major}{minor}")
        program = self.core.Program(source, code_type="c++", options=options)
        return program.compile("cubin").get_kernel("twice")

    def of(self, stream: torch.cuda.Stream):
        """PyTorch's stream as cuda.core's."""
        return self.device.create_stream(StreamHandle(stream))

    def launch(self, stream, kernel, a, pointers) -> None:
        config = self.core.LaunchConfig(grid=blocks_for(a), block=BLOCK)
        self.core.launch(stream, config, kernel, *pointers, np.int32(a.numel()))

    def told(self, kernel, out, a) -> None:
        pointers = out.data_ptr(), a.data_ptr()
        self.launch(self.of(torch.cuda.current_stream()), kernel, a, pointers)

    def untold(self, kernel, out, a):
        pointers = out.data_ptr(), a.data_ptr()
        return lambda: self.launch(self.device.default_stream, kernel, a, pointers)

    def passes(self, kernel, out, a):
        stream = self.of(torch.cuda.current_stream())
        pointers = out.data_ptr(), a.data_ptr()
        return {
            "tensor": lambda: self.launch(stream, kernel, a, (out, a)),
            "pointer": lambda: self.launch(stream, kernel, a, pointers),
            "no stream": lambda: self.launch(None, kernel, a, pointers),
        }

    def launches(self, kernel, out, a):
        stream = self.of(torch.cuda.current_stream())
        config = self.core.LaunchConfig(grid=blocks_for(a), block=BLOCK)
        launch, n = self.core.launch, np.int32(a.numel())
        return {
            "": lambda: self.told(kernel, out, a),
            "kept": lambda: launch(
                stream, config, kernel, out.data_ptr(), a.data_ptr(), n
            ),
        }


LIBRARIES: dict[str, type[Compiled]] = {
    "pycuda": Pycuda,
    "CuPy": Cupy,
    "cuda.core": Core,
    "compile_kernel": Compiled,
}


def block_of(name: str):
    """pycuda needs PyTorch's context on its stack; others find it."""
    return torch_context() if name == "pycuda" else nullcontext()


def missing(name: str) -> dict[str, str]:
    """Why a library cannot be used here, if it cannot."""
    torch.ones(1, device="cuda")
    with block_of(name):
        return {"missing": said(LIBRARIES[name])}


def ready(name: str) -> dict:
    """Milliseconds to import it, until a first kernel has run, and further ones."""
    a, out = torch.ones(2, SMALL, device="cuda")
    (out + a).sum().item()  # PyTorch has begun
    ms = {}

    def until_it_ran(source: str) -> float:
        start = time.perf_counter()
        with torch.cuda.stream(stream):
            library.told(library.kernel(source), out, a)
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    start = time.perf_counter()
    with block_of(name):
        library = LIBRARIES[name]()
        ms["import_ms"] = 1e3 * (time.perf_counter() - start)
        stream = library.stream()
        number = count()  # no source is compiled twice
        ms["first_ms"] = until_it_ran(f"{SOURCE}// {next(number)}")
        later = [until_it_ran(f"{SOURCE}// {next(number)}") for _ in range(SOURCES)]
        torch.testing.assert_close(out, 2 * a)
    return ms | {"ms": median(later)}


def wrong_elements(library: Compiled, kernel, how: str) -> int:
    """PyTorch fills `a` late with threes, the kernel doubles: how many are not six?"""
    out, a = torch.zeros(2, LARGE, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(library.stream()):
        launch = {
            "told": lambda: library.told(kernel, out, a),
            "untold": library.untold(kernel, out, a),
        }[how]
        a.fill_(0)  # loads PyTorch's kernels, which would wait below
        assert int((out != 6).sum()) == LARGE
        torch.cuda.synchronize()
        torch.cuda._sleep(100_000_000)  # cycles: some 50 ms of earlier work
        a.fill_(3)
        launch()
        wrong = int((out != 6).sum())
    torch.cuda.synchronize()
    return wrong


def passed(library: Compiled, kernel) -> dict[str, dict]:
    """What a launch says for each way to pass a tensor, and how many elements are right."""
    out, a = torch.rand(2, SMALL, device="cuda")
    torch.cuda.synchronize()
    rows = {}
    with torch.cuda.stream(library.stream()):
        for way, launch in library.passes(kernel, out, a).items():
            out.zero_()
            says = said(launch)
            rows[way] = {"says": says, "right": int((out == 2 * a).sum())}
    torch.cuda.synchronize()
    return rows


def in_a_graph(library: Compiled, kernel) -> dict:
    """PyTorch adds one, the kernel doubles, PyTorch adds one: captured, replayed twice."""
    a, out = torch.ones(SMALL, device="cuda"), torch.zeros(SMALL, device="cuda")
    stream, graph, row = library.stream(), torch.cuda.CUDAGraph(), {}
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        library.told(kernel, out, a)  # loaded before anything is captured
        out.zero_()
    torch.cuda.synchronize()

    def capture() -> None:
        with torch.cuda.graph(graph, stream=stream):
            a.add_(1)
            row["call"] = said(lambda: library.told(kernel, out, a))
            out.add_(1)

    row["capture"] = said(capture)
    row["during"] = float(out[0])
    row["replays"] = []
    if not row["capture"]:
        for _ in range(2):
            graph.replay()
            row["replays"].append(float(out[0]))
    return row


def probe(name: str) -> dict:
    """Is a library's kernel right, in order with PyTorch's work, and part of a graph?"""
    torch.ones(1, device="cuda")
    with block_of(name):
        library = LIBRARIES[name]()
        kernel, stream = library.kernel(SOURCE), library.stream()
        a, out = torch.rand(2, LARGE, device="cuda")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            library.told(kernel, out, a)
        torch.cuda.synchronize()
        torch.testing.assert_close(out, torch.mul(a, 2), rtol=0, atol=0)
        wrong = {
            how: wrong_elements(library, kernel, how) for how in ("told", "untold")
        }
        row = {"wrong": wrong, "passed": passed(library, kernel)}
        return row | {"version": library.version, "graph": in_a_graph(library, kernel)}


def launched(names: list[str]) -> dict:
    """Microseconds of the CPU for a launch, by all of them in turns, in one stream."""
    a, out = torch.rand(2, SMALL, device="cuda")
    torch.cuda.synchronize()
    with torch_context() if "pycuda" in names else nullcontext():
        stream = kept_stream()[1] if "pycuda" in names else torch.cuda.Stream()
        with torch.cuda.stream(stream):
            works = {"torch": lambda: torch.mul(a, 2, out=out)}
            for name in names:
                library = LIBRARIES[name]()
                launches = library.launches(library.kernel(SOURCE), out, a)
                for way, launch in launches.items():
                    works[f"{name}, {way}".rstrip(", ")] = launch
            for work in works.values():
                out.zero_()
                work()
                torch.testing.assert_close(out, 2 * a, rtol=0, atol=0)
            how = {"trials": 15, "calls": CALLS, "clock": launch_clock}
            return recorded(both_orders(works, **how), "us")


def of_processes(name: str) -> dict:
    """Medians of `ready` over fresh processes, one after the other, and the trials."""
    rows = [in_a_process(ready, name) for _ in range(PROCESSES)]
    died = [row["died"] for row in rows if "died" in row]
    if died:
        return {"not_ready": died[0]}
    trials = {f"{key}_trials": [row[key] for row in rows] for key in rows[0]}
    return {key: median([row[key] for row in rows]) for key in rows[0]} | trials


def main() -> dict:
    rows: dict[str, dict] = {}
    for name in LIBRARIES:
        why = in_a_process(missing, name)
        why = why.get("died") or why["missing"]
        if why:
            rows[name] = {"missing": why}
        else:
            rows[name] = in_a_process(probe, name) | of_processes(name)
    usable = [name for name, row in rows.items() if "wrong" in row]
    launch = in_a_process(launched, usable)
    for name, row in rows.items():
        print(f"{name} {row.get('version', '')}")
        for key in ("missing", "died", "not_ready"):
            if key in row:
                print(f"    {key}: {row[key]}")
        if "first_ms" in row:
            steps = f"first kernel {row['first_ms']:.0f} ms, further {row['ms']:.1f} ms"
            print(f"    import {row['import_ms']:.0f} ms, {steps}")
        if "wrong" in row:
            print("    wrong, stream {told:,}, none {untold:,}".format(**row["wrong"]))
            print(f"    replays of a graph: {row['graph']['replays']}")
            for way, what in row["passed"].items():
                print(f"    passed as {way}: {what['says'] or 'works'}")
    for way, us in launch.get("us", {}).items():
        print(f"{way:20}launched in {us:5.2f} µs")
    if "died" in launch:
        print(f"launches: {launch['died']}")
    protocol = hasattr(torch.cuda.Stream, "__cuda_stream__")
    result = {"elements": {"small": SMALL, "large": LARGE}, "rows": rows}
    return result | {"launch": launch, "torch_stream_has_protocol": protocol}


def derive(results: dict) -> dict:
    """Libraries whose launches are in order, too early without a stream, in a graph.

    `takes` are the ways to pass a tensor by which all elements are right; `ran_ms` is the
    time of the import and the first kernel, `kept_us` of a launch with all made before;
    `to_torch` is that in launches of `torch.mul`.
    """
    small = results["elements"]["small"]
    names: dict[str, list[str]] = {"in_order": [], "early": [], "in_graph": []}
    takes = {}
    for name, row in results["rows"].items():
        if "wrong" not in row:
            continue
        if row["wrong"]["told"] == 0:
            names["in_order"].append(name)
        if row["wrong"]["untold"] > 0:
            names["early"].append(name)
        if row["graph"]["during"] == 0 and row["graph"]["replays"] == [5, 7]:
            names["in_graph"].append(name)
        takes[name] = [
            way for way in row["passed"] if row["passed"][way]["right"] == small
        ]
    short = {"core": "cuda.core", "cupy": "CuPy", "pycuda": "pycuda"}
    short["torch"] = "compile_kernel"
    rows, us = results["rows"], results["launch"].get("us", {})
    ran_ms = {
        key: rows[name]["import_ms"] + rows[name]["first_ms"]
        for key, name in short.items()
        if "first_ms" in rows.get(name, {})
    }
    kept = {"core": "cuda.core, kept", "cupy": "CuPy, kept"}
    kept |= {"pycuda": "pycuda, prepared", "torch": "compile_kernel"}
    kept_us = {key: us[way] for key, way in kept.items() if way in us}
    ways = kept | {"anew": "CuPy"}
    to_torch = {key: us[way] / us["torch"] for key, way in ways.items() if way in us}
    times = {"ran_ms": ran_ms, "kept_us": kept_us, "to_torch": to_torch}
    return names | {"takes": takes} | times


if __name__ == "__main__":
    main()
