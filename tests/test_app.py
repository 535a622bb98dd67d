"""The book away from its checkout, tried from an empty folder: `overlap.pyz`, one file."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from overlap.blocks.inline import values
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.commands import mine
from overlap.site import app


@pytest.fixture(scope="module")
def application(tmp_path_factory) -> Path:
    """The file, alone in a folder."""
    file = tmp_path_factory.mktemp("downloads") / "overlap.pyz"
    file.write_bytes(app.build(Pages(Book(ROOT, "never"))))
    return file


def start(file: Path, *arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    """Run it in its folder, with a cache of its own, without this checkout on the path."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment |= {"XDG_CACHE_HOME": str(file.parent / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *python, str(file), *arguments]
    return subprocess.run(command, cwd=file.parent, env=environment, capture_output=True, text=True)


def test_the_same_book_gives_the_same_few_bytes(application):
    again = app.build(Pages(Book(ROOT, "never")))
    assert application.read_bytes() == again
    assert len(again) < 1_250_000, "a second's download; it grows by the text of its snippets"


def test_it_holds_no_recording_but_those_of_the_headline_rates(application):
    with zipfile.ZipFile(application) as archive:
        names = archive.namelist()
    recorded = {Path(name).stem for name in names if name.startswith("docs/recordings/")} - {"seconds"}
    gpus = {"hbm_bandwidth", "matmul_peak", "pcie_bandwidth", "launch_cost", "small_copy", "small_matmul"}
    assert recorded == {*gpus, "cpu_peak"}
    assert "snippets/machine/cpu_peak.py" in names and not any("generated" in name for name in names)


def test_it_measures_what_a_checkout_measures(application):
    done = start(application, "verify", "--json", "timing/wait_for")
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert report["machine"]["gpus"] == [] and report["failures"] == []
    assert {claim["state"] for claim in report["claims"]} <= {"holds", "open"}
    assert sorted(entry.name for entry in application.parent.iterdir()) == ["cache", "overlap.pyz"]


def test_all_keeps_what_ran_beside_the_reader_and_knows_the_book(application, tmp_path):
    """The values are those of the book's own sentences; a second time nothing runs."""
    pages = Pages(Book(ROOT, "never"))
    names = ["graphs/imperative_symbolic", "first_steps/three_lines"]
    file = tmp_path / "overlap.pyz"
    file.write_bytes(application.read_bytes())
    done = start(file, "--all", "--json", *names)
    assert done.returncode == 0, done.stderr
    assert re.search(r"2 runs afresh, 0 are in mine.json: about 0:00:\d\d by the recordings", done.stderr)
    assert re.search(r"^1/2 \w+/\w+: .* s, about \d:\d\d:\d\d left$", done.stderr, re.M)
    assert json.loads(done.stdout)["failures"] == []
    data = json.loads((tmp_path / "mine.json").read_text())
    (here,) = data["machines"].values()
    assert data["digest"] == mine.digest_of_book(pages)
    assert set(here["snippets"]) == set(names)
    asked = {value.key for block in pages.blocks if block.prose for _, value in values(block.prose.text)}
    assert here["values"] and set(here["values"]) <= asked
    assert here["claims"] and set(here["claims"]) <= {claim.key for claim in pages.claims}
    assert data["lacks"]["timing/wrong_device_sync_fixed"] == "needs 2 GPUs"
    again = start(file, "--all", "--json", *names)
    assert "0 runs afresh, 2 are in mine.json" in again.stderr
    assert json.loads((tmp_path / "mine.json").read_text()) == data


def test_it_unpacks_once(application):
    assert start(application, "--version").stdout.startswith("overlap ")
    (folder,) = (application.parent / "cache").iterdir()
    before = (folder / "overlap/cli.py").stat().st_mtime_ns
    start(application, "--version")
    assert (folder / "overlap/cli.py").stat().st_mtime_ns == before


def test_without_torch_it_says_how_to_get_it(application):
    done = start(application, python=("-S",))  # which hides what is installed
    assert done.returncode == 1 and done.stdout == ""
    assert "this Python has none" in done.stderr and "pytorch.org" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["record", "timing/wait_for"], "record with --bundle FILE, and import that file in a checkout"),
        (["import", "bundle.jsonl"], "that command needs a checkout"),
        (["build", "made"], "that command needs a checkout"),
        (["check"], "that command needs a checkout"),
    ],
)
def test_its_copy_of_the_book_stays_as_it_is(application, arguments, reason):
    done = start(application, *arguments)
    assert done.returncode == 1 and reason in done.stderr and done.stdout == ""


def test_it_records_a_bundle_for_a_checkout(application):
    assert start(application, "record", "--bundle", "made.jsonl", "timing/wait_for").returncode == 0
    made = application.parent / "made.jsonl"
    recorded = {json.loads(line)["snippet"] for line in made.read_text().splitlines()}
    assert recorded == {"timing/wait_for"}
    made.unlink()
