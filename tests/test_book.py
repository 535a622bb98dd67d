"""The real book: layout, imports, claims and recordings, and that every file runs where it is taken."""

import ast
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from overlap import OverlapError
from overlap.book import margin
from overlap.book.blocks import Claim
from overlap.book.book import Book, Run
from overlap.book.expression import Data, evaluate, wrap
from overlap.book.verdict import State
from overlap.run.snippet import Snippet, discover

ROOT = Path(__file__).resolve().parent.parent
SNIPPETS = discover(ROOT)
CHAPTERS = sorted({snippet.chapter for snippet in SNIPPETS.values()})
TOP = {"README.md", "LICENSE", "mkdocs.yml", "pyproject.toml", "docs", "snippets", "tests", "overlap"}


def imported(path: Path) -> set[str]:
    """Modules that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module} if node.module != "overlap" else {f"overlap.{alias.name}" for alias in node.names}
    return found


def test_the_top_level_has_these_names_and_no_others():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = {path.split("/")[0] for path in listed.stdout.splitlines()}
    assert {name for name in names if not name.startswith(".")} == TOP


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_a_page_and_tests_of_its_name(chapter):
    assert (ROOT / f"docs/{chapter}.md").exists()
    assert (ROOT / f"tests/test_{chapter}.py").exists()
    assert f"{chapter}.md" in (ROOT / "mkdocs.yml").read_text()


def test_snippets_are_short_and_say_what_they_are():
    long = {name: n for name, snippet in SNIPPETS.items() if (n := snippet.text.count("\n")) > 100}
    assert not long
    assert [name for name, snippet in SNIPPETS.items() if not snippet.summary] == []
    assert [name for name, snippet in SNIPPETS.items() if "main" not in snippet.functions] == []


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_imports_nothing_of_the_book_but_the_benchmark(name):
    ours = {module for module in imported(ROOT / SNIPPETS[name].path) if module.split(".")[0] in FORBIDDEN}
    assert ours <= {"snippets.timing.benchmark"}


FORBIDDEN = {"overlap", "snippets", "tests", "mkdocs", "markdown", "pytest"}
#: What each floor of the machine may import of the others, and beside the standard library.
FLOORS = {"run": {"run"}, "book": {"run", "book"}, "site": {"run", "book", "site"}, "": {"run", "book"}}
LIBRARIES = {"run": {"torch", "pydantic", "rich"}, "book": set(), "": set()}
ABOVE = [
    "watchdog",
    "mkdocs",
    "markdown",
    "pymdownx",
    "jinja2",
    "markupsafe",
    "pygments",
    "nbformat",
    "nbconvert",
    "matplotlib",
    "cycler",
    "scour",
]
ONLY = {
    "torch": {"machine", "noise", "nursery"},
    "pydantic": {"schema"},
    "rich": {"progress"},
    "mkdocs": {"plugin", "kept"},
}
ONLY |= {"nbformat": {"notebook"}, "nbconvert": {"terminal"}, "scour": {"svg"}, "matplotlib": {"figure", "plotted"}}


@pytest.mark.parametrize("path", sorted((ROOT / "overlap").rglob("*.py")), ids=lambda path: path.stem)
def test_the_floors_of_the_machine_and_who_may_import_whom(path):
    inner = path.relative_to(ROOT / "overlap").parts[:-1]
    floor, modules = inner[0] if inner else "", imported(path)
    ours = {module.split(".")[1] if "." in module else "" for module in modules if module.split(".")[0] == "overlap"}
    assert ours - {"", "OverlapError", "find_root"} <= FLOORS[floor]
    foreign = {top for module in modules if (top := module.split(".")[0]) not in sys.stdlib_module_names | {"overlap"}}
    assert foreign <= LIBRARIES.get(floor, {*ABOVE, "numpy"})
    assert [name for name in foreign if path.stem not in ONLY.get(name, {path.stem})] == []


BARE = """
import sys
for name in sys.argv[1].split():
    sys.modules[name] = None  # a bare GPU machine does not have it
from overlap.__main__ import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("command", ["list machine", "check", "record machine/env_report --bundle {}"])
def test_what_runs_and_records_needs_torch_and_numpy_alone(command, tmp_path):
    bundle = tmp_path / "bundle.jsonl"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    typed = [sys.executable, "-c", BARE, " ".join([*ABOVE, "pydantic", "rich"]), *command.format(bundle).split()]
    done = subprocess.run(typed, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "{}" not in command or json.loads(bundle.read_text())["snippet"] == "machine/env_report"


def test_nobody_imports_tests():
    for path in [*ROOT.rglob("overlap/**/*.py"), *ROOT.glob("snippets/*/*.py")]:
        assert not {module for module in imported(path) if module.split(".")[0] in ("tests", "conftest")}, path


SILENT = """
import importlib, sys
import torch
names = sys.argv[1:]
for name in names:
    importlib.import_module("snippets." + name.replace("/", "."))
    assert not torch.cuda.is_initialized(), name
"""


def test_importing_all_snippets_is_silent():
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", SILENT, *SNIPPETS], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


PORTABLE = [name for name, snippet in SNIPPETS.items() if 0 in snippet.options["gpus"]]

#: Runs files as `python FILE` would, each in a folder of its own, in children of a process that has imported torch.
BORROWER = """
import json, os, runpy, sys, time
import torch

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("snippets", "overlap"):
            raise ImportError(f"a borrower has no {name}")

def borrow(file):
    folder = os.path.dirname(file)
    os.chdir(folder)
    for fd, name in ((1, "../out"), (2, "../err")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), fd)
    sys.meta_path.insert(0, Nothing())
    sys.argv, code = [file], 1
    try:
        runpy.run_path(file, run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = 0 if stop.code in (None, 0) else 1
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    os._exit(code)

waiting, running, codes = sys.argv[1:], {}, {}
while waiting or running:
    while waiting and len(running) < 2:
        file = waiting.pop()
        pid = os.fork()
        if pid == 0:
            borrow(file)
        running[pid] = file
    pid, status = os.wait()
    codes[running.pop(pid)] = os.waitstatus_to_exitcode(status)
json.dump(codes, sys.stdout)
"""


@pytest.fixture(scope="module")
def borrowed(tmp_path_factory) -> dict[str, tuple[int, str, str]]:
    """(exit code, stdout, stderr) of every snippet's download, run alone in an empty folder without GPUs."""
    files = {}
    for name in SNIPPETS:
        folder = tmp_path_factory.mktemp(name.replace("/", "-")) / "empty"
        folder.mkdir()
        files[name] = folder / f"{name.split('/')[1]}.py"
        files[name].write_text(SNIPPETS[name].download)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    alone = {name for name in files if SNIPPETS[name].options["launcher"] == "python" or name not in PORTABLE}
    plain = {name: file for name, file in files.items() if name in alone}
    command = [sys.executable, "-I", "-c", BORROWER, *map(str, plain.values())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    codes = json.loads(done.stdout)
    found = {}
    for name, file in files.items():
        if name in plain:
            texts = [(file.parent.parent / part).read_text() for part in ("out", "err")]
            found[name] = (codes[str(file)], *texts)
        else:
            command = [sys.executable, "-I", "-m", "torch.distributed.run", "--standalone", file.name]
            done = subprocess.run(command, cwd=file.parent, env=environment, capture_output=True, text=True, timeout=60)
            found[name] = (done.returncode, done.stdout, done.stderr)
    return found


@pytest.mark.parametrize("name", PORTABLE)
def test_a_borrowed_snippet_runs_alone(borrowed, name):
    code, out, err = borrowed[name]
    assert code == 0, err
    assert out.strip()


@pytest.mark.parametrize("name", [name for name in SNIPPETS if name not in PORTABLE])
def test_a_borrowed_snippet_says_what_it_needs(borrowed, name):
    least = min(SNIPPETS[name].options["gpus"])
    needs = f"needs {least} CUDA GPU{'s' if least > 1 else ''}; torch {torch.__version__} sees none."
    code, out, err = borrowed[name]
    assert (code, out, err.strip()) == (1, "", f"{name.split('/')[1]}.py {needs}")


def test_ruff_would_change_nothing_in_a_download(tmp_path):
    pytest.importorskip("ruff")
    for name, snippet in SNIPPETS.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(snippet.download)
        path.with_name(f"cell_{path.name}").write_text(f"{snippet.body}\n")
    for command in (["check", "--no-cache"], ["format", "--no-cache", "--diff"]):
        typed = [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "pyproject.toml"), "."]
        done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_download_draws_nothing_and_says_where_it_is_from(name):
    text = SNIPPETS[name].download
    top = ast.parse(text).body
    assert "plot" not in {getattr(node, "name", "") for node in top} and "matplotlib" not in text
    assert f"# ///\n# From the book Overlap, snippets/{name}.py, MIT licence, " in text


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_download_has_its_header_and_nothing_of_the_book(name, tmp_path):
    path = tmp_path / "borrowed.py"
    path.write_text(SNIPPETS[name].download)
    assert not {module for module in imported(path) if module.split(".")[0] in ("snippets", "overlap")}
    assert path.read_text().startswith("# /// script\n")
    assert "torch" in " ".join(Snippet(ROOT, name, path.read_text()).metadata["dependencies"])


@pytest.fixture(scope="module")
def book() -> Book:
    """The committed book."""
    return Book(ROOT, "never")


def test_the_book_is_in_order(book):
    assert book.check() == []


def falsified(value):
    """Other values of the same form, one of which a sentence about this value cannot survive."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [0, -value, value * 1e-6, value * 1e6, value + 1]
    if isinstance(value, str):
        return ["something else"]
    if isinstance(value, (list, dict)):
        items = value if isinstance(value, list) else list(value.values())
        variants = [list(column) for column in zip(*map(falsified, items), strict=False)]
        variants += [[*items[:i], other, *items[i + 1 :]] for i in range(len(items)) for other in falsified(items[i])]
        if isinstance(value, dict):
            return [dict(zip(value, variant, strict=True)) for variant in variants]
        return [*variants, [], [*value, 0]]
    return [0]


def can_be_false(claim: Claim, scope: dict, run: Run) -> bool:
    """Whether other data of this snippet would make the claim false; one on other snippets' data alone is not tried."""
    used = {node.id for node in ast.walk(ast.parse(claim.expression)) if isinstance(node, ast.Name)} & set(run.result)
    for name in used:
        for other in falsified(run.result[name]):
            with contextlib.suppress(OverlapError, ArithmeticError):
                if claim.verdict([scope | dict(Data({name: other}, "other"))], run).state is State.FALSE:
                    return True
    return not used


def test_every_claim_holds_and_would_not_on_other_data(book):
    false, empty = [], []
    for claim in book.claims:
        for profile, run in book.runs(claim.snippet).items():
            scope, where = book.scope(claim.snippet, run), f"docs/{claim.page}:{claim.line} on {profile}"
            if book.at_home(profile) and claim.applies(run):
                verdict = claim.verdict(book.scopes(claim.snippet, run), run)
                if verdict.state is not State.HOLDS:
                    false.append(f"{where}: {verdict.figures}")
                elif not can_be_false(claim, scope, run):
                    empty.append(f"{where}: `{claim.expression}`")
    assert book.claims
    assert (false, empty) == ([], [])


class Spy(Data):
    """Data that write down which of them were read."""

    seen: ClassVar[set[str]] = set()

    def __getitem__(self, key):
        self.seen.add(f"{self.of}.{key}")
        return super().__getitem__(key)

    def values(self):
        return [self[key] for key in self]

    def items(self):
        return [(key, self[key]) for key in self]


def read_by(claim: Claim, scope: dict, result: dict) -> set[str]:
    """Paths of what the claim's expression reads of this result."""
    Spy.seen.clear()
    evaluate(claim.expression, scope | {key: wrap(value, key) for key, value in result.items()})
    names = {node.id for node in ast.walk(ast.parse(claim.expression)) if isinstance(node, ast.Name)}
    return Spy.seen | (names & set(result))


def leaves(item, path: tuple = ()):
    """(path, value) of everything that is no dict and no list; raw trials are left out."""
    if isinstance(item, (dict, list)):
        for key, value in item.items() if isinstance(item, dict) else enumerate(item):
            if not str(key).endswith("_trials"):
                yield from leaves(value, (*path, key))
    else:
        yield path, item


#: Floats in claims that need no trials of their own, by snippet and the first key, and why.
ONCE = {
    "a trace: the claim is about order": {
        "asynchrony/dependency_trace": "cpu gpu first_wait",
        "streams/one_stream_is_serial": "events",
        "streams/race_broken": "events",
        "streams/race_fixed": "events",
        "streams/three_streams_cka": "timelines",
        "timing/profile_reading": "one_row tiny",
    },
    "computed from times that have trials": {
        "asynchrony/run_ahead": "model_us",
        "devices/launch_bound_crossover": "speedup",
        "transfers/loader_workers": "expected_ms",
        "timing/benchmark": "median_ms spread_ms",
    },
    "happens once in a process": {
        "graphs/compile_cold_start": "cold reduce_overhead",
        "machine/latency_ladder": "us",
        "timing/benchmark": "first_ms",
        "devices/auto_parallel_original": "printed_s",
    },
    "arithmetic or bytes: the same in every run": {
        "graphs/cuda_graph_capture": "answer",
        "graphs/stale_input_broken": "last_reported last_true noise_variance",
        "graphs/stale_input_fixed": "last_true noise_variance",
        "graphs/hybridize_now": "differs_by",
        "streams/three_streams_cka": "scores",
        "streams/freed_too_early_fixed": "policies x_mib",
        "memory/fragmentation": "settings",
        "memory/per_stream_pools": "on_main on_side emptied_mib lent_to_side",
        "training/dp_vs_ddp": "hand_vs_dp hand_vs_one_gpu dp_peak_gb "
        "dp_gradient_norm ddp_gradient_norm one_gpu_gradient_norm",
    },
}


def test_what_a_claim_reads_has_its_trials_recorded(monkeypatch):
    for module in ("overlap.book.expression", "overlap.book.book"):
        monkeypatch.setattr(f"{module}.Data", Spy)
    book = Book(ROOT, "never")
    excused = {(name, key) for names in ONCE.values() for name, keys in names.items() for key in keys.split()}
    bare, used = set(), set()
    for claim in book.claims:
        for run in book.runs(claim.snippet).values():
            scope = book.scope(claim.snippet, run)
            if not (book.at_home(run.profile) and claim.applies(run)):
                continue
            reads = read_by(claim, scope, run.result)
            measured = {path for path, _ in margin.measurements(run.result)}
            for path, number in leaves(run.result):
                inner = max(k for k, key in enumerate(path, 1) if isinstance(key, str))  # of a list, all is read
                name = ".".join(map(str, path[:inner]))
                if name in reads and isinstance(number, float) and path not in measured:
                    used.add((claim.snippet, path[0]))
                    if (claim.snippet, path[0]) not in excused:
                        bare.add(f"docs/{claim.page}:{claim.line}: {claim.snippet} has no trials of {name}")
    assert sorted(bare) == []
    assert excused <= used, "excuses that nothing needs"


ARTICLE_ITEMS = [
    f"{letter}{n}" for letter, count in zip("ABCDE", (13, 10, 6, 20, 9), strict=True) for n in range(1, count + 1)
]
VERDICTS = ("holds with limits", "holds", "dated", "wrong")


def test_every_item_of_the_articles_has_a_row_with_a_verdict_and_a_place():
    rows = [
        line.split(" | ")
        for line in (ROOT / "docs/sources.md").read_text().splitlines()
        if re.match(r"\| [A-E]\d+ \|", line)
    ]
    assert [row[0].strip("| ") for row in rows] == ARTICLE_ITEMS
    for item, _, verdict, where, _ in rows:
        assert verdict.startswith(VERDICTS), f"{item}: {verdict!r} begins with none of {VERDICTS}"
        page, _, anchor = re.search(r"\]\(([\w.]+)#?([\w-]*)\)", where)[0][2:-1].partition("#")
        text = (ROOT / "docs" / page).read_text()
        snippet = anchor.removeprefix("snippet-").replace("-", "/", 1)
        assert not anchor or f"```snippet {snippet}\n" in text, f"{item}: {page} does not show {snippet}"


@pytest.mark.parametrize("page", sorted({path.parent.name for path in ROOT.glob("snippets/*/*.py")}))
def test_each_chapter_lets_the_reader_guess_and_ends_with_a_table(page):
    text = (ROOT / f"docs/{page}.md").read_text()
    assert "Guess first" in text
    last = text.rpartition("\n## ")[2]
    assert "\n|" in last and "{" in last, "the last section has no table of recorded values"
