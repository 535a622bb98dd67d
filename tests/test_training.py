"""Chapter `training`: data parallelism in one process and in many."""

import os
import subprocess
import sys
from copy import deepcopy
from functools import partial
from pathlib import Path
from statistics import median

import matplotlib
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from snippets.training import dp_vs_ddp

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def alone():
    """A gloo group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def primitives(monkeypatch):
    """The four primitives on the CPU."""
    monkeypatch.setattr(dp_vs_ddp, "replicate", lambda model, gpus: [deepcopy(model) for _ in gpus])
    monkeypatch.setattr(dp_vs_ddp, "scatter", lambda rows, gpus: rows.chunk(len(gpus)))
    monkeypatch.setattr(
        dp_vs_ddp, "parallel_apply", lambda models, parts: list(map(torch.nn.Module.__call__, models, parts))
    )
    monkeypatch.setattr(dp_vs_ddp, "gather", lambda outputs, gpu: torch.cat(outputs) if gpu == 0 else None)


def test_the_model_and_its_rows_are_the_same_on_every_call():
    model, rows = dp_vs_ddp.mlp_and_rows(8, 5, "cpu")
    again, rows_again = dp_vs_ddp.mlp_and_rows(8, 5, "cpu")
    assert rows.shape == model(rows).shape == (5, 8) and len(model) == 2 * dp_vs_ddp.LAYERS
    torch.testing.assert_close(model(rows), again(rows_again), rtol=0, atol=0)
    assert len({layer.weight.sum().item() for layer in model[::2]}) == dp_vs_ddp.LAYERS, "no two layers are alike"


def test_by_hand_puts_the_parts_together_in_order(primitives):
    model, rows = dp_vs_ddp.mlp_and_rows(8, 6, "cpu")
    torch.testing.assert_close(dp_vs_ddp.by_hand(model, rows, [0, 1, 2]), model(rows))


def test_training_reports_its_speed_and_its_gradient():
    model, rows = dp_vs_ddp.mlp_and_rows(8, 16, "cpu")
    before = deepcopy(model.state_dict())
    result = dp_vs_ddp.train("some", model, rows, [])
    assert result["some_samples_s"] == pytest.approx(16e3 / median(result["some_ms_trials"]))
    assert len(result["some_ms_trials"]) == 7 and result["some_spread_ms"] >= 0
    norm = sum(float(parameter.grad.square().sum()) for parameter in model.parameters()) ** 0.5
    assert result["some_gradient_norm"] == pytest.approx(norm, rel=1e-4) and norm > 0
    assert any((model.state_dict()[name] != before[name]).any() for name in before), "the weights have moved"


def test_ranks_count_their_samples_together(alone):
    model, rows = dp_vs_ddp.mlp_and_rows(8, 16, "cpu")
    result = dp_vs_ddp.train("ddp", model, rows, [], ranks=2)
    assert result["ddp_samples_s"] == pytest.approx(2 * 16e3 / median(result["ddp_ms_trials"]))


def train_rank(rank: int, file: str, norms: torch.Tensor) -> None:
    """One of two ranks: DDP on its half of the rows, and how slow the slowest rank was."""
    dist.init_process_group("gloo", store=dist.FileStore(file, 2), rank=rank, world_size=2)
    model, rows = dp_vs_ddp.mlp_and_rows(8, 32, "cpu")
    model = dp_vs_ddp.DistributedDataParallel(model)
    result = dp_vs_ddp.train("ddp", model, rows.chunk(2)[rank], [], ranks=2)
    norms[rank] = torch.tensor([result["ddp_gradient_norm"], *result["ddp_ms_trials"]])
    dist.destroy_process_group()
    os._exit(0)  # threads of gloo that are still ending have been seen to abort an interpreter that shuts down


def test_two_ranks_train_as_one_would(tmp_path):
    norms = torch.zeros(2, 8).share_memory_()
    mp.spawn(train_rank, (str(tmp_path / "store"), norms), nprocs=2)
    assert torch.equal(norms[0], norms[1]), "both ranks know the slower one's times"
    expected = dp_vs_ddp.train("one", *dp_vs_ddp.mlp_and_rows(8, 32, "cpu"), [])
    assert float(norms[0, 0]) == pytest.approx(expected["one_gradient_norm"], rel=1e-4)


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs at least one CUDA GPU"):
        dp_vs_ddp.main()


def test_the_whole_of_it_runs_in_a_group_of_one_without_a_gpu(primitives, monkeypatch, capsys):
    make, new_group = dp_vs_ddp.mlp_and_rows, dist.new_group
    monkeypatch.setattr(dp_vs_ddp, "mlp_and_rows", lambda width, batch, device: make(width, batch, "cpu"))
    monkeypatch.setattr(dp_vs_ddp, "WIDTH", 32)
    monkeypatch.setattr(dp_vs_ddp, "ROWS", 8)
    monkeypatch.setattr(dp_vs_ddp.nn, "DataParallel", lambda model, gpus: model)
    monkeypatch.setattr(dist, "new_group", lambda backend: new_group(backend="gloo"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("set_device", "synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda device: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda gpu: 5e9)
    result = dp_vs_ddp.main()
    assert not dist.is_initialized() and result["ranks"] == 1
    assert result["hand_vs_dp"] == result["hand_vs_one_gpu"] == 0 and result["dp_peak_gb"] == [5]
    assert result["ddp_gradient_norm"] == pytest.approx(result["dp_gradient_norm"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["one_gpu", "dp", "ddp"]


def test_plot_has_three_bars_under_their_ceiling():
    speeds = {"one_gpu_samples_s": 1e5, "dp_samples_s": 2.5e5, "ddp_samples_s": 3e5}
    ax = dp_vs_ddp.plot(speeds | {"ranks": 4}, {}).axes[0]
    assert [bar.get_height() for bar in ax.patches] == [100, 250, 300]
    assert list(ax.get_lines()[0].get_ydata()) == [400, 400] and ax.get_lines()[0].get_color() == "gray"
    plt.close(ax.figure)


def test_recorded_speeds_follow_from_their_trials(recorded):
    for profile, result in recorded("training/dp_vs_ddp").items():
        assert result["ranks"] == int(profile.partition("-x")[2] or 1) == len(result["dp_peak_gb"])
        for way, ranks in (("one_gpu", 1), ("dp", result["ranks"]), ("ddp", result["ranks"])):
            rows = ranks * dp_vs_ddp.ROWS
            assert result[f"{way}_samples_s"] == pytest.approx(1e3 * rows / median(result[f"{way}_ms_trials"]))
        ax = dp_vs_ddp.plot(result, {}).axes[0]
        assert max(bar.get_height() for bar in ax.patches) <= 1.03 * ax.get_lines()[0].get_ydata()[0]
        plt.close(ax.figure)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")  # each replica's thread meets its GPU anew
def test_by_hand_is_dataparallel_on_every_gpu():
    gpus = list(range(torch.cuda.device_count()))
    model, rows = dp_vs_ddp.mlp_and_rows(64, 8 * len(gpus), 0)
    by_hand = partial(dp_vs_ddp.by_hand, gpus=gpus)
    torch.testing.assert_close(by_hand(model, rows), torch.nn.DataParallel(model, gpus)(rows), rtol=0, atol=0)
    torch.testing.assert_close(by_hand(model, rows), model(rows))


@pytest.mark.gpu
@pytest.mark.parametrize("launcher", [[], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]])
def test_it_runs_alone_and_under_torchrun(launcher, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    count = [str(torch.cuda.device_count())] if launcher else []
    command = [sys.executable, *launcher, *count, "snippets/training/dp_vs_ddp.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["one_gpu", "dp", "ddp"]
