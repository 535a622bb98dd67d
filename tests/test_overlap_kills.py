"""Commands that are killed at random points: nothing is lost or torn, nobody is left running, nothing is left lying about, no traceback, and
the next run goes on.

`OVERLAP_KILLS=200 OVERLAP_SEED=1 python -m pytest -n 0 -m slow -s tests/test_overlap_kills.py` says what happened to how many; other seeds
kill at other points, `OVERLAP_KILLED=build,serve` only these commands.
"""

import collections
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

for name in ("mkdocs", "material", "mkdocs_jupyter", "matplotlib"):
    pytest.importorskip(name)

from conftest import ROOT, SmallBook  # noqa: E402

from overlap import OverlapError  # noqa: E402
from overlap.run import recording  # noqa: E402

KILLS, SEED = int(os.environ.get("OVERLAP_KILLS", "200")), int(os.environ.get("OVERLAP_SEED", "1"))

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
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    axes.plot([0, 1], results["ms_trials"], label="line")
    axes.set_xlabel("time")
    axes.set_ylabel("ms")
    return figure


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
PAGE = "# A\n\n```snippet a/draws\ncaption: C.\n```\n\n```snippet a/starts\n```\n\n```snippet a/third\n```\n\n{a/draws: ms}\n\n```claim a/draws\nms >= 0\nname: c\nSo.\n```\n\n```headlines\nrate | ms | a/draws: ms + 1 | -\n```\n"
CONFIG = f"INHERIT: {ROOT}/mkdocs.yml\nsite_name: Small\nextra_css: []\nextra_javascript: []\nnav: [index.md, a.md, claims.md, glossary.md]\n"
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
            "glossary": "# Glossary\n\n## widget\n\nA thing.\n",
        }.items():
            self.book.page(name, text)
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
        self, kind: str, more: list[str] = (), instead: list[str] = (), **variables: str | None
    ) -> subprocess.Popen:
        """Begin a command, with more options, in a process group of its own; what it says is in `log`."""
        command = [*(instead or COMMANDS[kind]), *(["--dev-addr", self.address] if kind == "serve" else []), *more]
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
            assert data.intact, path
            found[path.stem] = len(data.runs)
        bundle = self.root / "bundle.jsonl"
        lines = bundle.read_text().split("\n") if bundle.exists() else []
        found["bundle"] = sum(bool(recording.parse(line, "bundle")) for line in lines[:-1])
        return found

    def left(self) -> list[str]:
        """What no command may leave: processes, temporary files, files in the checkout, damaged files in the cache."""
        deadline = time.monotonic() + 30
        while (alive := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.05)
        found = [f"runs: {line}" for line in alive]
        for path in self.tmp.iterdir():
            if path.name.startswith("mkdocs_") and not any(path.iterdir()):
                self.others["an empty folder of MkDocs, which makes it before it reads its configuration"] += 1
            else:
                found.append(f"temporary: {path.name}")
        own = {"torch.py", "__pycache__", "mkdocs.yml", "snippets", "docs", ".cache", "site", "bundle.jsonl"}
        found += [f"checkout: {path.name}" for path in self.root.iterdir() if path.name not in own]
        inside = [path for place in ("docs", "snippets", ".cache") for path in (self.root / place).rglob("*")]
        found += [
            f"checkout: {path.relative_to(self.root)}"
            for path in inside
            if path.name.startswith(".") or path.suffix == ".tmp"
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


def begun(said: str) -> bool:
    """Whether a traceback has a line of this project."""
    return f'File "{ROOT}/' in said


@pytest.mark.slow
def test_kills(tmp_path, capsys):
    trial, points, problems = Trial(tmp_path), random.Random(SEED), []
    kinds = os.environ.get("OVERLAP_KILLED", ",".join(COMMANDS)).split(",")
    subprocess.run(
        [*OVERLAP, "record"],
        cwd=trial.root,
        env=trial.environment(),
        check=True,
        capture_output=True,
    )
    takes = {kind: trial.finish(kind) for kind in kinds}
    print({kind: round(seconds, 1) for kind, seconds in takes.items()})
    count = collections.Counter()
    turn, killed_ones = -1, 0
    while killed_ones < KILLS:  # those that had ended before do not count
        turn += 1
        kind, number = kinds[turn % len(kinds)], SIGNALS[turn // len(kinds) % 3]
        if kind == "bundle":
            (trial.root / "bundle.jsonl").unlink()  # else all is in it
        before, wait = trial.runs(), points.uniform(0, takes[kind] * 1.1)
        killed = trial.start(kind)
        try:
            killed.wait(wait)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        group = points.random() < 0.5
        if not ended:
            (os.killpg if group else os.kill)(killed.pid, number)
        try:
            killed.wait(60)
        except subprocess.TimeoutExpired:
            problems.append(f"{kind} {number.name} after {wait:.2f} s: still ran a minute later")
            killed.kill()
            killed.wait()
        said, where = trial.text(), f"{turn}: {kind} {number.name} after {wait:.2f} of {takes[kind]:.2f} s"
        count[kind, number.name, "ended before" if ended else "killed"] += 1
        killed_ones += not ended
        found = trial.left()
        if re.search("Traceback|Exception ignored|Error in atexit", said):
            if begun(said):
                found.append(f"traceback: {said[-3000:]}")
            else:
                trial.others["a traceback of Python or MkDocs, which have not come to the book yet"] += 1
        try:
            after = trial.runs()
            found += [
                f"lost: {name} had {before[name]} runs and has {after.get(name)}"
                for name in before
                if after.get(name, 0) < before[name]
            ]
        except (OverlapError, AssertionError) as error:
            found.append(f"torn: {error}")
        for path in [*trial.tmp.iterdir()]:
            shutil.rmtree(path, ignore_errors=True)
        try:
            takes[kind] = max(0.3, (takes[kind] + trial.finish(kind)) / 2)
            found += [f"next run: {each}" for each in trial.left()]
        except (AssertionError, subprocess.TimeoutExpired) as error:
            found.append(f"next run: {error}")
        problems += [f"{where}: {each}" for each in found]
        for each in found:
            print(where, each, flush=True)
        for name in ("draws", "starts", "third"):  # a recording keeps ten runs: begin anew before it is full
            if after.get(name, 0) > 7:
                shutil.rmtree(trial.root / "docs/recordings/cpu/a")
                subprocess.run(
                    [*OVERLAP, "record"],
                    cwd=trial.root,
                    env=trial.environment(),
                    check=True,
                    capture_output=True,
                )
                break
    with capsys.disabled():
        print(f"\nseed {SEED}: {killed_ones} killed, {len(problems)} problems")
        for key, number in [*sorted(count.items()), *((("not ours:", why), n) for why, n in trial.others.items())]:
            print(*key, number)
    assert problems == []
