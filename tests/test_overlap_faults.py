"""Where the machine fails the book: a full disk, a checkout that may not be written to, a clock that goes wrong, no home, others at work in the
same checkout. A clear error or a working fallback, and nothing is lost.
"""

import contextlib
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_overlap_kills import COMMANDS, OVERLAP, SEED, Trial

from overlap.run import recording

ROUNDS = int(os.environ.get("OVERLAP_ROUNDS", "10"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A small book in which everything was recorded and built once."""
    trial = Trial(tmp_path_factory.mktemp("recorded"))
    trial.finish("record")
    trial.finish("build", OVERLAP_EXECUTE="auto")
    return trial.root


@pytest.fixture
def trial(recorded, tmp_path) -> Trial:
    """A copy of that book."""
    made = Trial(tmp_path)
    shutil.rmtree(made.root)
    shutil.copytree(recorded, made.root)
    return made


def ended(trial: Trial, kind: str, **more) -> tuple[int, str]:
    """Exit code of a command that had to do all anew, and what it said; no traceback, nothing left."""
    process = trial.start(kind, **more)
    code, said = process.wait(300), trial.text()
    assert "Traceback" not in said and "Exception ignored" not in said, said
    assert trial.left() == []
    return code, said


@contextlib.contextmanager
def mounted(folder: Path, *options: str):
    """A file system of its own at a folder, or the folder itself mounted otherwise; skipped where this may not be done."""
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_full(trial):
    """Each command says which file could not be written; what was recorded stays; with room again all goes on."""
    before = trial.runs()
    with mounted(trial.root / ".cache", "-t", "tmpfs", "-o", "size=64k", "tmpfs"):
        for kind in ("record", "build"):
            code, said = ended(trial, kind)
            assert code == 1 and "No space left on device" in said and str(trial.root / ".cache") in said, said
    with mounted(trial.root / "docs/recordings", "-t", "tmpfs", "-o", "size=64k", "tmpfs"):
        code, said = ended(trial, "record")
        assert code == 1 and "No space left on device" in said and "docs/recordings" in said
    now = trial.runs()
    assert all(now[name] >= count for name, count in before.items())
    trial.finish("record")
    assert all(trial.runs()[name] > now[name] for name in ("draws", "starts", "third"))


@pytest.mark.parametrize("kind", ["record", "bundle"])
def test_files_that_may_not_be_long(trial, kind):
    """As a quota would have it."""
    before = trial.runs()
    limit = (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    command = f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, {limit}); sys.argv = {COMMANDS[kind][2:]}; runpy.run_module('overlap', run_name='__main__')"
    code, said = ended(trial, kind, instead=[sys.executable, "-c", command])
    assert code == 1 and "File too large" in said, said
    after = trial.runs()
    assert all(after[name] >= count for name, count in before.items())


def test_a_checkout_that_may_not_be_written_to(trial, tmp_path):
    """Commands say so at once, before anything runs; a build from recordings goes elsewhere, if all is drawn already."""
    with mounted(trial.root, "--bind", str(trial.root)), contextlib.ExitStack() as again:
        done = subprocess.run(["mount", "-o", "remount,ro,bind", str(trial.root)], capture_output=True)
        if done.returncode:
            again.close()
            pytest.skip("cannot mount here")
        for kind in ("record", "bundle", "run", "verify"):
            code, said = ended(trial, kind)
            assert code == 1 and "cannot be written (Read-only file system)" in said, (kind, said)
        code, said = ended(trial, "build")
        assert code == 1 and "Read-only file system" in said
        site = tmp_path / "elsewhere"
        code, said = ended(trial, "build", OVERLAP_EXECUTE="auto", more=["--site-dir", str(site)])
        assert code == 0 and "drawn from here" in (site / "a/index.html").read_text(), said


@pytest.mark.slow
@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_goes_wrong(trial, years):
    """All files are of another time, and so is what is recorded: nothing is run for that, and a new run counts."""
    before, other = trial.runs(), time.time() + years * 365 * 86400
    for path in trial.root.rglob("*"):
        os.utime(path, (other, other))
    for path in trial.root.glob("docs/recordings/*/*/*.json"):
        data = recording.read(path)
        data["run"]["started"] = f"20{'01' if years < 0 else '56'}-01-01T00:00:00+00:00"
        recording.write(path, recording.dump(recording.sealed(dict(data))))
    code, said = ended(trial, "build", OVERLAP_EXECUTE="auto")
    assert code == 0 and "drawn from here" in (trial.root / "site/a/index.html").read_text(), said
    trial.finish("record")
    assert all(trial.runs()[name] == before[name] + 1 for name in ("draws", "starts", "third"))


@pytest.mark.parametrize(
    "home", ["/nowhere/at/all", *(pytest.param(home, marks=pytest.mark.slow) for home in ("/proc", None))]
)
def test_no_home(trial, home):
    """Nothing needs one."""
    more = {"HOME": home, "XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None, "MPLCONFIGDIR": None}
    for kind in ("record", "build"):
        code, said = ended(trial, kind, **more)
        assert code == 0, said
    assert "drawn from here" in (trial.root / "site/a/index.html").read_text()


PAIRS = [
    ("build", "build"),
    ("build", "build in the same folder"),
    ("build", "record"),
    ("record", "record"),
    ("run", "verify"),
    ("record", "bundle"),
]


@pytest.mark.parametrize("pair", [pytest.param(pair, id="-".join(pair), marks=pytest.mark.slow) for pair in PAIRS])
def test_two_at_once(trial, tmp_path, pair):
    """In one checkout, begun at any time of each other: both end well, no run is lost, all files are whole."""
    chance = random.Random(SEED)
    for turn in range(ROUNDS):
        before = trial.runs()
        both = []
        sites = [tmp_path / ("site-0" if kind.endswith("same folder") else f"site-{i}") for i, kind in enumerate(pair)]
        for number, (kind, site) in enumerate(zip(pair, sites, strict=True)):
            kind = kind.partition(" ")[0]
            more = ["--site-dir", str(site)] if kind == "build" else []
            trial.log = tmp_path / f"said-{number}"
            both.append((kind, trial.start(kind, more=more), trial.log))
            time.sleep(chance.uniform(0, 1.5))
        for kind, process, log in both:
            assert process.wait(300) == 0, (turn, kind, log.read_text())
            assert "Traceback" not in log.read_text()
        assert trial.left() == []
        after, added = trial.runs(), pair.count("record")
        assert all(after[name] == min(10, before[name] + added) for name in ("draws", "starts", "third")), (
            before,
            after,
        )
        for (kind, _, _), site in zip(both, sites, strict=True):
            if kind == "build":
                assert "drawn from here" in (site / "a/index.html").read_text()
        if after["draws"] > 7:
            shutil.rmtree(trial.root / "docs/recordings/cpu/a")
            subprocess.run(
                [*OVERLAP, "record"], cwd=trial.root, check=True, capture_output=True, env=trial.environment()
            )
