"""Downloads: a snippet as one file that runs alone."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TORCH as RELEASE
from conftest import all_snippets

from overlap import OverlapError
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.commands.check import check
from overlap.run import download
from overlap.run.snippet import Snippet

ROOT = Path(__file__).resolve().parent.parent
HEADER = '# /// script\n# requires-python = ">=3.11"\n# [tool.overlap]\n# gpus = [0]\n# ///\n'


BORROWER = "from snippets.timing.benchmark import seconds\n\n\ndef main():\n    return {'s': seconds(int)}\n"
HELPER = '''"""Time work."""

import time


LIMIT = 3


def plot(results):
    return None


def late(work) -> bool:
    return seconds(work) > LIMIT


def seconds(work) -> float:
    """Of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main():
    return {}


if __name__ == "__main__":
    main()
'''


@pytest.fixture
def borrowed(tmp_path):
    """A book whose snippet a/b uses timing/benchmark."""
    for name, text in {"timing/benchmark": HELPER, "a/b": BORROWER}.items():
        path = tmp_path / f"snippets/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEADER + text)
    return tmp_path


DEEP = '''"""Deep."""

import json
import os.path as path
from math import cos, pi, sin

TURN = 2 * pi
print("always")


def wave(x):
    return sin(TURN * x)


def other(x):
    return cos(x), json


def main():
    return {"path": path}
'''
MIDDLE = '''"""Middle."""

from math import floor
from snippets.x.deep import other, wave


def waves(n):
    return [floor(10 * wave(i / n)) for i in range(n)]


def main():
    return {}
'''
TOP = '''"""Top."""

import sys
from math import pi

from snippets.x.deep import TURN
from snippets.x.middle import waves
from snippets.x.deep import wave


def main() -> dict:
    print(waves(4), wave(0), TURN == 2 * pi, "json" in sys.modules)
    return {}


if __name__ == "__main__":
    main()
'''


def test_a_download_holds_what_is_used_once_and_runs_alone(tmp_path):
    (tmp_path / "snippets/x").mkdir(parents=True)
    for name, text in {"deep": DEEP, "middle": MIDDLE, "top": TOP}.items():
        (tmp_path / f"snippets/x/{name}.py").write_text(HEADER + text)
    snippet = Snippet.read(tmp_path, "x/top")
    assert list(snippet.input_digests) == ["snippets/x/deep.py", "snippets/x/middle.py"]
    text = download.program(snippet)
    counts = {
        "def wave(": 1,
        "def waves(": 1,
        "TURN = ": 1,
        "def other": 0,  # imported, but not used
        "from math import floor, pi, sin\n": 1,
        "cos": 0,
        "path": 0,
        "snippets.": 0,
    }
    counts |= {
        "import": 2,
        "Folded in from snippets/x/deep.py: TURN, wave\n": 1,
        "Folded in from snippets/x/middle.py: waves\n": 1,
        "def main": 1,
    }
    assert {part: text.count(part) for part in counts} == counts
    alone = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-I", "-"], input=text, env=alone, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("always\n[0, 10, 0, -10] 0.0 True False\n", "")


def test_a_future_cannot_be_folded_in(borrowed):
    path = borrowed / "snippets/timing/benchmark.py"
    path.write_text(HEADER + HELPER.replace("import time", "from __future__ import annotations\nimport time"))
    reason = "snippets/timing/benchmark.py: `from __future__` cannot be folded into others; do without it"
    with pytest.raises(OverlapError) as error:
        download.program(Snippet.read(borrowed, "a/b"))
    assert str(error.value) == reason
    assert reason in check(Pages(Book(borrowed, "never")), remarks=False), "it is known before a build"


PLOTTED = '''"""Draw."""

from __future__ import annotations

import json
import sys as system
import zlib, math
from fractions import Fraction
from math import sqrt as root, pi
from collections import OrderedDict, deque, namedtuple
from concurrent.futures import (
    ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, CancelledError, InvalidStateError, as_completed, wait,
)

WAITS = (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    InvalidStateError,
    as_completed,
    wait,
    deque,
)

# of the picture alone
INK, PAPER = "black", namedtuple
# of both
SIZE = 3
UNUSED: OrderedDict | None = None  # for who borrows it
def ink():
    return INK, Fraction(1)


def size():
    return SIZE, root, math


def plot(results, ceilings):
    import this

    return ink(), size(), zlib, json, PAPER, this


def main() -> dict:
    print(size()[0], pi > 3, system.flags.isolated)
    return {}


if __name__ == "__main__":
    # why
    main()
'''
GPU_HEADER = HEADER.replace("[0]", "[2]")


def test_a_download_leaves_out_what_only_the_picture_uses():
    text = download.program(Snippet(Path("/"), "a/b", HEADER + PLOTTED))
    words = ("json", "zlib", "Fraction", "INK", "PAPER", "namedtuple", "ink", "plot", "this")
    assert [word for word in words if re.search(rf"\b{word}\b", text)] == []
    once = (
        "None  # for who borrows it",
        "# of both\nSIZE = 3",
        "    # why\n    main()",
        "annotations",
    )
    assert [part for part in once if text.count(part) != 1] == []
    done = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("3 True 1\n", "")


GUARDED = '''"""Say which machine this is."""

from torch import cuda


def main() -> dict:
    print("ran on", cuda.device_count())
    return {}


if __name__ == "__main__":
    main()
'''
#: What stands for torch on a machine with so many GPUs; it does not know torchrun.
TORCH = """
__version__ = "2.13"
class cuda:
    device_count = staticmethod(lambda: {})
class distributed:
    is_torchelastic_launched = staticmethod(lambda: {})
"""
TORCHRUN = 'launcher = "torchrun"'


@pytest.mark.parametrize(
    ("options", "code", "gpus", "launched", "says"),
    [
        ("gpus = [0, 1]", GUARDED, 0, False, ""),
        ("gpus = [0, 1]", GUARDED, None, False, "b.py needs torch: pip install torch numpy, or uv run b.py"),
        ("gpus = [1, 2]", GUARDED, 0, False, "b.py needs 1 CUDA GPU; torch 2.13 sees 0"),
        ("gpus = [4, 2]", GUARDED, 1, False, "b.py needs 2 CUDA GPUs; torch 2.13 sees 1"),
        ("gpus = [4, 2]", GUARDED, 2, False, ""),
        ("gpus = [1]\n" + TORCHRUN, GUARDED, 1, False, "start it with torchrun --nproc-per-node gpu b.py"),
        ("gpus = [1]\n" + TORCHRUN, "# is_torchelastic_launched\n" + GUARDED, 1, False, ""),
        (
            "gpus = [0]\nranks = 2\n" + TORCHRUN,
            GUARDED,
            0,
            False,
            "start it with torchrun --nproc-per-node 2 b.py",
        ),
        ("gpus = [0]\nranks = 2\n" + TORCHRUN, GUARDED, 0, True, ""),
    ],
)
def test_a_download_says_in_a_sentence_what_the_machine_lacks(tmp_path, options, code, gpus, launched, says):
    lines = "".join(f"# {line}\n" for line in options.splitlines())
    header = f'# /// script\n# dependencies = ["torch>=2.11", "numpy"]\n# [tool.overlap]\n{lines}# ///\n'
    (tmp_path / "b.py").write_text(download.program(Snippet(tmp_path, "a/b", header + code)))
    if gpus is not None:
        (tmp_path / "torch.py").write_text(TORCH.format(gpus, launched))
    done = subprocess.run(
        [sys.executable, "-S", "b.py"], cwd=tmp_path, env={}, capture_output=True, text=True
    )
    out, err = ("", f"{says}\n") if says else (f"ran on {gpus}\n", "")
    assert (done.returncode, done.stdout) == (int(bool(says)), out)
    assert done.stderr.endswith(err) and done.stderr.count("\n") == int(bool(says))


def test_a_cell_of_a_notebook_has_neither_header_nor_checks():
    cell = download.cell(Snippet(Path("/"), "a/b", GPU_HEADER + GUARDED))
    assert cell.startswith("# From the book Overlap, snippets/a/b.py, MIT licence, ")
    assert cell.partition("\n")[2] == GUARDED.strip()


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (
            "from time import time\nfrom snippets.timing.benchmark import seconds",
            "`time` of snippets/timing/benchmark.py is another",
        ),
        (
            "def time(): pass\nfrom snippets.timing.benchmark import seconds",
            "`time` of snippets/timing/benchmark.py is another",
        ),
        ("from snippets.timing.benchmark import LIMIT as limit", "import snippets.timing.benchmark as `from"),
    ],
)
def test_what_cannot_be_one_file_is_refused(borrowed, code, problem):
    (borrowed / "snippets/a/b.py").write_text(f"{HEADER}{code}\n\n\ndef main():\n    return {{}}\n")
    with pytest.raises(OverlapError, match=re.escape(problem)):
        download.program(Snippet.read(borrowed, "a/b"))


def test_a_name_that_two_files_have_is_told_apart(borrowed):
    code = "LIMIT = 9\nfrom snippets.timing.benchmark import late\n\n\n"
    code += "def main():\n    return late(int), LIMIT\n"
    (borrowed / "snippets/a/b.py").write_text(HEADER + code)
    text = download.program(Snippet.read(borrowed, "a/b"))
    assert "\nLIMIT_ = 3\n" in text and "> LIMIT_\n" in text and "\nLIMIT = 9\n" in text
    assert "return late(int), LIMIT\n" in text


def test_a_comment_behind_an_import_goes_with_it(borrowed):
    imports = "import sys  # why\nfrom math import cos, sin  # two\nfrom math import pi  # one\n"
    uses = "\n\ndef main():\n    return {'n': [sys, cos, sin, pi]}\n"
    (borrowed / "snippets/a/b.py").write_text(HEADER + imports + uses)
    text = download.program(Snippet.read(borrowed, "a/b"))
    assert (
        "\nimport sys  # why\nfrom math import cos\nfrom math import pi  # one\nfrom math import sin  # two\n"
        in text
    )


SNIPPETS = all_snippets()
PIECES = [(snippet, name) for snippet in SNIPPETS.values() for name in snippet.options["take"]]
#: What a borrower may have beside PyTorch and what that needs.
NOT_TORCH = ("overlap", "snippets", "matplotlib", "pynvml", "pycuda", "pydantic", "mkdocs")
#: Runs each function that needs no GPU in a process that has the pieces alone.
BARE = """
import importlib, json, sys
import torch
sys.path.insert(0, sys.argv[1])
names, banned = json.loads(sys.argv[2])
pieces = {name: getattr(importlib.import_module(name), name) for name in names}
assert not [name for name in banned if name in sys.modules]
done = set()
def taken(name):
    done.add(name)
    return pieces[name]

x = torch.ones(4, 4)
timing = taken("measure")(lambda: x @ x, trials=3)
assert len(timing.trials) == 3 and timing.median > 0
timings = taken("take_turns")({"a": lambda: x @ x, "b": lambda: x + x}, trials=2)
assert {len(timing.trials) for timing in timings.values()} == {2}
taken("wait_for")()
with taken("Benchmark")("product") as block:
    x @ x
assert block.seconds > 0
Row = importlib.import_module("collections").namedtuple("Row", "x y")
batches = [{"x": x, "y": [1, None, "text"]}, Row(x, (x + 1,)), x + 2]
first, row, last = taken("prefetched")(batches, "cpu")
assert torch.equal(first["x"], x) and first["y"] == [1, None, "text"]
assert type(row) is Row and torch.equal(row.y[0], x + 1) and torch.equal(last, x + 2)
assert taken("best_device")().type in ("cpu", "cuda")
assert taken("bound")({"memory": 1e-3, "compute": 1e-4}, 2e-3, 1.9e-3) == "memory"
assert set(taken("account_of")(lambda: x @ x).values()) == {0}
assert taken("usable_cores")() >= 1 and taken("versions")()["torch"]
assert taken("graphs_of")(lambda x: x + 1, x)
peak, operation = taken("predicted")(lambda: torch.ones(1000).sum(), "cpu")
assert peak >= 4000 and operation.startswith("forward")
assert taken("strays")(torch.nn.Linear(2, 2), torch.device("cpu")) is not None
torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
alone = torch.ones(3)
taken("ring_all_reduce")(alone)
two = taken("built_in_parts")(lambda: torch.nn.Sequential(torch.nn.Linear(2, 2)), lambda model: model, "cpu")
mesh = torch.distributed.device_mesh.DeviceMesh("cpu", [0])
assert taken("sharded")(two, mesh)(torch.ones(1, 2)).shape == (1, 2)
assert taken("ensemble")([two.eval()], torch.ones(1, 2)).shape == (1, 2)
assert taken("compilations")(lambda rows: rows + 1, [torch.ones(2), torch.ones(2)]) == [1, 1]
taken("traced")(lambda profiler: [profiler.step() for _ in range(5)], f"{sys.argv[1]}/trace.json.gz")
assert taken("events_of")(f"{sys.argv[1]}/trace.json.gz")
with taken("label")("a part"):
    x @ x
assert taken("lanes")(lambda: x @ x) == []
with taken("PowerMeter")(every_s=0.01) as meter:
    pass
assert meter.missing and not meter.rows["watt"]
assert taken("snapshot_on_oom")("nowhere.pickle") == []
assert taken("holders")("/no such device") == {}
assert taken("distinct")(lambda: x + 1) == 1
has_numpy = importlib.util.find_spec("numpy")
assert not has_numpy or taken("own_generator")().random() != taken("own_generator")().random()
word, target = torch.ones(6, 4, requires_grad=True), torch.tensor([0, 1, 2, 0, 1, -100])
apart = taken("computed_twice")(word, x, target, 3), taken("AtOnce").apply(word, x, target, 2)
assert torch.allclose(*apart) and torch.allclose(apart[0], torch.tensor(4.0).log())
with taken("on_host")():
    (word * word).sum().backward()
assert torch.equal(word.grad, 2 * word)
assert list(taken("Dealt")([5, 6, 7], 1, 2)) == [6] and len(taken("sampler_of")([1, 2], mesh)) == 2
word.grad *= 3 / word.grad.norm()
assert torch.isclose(taken("clip_over_meshes")([word], 1.0), torch.tensor(3.0)) and word.grad.norm() <= 1
model = torch.nn.Linear(4, 1)
ddp = torch.nn.parallel.DistributedDataParallel(model)
ms = taken("own_parts")(ddp, iter([x]), lambda net, batch: net(batch).sum())
assert taken("latest")(taken("by_rank")([ms]))["rank"] == 0
assert alone.tolist() == [1, 1, 1]
print(json.dumps(sorted(done)))
"""


def test_each_function_to_take_home_is_a_file_that_runs_with_torch_alone(tmp_path):
    for snippet, name in PIECES:
        text = download.piece(snippet, name)
        (tmp_path / f"{name}.py").write_text(text)
        assert text.startswith(f"# From the book Overlap, {snippet.path}, MIT licence, (c) 2026 the Overlap ")
        assert "__main__" not in text and "def main" not in text and "def plot" not in text
        assert len(text.splitlines()) < len(download.program(snippet).splitlines())
    names = [name for _, name in PIECES]
    assert len(set(names)) == len(names) > 20
    for command in (["check", "--ignore", "E501,I001"], ["format", "--diff"]):
        typed = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--no-cache",
            "--config",
            str(ROOT / "snippets/ruff.toml"),
        ]
        done = subprocess.run([*typed, "."], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    alone = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))}
    done = subprocess.run(
        [sys.executable, "-I", "-c", BARE, tmp_path, json.dumps([names, NOT_TORCH])],
        env=alone,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout.splitlines()[-1])) >= 20
    on_cpu = {name for snippet, _ in PIECES for name in snippet.options["take_on_cpu"]}
    assert on_cpu <= set(json.loads(done.stdout.splitlines()[-1])), "each of them ran here"


def test_a_piece_is_the_function_with_what_it_needs_and_no_more():
    text = download.piece(SNIPPETS["streams/three_streams_cka"], "fork_join")
    imports = "from collections.abc import Callable, Sequence\nfrom typing import TypeVar\n\nimport torch\n"
    imports += "from torch.utils._pytree import tree_leaves"
    kinds = 'Result = TypeVar("Result")'
    head = f"# Needs torch>=2.11, a CUDA GPU\n\n{imports}\n\n{kinds}\n\n\ndef fork_join("
    assert text.partition("\n")[2].startswith(head)
    assert text.count("def ") == 1
    assert "\n# Needs Python alone\n" in download.piece(SNIPPETS["clinic/which_bound"], "bound")
    assert "\n# Needs torch>=2.11\n" in download.piece(SNIPPETS["timing/labels"], "label")
    assert "\n# Needs torch>=2.11, nvidia-ml-py\n" in download.piece(
        SNIPPETS["timing/power_meter"], "PowerMeter"
    )
    assert "\n# Needs torch>=2.11\n" in download.piece(
        SNIPPETS["timing/lanes"], "lanes"
    )  # which draws nothing
    text = download.piece(SNIPPETS["memory/snapshot_reading"], "held_by")  # only its docstring names CUDA
    assert "\n# Needs Python alone\n" in text
    text = download.piece(SNIPPETS["asynchrony/waits"], "waits")
    assert [node.name for node in ast.parse(text).body if hasattr(node, "name")] == ["held", "waits"]


def test_each_function_to_take_home_says_what_it_is_for():
    for snippet, name in PIECES:
        summary = download.summary(snippet, name)
        assert 20 < len(summary) < 110 and summary.count("`") % 2 == 0, (name, summary)
        assert not summary.endswith((".", ":", ";"))
    assert download.summary(SNIPPETS["timing/labels"], "no_such") == ""


def test_a_header_without_what_the_book_alone_reads():
    head = download.program(SNIPPETS["training/ddp_any_loss"]).partition("# From the book")[0]
    assert (
        head
        == '# /// script\n# requires-python = ">=3.11"\n# dependencies = ["torch>=2.11", "numpy"]\n# ///\n'
    )


@pytest.mark.parametrize("name", [name for name, snippet in SNIPPETS.items() if "torch" in snippet.text])
def test_a_header_with_torch_names_numpy_too_else_torch_warns_at_its_import(name):
    needs = SNIPPETS[name].metadata["dependencies"]
    assert "numpy" in needs or not any(package.startswith("torch") for package in needs)


#: Types that say nothing without what they hold; `dict` alone is what `main` returns, in each snippet.
GENERIC = {"Callable", "Generator", "Iterable", "Iterator", "Mapping", "Sequence", "list", "set"}


def bare_generics(code: str) -> list[str]:
    """The annotations in which a generic type has no arguments."""
    found = []
    for node in ast.walk(ast.parse(code)):
        for said in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            inside = list(ast.walk(said)) if said else []
            given = [part.value for part in inside if isinstance(part, ast.Subscript)]
            names = [part for part in inside if getattr(part, "id", "") in GENERIC and part not in given]
            found += [ast.unparse(said)] if names else []
    return found


def test_generic_types_say_what_they_hold():
    assert bare_generics("x: list = []\ndef f(a: dict[str, list], b: list[int]) -> Iterator: ...") == [
        "list",
        "Iterator",
        "dict[str, list]",
    ]
    files = sorted((ROOT / "snippets").rglob("*.py"))
    found = {path.stem: bare for path in files if (bare := bare_generics(path.read_text()))}
    # The annotation of a class's field is part of what was recorded: it waits for the next recording.
    assert found == {"roofline_map": ["Callable"]}


#: What the type checkers must find, to show that they know torch's types.
WRONG = "import torch\n\nnumber: int = torch.ones(1)\n"


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A folder of all functions to take home, and of one file that is wrong."""
    if RELEASE < (2, 13):
        pytest.skip("types are checked against a PyTorch whose own are those of the newest")
    folder = tmp_path_factory.mktemp("typed")
    for snippet, name in PIECES:
        (folder / f"{name}.py").write_text(download.piece(snippet, name))
    (folder / "wrong.py").write_text(WRONG)
    return folder


#: Strict, but for what PyTorch itself leaves without types.
STRICT = ("--strict", "--allow-untyped-calls", "--no-warn-return-any", "--no-warn-unused-ignores")


def test_what_is_offered_is_typed_for_strict_mypy(typed):
    pytest.importorskip("mypy")
    options = [*STRICT, "--ignore-missing-imports", "--cache-dir", os.devnull]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "."], cwd=typed, capture_output=True, text=True
    )
    *errors, total = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in errors] == ["wrong.py"], done.stdout + done.stderr
    assert total.startswith("Found 1 error in 1 file")


def test_what_is_offered_is_typed_for_pyright(typed):
    pytest.importorskip("basedpyright", reason="pyright with its Node.js, a package of the tests")
    options = {"typeCheckingMode": "standard", "reportMissingImports": False}
    (typed / "pyrightconfig.json").write_text(json.dumps(options))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "."]
    done = subprocess.run(command, cwd=typed, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(PIECES) + 1
    errors = [error for error in found["generalDiagnostics"] if error["severity"] == "error"]
    assert [Path(error["file"]).name for error in errors] == ["wrong.py"], errors
