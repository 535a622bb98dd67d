"""Functions of snippets without importing these: what is executed, and where errors say they are."""

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from overlap import OverlapError
from overlap.run.pure import function
from overlap.run.snippet import Snippet

ROOT = Path(__file__).resolve().parent.parent
HEADER = '# /// script\n# requires-python = ">=3.11"\n# [tool.overlap]\n# gpus = [0]\n# ///\n'
MAIN = "\n\ndef main():\n    return {}\n"


@pytest.fixture
def read(tmp_path):
    """`read(code, name=code of another, …)`: the snippet a/it, of files of the folder a."""

    def write(code: str, **others: str) -> Snippet:
        (tmp_path / "snippets/a").mkdir(parents=True)
        for name, text in {"it": code, **others}.items():
            (tmp_path / f"snippets/a/{name}.py").write_text(HEADER + text + MAIN)
        return Snippet.read(tmp_path, "a/it")

    return write


def test_all_plots_are_there_without_torch():
    program = """
import sys
from pathlib import Path
from overlap.run.pure import function
from overlap.run.snippet import discover
drawn = [function(snippet, "plot") for snippet in discover(Path()).values() if snippet.draws]
print(len(drawn), *sorted({"torch", "numpy", "matplotlib", "triton"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    count, *imported = done.stdout.split()
    files = [path.read_text() for path in ROOT.glob("snippets/*/*.py")]
    assert int(count) == sum("\ndef plot(" in text for text in files)
    assert imported == []


def test_only_what_is_reached_is_executed(read):
    snippet = read(
        """
import no_such_package
from math import floor as down
LIMIT = 3
UNUSED = 1 / 0


def unused(number: no_such_package.Number = no_such_package.ZERO):
    return number


def half(number: no_such_package.Number) -> no_such_package.Number:
    return down(number / 2)


def plot(results, ceilings):
    return half(results["n"]), LIMIT
"""
    )
    assert function(snippet, "plot")({"n": 5}, {}) == (2, 3)
    assert function(snippet, "half")(7) == 3


def test_what_is_reached_of_other_files_is_shared(read):
    snippet = read(
        """
from snippets.a.forms import Bar as Kind


def plot(results, ceilings):
    from snippets.a.forms import made

    return made(results), Kind


def derive(results):
    return Kind(**results)
""",
        forms="""
import no_such_package
from dataclasses import dataclass
from typing import ClassVar


@dataclass
class Bar:
    n: int
    unit: ClassVar[str] = "ms"


def made(results):
    return Bar(results["n"])


def drawn(bar):
    no_such_package.draw(bar)
""",
    )
    bar, kind = function(snippet, "plot")({"n": 3}, {})
    assert type(bar) is kind and bar == function(snippet, "derive")({"n": 3})
    assert repr(bar) == "Bar(n=3)"
    assert "snippets.a.forms" not in sys.modules


def test_files_may_import_each_other(read):
    snippet = read(
        """
from snippets.a.other import count


def down(number):
    return number and count(number - 1)


def plot(results, ceilings):
    return down(results["n"])
""",
        other="""
from snippets.a.it import down


def count(number):
    return 1 + down(number)
""",
    )
    assert function(snippet, "plot")({"n": 5}, {}) == 5


def test_a_traceback_has_the_file_and_the_lines(read):
    snippet = read(
        """
# a line that no code has
from snippets.a.other import (
    split,
)


def plot(results, ceilings):
    return split(results)
""",
        other="\n\ndef split(results):\n    return 1 / results['n']\n",
    )
    with pytest.raises(ZeroDivisionError) as caught:
        function(snippet, "plot")({"n": 0}, {})
    _, *frames = traceback.extract_tb(caught.value.__traceback__)
    folder = snippet.root / "snippets/a"
    assert [(frame.filename, frame.lineno, frame.line) for frame in frames] == [
        (str(folder / "it.py"), 14, "return split(results)"),
        (str(folder / "other.py"), 9, "return 1 / results['n']"),
    ]


def test_a_function_that_is_not_there_is_an_error(read):
    with pytest.raises(OverlapError, match=r"snippets/a/it.py: has no function plot; it has main"):
        function(read(""), "plot")


def test_what_cannot_be_defined_fails_each_time(read):
    snippet = read("\nimport no_such_package\n\n\ndef plot(results, ceilings):\n    no_such_package.draw()\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError) as caught:
            function(snippet, "plot")
        assert traceback.extract_tb(caught.value.__traceback__)[-2].lineno == 7
