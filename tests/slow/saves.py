"""An author at work: many saves of a page and of a snippet under `mkdocs serve`, valid and broken.

`python tests/slow/saves.py [SAVES] [SEED]` says how long valid ones took to show, what did not show, which
broken ones told no reason, how memory grew, and which processes were left behind. First it saves ten times in
a copy of this book. What a save takes has in it the snippet's own run, and what MkDocs waits for: it looks
for changes twice a second, and once more for their end.
"""

import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """site_name: Saves
theme: {name: material, font: false}
plugins: [overlap]
markdown_extensions:
  [attr_list, md_in_html, pymdownx.superfences]
"""
HEADER = "# /// script\n# [tool.overlap]\n# gpus = [0]\n# timeout = 2\n# exclusive = false\n# ///\n"
CODE = '"""A mark."""\n\n\ndef main():\n    print("printed MARK")\n    return {"ms": 1.5}\n'
PAGE = "# A\n\n```snippet a/mark\n```\n\nIt took {a/mark: ms} ms. Written MARK.\n"
#: What is broken, and what an author must be told: where, and why.
BROKEN_PAGES = {
    "{a/none: ms}": r"docs/a\.md.*a/none",
    "{a/mark: nothing}": r"docs/a\.md.*nothing",
    "{a/mark: ().__class__}": r"docs/a\.md.*__class__",
    "```snippet a/mark\nshoe: main\n```": r"docs/a\.md.*shoe",
    "```diagram nothing\n```": r"docs/a\.md.*nothing",
}
BROKEN_CODE = {
    "def main(:\n": r"snippets/a/mark\.py",
    "def main():\n    raise ValueError('oops')\n": r"(?s)snippets/a/mark\.py.*ValueError: oops",
    "def main():\n    return [1]\n": r"snippets/a/mark\.py.*no dict",
    "def main():\n    import os; os.kill(os.getpid(), 9)\n": r"snippets/a/mark\.py.*killed by signal 9",
    "def main():\n    import time; time.sleep(9)\n": r"snippets/a/mark\.py.*still ran",
    "n = 1\n": r"snippets/a/mark\.py.*main",
}


@dataclass
class Text:
    """A file of a book that an author saves, with a MARK in it; the page that shows it; what breaks it."""

    file: Path
    text: str
    page: str
    broken: dict[str, str]

    def breaks(self, chance: random.Random) -> tuple[str, str]:
        """The whole text with something broken in it, and what must be told."""
        bad, told = chance.choice(list(self.broken.items()))
        if self.file.suffix == ".md":
            return f"{self.text}\n{bad}\n", told
        return f'{HEADER}"""A mark."""\n\n\n{bad}', told


def small_book(root: Path) -> dict[str, Text]:
    """A book of one page and one snippet, recorded."""
    page, snippet = root / "docs/a.md", root / "snippets/a/mark.py"
    for path in (page, snippet, root / "docs/recordings/any"):
        path.parent.mkdir(parents=True, exist_ok=True)
    (root / "docs/index.md").write_text("# Saves\n")
    (root / "mkdocs.yml").write_text(CONFIG)
    page.write_text(PAGE)
    snippet.write_text(HEADER + CODE)
    command = [sys.executable, "-m", "overlap", "record"]
    subprocess.run(command, cwd=root, env=environment(ROOT), check=True, capture_output=True)
    return {
        "page": Text(page, PAGE, "a/", BROKEN_PAGES),
        "snippet": Text(snippet, HEADER + CODE, "a/", BROKEN_CODE),
    }


def whole_book(root: Path) -> dict[str, Text]:
    """A copy of this book, with its cache; nothing is broken in it."""
    left_out = shutil.ignore_patterns(".git", "site", ".venv", "*.egg-info")
    shutil.copytree(ROOT, root, ignore=left_out)
    page, snippet = root / "docs/streams.md", root / "snippets/machine/env_report.py"
    code = re.sub(r"(def main\(\).*\n)", r'\1    print("printed MARK")\n', snippet.read_text(), count=1)
    return {
        "page": Text(page, f"{page.read_text()}\nWritten MARK.\n", "streams/", {}),
        "snippet": Text(snippet, code, "machine/", {}),
    }


def environment(code: Path) -> dict[str, str]:
    """That of the commands, which import this code."""
    hidden = {"CUDA_VISIBLE_DEVICES": "", "NO_MKDOCS_2_WARNING": "1"}
    return os.environ | hidden | {"PYTHONPATH": str(code)}


class Author:
    """Saves files of a book that is served, and looks at what is shown and said."""

    def __init__(self, root: Path, texts: dict[str, Text]):
        self.texts = texts
        self.log = root / "log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        code = root if (root / "overlap").exists() else ROOT
        command = [sys.executable, "-m", "mkdocs", "serve", "--dev-addr", self.address]
        with open(self.log, "w") as log:
            self.server = subprocess.Popen(command, cwd=root, env=environment(code), stdout=log, stderr=log)
        self.seen = 0

    def shown(self, page: str) -> str:
        """A page as it is served now."""
        try:
            return urllib.request.urlopen(f"http://{self.address}/{page}", timeout=30).read().decode()
        except OSError:
            return ""

    def all_ran(self) -> bool:
        """Whether the first page, once it is served, says of no runs that they are under way."""
        page = self.shown("")
        return bool(page) and "when all have run" not in page

    def news(self) -> str:
        """What was said since the last save."""
        return self.log.read_bytes()[self.seen :].decode("utf-8", "replace")

    def save(self, path: Path, text: str) -> None:
        """Save one file."""
        self.seen = self.log.stat().st_size
        path.write_text(text)

    def wait(self, is_there, limit_s: float = 60) -> float | None:
        """Seconds until it is there; None where it did not come in time."""
        started = time.monotonic()
        while time.monotonic() - started < limit_s:
            if is_there():
                return time.monotonic() - started
            time.sleep(0.05)
        return None

    def memory_mb(self) -> float:
        """Memory of the server."""
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def work(author: Author, saves: int, chance: random.Random) -> list[str]:
    """Save so often; what went wrong. Some saves mend what was broken just before."""
    problems = []
    memory = []
    seconds: dict[str, list[float]] = {kind: [] for kind in author.texts}
    for turn in range(saves):
        kind = chance.choice(list(author.texts))
        text = author.texts[kind]
        if text.broken and chance.random() < 0.4:
            bad, wanted = text.breaks(chance)
            author.save(text.file, bad)
            told = author.wait(lambda wanted=wanted: re.search(wanted, author.news()))
            if told is None or "Traceback" in re.sub(r"(?m)^    .*", "", author.news()):
                problems.append(f"{turn}: this was told badly:\n{bad}\n{author.news()[-1500:]}")
        mark = f"mark{turn:04}x"
        author.save(text.file, text.text.replace("MARK", mark))
        took = author.wait(lambda mark=mark, page=text.page: mark in author.shown(page))
        if took is None:
            problems.append(f"{turn}: a valid {kind} did not show:\n{author.news()[-1500:]}")
        else:
            seconds[kind].append(took)
        memory.append(author.memory_mb())
    for kind, times in seconds.items():
        if times:
            median = statistics.median(times)
            print(f"{len(times)} saves of a {kind}: median {median:.2f} s, at most {max(times):.2f} s")
    print(f"memory of the server: {memory[0]:.0f} MB, at the end {memory[-1]:.0f} MB")
    return problems


def serve(make: Callable[[Path], dict[str, Text]], saves: int, chance: random.Random) -> list[str]:
    """Serve a book and save its files so often; what went wrong, and which processes are left behind."""
    with tempfile.TemporaryDirectory(prefix="overlap-saves-") as folder:
        root = Path(folder) / "book"
        author = Author(root, make(root))
        try:
            started = author.wait(lambda: author.shown(""), 300)
            if started is None:
                raise SystemExit(f"nothing was served:\n{author.log.read_text()}")
            print(f"first page after {started:.1f} s")
            author.wait(author.all_ran, 3600)
            problems = work(author, saves, chance)
        finally:
            author.server.terminate()
            author.server.wait(60)
        author.wait(lambda: not processes(folder), 10)
        left = processes(folder)
    return [*problems, f"left behind: {left}"] if left else problems


def processes(folder: str) -> str:
    """Those that have this folder in their command, one a line."""
    return subprocess.run(["pgrep", "-af", folder], capture_output=True, text=True).stdout


def main() -> int:
    saves = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    chance = random.Random(seed)
    print("This book:")
    problems = serve(whole_book, 10, chance)
    print("A book of one page and one snippet:")
    problems += serve(small_book, saves, chance)
    print(*problems, f"{len(problems)} problems", sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
