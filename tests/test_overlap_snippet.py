"""Snippets: what is refused, what a header may say, what the digest means, what is shown."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from overlap import OverlapError, find_root
from overlap.run import meaning
from overlap.run.snippet import Snippet, discover

ROOT = Path(__file__).resolve().parent.parent
HEADER = '# /// script\n# requires-python = ">=3.11"\n# [tool.overlap]\n# gpus = [0]\n# ///\n'
MAIN = "\n\ndef main():\n    return {}\n"


def write(root: Path, name: str, text: str) -> Path:
    path = root / f"snippets/{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a",
        "A/b",
        "a/2b",
        "a/b.py.py",
    ],
)
def test_a_name_that_is_none_is_refused(tmp_path, name):
    write(tmp_path, "a/b", HEADER + MAIN)
    with pytest.raises(
        OverlapError, match=r"a snippet is named <chapter>/<snippet>, .*; see `overlap list`"
    ) as caught:
        Snippet.read(tmp_path, name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "snippets/a/b.py: there is no such file; see `overlap list`"),
        (
            "def main():\n    return {}\n",
            "snippets/a/b.py: no `# /// script` header; see docs/contributing.md",
        ),
        (HEADER + "def main(:\n", "snippets/a/b.py:6: invalid syntax; mend this line"),
        (HEADER + "x = 1\n", "snippets/a/b.py: has no main() to run; write `def main() -> dict`"),
        (
            HEADER + "from . import c" + MAIN,
            "snippets/a/b.py:6: import a snippet as `from snippets.chapter.snippet",
        ),
    ],
)  # fmt: skip
def test_what_is_no_snippet_is_an_error_with_file_reason_and_remedy(tmp_path, text, message):
    path = write(tmp_path, "a/c", "")
    path.unlink()
    if isinstance(text, bytes):
        path.with_name("b.py").write_bytes(text)
    elif text:
        write(tmp_path, "a/b", text)
    with pytest.raises(OverlapError) as caught:
        Snippet.read(tmp_path, "a/b")
    assert str(caught.value).startswith(message)
    if text:
        with pytest.raises(OverlapError, match=re.escape(message)):
            discover(tmp_path)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ("gpus = [0, 1]", {"gpus": [0, 1]}),
        ("gpus = [0]\ntimeout = 0.5\nexclusive = false", {"gpus": [0], "timeout": 0.5, "exclusive": False}),
        ("gpus = [1, 8]\nmissing = { 8 = 'none' }", {"gpus": [1, 8], "missing": {"8": "none"}}),
        ("gpus = [0]\nlauncher = 'torchrun'\nranks = 2", {"gpus": [0], "launcher": "torchrun", "ranks": 2}),
    ],
)
def test_a_good_header(options, changes):
    defaults = {
        "timeout": 60,
        "exclusive": True,
        "launcher": "python",
        "missing": {},
        "few": {},
        "ranks": None,
        "take": [],
        "take_on_cpu": [],
        "gpu_gib": 0,
        "small": "",
    }
    assert with_options(options).options == defaults | changes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "gpus must be a list of GPU counts such as [0, 1]"),
        ("gpus = 1", "gpus must be a list of GPU counts"),
        ("gpu = [1]", "gpu is unknown (did you mean gpus?); gpus must be"),
        ("gpus = [0]\nxyz = 1", "xyz is unknown (there are gpus, "),
        ("gpus = [0]\ntimeout = 0", "timeout must be seconds up to 3600"),
        ("gpus = [0]\ntake_on_cpu = ['times']", "take_on_cpu: times is not in take"),
        ("gpus = [0]\nlauncher = 'mpirun'", "launcher must be 'python' or 'torchrun'"),
        (
            "gpus = [0]\nlauncher = 'torchrun'",
            "torchrun on the CPU needs to know how many processes: add ranks = 2",
        ),
    ],
)
def test_a_bad_header_is_refused_with_its_field_and_the_reason(options, message):
    with pytest.raises(OverlapError) as caught:
        assert with_options(options).options
    assert str(caught.value).startswith(f"snippets/a/b.py: header: {message}")
    assert str(caught.value).endswith("see docs/contributing.md, 'A snippet'")


def with_options(options: str) -> Snippet:
    lines = "".join(f"# {line}\n" for line in options.splitlines())
    return Snippet(Path("/"), "a/b", f"# /// script\n# [tool.overlap]\n{lines}# ///\n{MAIN}")


def test_all_problems_are_told_at_once(tmp_path):
    write(tmp_path, "a/b", MAIN)
    write(tmp_path, "a/c", HEADER)
    write(tmp_path, "a/d", HEADER + MAIN)
    with pytest.raises(OverlapError, match=r"(?s)snippets/a/b.py: .*\nsnippets/a/c.py: "):
        discover(tmp_path)


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
    return Snippet(Path("/"), "a/b", header + code).digest


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("  # why", "", True),
        ('"""Doc."""', '"""Other."""', True),
        ('    """Doc."""\n', "", True),
        ("1_000", "(\n    1000\n)", True),
        ("return results", "return results, ceilings", True),
        ("def plot(results, ceilings):\n    return results\n", "", True),
        ('"root"', '"rooted"', False),
        ("sqrt(n)", "sqrt(n) + 1", False),
        ("work(4)", "work(5)", False),
        ("n: int", "n: float", True),
        (" -> float", "", True),
        ("return sqrt(n)", "root: float = sqrt(n)\n    return root", False),
        ("def main", "class K:\n    n: int\n\n\ndef main", False),
    ],
)
def test_the_hash_is_of_what_the_code_means(old, new, same):
    assert old in CODE
    assert (hash_of(CODE) == hash_of(CODE.replace(old, new))) is same


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("def f(n):", "def f(n: int, /) -> int:", False),
        ("def f(n):", "def f(n: int) -> Tensor:", True),
        ("m = n", "m: Tensor = n", True),
        ("m = n", "m: Tensor", False),
        ("    n: int", "    n: float", False),
        ("    n: int", "    n: int\n    m: int", False),
        ("def jitted(n: int)", "def jitted(n)", False),
        ("from torch import Tensor\n", "", True),
        ("from math import sqrt\n", "", False),
    ],
)
def test_annotations_do_not_change_what_code_means_but_where_something_reads_them(old, new, same):
    assert old in ANNOTATED
    assert (hash_of(ANNOTATED) == hash_of(ANNOTATED.replace(old, new))) is same


ANNOTATED = """
from torch import Tensor
from math import sqrt
import torch.nn
@sqrt
def jitted(n: int):
    return n
def f(n):
    m = n
    return m
def k(n: Tensor):
    return n
class K:
    n: int = 1
    def g(self):
        return self
"""


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
    H: list[int] = [i for i in range(3) if i % 2 for j in b"\\x00"]
    a[1:2, ::3], *z = not b, ~c


class K(object, metaclass=type):
    y: int
    @property
    def p(self): "doc"
"""
KNOWN = "e500ff47752e940520a24ecba59d0985be264f8cacfd4303a1eacb5c4111de10"
KNOWN_PARTS = "7b04fbf3e3d503f0d55269f6d8b72f704fa432e1decedd6c37159120969012bf"
ASK = """
import sys
from pathlib import Path
from overlap.run import meaning
from overlap.run.snippet import Snippet
asked = Snippet(Path("/"), "a/b", Path(sys.argv[1]).read_text(encoding="utf-8"))
parts = asked.parts
names = [(sorted(part.binds), sorted(part.uses), sorted(part.annotation_uses)) for part in parts]
print(asked.digest, meaning.of_parts(parts), names)
"""


def test_the_hash_is_the_same_on_every_python(tmp_path):
    """Recordings travel between machines. This test asks the other versions that are at hand."""
    assert hash_of(EVERY_SYNTAX) == KNOWN
    (tmp_path / "b.py").write_text(HEADER + EVERY_SYNTAX)
    parts = Snippet(Path("/"), "a/b", HEADER + EVERY_SYNTAX).parts
    assert meaning.of_parts(parts) == KNOWN_PARTS
    names = [(sorted(part.binds), sorted(part.uses), sorted(part.annotation_uses)) for part in parts]
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
            assert done.stdout.strip() == f"{KNOWN} {KNOWN_PARTS} {names}", (
                python,
                done.stderr,
            )


def test_show(tmp_path):
    code = '"""Use it."""\n\n\n@str\ndef decorated():\n    pass\n\n\nclass Actor:\n    pass\n' + MAIN
    write(tmp_path, "a/b", f'{HEADER}{code}\n\nif __name__ == "__main__":\n    main()\n')
    snippet = Snippet.read(tmp_path, "a/b")
    assert (
        snippet.show(["decorated", "Actor"]) == "@str\ndef decorated():\n    pass\n\n\nclass Actor:\n    pass"
    )
    assert snippet.show([]).startswith('"""Use it."""') and snippet.show([]).endswith("return {}")
    assert snippet.summary == "Use it." and snippet.chapter == "a"
    with pytest.raises(
        OverlapError, match=r"^snippets/a/b.py: no function lost; it has decorated, Actor, main"
    ):
        snippet.show(["main", "lost"])


def test_a_mistyped_name_is_told_the_nearest(tmp_path):
    write(tmp_path, "a/sleeper", HEADER + MAIN)
    with pytest.raises(
        OverlapError, match=r"snippets/a/sleper.py: there is no such file; did you mean a/sleeper\?"
    ):
        Snippet.read(tmp_path, "a/sleper")
