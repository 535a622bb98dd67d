"""Kill commands at random points: nothing is lost or torn or left behind, and the next run goes on.

`python tests/slow/kills.py --kills 50 --seed 1` says what happened to how many; another seed kills at other
points.
"""

import argparse
import collections
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from conftest import SmallBook  # noqa: E402

from overlap import OverlapError  # noqa: E402
from overlap.run import recording  # noqa: E402

#: What runs need of torch. The real one takes seconds to import, which would be most of what is killed.
TORCH = """
__version__ = "2.13.0"


class version:
    git_version = cuda = None


class backends:
    class cudnn:
        is_available = staticmethod(lambda: False)


class cuda:
    device_count = staticmethod(lambda: 0)


class zeros:
    def __init__(self, count):
        pass

    def add_(self, number):
        return self
"""
DRAWS = """
import time


def plot(results, ceilings):
    from snippets.pictures import sweep

    return sweep([0, 1], {"line": results["ms_trials"]}, {}, xlabel="time", ylabel="ms")


def main():
    print("drawn from here")
    time.sleep(0.05)
    return {"ms": time.perf_counter() % 1, "ms_trials": [time.perf_counter() % 1, 1.0]}
"""
STARTS = """
import subprocess
import time


def main():
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    print("x" * 100_000)
    time.sleep(0.1)
    return {"ms": 2.0, "text": "y" * 50_000}
"""
#: Two runs that say the same, begun in the same second, would count as one.
THIRD = "import time\n\n\ndef main():\n    print('three')\n    return {'n': 3, 'at': time.time()}\n"
PAGE = """# A

```snippet a/draws
caption: C.
```

```snippet a/starts
```

```snippet a/third
```

{a/draws: ms}

```claim a/draws
ms >= 0
name: c
So.
```

```headlines
rate | ms | a/draws: ms + 1 | -
```
"""
CONFIG = f"""INHERIT: {ROOT}/mkdocs.yml
site_name: Small
extra_css: []
extra_javascript: []
nav: [index.md, a.md, claims.md, glossary.md]
"""
OVERLAP, MKDOCS = [sys.executable, "-m", "overlap"], [sys.executable, "-m", "mkdocs"]
COMMANDS = {
    "record": [*OVERLAP, "record", "a"],
    "bundle": [*OVERLAP, "record", "a", "--bundle", "bundle.jsonl"],
    "run": [*OVERLAP, "run", "a"],
    "verify": [*OVERLAP, "verify", "a"],
    "build": [*MKDOCS, "build"],
    "serve": [*MKDOCS, "serve"],
}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Trial:
    """A small book of its own with its own temporary folder, in which commands are run and killed."""

    def __init__(self, folder: Path):
        self.book, self.tmp, self.token = SmallBook(folder / "book"), folder / "tmp", uuid.uuid4().hex
        self.root, self.others = self.book.root, collections.Counter()
        self.log = folder / "said"
        self.tmp.mkdir()
        (self.root / "torch.py").write_text(TORCH)
        (self.root / "mkdocs.yml").write_text(CONFIG)
        for name, code, options in (
            ("a/draws", DRAWS, "gpus = [0]"),
            ("a/starts", STARTS, "gpus = [0]\nexclusive = false"),
            ("a/third", THIRD, "gpus = [0]\nexclusive = false"),
        ):
            self.book.snippet(name, code, options)
        for name, text in {
            "index": "# Small\n",
            "a": PAGE,
            "claims": "# Claims\n\n```claims\n```\n",
            "glossary": "# Glossary\n\n```glossary\n```\n",
        }.items():
            self.book.page(name, text)
        self.book.entries("glossary", widget={"term": "widget", "meaning": "A thing."})
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"

    def environment(self, **more: str | None) -> dict[str, str]:
        """What commands find: no GPU, this trial's temporary folder, and more; None takes a variable away."""
        own = {
            "OVERLAP_EXECUTE": "always",
            "TMPDIR": str(self.tmp),
            "OVERLAP_TRIAL": self.token,
            "PYTHONPATH": str(ROOT),
        }
        own |= {"CUDA_VISIBLE_DEVICES": "", "NO_MKDOCS_2_WARNING": "1"}
        return {name: text for name, text in (os.environ | own | more).items() if text is not None}

    def start(
        self, kind: str, more: Sequence[str] = (), instead: Sequence[str] = (), **variables: str | None
    ) -> subprocess.Popen:
        """Begin a command, with more options, in a process group of its own; what it says is in `log`."""
        command = [
            *(instead or COMMANDS[kind]),
            *(["--dev-addr", self.address] if kind == "serve" else []),
            *more,
        ]
        with open(self.log, "wb") as said:
            return subprocess.Popen(
                command,
                cwd=self.root,
                env=self.environment(**variables),
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def finish(self, kind: str, **variables: str | None) -> float:
        """Run a command to its end; how long it took."""
        started = time.monotonic()
        done = self.start("build" if kind == "serve" else kind, **variables)
        code = done.wait(300)
        assert code == 0, (kind, self.text())
        return time.monotonic() - started

    def text(self) -> str:
        """What the last command said."""
        return self.log.read_text(errors="replace")

    def runs(self) -> dict[str, int]:
        """How many runs each recording has; one that is torn is an error."""
        found = {}
        for path in sorted(self.root.glob("docs/recordings/*/*/*.json")):
            data = recording.read(path)
            assert recording.is_intact(data), path
            found[path.stem] = len(recording.all_runs(data))
        bundle = self.root / "bundle.jsonl"
        lines = bundle.read_text().split("\n") if bundle.exists() else []
        found["bundle"] = sum(bool(recording.parse(line, "bundle")) for line in lines[:-1])
        return found

    def left(self) -> list[str]:
        """What no command may leave: processes, temporary files, files in the checkout, damaged files."""
        deadline = time.monotonic() + 30
        while (alive := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.05)
        found = [f"runs: {line}" for line in alive]
        for path in self.tmp.iterdir():
            if path.name.startswith("mkdocs_"):
                self.others["a folder of MkDocs"] += 1
            elif path.name.startswith("pymp-"):
                self.others["a folder of Python's multiprocessing"] += 1
            else:
                found.append(f"temporary: {path.name}")
        own = {"torch.py", "__pycache__", "mkdocs.yml", "snippets", "docs", ".cache", "site", "bundle.jsonl"}
        found += [f"checkout: {path.name}" for path in self.root.iterdir() if path.name not in own]
        inside = [path for place in ("docs", "snippets", ".cache") for path in (self.root / place).rglob("*")]
        found += [
            f"checkout: {path.relative_to(self.root)}"
            for path in inside
            if (path.name.startswith(".") and path.name != ".digest") or path.suffix == ".tmp"
        ]
        for path in self.root.glob(".cache/overlap/runs/*.json"):
            try:
                recording.read(path)
            except OverlapError as error:
                found.append(f"torn: {error}")
        return found

    def alive(self) -> list[str]:
        """Command lines of processes that descend from what was started."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if (
                    self.token.encode() in (place / "environ").read_bytes()
                    and "Z" not in (place / "stat").read_text().rpartition(")")[2][:3]
                ):
                    found.append((place / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found


def kill(trial: Trial, kind: str, number: signal.Signals, wait: float, whole_group: bool) -> list[str]:
    """Begin a command, kill it after so many seconds; return what is wrong then, and after the next run."""
    if kind == "bundle":
        (trial.root / "bundle.jsonl").unlink(missing_ok=True)  # else all is in it
    before = trial.runs()
    process = trial.start(kind)
    try:
        process.wait(wait)
    except subprocess.TimeoutExpired:
        (os.killpg if whole_group else os.kill)(process.pid, number)
    problems = []
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        problems.append("still ran a minute later")
        process.kill()
        process.wait()
    said = trial.text()
    problems += trial.left()
    if re.search("Traceback|Exception ignored|Error in atexit", said) and f'File "{ROOT}/overlap' in said:
        problems.append(f"traceback: {said[-3000:]}")
    try:
        after = trial.runs()
        lost = [name for name in before if name != "bundle" and after.get(name, 0) < before[name]]
        problems += [f"lost: {name} had {before[name]} runs and has {after.get(name)}" for name in lost]
        trial.finish(kind)
        problems += [f"next run: {problem}" for problem in trial.left()]
    except (OverlapError, AssertionError, subprocess.TimeoutExpired) as error:
        problems.append(f"torn, or the next run: {error}")
    for path in trial.tmp.iterdir():
        shutil.rmtree(path, ignore_errors=True)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", default=",".join(COMMANDS), help="such as build,serve")
    options = parser.parse_args()
    points = random.Random(options.seed)
    kinds = options.commands.split(",")
    count = 0
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        trial = Trial(Path(folder))
        subprocess.run(
            [*OVERLAP, "record"], cwd=trial.root, env=trial.environment(), check=True, capture_output=True
        )
        takes = {kind: trial.finish(kind) for kind in kinds}
        for turn in range(options.kills):
            kind, number = kinds[turn % len(kinds)], SIGNALS[turn // len(kinds) % len(SIGNALS)]
            wait = points.uniform(0, takes[kind])
            problems = kill(trial, kind, number, wait, whole_group=points.random() < 0.5)
            count += len(problems)
            for problem in problems:
                print(
                    f"{turn}: {kind} {number.name} after {wait:.2f} of {takes[kind]:.2f} s: {problem}",
                    flush=True,
                )
            if max(trial.runs().values()) > 7:  # a recording keeps ten runs
                shutil.rmtree(trial.root / "docs/recordings/cpu/a")
                trial.finish("record" if "record" in kinds else kinds[0])
        others = [f"{number} × {what}" for what, number in trial.others.items()]
    print(f"{options.kills} killed, {count} problems", *others, sep="; ")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
