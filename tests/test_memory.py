"""Snippets of the chapter on memory."""

import json
import subprocess
import sys
import weakref
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
import torch

from snippets.memory import allocated_vs_reserved

MIB = 2**20
ROOT = Path(__file__).resolve().parent.parent


ALIVE = weakref.WeakSet()


class Fake:
    """Stands for a GPU tensor."""

    def __init__(self, size: int):
        self.size = size
        ALIVE.add(self)


def live_bytes() -> int:
    return sum(fake.size for fake in ALIVE)


@pytest.fixture
def fake_gpu(monkeypatch):
    """Replace the GPU by a counter of live bytes; gives the list of live bytes at each `empty_cache`."""
    emptied = []
    monkeypatch.setattr(allocated_vs_reserved, "tensor", Fake)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(live_bytes()))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1000 * MIB - live_bytes(), 1500 * MIB))
    monkeypatch.setattr(torch.cuda, "memory_allocated", live_bytes)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 2 * live_bytes())
    return emptied


@pytest.mark.parametrize(
    ("size", "holds", "asks"),
    [
        (1, 512, 2 * MIB),
        (8, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (13 * MIB, 13 * MIB, 14 * MIB),
        (100 * MIB, 100 * MIB, 100 * MIB),
    ],
)
def test_rules_of_the_allocator(size, holds, asks):
    assert allocated_vs_reserved.predicted(size) == {"size": size, "allocated": holds, "reserved": asks}


def test_story_frees_what_it_says(fake_gpu):
    seen = [(step, live_bytes()) for step in allocated_vs_reserved.story()]
    small = 8 + MIB + 1
    assert [size for _, size in seen] == [
        *(0, 8, small, small + 100 * MIB, small, small + 50 * MIB, small + 50 * MIB, small, 0)
    ]
    assert fake_gpu == [small + 50 * MIB, small, 0]
    assert [step for step, _ in seen if "empty_cache" in step] == [step for step, _ in seen[6:]]


def test_growth_is_that_of_one_tensor(fake_gpu):
    assert allocated_vs_reserved.growth(7 * MIB) == {"size": 7 * MIB, "allocated": 7 * MIB, "reserved": 14 * MIB}
    assert fake_gpu == [0]


def test_main_counts_after_every_step(fake_gpu, capsys):
    result = allocated_vs_reserved.main()
    assert result["steps"][1] == {"step": "+ 8 B", "allocated": 8, "reserved": 16, "device": 500 * MIB + 8}
    assert len(result["steps"]) == 9 and len(result["measured"]) == len(result["predicted"]) == 8
    assert [row["size"] for row in result["measured"]] == [row["size"] for row in result["predicted"]]
    assert "+ 100 MiB" in capsys.readouterr().out


def test_old_name_warns_or_is_gone(monkeypatch):
    monkeypatch.setattr(allocated_vs_reserved, "tensor", Fake)
    monkeypatch.setattr(torch.cuda.memory, "memory_reserved", lambda device=None: 4096)
    monkeypatch.setattr(torch.cuda, "memory_reserved", torch.cuda.memory.memory_reserved)
    name = allocated_vs_reserved.article_name()
    assert (name["cached"], name["reserved"]) == (4096, 4096)
    assert name["warns"] == (["FutureWarning"] if name["exists"] else [])
    monkeypatch.delattr(torch.cuda, "memory_cached", raising=False)
    assert allocated_vs_reserved.article_name() == {"cached": 4096, "reserved": 4096, "exists": False, "warns": []}


def test_steps_are_drawn_in_mib():
    steps = [{"step": "a", "allocated": 0, "reserved": 2 * MIB, "device": 9 * MIB}] * 2
    (ax,) = allocated_vs_reserved.plot({"steps": steps}, {}).axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert {name: list(line.get_ydata()) for name, line in lines.items()} == {
        "allocated": [0.0, 0.0],
        "reserved": [2.0, 2.0],
        "device": [9.0, 9.0],
    }
    assert (lines["device"].get_color(), lines["device"].get_linestyle()) == ("gray", "--")
    plt.close("all")


def test_recorded_counters_are_in_order(recorded):
    for result in recorded("memory/allocated_vs_reserved").values():
        for row in result["steps"]:
            assert 0 <= row["allocated"] <= row["reserved"] < row["device"]
        assert result["predicted"] == [allocated_vs_reserved.predicted(row["size"]) for row in result["predicted"]]
        (ax,) = allocated_vs_reserved.plot(result, {}).axes
        assert max(ax.get_lines()[1].get_ydata()) == max(row["reserved"] for row in result["steps"]) / MIB
        plt.close("all")


@pytest.mark.gpu
def test_allocator_follows_its_rules():
    program = "import json; from snippets.memory import allocated_vs_reserved as m; print(json.dumps(m.main()))"
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    result = json.loads(child.stdout.splitlines()[-1])
    assert result["measured"] == result["predicted"]
    assert [row["reserved"] // MIB for row in result["steps"]] == [0, 2, 22, 122, 122, 122, 122, 22, 0]


@pytest.mark.gpu
def test_tensor_has_the_size_asked_for():
    assert allocated_vs_reserved.tensor(513).nbytes == 513
