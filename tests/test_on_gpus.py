"""Tests that need a GPU: what one leaves behind is seen and put back; few packages collect them."""

import os
import subprocess
import sys

import left_as_found
import pytest
import torch
from conftest import ROOT

#: What another test would stumble over.
LEFT = {
    "current stream": lambda: torch.cuda.set_stream(torch.cuda.Stream()),
    "profiler": lambda: torch.profiler.profile(acc_events=True).start(),
    "memory history": lambda: torch.cuda.memory._record_memory_history(stacks="python"),
    "allocator settings": lambda: torch._C._accelerator_setAllocatorSettings("max_split_size_mb:512"),
    "memory fraction": lambda: torch.cuda.set_per_process_memory_fraction(0.5),
    "precision of float32 products": lambda: torch.set_float32_matmul_precision("high"),
    "child processes": lambda: os.posix_spawnp("sleep", ["sleep", "600"], os.environ),
    "current GPU": lambda: torch.cuda.set_device(1),
}
NEEDS = {"child processes": [], "current GPU": [pytest.mark.gpu(2)]}


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=NEEDS.get(part, [pytest.mark.gpu])) for part in left_as_found.PARTS]
)
def test_what_a_test_leaves_behind_is_named_and_put_back(part, monkeypatch):
    if not torch.cuda.is_available():
        monkeypatch.setattr(left_as_found, "PARTS", {part: left_as_found.PARTS[part]})
    before = left_as_found.state()
    LEFT[part]()
    (changed,) = left_as_found.restored(before)
    assert changed.startswith(f"{part}: ")
    assert left_as_found.restored(before) == []


#: A plugin of pytest: no package can be imported but those that are allowed, and those that these need.
BARE = """
import os, re, sys
from importlib import metadata

needed = set()

def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()

def need(name):
    if normal(name) in needed:
        return
    try:
        requirements = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    needed.add(normal(name))
    for requirement in requirements:
        if "extra ==" not in requirement:
            need(re.match(r"[\\w.-]+", requirement)[0])

for name in os.environ["ALLOWED"].split():
    need(name)
installed = metadata.packages_distributions()

class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        packages = {normal(package) for package in installed.get(name, [])}
        if packages - {"overlap-book"} and not packages & needed:
            raise ModuleNotFoundError(f"No module named {name!r} (only {os.environ['ALLOWED']})")

sys.meta_path.insert(0, Refuse)
"""


@pytest.mark.parametrize("named", ["", "matplotlib"])
def test_tests_on_gpus_are_collected_without_the_tools_of_the_others(tmp_path, named):
    """With torch, numpy and pytest all of them; with matplotlib, too, the files that name it."""
    (tmp_path / "bare.py").write_text(BARE)
    command = [sys.executable, "-m", "pytest", "-p", "bare", "-m", "gpu", "--collect-only", "-q"]
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    files = [str(path) for path in sorted(ROOT.glob("tests/test_*.py")) if named in path.read_text()]
    environment = os.environ | {"PYTHONPATH": paths, "ALLOWED": f"torch numpy pytest {named}"}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([*command, *files], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


#: A test that is skipped without a GPU, and calls what is gone.
GONE = """from snippets.machine import pycuda_beside_torch_broken


def test_gone():
    assert pycuda_beside_torch_broken.wrong_gradients() == 0
"""


def test_what_a_test_calls_is_there(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "gone.py").write_text(GONE)
    command = [sys.executable, "-m", "mypy", "--cache-dir", os.devnull, "tests", str(tmp_path / "gone.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    *errors, total = done.stdout.splitlines()
    assert total.startswith("Found 1 error in 1 file"), done.stdout + done.stderr
    (error,) = errors
    assert 'gone.py:5: error: Module has no attribute "wrong_gradients"' in error
