"""Snippets: what is refused, what the hash means, what is shown and downloaded."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from overlap import OverlapError, find_root
from overlap.run.snippet import Snippet, discover

ROOT = Path(__file__).resolve().parent.parent
HEADER = '# /// script\n# requires-python = ">=3.11"\n# [tool.overlap]\n# gpus = [0]\n# ///\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "no header": ("def main(): pass\n", "no `# /// script` header; see docs/contributing.md"),
        "unclosed header": ("# /// script\n# [tool.overlap]\n# gpus = [0]\n", "no `# /// script` header"),
        "bad TOML": ("# /// script\n# gpus = [0\n# ///\n", "the header is not TOML"),
        "unknown key": (HEADER.replace("# gpus", "# gpu_count = 1\n# gpus"), "unknown keys ['gpu_count']; known are"),
        "no gpus": ("# /// script\n# [tool.overlap]\n# ///\n", "needs gpus = [counts], for instance [0, 1]"),
        "empty gpus": (HEADER.replace("[0]", "[]"), "needs gpus = [counts]"),
        "one number": (HEADER.replace("[0]", "1"), "needs gpus = [counts]"),
        "negative": (HEADER.replace("[0]", "[-1]"), "needs gpus = [counts]"),
        "boolean": (HEADER.replace("[0]", "[true]"), "needs gpus = [counts]"),
        "launcher": (
            HEADER.replace("[0]", '[0]\n# launcher = "mpirun"'),
            "launcher is 'python' or 'torchrun', not 'mpirun'",
        ),
        "syntax": (HEADER + "def main(:\n", "a/b.py:6: invalid syntax; mend this line"),
        "bytes": (HEADER.encode() + b"x = '\xff'\n", "cannot be read"),
    }.values(),
)
def test_a_bad_file_is_an_error_with_file_reason_and_remedy(tmp_path, text, expected):
    path = tmp_path / "snippets/a/b.py"
    path.parent.mkdir(parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(OverlapError) as caught:
        discover(tmp_path)
    assert str(caught.value).startswith("snippets/a/b.py")
    assert expected in str(caught.value)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a", "a/b/c", "A/b", "a/b c", "a/2b", "a/link"])
def test_a_name_that_leaves_snippets_is_refused(tmp_path, name):
    (tmp_path / "snippets/a").mkdir(parents=True)
    (tmp_path / "x.py").write_text(HEADER)
    (tmp_path / "snippets/a/link.py").symlink_to(tmp_path / "x.py")
    with pytest.raises(OverlapError, match="inside snippets/") as caught:
        Snippet.read(tmp_path, name)
    assert name in str(caught.value)


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
    ("line", "same"), [("# timeout = 5", True), ("# exclusive = false", True), ('# launcher = "torchrun"', False)]
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


def test_the_hash_is_the_same_on_every_python(tmp_path):
    """Recordings travel between machines. This very test runs on other versions too; those at hand are asked here."""
    assert hash_of(EVERY_SYNTAX) == KNOWN
    (tmp_path / "snippets/a").mkdir(parents=True)
    (tmp_path / "snippets/a/b.py").write_text(HEADER + EVERY_SYNTAX)
    ask = "import sys; from pathlib import Path; from overlap.run.snippet import Snippet; print(Snippet.read(Path(sys.argv[1]), 'a/b').hash)"
    for version in ("3.11", "3.12", "3.13", "3.14"):
        installed = (Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python")
        python = next(map(str, installed), None) or shutil.which(f"python{version}")
        if python and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
            done = subprocess.run(
                [python, "-c", ask, str(tmp_path)], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
            )
            assert done.stdout.strip() == KNOWN, (python, done.stderr)


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
    assert "# --- folded in from snippets/timing/benchmark.py: Time work.\n" in snippet.download
    assert snippet.download.count("def main") == snippet.download.count("__main__") == 1
    assert "def plot" not in snippet.download


def test_an_import_that_cannot_be_folded_in_is_refused(borrowed):
    path = borrowed / "snippets/a/b.py"
    path.write_text(HEADER + "from snippets.timing import benchmark\n")
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
