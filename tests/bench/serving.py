"""How long an author waits under `mkdocs serve` until the browser shows a saved page or snippet.

`python tests/bench/serving.py` works on a copy of the checkout, with its cache. What is printed includes a
snippet's own run time and what MkDocs waits for: it looks for changes twice a second, and once more for
their end.
"""

import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE, SNIPPET = "docs/streams.md", "snippets/machine/env_report.py"
ROUNDS = 5


def shows(address: str, text: str, since: float, limit: float = 60) -> float:
    """Seconds until the page at the address has this text."""
    while time.monotonic() - since < limit:
        try:
            if text in urllib.request.urlopen(address, timeout=10).read().decode():
                return time.monotonic() - since
        except OSError:
            pass
        time.sleep(0.02)
    raise SystemExit(f"{address} did not show {text!r} within {limit} s")


def saved(path: Path, text: str) -> float:
    """Save a file; return when."""
    path.write_text(text)
    return time.monotonic()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="overlap-serving-") as folder, socket.socket() as free:
        book = Path(folder) / "book"
        shutil.copytree(ROOT, book, ignore=shutil.ignore_patterns(".git", "site", ".venv", "*.egg-info"))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        address = f"http://127.0.0.1:{port}/"
        environment = os.environ | {
            "NO_MKDOCS_2_WARNING": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": str(book),
        }
        command = [sys.executable, "-m", "mkdocs", "serve", "--dev-addr", f"127.0.0.1:{port}"]
        with open(Path(folder) / "log", "w") as log:
            server = subprocess.Popen(command, cwd=book, env=environment, stdout=log, stderr=log)
        try:
            shows(f"{address}streams/", "Streams", time.monotonic(), 120)
            time.sleep(2)
            page, snippet, times = book / PAGE, book / SNIPPET, {"a saved page": [], "a saved snippet": []}
            for turn in range(ROUNDS):
                mark = f"saved for the {turn + 1}. time"
                since = saved(page, f"{page.read_text()}\n\nThis page was {mark}.\n")
                times["a saved page"].append(shows(f"{address}streams/", mark, since))
                time.sleep(1)
            for turn in range(ROUNDS):
                mark = f"run for the {turn + 1}. time"
                text = re.sub(
                    r"(def main\(\).*\n)", rf'\1    print("{mark}")\n', snippet.read_text(), count=1
                )
                since = saved(snippet, text)
                times["a saved snippet"].append(shows(f"{address}machine/", mark, since))
                time.sleep(1)
        finally:
            server.terminate()
            server.wait()
    for name, seconds in times.items():
        print(f"{name:<16} {statistics.median(seconds):5.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})")


if __name__ == "__main__":
    main()
