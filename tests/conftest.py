"""Fixtures and the `gpu` marker for all tests."""

import contextlib
import functools
import gc
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

os.environ["MPLBACKEND"] = "Agg"
if "PYTEST_XDIST_WORKER" in os.environ:
    # workers share the cores; threads that spin for one would hold them up
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import left_as_found
import torch
import torch.distributed as dist
from fake_cuda import FakeNvml, FakePycuda, imitated

from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.commands import diagnosis
from overlap.commands.check import check
from overlap.run import hardware, noise, recording, worker
from overlap.run.runner import Runner
from overlap.run.snippet import Snippet, discover
from snippets.machine import pycuda_context, pycuda_kernel

ROOT = Path(__file__).resolve().parent.parent
#: (2, 13), whatever comes behind it.
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
    " --no-first-run --disable-quic --process-per-site"
)


#: What the names of files begin with that take a minute or more.
LONG = ("test_site", "test_book", "test_overlap_runner", "test_sharding", "test_memory", "test_training")


def pytest_addoption(parser):
    """`--shuffle SEED`: no test may need what another one left."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")


def pytest_report_header(config):
    """The order can be had again."""
    seed = config.option.shuffle
    return None if seed is None else f"in a random order: --shuffle {seed}"


def pytest_configure(config):
    """Several workers take the files in the order given below; what tests start can be interrupted, also
    where this was started in the background and a shell had it ignore SIGINT.
    """
    config.option.loadscopereorder = False
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    """What takes long comes first, so that several workers end together; `@pytest.mark.gpu(n)` tests are
    skipped, with the reason, where fewer than n GPUs are visible.
    """
    items.sort(key=lambda item: not item.path.name.startswith(LONG))
    if config.option.shuffle is not None:
        random.Random(config.option.shuffle).shuffle(items)
    have = torch.cuda.device_count()
    for item in items:
        for mark in item.iter_markers("program"):
            in_small(*mark.args, **mark.kwargs)  # or nobody would see without a GPU that a constant is gone
        marker = item.get_closest_marker("gpu")
        need = (marker.args or (1,))[0] if marker else 0
        if need > have:
            item.add_marker(pytest.mark.skip(reason=f"needs {need} GPU(s), this machine has {have}"))


@functools.cache
def all_snippets() -> dict[str, Snippet]:
    """The snippets of the book, read once for all tests of a process."""
    return discover(ROOT)


@functools.cache
def committed() -> Pages:
    """The book's pages with its recordings, read once for tests that only read them."""
    return Pages(Book(ROOT, "never"))


@pytest.fixture(scope="session")
def recorded():
    """`recorded("chapter/snippet")` gives {machine: what main() returned} of all committed recordings."""

    def load(name: str) -> dict[str, dict]:
        results = {
            path.relative_to(ROOT / "docs/recordings").parts[0]: json.loads(path.read_text())["result"]
            for path in sorted(ROOT.glob(f"docs/recordings/*/{name}.json"))
        }
        assert results, f"no recording of {name} under docs/recordings: run `overlap record {name}`"
        return results

    return load


@pytest.fixture
def alone():
    """A gloo group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


#: Runs a program in so many ranks with what torchrun tells them, forked from a process that imported torch.
#: As torchrun does, that process keeps the store where the ranks meet, at a port that was free.
RANKS = """
import os, runpy, signal, sys
import torch
import torch.distributed as dist

ranks, program = int(sys.argv[1]), sys.argv[2]
sys.argv = sys.argv[2:]
os.environ |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
told, tell = os.pipe()
for rank in range(ranks):
    if os.fork() == 0:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": os.read(told, 5).decode()}
        runpy.run_path(program, run_name="__main__")
        sys.exit()
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # its thread must not be forked
os.write(tell, f"{store.port:05}".encode() * ranks)
for _ in range(ranks):
    if os.wait()[1]:
        os.killpg(0, signal.SIGTERM)  # the others would wait for it
"""


#: Seconds after which what a test started hangs. On a busy machine it takes many times as long as alone.
LIMIT_S = 1200


def on_ranks(ranks: int, *program: str) -> None:
    """Run a program, a path and its arguments, in so many ranks on this machine."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RANKS, str(ranks), *program]
    options: dict[str, Any] = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, start_new_session=True, timeout=LIMIT_S, **options)
    assert done.returncode == 0, done.stderr


#: What each runner in small begins with.
#: A group of gloo that ends with a model of DDP, after the others, can wait for its own thread for ever.
END = """
import torch
import torch.distributed as dist

def end():
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        dist.barrier()  # the other GPU may still read from this process

dist.destroy_process_group = end
"""


#: Where the ranks of snippets run in small: on GPUs wherever there are two of them.
PLACES = [
    pytest.param("cpu", marks=pytest.mark.skipif(torch.cuda.device_count() > 0, reason="on the CPU")),
    pytest.param("gpus", marks=pytest.mark.gpu(2)),
]


@pytest.fixture(scope="session", params=PLACES)
def where(request) -> str:
    """Where the ranks of snippets run in small, once for all tests, in whatever order they come."""
    return request.param


def run_in_small(runner: str, sizes: dict[str, dict], folder: Path, where: str) -> None:
    """Let the runner write to the folder what snippets of these sizes gave in each of two ranks.

    On GPUs three run at a time; torch counts those without a use of CUDA, which a fork would not survive.
    """
    (folder / "runner.py").write_text(END + runner)
    count = 1 if where == "cpu" else 3
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(count) as pool:
        patch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        arguments = 2, str(folder / "runner.py"), json.dumps(sizes), str(folder)
        ends = [pool.submit(on_ranks, *arguments, *list(sizes)[first::count]) for first in range(count)]
        for end in ends:
            end.result()


def under_torchrun(ranks: int, *arguments: str) -> str:
    """What all ranks printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    options: dict[str, Any] = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run([*command, *arguments], timeout=LIMIT_S, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


#: In a copy of a snippet whose times are of no interest: each work has two turns, whatever was asked for.
QUICK = """
from snippets.timing import take_turns as turns

take_turns = both_orders = lambda works, *how, clock=turns.wall_clock, **others: (
    turns.take_turns(works, 0, 2, 1, clock=clock)
)
"""


def in_small(name: str, quick: bool = False, ranks: int = 0, **constants: object) -> str:
    """The code of a snippet in which these constants are others."""
    code, main, end = (ROOT / f"snippets/{name}.py").read_text().partition('\nif __name__ == "__main__":')
    for constant in constants:
        if not re.search(rf"\b{constant}\b", code):
            raise pytest.UsageError(f"{name} has no {constant}")
    if quick and "take_turns" not in code:
        raise pytest.UsageError(f"{name} lets nothing take turns")
    return f"{code}\nglobals().update({constants!r})\n{QUICK if quick else ''}{main}{end}"


def run_alone(name: str, quick: bool = False, ranks: int = 0, **constants: object) -> dict:
    """What `main()` of a snippet, `in_small`, returns in a process that did nothing but import torch.

    Or in the first of so many `ranks`, which torchrun starts. What it starts by `__file__` is small, too.
    """
    environment = os.environ | {"PYTHONPATH": worker.python_path(str(ROOT))}
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{name.rpartition('/')[2]}.py")
        path.write_text(in_small(name, quick, **constants))
        job = worker.Job(str(ROOT), environment, LIMIT_S, path=str(path), ranks=ranks)
        with worker.SERVER.begin(job) as connection:
            outcome = connection.recv()
    assert outcome.exit == 0, f"{name}: {outcome.end}, {outcome.exit}\n" + "\n".join(outcome.outputs.values())
    return json.loads(outcome.result)


#: How many programs run at a time on a GPU, of those whose results do not depend on others beside them.
BESIDE = min(6, max(1, (os.cpu_count() or 2) // 2))


@pytest.fixture(scope="session")
def programs(request) -> dict[str, Future[dict]]:
    """The ends of all programs that tests of this session name in `@pytest.mark.program(name, **constants)`.

    They run side by side when the first of these tests begins, and beside no other test.
    """
    marks = {}
    for item in request.session.items:
        if not item.get_closest_marker("skip"):
            marks |= {mark.args[0]: mark.kwargs for mark in item.iter_markers("program")}
    with ThreadPoolExecutor(BESIDE) as pool:
        return {name: pool.submit(run_alone, name, **constants) for name, constants in marks.items()}


@pytest.fixture
def returned(request, programs) -> dict:
    """What the program that the test is marked with returned."""
    return programs[request.node.get_closest_marker("program").args[0]].result()


@contextlib.contextmanager
def no_gpu():
    """No GPU is visible, wherever this runs, and child processes find this checkout's `overlap`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
        patch.delenv("OVERLAP_EXECUTE", raising=False)
        hardware.here.cache_clear()
        yield
    hardware.here.cache_clear()


@pytest.fixture(scope="module")
def on_cpu():
    """The tests of a module see no GPU."""
    with no_gpu():
        yield


@pytest.fixture(autouse=True)
def gpus_as_found(request):
    """A test that needs a GPU leaves streams, settings and processes as it found them, or fails."""
    if not request.node.get_closest_marker("gpu"):
        yield
        return
    before = left_as_found.state()
    yield
    gc.collect()  # pycuda's objects can be freed in this thread only, not wherever Python collects next
    changed = left_as_found.restored(before)
    assert not changed, changed


@pytest.fixture(autouse=True)
def no_open_figures():
    """Pictures are closed after each test that drew some."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture
def gpu():
    """CUDA, imitated: what is launched is done at once, and the clock is the GPU's own."""
    with imitated() as gpu:
        yield gpu


@pytest.fixture(params=["main", "side"])
def unfair(request):
    """CUDA, imitated: all is put off until somebody waits, and then one side's streams run first."""
    with imitated(late=True, first=request.param) as gpu:
        yield gpu


@pytest.fixture
def late():
    """CUDA, imitated: nothing is done before it must be."""
    with imitated(late=True) as gpu:
        yield gpu


@pytest.fixture
def allocator():
    """CUDA, imitated; tensors have sizes and no content, and blocks are never cut."""
    with imitated(values=False) as gpu:
        yield gpu


@pytest.fixture
def two_gpus():
    """CUDA with two GPUs, imitated."""
    with imitated(gpus=2) as gpu:
        yield gpu


@pytest.fixture
def nvml(monkeypatch):
    """`nvml(...)` puts an NVML in the place of `pynvml`; its options are those of `FakeNvml`."""
    return lambda **options: monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(**options))


@pytest.fixture
def pycuda(monkeypatch):
    """pycuda on a machine of two GPUs; no context and no kernel is left from another test, or for one."""
    fake = FakePycuda()
    for module in (fake.package, fake.driver, fake.compiler):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=0))
    caches = (pycuda_context.primary_context, pycuda_kernel.twice_kernel)
    for cache in caches:
        cache.cache_clear()
    yield fake
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def precision():
    """The settings of products of float32 matrices, at full precision whatever ran before."""
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = "ieee"
    yield settings
    settings.fp32_precision = before


@pytest.fixture
def diary(monkeypatch):
    """What the tools of the timing chapter did, in order; each reading of their clock is a second later."""
    from snippets.timing import benchmark, d2l_benchmark, take_turns

    events = []

    def read_clock():
        events.append("clock")
        return float(events.count("clock"))

    clock = SimpleNamespace(perf_counter=read_clock, sleep=lambda s: events.append(f"rest {s}"))
    for module in (benchmark, d2l_benchmark, take_turns):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: events.append(f"wait {device}"))
    return events


class SmallBook:
    """A book of a few files in a temporary folder; `site` is what a test built of it."""

    site: Any
    HEADER = "# /// script\n# [tool.overlap]\n{}# ///\n"
    MAIN = 'def main():\n    print("three")\n    return {"n": 3}\n'

    def __init__(self, root: Path):
        self.root = root
        for name in ("snippets", "docs/recordings"):
            (root / name).mkdir(parents=True)
        shutil.copy(ROOT / "snippets/pictures.py", root / "snippets")

    def snippet(
        self, name: str, code: str = MAIN, options: str = "gpus = [0]", header: str | None = None
    ) -> Snippet:
        """Write a snippet with the options as lines of TOML, and read it back."""
        path = self.root / "snippets" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        lines = "".join(f"# {line}\n" for line in options.splitlines())
        path.write_text(
            (self.HEADER.format(lines) if header is None else header) + '"""A test."""\n\n' + code
        )
        return Snippet.read(self.root, name)

    def page(self, name: str, text: str) -> None:
        """Write docs/<name>.md."""
        (self.root / f"docs/{name}.md").write_text(text)

    def entries(self, file: str, **entries: dict) -> None:
        """Write docs/<file>.toml, by the ids of its entries."""
        lines = []
        for name, fields in entries.items():
            lines += [f"[{name.replace('__', '.')}]"]
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
        (self.root / f"docs/{file}.toml").write_text("\n".join(lines) + "\n")

    def path(self, name: str, machine: str = "cpu") -> Path:
        """Where the recording of a snippet is committed."""
        return self.root / f"docs/recordings/{machine}/{name}.json"

    def commit(self, name: str, template: dict, result: dict | None = None, gpus: int = 0, **changes) -> Path:
        """Commit a recording made from a real one: of this snippet, with this result, on so many H200."""
        snippet = Snippet.read(self.root, name)
        gpu = {"name": "NVIDIA H200", "memory_bytes": 150_000_000_000, "capability": "9.0"}
        data = template | {"snippet": name, "result": template["result"] if result is None else result}
        data |= {"source": {"path": snippet.path, "sha256": snippet.digest}, "inputs": snippet.input_digests}
        data |= {"profile": hardware.name_of(["NVIDIA H200"] * gpus)}
        data |= {"machine": template["machine"] | {"gpus": [gpu] * gpus, "host_gpus": gpus}}
        path = self.path(name, data["profile"])
        recording.write(path, recording.dump(recording.sealed(data | changes)))
        return path

    def book(self, execute: str = "auto") -> Book:
        """The book as it is on disk now."""
        return Book(self.root, execute)

    def pages(self, execute: str = "auto") -> Pages:
        """Its pages, over that book."""
        return Pages(self.book(execute))

    def html(self, text: str, path: str = "a.md", execute: str = "never") -> str:
        """A page of this text, with all that is inserted, as Python-Markdown makes it."""
        from markdown import markdown

        from overlap.site.insert import insert
        from overlap.site.pictures import Pictures
        from overlap.site.view import Site

        pages = self.pages(execute)
        names = ["attr_list", "md_in_html", "tables", "toc", "pymdownx.details", "pymdownx.superfences"]
        inserted = insert(Site(pages, Pictures(pages.book, pages.pictures_in_chinese)), path, text)
        return markdown(inserted, extensions=names)

    def check(self, remarks: bool = True) -> list[str]:
        """What is wrong with it."""
        return check(self.pages("never"), remarks)


@pytest.fixture
def small_book(on_cpu, tmp_path) -> SmallBook:
    """An empty book of its own for one test."""
    return SmallBook(tmp_path)


class Lab(SmallBook):
    """A small book in which snippets run."""

    def __init__(self, root: Path, runner: Runner):
        super().__init__(root)
        self.runner = runner

    def run(self, name: str, code: str = SmallBook.MAIN, options: str = "gpus = [0]") -> dict:
        """Write a snippet, run it, return its recording."""
        return self.runner.run(self.snippet(name, code, options), 0)


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """A place to run snippets."""
    root = tmp_path_factory.mktemp("lab")
    with Runner(root) as runner:
        with no_gpu():
            runner.probe(0)
        yield Lab(root, runner)


@pytest.fixture(scope="session")
def template(lab) -> dict:
    """A recording that was really made on a CPU, to derive others from."""
    made = lab.run("any/three")
    del made["run"]["noise"]  # as of a calm host
    return recording.sealed(made)


#: From when on a host counts as busy.
THRESHOLDS = {name: getattr(noise, name) for name in ("STEAL", "OTHERS")}
LOOK = diagnosis.look


@pytest.fixture(scope="session", autouse=True)
def calm():
    """Every host is calm, whatever else this machine does."""
    with pytest.MonkeyPatch.context() as patch:
        for name in THRESHOLDS:
            patch.setattr(noise, name, 1e9)
        patch.setattr(diagnosis, "look", lambda: diagnosis.Look(0.0, 0.0, {"reasons": []}))
        yield


@pytest.fixture
def noisy(monkeypatch):
    """A test of noise itself."""
    for name, threshold in THRESHOLDS.items():
        monkeypatch.setattr(noise, name, threshold)
    monkeypatch.setattr(diagnosis, "look", LOOK)


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all tests: a process cannot start it twice."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as api:
        browser = api.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def contexts(browser) -> Iterator[dict[str, list]]:
    """Contexts of a module's tests, by their options. Each keeps a page open in which nothing runs.

    So the next page has a process that runs, and what this fetched and compiled before.
    """
    kept: dict[str, list] = {}
    yield kept
    for context in itertools.chain(*kept.values()):
        context.close()
