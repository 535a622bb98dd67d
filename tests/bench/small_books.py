"""How long a build takes, beside plain MkDocs and the least that running snippets can cost.

See `python tests/bench/small_books.py --help`. Each time is that of a whole process, the median of several;
the ways take turns, so that a disturbed machine disturbs them alike.

plain      MkDocs builds the same pages with the outputs pasted in as code blocks
floor      one process imports torch and forks a child per snippet, two at a time, and nothing else
overlap    this book's plugin: cold, one snippet edited, nothing changed, `overlap check`
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SNIPPET = '''# /// script
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# ///
"""Add up {n} numbers."""

import torch


def total(n: int) -> int:
    """Sum of the first n whole numbers."""
    return int(torch.arange(n).sum())


def main() -> dict:
    result = total({n})
    print(f"sum of {n}: {{result}}")
    return {{"total": result, "n": {n}}}


if __name__ == "__main__":
    main()
'''
BLOCK = """
## Number {n}

The sum is {{{name}: total:.0f}}.

```snippet {name}
```

```claim {name}
total == n * (n - 1) / 2
It is what the formula says.
```
"""
PASTED = """
## Number {n}

The sum is {total}.

```python
{code}
```

```text
sum of {n}: {total}
```

It is what the formula says.
"""
EXTENSIONS = """
markdown_extensions:
  - admonition
  - attr_list
  - md_in_html
  - tables
  - pymdownx.highlight
  - pymdownx.inlinehilite
  - pymdownx.superfences
"""
FLOOR = """
import os, sys, torch
waiting, running = sys.argv[1:], set()
while waiting or running:
    while waiting and len(running) < 2:
        path = waiting.pop()
        pid = os.fork()
        if not pid:
            space = {"__name__": "__main__"}
            exec(compile(open(path).read(), path, "exec"), space)
            os._exit(0)
        running.add(pid)
    running.discard(os.wait()[0])
"""


def write(folder: Path, count: int, per_page: int) -> tuple[Path, Path]:
    """A book of `count` snippets, and the same pages with pasted outputs; return both folders."""
    book, plain = folder / "book", folder / "plain"
    for number in range(count):
        page, n = f"c{number // per_page}", number + 2
        name, code = f"{page}/s{number}", SNIPPET.format(n=n)
        path = book / f"snippets/{name}.py"
        for each in (path.parent, book / "docs/recordings", plain / "docs"):
            each.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        for docs, text in (
            (book / "docs", BLOCK.format(name=name, n=n)),
            (
                plain / "docs",
                PASTED.format(n=n, total=n * (n - 1) // 2, code=code.partition('# ///\n"""')[2]),
            ),
        ):
            with open(docs / f"{page}.md", "a") as file:
                file.write(text if file.tell() else f"# Page {page}\n{text}")
    theme = "site_name: Bench\ntheme:\n  name: material\n  font: false\n"
    (plain / "mkdocs.yml").write_text(theme + EXTENSIONS + "plugins:\n  - search\n")
    ours = EXTENSIONS + "plugins:\n  - search\n  - overlap\n"
    (book / "mkdocs.yml").write_text(theme + ours)
    return book, plain


def timed(command: list[str], folder: Path) -> float:
    """Seconds of one process; what it says is shown where it fails."""
    environment = os.environ | {
        "NO_MKDOCS_2_WARNING": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(ROOT),
    }
    environment["PYTHONDONTWRITEBYTECODE"] = (
        ""  # pip compiled MkDocs; the first process compiles this package
    )
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - started
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return seconds


def measure(folder: Path, count: int, per_page: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every way, by its name, over so many rounds."""
    book, plain = write(folder, count, per_page)
    mkdocs, overlap = [sys.executable, "-m", "mkdocs", "build"], [sys.executable, "-m", "overlap"]
    files = sorted(map(str, book.glob("snippets/*/*.py")))
    times: dict[str, list[float]] = {}

    def add(way: str, command: list[str], where: Path) -> None:
        times.setdefault(way, []).append(timed(command, where))

    timed([*overlap, "record"], book)  # `check` wants recordings, and the first build after it runs nothing
    for turn in range(rounds):
        add("plain", mkdocs, plain)
        if count <= 100:
            add("floor", [sys.executable, "-c", FLOOR, *files], book)
            shutil.rmtree(book / ".cache")
            add("cold", mkdocs, book)
            edited = Path(files[turn % len(files)])
            edited.write_text(edited.read_text().replace("result = ", "result = 0 + "))
            timed([*overlap, "record"], book)
            for run in book.glob(f".cache/overlap/runs/{edited.parent.name}-{edited.stem}-*"):
                run.unlink()  # recorded, but not yet run by a build
            add("one edited", mkdocs, book)
        else:
            timed(mkdocs, book)
        add("nothing changed", mkdocs, book)
        add("check", [*overlap, "check"], book)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--snippets", type=int, default=24)
    parser.add_argument("--per-page", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print all trials")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="overlap-bench-") as folder:
        times = measure(Path(folder), options.snippets, options.per_page, options.rounds)
    if options.json:
        print(json.dumps(times))
    for way, trials in times.items():
        print(f"{way:<16} {statistics.median(trials):6.2f} s   ({min(trials):.2f} to {max(trials):.2f})")
    middle = {way: statistics.median(trials) for way, trials in times.items()}
    print(f"nothing changed  {middle['nothing changed'] / middle['plain']:6.2f} × plain, at most 1.5 wanted")
    if "cold" in middle:
        factor = middle["cold"] / (middle["floor"] + middle["plain"])
        print(f"cold             {factor:6.2f} × (floor + plain), at most 1.5 wanted")
        more = middle["one edited"] - middle["plain"]
        print(f"one edited       {more:6.2f} s more than plain, at most 4 wanted")


if __name__ == "__main__":
    main()
