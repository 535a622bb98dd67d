"""The real book: layout, imports, claims and recordings, and that every file runs where it is taken."""

import ast
import contextlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from conftest import all_snippets, no_gpu, run_alone

from overlap import OverlapError
from overlap.blocks.claim import Claim
from overlap.blocks.inline import VERDICT, VERDICTS
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.book.condition import speaks_of
from overlap.book.expression import Data
from overlap.book.recording import Recording
from overlap.book.verdict import State
from overlap.commands.check import check
from overlap.run import download
from overlap.run.snippet import Snippet

ROOT = Path(__file__).resolve().parent.parent
SNIPPETS = all_snippets()
CHAPTERS = sorted({snippet.chapter for snippet in SNIPPETS.values()})
#: The pages of chapters, in the order of the navigation; some show snippets of another chapter's folder.
with contextlib.suppress(ModuleNotFoundError):  # a GPU machine without the site's tools tests no page
    from overlap.site.navigation import read_nav, titles
PAGES = [
    path.removesuffix(".md")
    for path in (titles(read_nav(ROOT)) if "titles" in globals() else [])
    if "{ #evidence }" in (ROOT / "docs" / path).read_text(encoding="utf-8")
]


def imported(path: Path) -> set[str]:
    """Modules that a file imports anywhere in it, but for those whose types alone it names."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= (
                {node.module}
                if node.module != "overlap"
                else {f"overlap.{alias.name}" for alias in node.names}
            )
    return found


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_a_page_and_tests_of_its_name(chapter):
    assert (ROOT / f"docs/{chapter}.md").exists()
    assert (ROOT / f"tests/test_{chapter}.py").exists()
    assert chapter in PAGES, f"mkdocs.yml: nav lacks {chapter}.md"


#: Where chapters are listed by hand, each with words of its own: what stands before the list, and behind it.
LISTS = {
    "index.md": ('<div class="ov-chapters" markdown>', "</div>"),
    "zh.md": ("| 你想知道 | 看这里 |", "\n\n"),
}


@pytest.mark.parametrize("page", LISTS)
def test_a_list_of_chapters_is_the_navigations(page):
    """One that it lacks is named, and where it should stand."""
    begin, end = LISTS[page]
    listed = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
    found = re.findall(r"\]\((?:zh/)?(\w+)\.md\)(?:\*\*| \|$)", listed, re.M)
    for before, chapter in zip(["the beginning", *PAGES], PAGES, strict=False):
        assert chapter in found, f"docs/{page} lacks {chapter}.md, behind {before}"
    assert found == PAGES


#: The floors of the machine from below: a module may import those below its own, and no others, of its types
#: neither. What no floor has stands below them, but for the command line, which is above.
FLOORS = ("run", "book", "blocks", "commands", "site")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "overlap").rglob("*.py")
}
#: What the commands that run and record can do without.
ABOVE = "PIL mkdocs markdown pymdownx jinja2 markupsafe pygments nbformat nbconvert mkdocs_jupyter matplotlib"
ABOVE += " pydantic"


def imports(path: Path, modules: Iterable[str]) -> set[str]:
    """Those of these modules that a file imports, those included whose types alone it names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & set(modules) or {node.module}
    return found & set(modules) - {"overlap"}


def floor(module: str) -> int:
    """How high a module stands."""
    folder = module.split(".")[1]
    if folder in FLOORS:
        return FLOORS.index(folder)
    return len(FLOORS) if folder in ("cli", "__main__") else -1


def test_imports_go_down_and_never_in_a_circle():
    above = {module: imports(path, MODULES) for module, path in MODULES.items() if module != "overlap"}
    upwards = []
    for module, others in above.items():
        upwards += [f"{module} imports {other}" for other in others if floor(other) > floor(module)]
    assert upwards == []
    TopologicalSorter(above).prepare()  # a circle is an error that names its modules


BARE = """
import sys
for name in sys.argv[1].split():
    sys.modules[name] = None  # a bare GPU machine does not have it
from overlap.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("command", ["list machine", "check", "record machine/env_report --bundle {}"])
def test_what_runs_and_records_needs_torch_and_numpy_alone(command, tmp_path):
    bundle = tmp_path / "bundle.jsonl"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    typed = [
        sys.executable,
        "-c",
        BARE,
        ABOVE,
        *command.format(bundle).split(),
    ]
    done = subprocess.run(typed, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "{}" not in command or json.loads(bundle.read_text())["snippet"] == "machine/env_report"


SILENT = """
import importlib, sys
import torch
names = sys.argv[1:]
for name in names:
    importlib.import_module("snippets." + name.replace("/", "."))
    assert not torch.cuda.is_initialized(), name
"""


def without_toolkit(stderr: str) -> str:
    """The text without what a PyTorch with CUDA logs on a host that has the CUDA toolkit and no GPU."""
    return re.sub(r"^.*No CUDA runtime is found, using CUDA_HOME=.*\n", "", stderr, flags=re.MULTILINE)


def test_importing_all_snippets_is_silent():
    # newer PyTorch's own torch.distributed.optim says so of its code
    own = [f"ignore:`torch.jit.{name}` is deprecated:DeprecationWarning" for name in ("script", "interface")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ",".join(["error", *own])}
    done = subprocess.run(
        [sys.executable, "-c", SILENT, *SNIPPETS], env=environment, capture_output=True, text=True
    )
    assert (done.stdout, without_toolkit(done.stderr), done.returncode) == ("", "", 0)


PORTABLE = [name for name, snippet in SNIPPETS.items() if 0 in snippet.options["gpus"]]

#: Runs files as `python FILE` would, or `torchrun FILE` with its one rank, each in a folder of its own, in
#: children of a process that has imported torch.
BORROWER = """
import json, os, runpy, sys
import torch

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("snippets", "overlap"):
            raise ImportError(f"a borrower has no {name}")

def borrow(file, launcher):
    folder = os.path.dirname(file)
    os.chdir(folder)
    for fd, name in ((1, "../out"), (2, "../err")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), fd)
    sys.meta_path.insert(0, Nothing())
    sys.argv, code = [file], 1
    if launcher == "torchrun":
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # any that is free
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

launchers, running, codes = json.loads(sys.argv[1]), {}, {}
waiting = list(launchers)
while waiting or running:
    while waiting and len(running) < 2:
        file = waiting.pop()
        pid = os.fork()
        if pid == 0:
            borrow(file, launchers[file])
        running[pid] = file
    pid, status = os.wait()
    codes[running.pop(pid)] = os.waitstatus_to_exitcode(status)
json.dump(codes, sys.stdout)
"""


def seconds(name: str) -> float:
    """How long a snippet took on the CPU; the borrower takes the last one, which takes longest, first."""
    path = ROOT / f"docs/recordings/cpu/{name}.json"
    return json.loads(path.read_text())["run"]["seconds"] if path.exists() else 0


#: What runs for more than five seconds on the CPU.
LONG = [name for name in PORTABLE if seconds(name) > 5]


def borrow(names: list[str], folder: Path) -> dict[str, tuple[int, str, str]]:
    """(exit code, stdout, stderr) of each snippet's download, run alone in an empty folder without GPUs."""
    files = {name: folder / name.replace("/", "-") / "empty" / f"{name.split('/')[1]}.py" for name in names}
    for name, file in files.items():
        file.parent.mkdir(parents=True)
        file.write_text(download.program(SNIPPETS[name]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    launchers = {str(files[name]): SNIPPETS[name].options["launcher"] for name in sorted(files, key=seconds)}
    command = [sys.executable, "-I", "-c", BORROWER, json.dumps(launchers)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=True)
    codes = json.loads(done.stdout)
    outcomes = {}
    for name, file in files.items():
        out, err = ((file.parent.parent / part).read_text() for part in ("out", "err"))
        outcomes[name] = (codes[str(file)], out, err)
    return outcomes


@pytest.fixture(scope="module")
def borrowed(tmp_path_factory) -> dict[str, tuple[int, str, str]]:
    """What the downloads give that do not take long."""
    return borrow([name for name in SNIPPETS if name not in LONG], tmp_path_factory.mktemp("borrowed"))


@pytest.mark.parametrize("name", [name for name in PORTABLE if name not in LONG])
def test_a_borrowed_snippet_runs_alone(borrowed, name):
    code, out, err = borrowed[name]
    assert code == 0, err
    assert out.strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_a_borrowed_snippet_that_takes_long_runs_alone(name, tmp_path):
    code, out, err = borrow([name], tmp_path)[name]
    assert code == 0, err
    assert out.strip()


@pytest.mark.parametrize("name", [name for name in SNIPPETS if name not in PORTABLE])
def test_a_borrowed_snippet_says_what_it_needs(borrowed, name):
    least = min(SNIPPETS[name].options["gpus"])
    file = f"{name.split('/')[1]}.py"
    needs = rf"{file} needs {least} CUDA GPU{'s' if least > 1 else ''}; torch \S+ sees 0"
    code, out, err = borrowed[name]
    assert (code, out) == (1, "") and re.fullmatch(needs, without_toolkit(err).strip())


def test_who_takes_a_rank_for_the_number_of_its_gpu_says_that_it_is_on_one_node():
    marked = 0
    for snippet in SNIPPETS.values():
        for line in snippet.text.splitlines():
            if re.search(r"set_device\((rank|dist\.get_rank\(\))\)", line):
                assert line.endswith("# on one node; else LOCAL_RANK"), f"{snippet.path}: {line}"
                marked += 1
    assert marked


def test_each_function_to_take_home_stands_once_in_the_list_of_wishes():
    listed = re.findall(
        r"\[`(\w+)`\]\(generated/downloads/(.+?)\.py\)", (ROOT / "docs/snippets.md").read_text()
    )
    assert all(file.endswith(f"/{function}") for function, file in listed)
    offered = [f"{name}/{f}" for name, snippet in SNIPPETS.items() for f in snippet.options["take"]]
    assert sorted(file for _, file in listed) == sorted(offered)


def test_ruff_would_change_nothing_in_a_download(tmp_path):
    pytest.importorskip("ruff")
    for name, snippet in SNIPPETS.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(download.program(snippet))
        path.with_name(f"cell_{path.name}").write_text(f"{download.cell(snippet)}\n")
    # names of files make long lines, the order of imports is plainer than ruff's, and a loop may use a name
    # that another file imports
    for command in (
        ["check", "--no-cache", "--ignore", "E501,I001,F402"],
        ["format", "--no-cache", "--diff"],
    ):
        typed = [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "snippets/ruff.toml"), "."]
        done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_download_has_its_header_and_nothing_of_the_book_or_of_its_pictures(name, tmp_path):
    text = download.program(SNIPPETS[name])
    path = tmp_path / "borrowed.py"
    path.write_text(text)
    modules = imported(path)
    assert not {module for module in modules if module.split(".")[0] in ("snippets", "overlap")}
    assert text.startswith("# /// script\n")
    assert f"# ///\n# From the book Overlap, snippets/{name}.py, MIT licence, " in text
    dependencies = Snippet(ROOT, name, text).metadata["dependencies"]
    assert {re.match(r"[\w-]*", need)[0] for need in dependencies} >= modules & {"torch", "numpy"}
    assert not {"plot", "derive"} & {getattr(node, "name", "") for node in ast.parse(text).body}
    assert "matplotlib" not in text or name in ("timing/pictures", "timing/lanes")  # they draw for borrowers


@pytest.fixture(scope="module")
def book() -> Book:
    """The committed book."""
    return Book(ROOT, "never")


@pytest.fixture(scope="module")
def pages(book) -> Pages:
    """Its pages."""
    return Pages(book)


def test_the_book_is_in_order(pages):
    assert check(pages) == []


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
        variants += [
            [*items[:i], other, *items[i + 1 :]] for i in range(len(items)) for other in falsified(items[i])
        ]
        if isinstance(value, dict):
            return [dict(zip(value, variant, strict=True)) for variant in variants]
        return [*variants, [], [*value, 0]]
    return [0]


def can_be_false(claim: Claim, scope: dict, run: Recording, result: dict) -> bool:
    """Whether another result of this snippet would make the claim false; other snippets' data stay."""
    names = {node.id for node in ast.walk(ast.parse(claim.expression)) if isinstance(node, ast.Name)}
    used = names & set(result)
    for name in used:
        for other in falsified(result[name]):
            with contextlib.suppress(OverlapError, ArithmeticError):
                if claim.verdict([scope | dict(Data({name: other}, "other"))], run).state is State.FALSE:
                    return True
    return not used


def test_every_claim_holds_and_would_not_on_other_data(book, pages):
    false, empty = [], []
    for claim in pages.claims:
        for machine, run in book.recordings(claim.snippet).items():
            scope, where = book.scope(run), f"docs/{claim.page}:{claim.line} on {machine}"
            if book.is_reference(machine) and speaks_of(claim.condition, run):
                verdict = claim.verdict(book.scopes(run), run)
                if verdict.state is not State.HOLDS:
                    false.append(f"{where}: {verdict.figures}")
                elif not can_be_false(claim, scope, run, book.result(run)):
                    empty.append(f"{where}: `{claim.expression}`")
    assert pages.claims
    assert (false, empty) == ([], [])


def on_a_cpu_with(pages, name: str, result: dict) -> str:
    """The word for the claim of this name, of a run on the CPU that gave this result."""
    (claim,) = [claim for claim in pages.claims if claim.name == name]
    known = pages.book.committed[claim.snippet]["cpu"]
    data = known.data | {"result": known.result | result, "others": []}
    changed = replace(known, data=data)
    now = pages.book.with_recordings({claim.snippet: {"cpu": changed}})
    return claim.verdict(now.scopes(changed), known).state.word


def test_a_claim_is_no_program(pages):
    long = [claim.where for claim in pages.of_kind(Claim) if len(claim.conditioned) > 150]
    assert not long, "name what it compares in derive(results) of its snippet"


def test_what_pytorch_says_without_a_gpu_is_claimed_of_every_build_and_release(pages):
    zeros = {"allocated": 0, "reserved": 0}
    steps = [{"step": "before"} | zeros] * 4
    raised = "Cannot access accelerator device when none is available."
    for accelerator, word in ((raised, "holds"), ("0 B", "holds"), ("8 B", "false")):
        result = {"steps": steps, "accelerator": accelerator}
        assert on_a_cpu_with(pages, "no-memory-without-cuda", result) == word
    for pytorchs, word in (([], "holds"), ([14, 14], "holds"), ([14], "false"), ([14, 15], "false")):
        assert on_a_cpu_with(pages, "own-class-or-nothing", {"pytorchs": pytorchs}) == word


WITHOUT_GPU = {
    "no-memory-without-cuda": "first_steps/three_memory_calls",
    "own-class-or-nothing": "graphs/blocks_compiled",
}


@pytest.mark.parametrize("name", WITHOUT_GPU)
def test_what_is_claimed_without_a_gpu_is_true_of_the_pytorch_that_is_here(pages, name):
    with no_gpu():
        result = run_alone(WITHOUT_GPU[name])
    assert on_a_cpu_with(pages, name, result) == "holds"


ARTICLE_ITEMS = [
    f"{letter}{n}"
    for letter, count in zip("ABCDE", (17, 10, 6, 27, 9), strict=True)
    for n in range(1, count + 1)
]


def test_every_item_of_the_articles_has_a_row_with_a_verdict_and_a_place():
    rows = [
        line.split(" | ")
        for line in (ROOT / "docs/sources.md").read_text().splitlines()
        if re.match(r"\| [A-E]\d+ \|", line)
    ]
    assert [row[0].strip("| ") for row in rows] == ARTICLE_ITEMS
    for item, _, verdict, where, _ in rows:
        said = VERDICT.match(verdict)
        assert said[1] in VERDICTS if said else verdict.startswith("no verdict"), f"{item}: {verdict!r}"
        page, _, anchor = re.search(r"\]\(([\w.]+)#?([\w-]*)\)", where)[0][2:-1].partition("#")
        text = (ROOT / "docs" / page).read_text()
        snippet = anchor.removeprefix("snippet-").replace("-", "/", 1)
        pair = snippet.removesuffix("_broken").removesuffix("_fixed")
        shown = f"```snippet {snippet}\n" in text or f"```pair {pair}\n" in text
        assert not anchor or shown, f"{item}: {page} does not show {snippet}"


#: What a chapter's answer is made of, behind what its reader sees.
SLOTS = ["Why", "Take this", "What it gains, and when not", "Traps"]
PICTURES = ("figure", "diagram", "snippet", "pair")


@pytest.mark.parametrize("page", PAGES)
def test_each_chapter_says_its_answer_first(page, pages):
    """Symptom, mechanism, guess, lines to paste, gains and traps: a few minutes, a few pictures."""
    blocks = pages.by_path[f"{page}.md"].blocks
    at = next(i for i, block in enumerate(blocks) if block.prose and "{ #evidence }" in block.prose.text)
    answer = blocks[: at + 1]
    prose = [block.prose.text for block in answer if block.prose and block.kind != "step"]
    text = "\n".join(prose).partition("## Evidence")[0]
    lead = text.partition("\n## ")[0]
    slots = ["Find the fault", *SLOTS] if page == "clinic" else SLOTS
    assert "**You see**" in lead and "\n\n**The answer:** " in lead
    assert re.findall(r"^## (.+?)(?: \{.*)?$", text, re.M) == slots
    kinds = [block.kind for block in answer]
    assert "paste" in kinds and "guess" in kinds
    assert 1 <= sum(kinds.count(kind) for kind in PICTURES) <= 5
    assert len(text.split()) <= 1000


def test_a_link_that_promises_a_calculator_leads_to_its_form():
    """At most twelve lines above it, and no other section between: the first field is then on the screen."""
    links = [
        (path, *link)
        for path in sorted((ROOT / "docs").glob("*.md"))
        for link in re.findall(r"\[Calculators?: [^]]+\]\(([\w.]*)#([\w-]+)\)", path.read_text())
    ]
    assert len(links) >= 7
    for path, page, anchor in links:
        text = (path.parent / page if page else path).read_text()
        place = re.search(rf'<a id="{anchor}">|\{{ #{anchor}\b', text)
        assert place, f"{path.name}: no anchor {anchor}"
        behind = text[place.end() :].partition("\n```calculator ")[0]
        near = behind.count("\n") <= 12 and not re.search(r"^#|^```", behind, re.M)
        assert near, f"{path.name}: {anchor} is far above its calculator"


#: Chapters without it: no lane of it shows their subject, or a figure of their answer shows that larger.
NO_STEP = {"clinic", "first_steps", "machine", "memory", "pycuda", "sharding", "streams", "training"}


@pytest.mark.parametrize("page", sorted({*PAGES} - NO_STEP))
def test_behind_the_answer_stands_its_part_of_the_step(page, pages):
    """In one line, with how long the step takes with the fault and without, where it is one of the six."""
    kinds = [block.kind for block in pages.by_path[f"{page}.md"].blocks]
    step = pages.by_path[f"{page}.md"].blocks[kinds.index("step")]
    before = pages.by_path[f"{page}.md"].blocks[kinds.index("step") - 1].prose.text
    assert kinds.count("step") == 1 and before.rstrip().endswith("</div>"), "it stands below the answer"
    assert len(re.findall(r": (?:ms|late_rank_ms)\b", step.caption)) >= 2 or step.part in NO_FAULT
    said, _, made = step.caption.partition(" Pale: other parts of the step. ")
    assert len(said.split()) <= 50
    assert step.part == "strip-clock" or made == "([How it is drawn](clinic.md#how-drawn))"


#: The strips of the healthy step.
NO_FAULT = {"strip-clock", "strip-Python", "strip-GPU"}


@pytest.mark.parametrize("page", PAGES)
def test_each_chapter_has_a_table_of_values_beside_their_ceilings(page, pages):
    table = pages.by_path[f"{page}.md"].text.partition("\n## In one table\n")[2].partition("\n## ")[0]
    heading, _, *rows = [line.strip("| ").split("|") for line in table.splitlines() if line.startswith("|")]
    assert 1 <= len(rows) <= 6
    assert any("ceiling" in cell for cell in heading)
    column = next(i for i, cell in enumerate(heading) if "ceiling" in cell)
    for row in rows:
        assert "{" in row[column - 1] and row[column].strip(" –-"), (
            f"{row[0]}: no value, or nothing beside it"
        )


#: What a verdict of docs/sources.md is in docs/zh.md.
CHINESE = {
    "holds with limits": "有条件成立",
    "holds": "成立",
    "dated": "已过时",
    "wrong": "错误",
    "no verdict": "不作结论",
}


def item_rows(page: str) -> dict[str, list[str]]:
    """The cells of each item's row, by id."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if re.match(r"\| [A-E]\d+ \|", line)]
    return {item: cells for item, *cells in rows}


@pytest.mark.parametrize("item", ARTICLE_ITEMS)
def test_the_chinese_guide_says_of_each_item_what_the_table_of_sources_says(item):
    """The same verdict, places and values."""
    english, chinese = item_rows("sources.md")[item], item_rows("zh.md")[item]
    said = VERDICT.match(english[1])
    verdict = said[1] if said else "no verdict"
    english[1] = VERDICT.sub("", english[1])
    assert chinese[1].startswith(CHINESE[verdict])
    for pattern in (r"\{[^{}]+\}", r"\]\(([^)]+)\)"):
        assert sorted(re.findall(pattern, " ".join(chinese))) == sorted(
            re.findall(pattern, " ".join(english))
        )


def test_the_chinese_guide_has_the_items_in_their_order():
    assert list(item_rows("zh.md")) == ARTICLE_ITEMS


def credits_of_notice() -> dict[str, list[str]]:
    """What NOTICE says of each file: whose code it follows."""
    credits, line_of = {}, ""
    for line in (ROOT / "NOTICE").read_text(encoding="utf-8").splitlines():
        if line.startswith("After "):
            line_of = line
        elif line.startswith("    snippets/"):
            credits.setdefault(line.strip(), []).append(line_of)
    return credits


def test_notice_and_the_files_themselves_say_whose_code_they_follow(book):
    credited = {snippet.path: snippet.credits for snippet in book.snippets.values() if snippet.credits}
    assert credits_of_notice() == credited
    assert len({credit for credits in credited.values() for credit in credits}) == 4


def test_a_download_says_whose_code_it_follows_once(book):
    credits = credits_of_notice()
    for snippet in book.snippets.values():
        text = download.program(snippet)
        for credit in credits.get(snippet.path, []):
            assert text.count(credit) == 1, f"{snippet.path}: {credit}"
        for function in snippet.options["take"]:
            piece = download.piece(snippet, function)
            for credit in credits.get(snippet.path, []):
                assert f"\n# {credit}\n" in piece, f"{snippet.path}: {function}"
    (benchmark,) = credits["snippets/timing/d2l_benchmark_broken.py"]
    borrower = download.program(book.snippets["devices/two_gpus_broken"])
    assert f"\n# {benchmark}\n" in borrower  # of a file that it folds in


def test_the_package_and_the_licence_name_the_notice():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"LICENSE", "NOTICE"} <= set(project["license-files"])
    assert "NOTICE" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Copyright (c) 2018 Puneet Grover" in (ROOT / "NOTICE").read_text(encoding="utf-8")


def test_both_searches_pass_over_the_same_words():
    """The head's search and the box of *Symptoms*."""
    script = (ROOT / "docs/assets/rank.js").read_text()
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (between,) = re.findall(r"\(\?<!\[A-Za-z\\d\]\)\(\?:(.*?)\)\(\?!\[", settings)
    passed_over = {
        word for word in re.findall(r"[a-z]+", re.sub(r"\[[A-Z](.)\]", r"\1", between).replace("an?", "a|an"))
    }
    (common,) = re.findall(r"COMMON = new Set\([^\"]*\"(.*?)\"", script)
    assert common.split() == sorted(passed_over)


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_claims_of_a_section_about_one_snippet_stand_in_one_fence(name):
    blocks, found = 0, set()
    for line in (ROOT / "docs" / name).read_text(encoding="utf-8").splitlines():
        blocks ^= line.startswith("```")
        if not blocks and line.startswith("#"):
            found = set()
        elif line.startswith("```claim "):
            assert line not in found, f"{name}: {line} stands twice in its section"
            found.add(line)


def test_the_menu_calls_a_chapter_what_its_title_says(pages):
    """A reader who clicks a name stands on a page of that name."""
    menu = titles(read_nav(ROOT))
    for page in PAGES:
        title = re.search(r"^# (.+?)(?: *\{.*)?$", pages.by_path[f"{page}.md"].text, re.M)[1]
        assert menu[f"{page}.md"] == title, page
