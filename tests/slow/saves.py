"""An author at work: many saves of a page and of a snippet under `mkdocs serve`, valid and broken.

`python tests/slow/saves.py [SAVES] [SEED]` says how long valid ones took to show, what did not show, which
broken ones told no reason, how memory grew, and which processes were left behind.
"""

import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """site_name: Saves
theme: {name: material, font: false}
plugins: [overlap]
markdown_extensions:
  [attr_list, pymdownx.superfences, pymdownx.tabbed: {alternate_style: true}, overlap.site.markdown]
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
    "```claim a/mark\nms > 1e9\nIt is long.\n```": r"docs/a\.md.*It is long",
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


class Author:
    """Saves files of a small book that is served, and looks at what is shown and said."""

    def __init__(self, root: Path):
        self.page, self.snippet, self.log = root / "docs/a.md", root / "snippets/a/mark.py", root / "log"
        for path in (self.page, self.snippet):
            path.parent.mkdir(parents=True)
        (root / "docs/recordings").mkdir()
        (root / "docs/index.md").write_text("# Saves\n")
        (root / "mkdocs.yml").write_text(CONFIG)
        self.page.write_text(PAGE)
        self.snippet.write_text(HEADER + CODE)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "CUDA_VISIBLE_DEVICES": "",
            "NO_MKDOCS_2_WARNING": "1",
        }
        command = [sys.executable, "-m", "overlap", "record"]
        subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
        command = [sys.executable, "-m", "mkdocs", "serve", "--dev-addr", self.address]
        with open(self.log, "w") as log:
            self.server = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log)
        self.seen = 0

    def shown(self) -> str:
        """The page as it is served now."""
        try:
            return urllib.request.urlopen(f"http://{self.address}/a/", timeout=30).read().decode()
        except OSError:
            return ""

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
    """Save so often; what went wrong."""
    problems, memory, seconds = [], [], {"page": [], "snippet": []}
    files = {
        "page": (author.page, PAGE, BROKEN_PAGES),
        "snippet": (author.snippet, HEADER + CODE, BROKEN_CODE),
    }
    for turn in range(saves):
        kind = chance.choice(list(files))
        path, text, broken = files[kind]
        if chance.random() < 0.4:
            bad = chance.choice(list(broken))
            author.save(path, f"{PAGE}\n{bad}\n" if kind == "page" else HEADER + '"""A mark."""\n\n\n' + bad)
            told = author.wait(lambda bad=bad, broken=broken: re.search(broken[bad], author.news()))
            if told is None or "Traceback" in re.sub(r"(?m)^    .*", "", author.news()):
                problems.append(f"{turn}: {bad!r} was told badly:\n{author.news()[-1500:]}")
        mark = f"mark{turn:04}x"  # what is broken is mended at once
        author.save(path, text.replace("MARK", mark))
        took = author.wait(lambda mark=mark: mark in author.shown())
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


def main() -> int:
    saves = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory(prefix="overlap-saves-") as folder:
        author = Author(Path(folder))
        try:
            if author.wait(lambda: "printed MARK" in author.shown(), 120) is None:
                raise SystemExit(f"nothing was served:\n{author.log.read_text()}")
            problems = work(author, saves, random.Random(seed))
        finally:
            author.server.terminate()
            author.server.wait(60)
        left = subprocess.run(["pgrep", "-af", folder], capture_output=True, text=True).stdout
    print(*problems, f"{len(problems)} problems", f"left behind: {left or 'nothing'}", sep="\n")
    return int(bool(problems or left))


if __name__ == "__main__":
    sys.exit(main())
