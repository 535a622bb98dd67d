"""The asynchrony chapter: returning is not finishing, and what the famous gap is made of."""

import json
from math import prod
from statistics import median

import matplotlib
import numpy as np
import pytest
import torch

from snippets.asynchrony import async_warmup, launch_vs_finish

matplotlib.use("Agg")
MS = {row: 2.0**i for i, row in enumerate(reversed(async_warmup.ROWS))}
H200 = {"fp32_tflop_s": 67, "bf16_tflop_s": 989}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(async_warmup, "N", 64)


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)


def test_the_four_causes_multiply_to_the_gap():
    factors = async_warmup.split(MS)
    assert factors["gap"] == MS["numpy_draw"] / MS["torch_draw_returned"]
    assert prod(factors[cause] for cause in ("random_numbers", "data_type", "device", "waiting")) == factors["gap"]
    assert factors["waiting"] == MS["torch_finished"] / MS["torch_returned"]
    assert factors["data_type"] == MS["numpy_f64"] / MS["numpy_f32"]


def test_square_calls_the_product_in_every_round():
    calls = []
    async_warmup.square(lambda a, b: calls.append((a, b)), "x")
    assert calls == [("x", "x")] * 10


@pytest.mark.parametrize(
    ("loop", "module", "product"),
    [(async_warmup.numpy_loop, np, "dot"), (lambda: async_warmup.torch_loop("cpu"), torch, "mm")],
)
def test_the_loops_square_fresh_matrices(small, monkeypatch, loop, module, product):
    seen = []
    monkeypatch.setattr(module, product, lambda a, b: seen.append((a, b)))
    loop()
    assert len(seen) == 10 and all(a is b and a.shape == (64, 64) for a, b in seen)
    assert str(seen[0][0].dtype).endswith("float64" if module is np else "float32")
    assert not (seen[0][0] == seen[1][0]).all()


def test_waiting_comes_after_returning(monkeypatch):
    """Two warm-ups are dropped, and only the second reading of a trial includes the wait."""
    diary, ticks = [], iter(range(1000))
    monkeypatch.setattr(async_warmup.time, "perf_counter", lambda: diary.append("clock") or float(next(ticks)))
    monkeypatch.setattr(async_warmup, "wait_for", lambda: diary.append("wait"))
    returned, finished = async_warmup.returned_and_finished(lambda: diary.append("work"), trials=3)
    monkeypatch.undo()
    assert diary == ["wait", "clock", "work", "clock", "wait", "clock"] * 5
    assert (returned, finished) == ([1000.0] * 3, [2000.0] * 3)


def test_warmup_main_on_this_machine(small, capsys):
    result = async_warmup.main()
    told = capsys.readouterr().out
    assert result["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    assert ("nothing to wait for" in told) == (result["device"] == "cpu")
    assert set(result["ms"]) == set(async_warmup.ROWS) == set(result["ms_trials"])
    assert all(result["ms"][row] == median(result["ms_trials"][row]) for row in async_warmup.ROWS)
    for returned, finished in zip(
        *(result["ms_trials"][f"torch_{end}"] for end in ("returned", "finished")), strict=True
    ):
        assert returned <= finished
    assert result["factors"] == async_warmup.split(result["ms"]) and result["flop"] == 20 * 64**3
    json.dumps(result, allow_nan=False)


def test_warmup_plot_marks_the_least_possible_time():
    import matplotlib.pyplot as plt

    results = {"ms": MS, "flop": 2e10}
    axes = async_warmup.plot(results, H200).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [MS[row] for row in async_warmup.ROWS]
    assert axes.collections[0].get_segments()[0][0][0] == pytest.approx(2e10 / 67e12 * 1e3)
    assert axes.get_xscale() == "log" and "ms" in axes.get_xlabel()
    assert not async_warmup.plot(results, {}).axes[0].collections
    plt.close("all")


def test_summary_of_one_size():
    row = launch_vs_finish.summary(1000, [(10.0, 40.0), (12.0, 60.0), (11.0, 44.0)])
    assert (row["n"], row["enqueue_us"], row["finish_us"], row["ratio"]) == (1000, 11.0, 44.0, 4.0)
    assert row["rate_tflop_s"] == pytest.approx(2e9 / 44e-6 / 1e12)
    assert row["enqueue_us_trials"] == [10.0, 12.0, 11.0] and row["finish_us_trials"] == [40.0, 60.0, 44.0]


def test_at_the_crossover_a_product_takes_as_long_as_its_launch():
    n = launch_vs_finish.crossover(launch_us=12.0, rate_tflop_s=750.0)
    assert 2 * n**3 / 750e12 == pytest.approx(12e-6)


def test_finishing_is_not_before_returning(no_waiting):
    enqueued, finished = launch_vs_finish.enqueue_and_finish(torch.ones(8, 8))
    assert 0 < enqueued <= finished < 1e6


def test_launch_main_without_a_gpu(no_waiting, monkeypatch, capsys):
    monkeypatch.setattr(launch_vs_finish, "SIZES", (16, 64))
    monkeypatch.setattr(launch_vs_finish, "checked_matrix", lambda n: torch.ones(n, n))
    result = launch_vs_finish.main()
    assert [row["n"] for row in result["sweep"].values()] == [16, 64]
    assert len(result["sweep"]["n64"]["finish_us_trials"]) == 11
    assert result["launch_us"] == median(row["enqueue_us"] for row in result["sweep"].values())
    assert f"from about n = {result['crossover_n']:.0f}" in capsys.readouterr().out
    json.dumps(result, allow_nan=False)


def test_launch_plot_has_two_curves_and_the_peak():
    import matplotlib.pyplot as plt

    rows = [{"n": n, "enqueue_us": 12.0, "finish_us": max(13.0, n**3 / 4e8)} for n in launch_vs_finish.SIZES]
    results = {"sweep": {f"n{row['n']}": row for row in sorted(rows, key=lambda row: str(row["n"]))}, "launch_us": 12.0}
    axes = launch_vs_finish.plot(results, H200).axes[0]
    finished, launched, peak = axes.lines
    assert list(finished.get_xdata()) == list(launch_vs_finish.SIZES), "sorted by size, whatever the order in the file"
    assert set(launched.get_ydata()) == {12.0} and launched.get_label().startswith("launched")
    assert peak.get_ydata()[-1] == pytest.approx(2 * 8192**3 / 989e12 * 1e6) and peak.get_color() == "gray"
    assert len(launch_vs_finish.plot(results, {}).axes[0].lines) == 2
    plt.close("all")


@pytest.mark.gpu
def test_a_large_product_returns_long_before_it_finishes():
    x = launch_vs_finish.checked_matrix(8192)
    launch_vs_finish.enqueue_and_finish(x)
    enqueued, finished = launch_vs_finish.enqueue_and_finish(x)
    assert finished > 5 * enqueued


def test_recorded_warmups_follow_from_their_trials(recorded):
    import matplotlib.pyplot as plt

    for profile, result in recorded("asynchrony/async_warmup").items():
        assert result["ms"] == pytest.approx({row: median(result["ms_trials"][row]) for row in async_warmup.ROWS})
        assert result["factors"] == pytest.approx(async_warmup.split(result["ms"])), profile
        assert result["device"] == ("cpu" if profile == "cpu" else "cuda")
        assert len(async_warmup.plot(result, {}).axes[0].patches) == len(async_warmup.ROWS)
    plt.close("all")


def test_recorded_launches_follow_from_their_trials(recorded):
    import matplotlib.pyplot as plt

    for profile, result in recorded("asynchrony/launch_vs_finish").items():
        for row in result["sweep"].values():
            assert row["enqueue_us"] == pytest.approx(median(row["enqueue_us_trials"])), profile
            assert row["ratio"] == pytest.approx(median(row["finish_us_trials"]) / row["enqueue_us"]), profile
        finished = launch_vs_finish.plot(result, {}).axes[0].lines[0]
        assert finished.get_ydata()[-1] == result["sweep"]["n8192"]["finish_us"], profile
    plt.close("all")
