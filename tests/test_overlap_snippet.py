"""Snippets: what is refused, what the hash means, what is shown and downloaded."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from overlap import OverlapError, find_root
from overlap.run import meaning
from overlap.run.snippet import Snippet

ROOT = Path(__file__).resolve().parent.parent
HEADER = '# /// script\n# requires-python = ">=3.11"\n# [tool.overlap]\n# gpus = [0]\n# ///\n'


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/etc/passwd", "a", "a/b/c", "A/b", "a/b c", "a/2b", "a/link", "a/b\n", "a/b\0", "way/x"],
)
def test_a_name_that_leaves_snippets_is_refused(tmp_path, name):
    (tmp_path / "snippets/a").mkdir(parents=True)
    (tmp_path / "x.py").write_text(HEADER)
    (tmp_path / "snippets/a/link.py").symlink_to(tmp_path / "x.py")
    (tmp_path / "snippets/way").symlink_to(tmp_path)
    with pytest.raises(OverlapError, match="inside snippets/") as caught:
        Snippet.read(tmp_path, name)
    assert repr(name) in str(caught.value)


def test_an_unknown_file_is_named_with_the_remedy(tmp_path):
    with pytest.raises(OverlapError, match=r"^snippets/a/b.py: there is no such file; see `overlap list`"):
        Snippet.read(tmp_path, "a/b.py")


def test_the_root_is_found_upwards(tmp_path):
    for name in ("docs/deep", "snippets"):
        (tmp_path / name).mkdir(parents=True)
    assert find_root(tmp_path / "docs/deep") == tmp_path
    with pytest.raises(OverlapError, match="run inside a checkout"):
        find_root(Path("/"))


CODE = '''"""Doc."""

from math import sqrt

RATE = {"a": 1_000}


def work(n: int) -> float:
    """Doc."""
    return sqrt(n)  # why


def plot(results, ceilings):
    return results


def main() -> dict:
    print("root")
    return {"n": work(4)}


if __name__ == "__main__":
    main()
'''


def hash_of(code: str, header: str = HEADER) -> str:
    return Snippet(Path("/"), "a/b", header + code).hash


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("  # why", "", True),
        ("  # why", "  # because", True),
        ('"""Doc."""', '"""Other."""', True),
        ('    """Doc."""\n', "", True),
        ("\n\n\n", "\n", True),
        ("1_000", "(\n    1000\n)", True),
        ('"root"', "'root'", True),
        ("return results", "return results, ceilings", True),
        ("def plot(results, ceilings):\n    return results\n", "", True),
        ('"root"', '"rooted"', False),
        ("sqrt(n)", "sqrt(n) + 1", False),
        ("work(4)", "work(5)", False),
        ("work(4)", "work(4.0)", False),
        ("1_000", "True", False),
        ("n: int", "n: float", False),
    ],
)
def test_the_hash_is_of_what_the_code_means(old, new, same):
    assert old in CODE
    assert (hash_of(CODE) == hash_of(CODE.replace(old, new))) is same


@pytest.mark.parametrize(
    ("line", "same"),
    [("# timeout = 5", True), ("# exclusive = false", True), ('# launcher = "torchrun"\n# ranks = 2', False)],
)
def test_of_the_header_only_the_launcher_counts(line, same):
    changed = HEADER.replace("# gpus = [0]", f"# gpus = [0]\n{line}")
    assert (hash_of(CODE) == hash_of(CODE, changed)) is same


EVERY_SYNTAX = """
def f(a, /, b: int = 1_000, *args, c=0x10, **kw) -> "str":
    x = f"{a!r:>{b}} and {c=} {{}} {a:.2f}" "tail" f"{b}"
    match a:
        case [1, *rest] if rest:
            return x
        case {"k": v, **other}:
            return v
        case _:
            pass
    async def g():
        async with a as b_, c as d_:
            yield await b_
    lam = lambda q, *, r=...: (q := r) or -1e-9 + 2j
    try:
        del kw["x"]
    except* (ValueError, TypeError) as e:
        raise RuntimeError(u"é…") from e
    global G
    G: list[int] = [i for i in range(3) if i % 2 for j in b"\\x00"]
    a[1:2, ::3], *z = not b, ~c


class K(object, metaclass=type):
    y: int
    @property
    def p(self): "doc"
"""
KNOWN = "cd87bf3febd6afc8d815457b2dc7e601b0b5a244ee317409e87f3ba619066715"
KNOWN_PARTS = "8e4c31aa961cb53bbda35f59d8b63f8d02d73bcec002fde594014bb7d193a980"
ASK = """
import sys
from pathlib import Path
from overlap.run import meaning
from overlap.run.snippet import Snippet
asked = Snippet(Path("/"), "a/b", Path(sys.argv[1]).read_text(encoding="utf-8"))
print(asked.hash, meaning.of_parts(asked.facts["parts"]), [(part["binds"], part["uses"]) for part in asked.facts["parts"]])
"""


def test_the_hash_is_the_same_on_every_python(tmp_path):
    """Recordings travel between machines. This very test runs on other versions too; those at hand are asked here."""
    assert hash_of(EVERY_SYNTAX) == KNOWN
    (tmp_path / "b.py").write_text(HEADER + EVERY_SYNTAX)
    parts = meaning.of_parts(Snippet(Path("/"), "a/b", HEADER + EVERY_SYNTAX).facts["parts"])
    assert parts == KNOWN_PARTS
    for version in ("3.11", "3.12", "3.13", "3.14"):
        installed = (Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python")
        python = next(map(str, installed), None) or shutil.which(f"python{version}")
        if python and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
            done = subprocess.run(
                [python, "-c", ASK, str(tmp_path / "b.py")],
                env={"PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
            )
            assert done.stdout.strip() == f"{KNOWN} {KNOWN_PARTS} [(['f'], []), (['K'], [])]", (
                python,
                done.stderr,
            )


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ("def f(A): return A", ""),
        ("def f(x=A): return B.C", "AB"),
        ("f = lambda A, x=B: A + C", "BC"),
        ("def f():\n    A = 1\n    def g(): return A + B\n    return g", "B"),
        ("def f():\n    return [A for A in B] + [A]", "AB"),
        ("def f():\n    with B as A: return A", "B"),
        ("def f():\n    global A\n    A = 1", "A"),
        ("async def f():\n    A = await B", "B"),
        ('def f(x: "list[A]") -> "B": return "C"', "AB"),
        ("class f(A):\n    B: C = 1\n    def g(self): return B", "ABC"),
        ("@A\ndef f(): pass", "A"),
        ("f: A = 1", "A"),
        ("f = eval('1')", "ABCf"),
        ("f = {**A, 'B': C}", "AC"),
    ],
)
def test_what_a_part_uses(code, uses):
    code = f"A, B, C = 1, 2, 3\n{code}\n"
    part = next(part for part in Snippet(Path("/"), "a/b", HEADER + code).facts["parts"] if "f" in part["binds"])
    assert "".join(part["uses"]) == uses


@pytest.mark.parametrize(
    ("code", "binds"),
    [
        ("A, (B, *C) = 1, (2, 3)", [["A", "B", "C"]]),
        ("A = B = [C for C in ()]", [["A", "B"]]),
        ("A = (B := 1)", [["A", "B"]]),
        ("A += 1", [["A"]]),
        ("A: int = 1", [["A"]]),
        ("A.x = 1", [[]]),
        ("A, B[0] = 1, 2", [[]]),
        ("for A in (): pass", [[]]),
        ("import a.b, c as d", [["a"], ["d"]]),
        ("from a import *", [[]]),
        ("from __future__ import annotations", [[]]),
        ('if __name__ == "__main__": A = 1', []),
        ('if __name__ == "__main__": A = 1\nelse: A = 2', [[]]),
        ("def plot(results): pass", []),
    ],
)
def test_what_a_part_binds(code, binds):
    parts = Snippet(Path("/"), "a/b", f"{HEADER}{code}\n").facts["parts"]
    assert [part["binds"] for part in parts] == binds


HELPER = '''"""Time work."""

import time


LIMIT = 3


def plot(results):
    return None


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
BORROWER = '''"""Use the helper."""

import sys
from snippets.timing.benchmark import (
    LIMIT,
    seconds,
)


class Actor:
    """Somebody."""


@str
def decorated():
    pass


def main() -> dict:
    print("took", seconds(lambda: sum(range(LIMIT))) >= 0, sys.flags.isolated)
    return {}


if __name__ == "__main__":
    main()
'''


@pytest.fixture
def borrowed(tmp_path):
    """A book whose snippet a/b uses timing/benchmark."""
    for name, text in {"timing/benchmark": HELPER, "a/b": BORROWER, "a/c": CODE}.items():
        path = tmp_path / f"snippets/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEADER + text)
    return tmp_path


def test_a_download_runs_alone_in_an_empty_folder(borrowed, tmp_path):
    snippet = Snippet.read(borrowed, "a/b")
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "b.py").write_text(snippet.download)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))}
    done = subprocess.run([sys.executable, "-I", "b.py"], cwd=alone, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("took True 1\n", "")
    assert snippet.download.startswith(HEADER)
    assert "from snippets." not in snippet.download
    assert (
        "\n# Folded in from snippets/timing/benchmark.py: LIMIT, seconds\nLIMIT = 3\n\n\ndef seconds("
        in snippet.download
    )
    assert snippet.download.count("def main") == snippet.download.count("__main__") == 1
    assert "def plot" not in snippet.download


def test_an_import_that_cannot_be_folded_in_is_refused(borrowed):
    path = borrowed / "snippets/a/b.py"
    for line in (
        "from snippets.timing import benchmark",
        "import snippets.timing.benchmark",
        "if True:\n    from snippets.timing.benchmark import LIMIT",
    ):
        path.write_text(f"{HEADER}{line}\n\n\ndef main():\n    return {{}}\n")
        with pytest.raises(OverlapError, match=r"^snippets/a/b.py: import snippets.timing.benchmark as `from"):
            Snippet.read(borrowed, "a/b").download  # noqa: B018


def test_inputs_are_followed(borrowed):
    assert set(Snippet.read(borrowed, "a/b").input_hashes) == {"snippets/timing/benchmark.py"}
    assert Snippet.read(borrowed, "a/c").input_hashes == {}


def test_show(borrowed):
    snippet = Snippet.read(borrowed, "a/b")
    assert (
        snippet.show(["decorated", "Actor"])
        == '@str\ndef decorated():\n    pass\n\n\nclass Actor:\n    """Somebody."""'
    )
    whole = snippet.show([])
    assert whole.startswith('"""Use the helper."""') and whole.endswith("return {}")
    assert snippet.summary == "Use the helper." and snippet.chapter == "a"
    with pytest.raises(OverlapError, match=r"^snippets/a/b.py: no function lost; it has Actor, decorated, main"):
        snippet.show(["main", "lost"])


def test_an_import_that_leads_nowhere_or_in_a_circle_is_refused(tmp_path):
    def write(name: str, code: str) -> None:
        path = tmp_path / f"snippets/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{HEADER}{code}\n\ndef main():\n    return {{}}\n")

    for name, other in {
        "a/b": "c.d",
        "c/d": "c.e",
        "c/e": "c.d",
        "a/me": "a.me",
        "a/lost": "a.gone",
        "a/up": "Up",
    }.items():
        write(name, f"from snippets.{other} import main as other")
    for name, expected in {
        "a/b": "snippets/c/e.py:6: imports itself: c/d → c/e → c/d; move what they share",
        "c/d": "snippets/c/e.py:6: imports itself: c/d → c/e → c/d; move what they share",
        "a/me": "snippets/a/me.py:6: imports itself: a/me → a/me; move what they share",
        "a/lost": "snippets/a/lost.py:6: imports what cannot be read: snippets/a/gone.py: there is no such file",
        "a/up": "snippets/a/up.py:6: imports what cannot be read: 'Up/main': a snippet is named <chapter>/<snippet>",
    }.items():
        with pytest.raises(OverlapError) as caught:
            Snippet.read(tmp_path, name).input_hashes  # noqa: B018
        assert str(caught.value).startswith(expected)


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
from snippets.x.deep import other as unused, wave as swing


def waves(n):
    return [floor(10 * swing(i / n)) for i in range(n)]


def main():
    return {}
'''
TOP = '''"""Top."""

import sys
from math import pi

from snippets.x.deep import TURN as turn
from snippets.x.middle import waves
from snippets.x.deep import wave


def main() -> dict:
    print(waves(4), wave(0), turn == 2 * pi, "json" in sys.modules)
    return {}


if __name__ == "__main__":
    main()
'''


def test_a_download_holds_what_is_used_once_and_runs_alone(tmp_path):
    (tmp_path / "snippets/x").mkdir(parents=True)
    for name, text in {"deep": DEEP, "middle": MIDDLE, "top": TOP}.items():
        (tmp_path / f"snippets/x/{name}.py").write_text(HEADER + text)
    snippet = Snippet.read(tmp_path, "x/top")
    assert list(snippet.inputs) == ["snippets/x/deep.py", "snippets/x/middle.py"]
    text = snippet.download
    counts = {
        "def wave(": 1,
        "def waves(": 1,
        "TURN = ": 1,
        "def other": 0,
        "from math import floor, pi, sin\n": 1,
        "cos": 0,
        "path": 0,
        "snippets.": 0,
    }
    counts |= {
        "import": 2,
        "Folded in from snippets/x/deep.py: TURN, wave\n": 1,
        "Folded in from snippets/x/middle.py: waves\n": 1,
        "unused": 0,
        "swing = wave": 1,
        "turn = TURN": 1,
        "def main": 1,
    }
    assert {part: text.count(part) for part in counts} == counts
    alone = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-I", "-"], input=text, env=alone, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("always\n[0, 10, 0, -10] 0.0 True False\n", "")


def test_a_future_cannot_be_folded_in(borrowed):
    path = borrowed / "snippets/timing/benchmark.py"
    path.write_text(HEADER + HELPER.replace("import time", "from __future__ import annotations\nimport time"))
    with pytest.raises(OverlapError, match=r"^snippets/timing/benchmark.py: `from __future__` cannot be folded into"):
        Snippet.read(borrowed, "a/b").download  # noqa: B018


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
# the end
'''
GPU_HEADER = HEADER.replace("[0]", "[2]")


def test_a_download_leaves_out_what_only_the_picture_uses():
    text = Snippet(Path("/"), "a/b", HEADER + PLOTTED).download
    words = ("json", "zlib", "Fraction", "INK", "PAPER", "namedtuple", "ink", "plot", "this")
    assert [word for word in words if re.search(rf"\b{word}\b", text)] == []
    once = ("None  # for who borrows it", "# of both\nSIZE = 3", "    # why\n    main()", "# the end\n", "annotations")
    assert [part for part in once if text.count(part) != 1] == []
    done = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("3 True 1\n", "")


def test_ruff_would_change_nothing_in_a_download(borrowed, tmp_path):
    pytest.importorskip("ruff")
    texts = {
        "x/deep": DEEP.replace('print("always")\n', ""),
        "x/middle": MIDDLE.replace("other as unused, ", ""),
        "x/top": TOP,
        "x/plotted": PLOTTED,
    }
    texts["x/a_name_so_long_that_a_sentence_with_it_needs_more_than_the_88_columns_of_a_line"] = GUARDED
    texts["x/none"] = '"""Import nothing."""\n\n\ndef main():\n    return {}\n'
    texts["x/two"] = GUARDED.replace("cuda\n", "cuda\nimport numpy as np\n", 1).replace('"ran on"', "np")
    (borrowed / "snippets/x").mkdir()
    (tmp_path / "taken").mkdir()
    for name, text in texts.items():
        (borrowed / f"snippets/{name}.py").write_text(GPU_HEADER + text)
    for name in [*texts, "a/b"]:
        (tmp_path / "taken" / f"{name[2:]}.py").write_text(Snippet.read(borrowed, name).download)
    for command in (["check", "--no-cache"], ["format", "--no-cache", "--diff"]):
        typed = [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "snippets/ruff.toml"), "taken"]
        done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


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
__version__ = "9.9"
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
        ("gpus = [1, 2]", GUARDED, None, False, "b.py needs torch: pip install torch numpy, or uv run b.py"),
        ("gpus = [1, 2]", GUARDED, 0, False, "b.py needs 1 CUDA GPU; torch 9.9 sees none."),
        ("gpus = [1, 2]", GUARDED, 1, False, ""),
        ("gpus = [4, 2]", GUARDED, 0, False, "b.py needs 2 CUDA GPUs; torch 9.9 sees none."),
        ("gpus = [4, 2]", GUARDED, 1, False, "b.py needs 2 CUDA GPUs; torch 9.9 sees 1."),
        ("gpus = [4, 2]", GUARDED, 2, False, ""),
        ("gpus = [1]\n" + TORCHRUN, GUARDED, 0, False, "b.py needs 1 CUDA GPU; torch 9.9 sees none."),
        ("gpus = [1]\n" + TORCHRUN, GUARDED, 1, False, "start it with torchrun --nproc-per-node gpu b.py"),
        ("gpus = [1]\n" + TORCHRUN, "# is_torchelastic_launched\n" + GUARDED, 1, False, ""),
        ("gpus = [0]\nranks = 2\n" + TORCHRUN, GUARDED, 0, False, "start it with torchrun --nproc-per-node 2 b.py"),
        ("gpus = [0]\nranks = 2\n" + TORCHRUN, GUARDED, 0, True, ""),
    ],
)
def test_a_download_says_in_a_sentence_what_the_machine_lacks(tmp_path, options, code, gpus, launched, says):
    lines = "".join(f"# {line}\n" for line in options.splitlines())
    header = f'# /// script\n# dependencies = ["torch>=2.11", "numpy"]\n# [tool.overlap]\n{lines}# ///\n'
    (tmp_path / "b.py").write_text(Snippet(tmp_path, "a/b", header + code).download)
    if gpus is not None:
        (tmp_path / "torch.py").write_text(TORCH.format(gpus, launched))
    done = subprocess.run([sys.executable, "-S", "b.py"], cwd=tmp_path, env={}, capture_output=True, text=True)
    out, err = ("", f"{says}\n") if says else (f"ran on {gpus}\n", "")
    assert (done.returncode, done.stdout) == (int(bool(says)), out)
    assert done.stderr.endswith(err) and done.stderr.count("\n") == int(bool(says))


def test_a_cell_of_a_notebook_has_neither_header_nor_checks():
    cell = Snippet(Path("/"), "a/b", GPU_HEADER + GUARDED).body
    assert cell.startswith("# From the book Overlap, snippets/a/b.py, MIT licence, ")
    assert cell.partition("\n")[2] == GUARDED.strip()


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("LIMIT = 4\nfrom snippets.timing.benchmark import seconds", None),
        ("LIMIT = 4\nfrom snippets.timing.benchmark import LIMIT as limit", "`LIMIT` of snippets/a/b.py is another in"),
        (
            "from time import time\nfrom snippets.timing.benchmark import seconds",
            "`time` of snippets/a/b.py is another",
        ),
        ("A = 1; B = 2", "snippets/a/b.py:6: two statements on one line"),
        ("if __name__ == '__main__': main()", "snippets/a/b.py:6: two statements on one line"),
    ],
)
def test_what_cannot_be_one_file_is_refused(borrowed, code, problem):
    (borrowed / "snippets/a/b.py").write_text(f"{HEADER}{code}\n\n\ndef main():\n    return {{}}\n")
    snippet = Snippet.read(borrowed, "a/b")
    if problem:
        with pytest.raises(OverlapError, match=re.escape(problem)):
            snippet.download  # noqa: B018
    else:
        assert "LIMIT = 4" in snippet.download


def test_a_tools_own_name_gives_way_to_the_borrowers(borrowed):
    tool = borrowed / "snippets/timing/benchmark.py"
    tool.write_text(
        tool.read_text().replace("work()\n", "ticks(work=work, ticks=1)\n")
        + "\n\ndef ticks(work, **given):\n    return work()\n"
    )
    own = "def ticks():\n    return 5\n\n\ndef main():\n    return {'n': seconds(ticks) and ticks()}\n"
    (borrowed / "snippets/a/b.py").write_text(f"{HEADER}from snippets.timing.benchmark import seconds\n\n\n{own}")
    space = {"__name__": "taken"}
    text = Snippet.read(borrowed, "a/b").download
    exec(text, space)
    assert "benchmark_ticks(work=work, ticks=1)" in text
    assert space["main"]() == {"n": 5} and space["benchmark_ticks"](lambda: 7) == 7


@pytest.mark.parametrize(
    "tool",
    [
        "def seconds(n, size=10):\n    return min(n, size)\n\n\ndef both(n):\n    return seconds(n), size",
        "def both(n):\n    return {'size': size}",
        "def both(n):\n    return f'a size of {size}'",
    ],
)
def test_a_tools_own_name_that_is_a_parameter_or_stands_in_a_text_is_not_replaced(borrowed, tool):
    (borrowed / "snippets/timing/benchmark.py").write_text(
        f"{HEADER}size = 3\n\n\n{tool}\n\n\ndef main():\n    return {{}}\n"
    )
    own = "size = 7\n\n\ndef main():\n    return {'n': both(size)}\n"
    (borrowed / "snippets/a/b.py").write_text(f"{HEADER}from snippets.timing.benchmark import both\n\n{own}")
    with pytest.raises(
        OverlapError, match=r"`size` of snippets/a/b\.py is another in .*; give one of them another name"
    ):
        Snippet.read(borrowed, "a/b").download  # noqa: B018


def test_origin_and_licence_are_those_of_the_project():
    lines = Snippet.read(ROOT, "timing/benchmark").download.splitlines()
    assert (
        lines[lines.index("# ///") + 1]
        == "# From the book Overlap, snippets/timing/benchmark.py, MIT licence, (c) 2026 the Overlap authors"
    )
    licence = (ROOT / "LICENSE").read_text()
    assert "): MIT\n\n    Copyright (c) 2026 the Overlap authors\n" in licence
    assert "site_name: Overlap\n" in (ROOT / "mkdocs.yml").read_text()
