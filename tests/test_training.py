"""Chapter `training`: data parallelism in one process and in many."""

import json
import re
import threading
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from conftest import on_ranks, run_alone, run_in_small, under_torchrun
from torch import nn

from snippets.timing.take_turns import take_turns
from snippets.training import (
    accumulate_no_sync,
    bits_told,
    chosen_algorithms,
    cudnn_benchmark,
    dataparallel_by_hand,
    ddp_any_loss,
    ddp_bf16,
    ddp_captured,
    ddp_compile,
    ddp_equality,
    ddp_evaluation,
    ddp_minimal,
    ddp_old_buckets,
    ddp_options,
    ddp_parameters,
    ddp_search,
    ddp_timeline,
    deterministic_fill,
    dp_vs_ddp,
    forgetful_threads,
    gradient_buckets,
    models,
    other_bits,
    precisions,
    same_bits,
    same_seed,
    scaling_residual,
    seed_per_rank,
    steps_for_seconds,
    wrapped_then_channels_last,
)


def results_under_torchrun(ranks: int, name: str, tmp_path: Path) -> list[dict]:
    """What main() of the snippet returned in each rank; no thread of gloo outlives the group."""
    runner = tmp_path / "runner.py"
    runner.write_text(
        "import glob, json, os, sys\n"
        f"from snippets.training import {name}\n"
        f"with open(rf'{tmp_path}/' + os.environ['RANK'], 'w') as file:\n"
        f"    result = {name}.main()\n"
        "    threads = [open(path).read() for path in glob.glob('/proc/self/task/*/comm')]\n"
        "    json.dump(result | {'threads': threads}, file)\n"
    )
    under_torchrun(ranks, str(runner))
    found = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(ranks)]
    for threads in [each.pop("threads") for each in found]:
        assert not [name for name in threads if "gloo_run" in name], "which can abort the process at its end"
    return found


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="two ranks on the CPU")
def test_two_ranks_train_one_model(tmp_path):
    first, second = results_under_torchrun(2, "ddp_minimal", tmp_path)
    assert first["ranks"] == 2 and first["weights_differ_by"] == second["weights_differ_by"] == 0
    assert first["loss"] != second["loss"], "each rank has rows of its own"
    assert max(first["loss"][-1], second["loss"][-1]) < 0.01 * first["loss"][0]


def test_a_lone_rank_trains_a_model_of_a_borrower(alone):
    torch.manual_seed(0)
    x = torch.randn(100, 3)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    before = deepcopy(model.state_dict())
    losses = ddp_minimal.train(model, data, torch.device("cpu"), epochs=4)
    assert len(losses) == 4 and losses[-1] < losses[0]
    assert any((model.state_dict()[name] != before[name]).any() for name in before), "trained in place"


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="two ranks on the CPU")
def test_two_ranks_train_with_any_loss_and_refuse_unlike_shapes(tmp_path):
    first, second = results_under_torchrun(2, "ddp_any_loss", tmp_path)
    assert first["loss"] != second["loss"], "each rank has rows of its own"
    for losses in (*first["loss"].values(), *second["loss"].values()):
        assert len(losses) == 10 and losses[-1] < 0.3 * losses[0]
    assert "gives (64, 1), and y is (64,)" in first["refused"] and first["refused"] == second["refused"]


def test_loss_optimizer_and_batches_are_those_given(alone):
    data = torch.utils.data.TensorDataset(torch.ones(10, 3), torch.zeros(10, 1))
    model, rows = nn.Linear(3, 1), []
    before = deepcopy(model.weight.detach())

    def loss(output, y):
        rows.append(len(y))
        return (output - y).abs().sum()

    def optimizer(parameters):
        return torch.optim.SGD(parameters, lr=0.0)

    options = {"loss": loss, "optimizer": optimizer, "batch_size": 4}
    losses = ddp_any_loss.train(model, data, torch.device("cpu"), epochs=2, **options)
    assert rows == [4, 4, 2] * 2 and torch.equal(model.weight, before)
    assert losses[0] == losses[1] == pytest.approx(abs(model(torch.ones(3)).item()) * 10 / 3)


@pytest.mark.parametrize(
    ("output", "y"), [((8, 1), (8, 1)), ((8,), (8,)), ((8, 3), (8, 3)), ((8, 3, 5), (8, 3, 5))]
)
def test_shapes_that_are_alike_fit(output, y):
    ddp_any_loss.check_shapes(torch.zeros(output), torch.zeros(y))


@pytest.mark.parametrize(("output", "y"), [((8, 3), (8,)), ((8, 3, 5, 5), (8, 5, 5)), ((3, 3), (3,))])
def test_classes_fit_an_output_with_a_number_for_each(output, y):
    ddp_any_loss.check_shapes(torch.zeros(output), torch.zeros(y, dtype=torch.long))


@pytest.mark.parametrize(
    ("output", "y"),
    [((4, 7, 50), (4, 7)), ((7, 7, 7), (7, 7)), ((8, 3), (8, 1)), ((8, 3), (24,)), ((4, 1, 50), (4, 1))],
)
@pytest.mark.parametrize("kind", [torch.float, torch.long])
def test_what_is_not_spread_is_for_the_loss_to_judge(output, y, kind):
    ddp_any_loss.check_shapes(torch.zeros(output), torch.zeros(y, dtype=kind))
    ddp_any_loss.check_shapes((torch.zeros(output), None), torch.zeros(y))


class Odd(torch.utils.data.IterableDataset):
    """Three rows that have no number."""

    def __iter__(self):
        for i in range(3):
            yield torch.full((2,), float(i)), torch.zeros(1)


def test_data_without_a_length_and_arguments_of_ddp_and_a_model_that_did_not_train(alone):
    model = nn.Linear(2, 1).eval()
    model.unused = nn.Linear(2, 1)
    options = {"loss": nn.functional.mse_loss, "batch_size": 2, "epochs": 2}
    options["optimizer"] = partial(torch.optim.SGD, lr=0.0)
    train: Any = partial(ddp_any_loss.train, model, device=torch.device("cpu"), **options)
    losses = train(Odd(), find_unused_parameters=True)
    assert len(losses) == 2 and losses[0] == losses[1] and model.training
    with pytest.raises(TypeError, match="no_such"):
        train(Odd(), no_such=True)
    with pytest.raises(ValueError, match="no row for this rank"):
        train(torch.utils.data.TensorDataset(torch.ones(0, 2), torch.ones(0, 1)), find_unused_parameters=True)


@pytest.mark.parametrize(
    ("output", "y", "kind"),
    [
        ((8, 1), (8,), torch.float),
        ((8,), (8, 1), torch.float),
        ((8, 1), (8,), torch.long),
        ((8, 1, 3), (8, 3), torch.float),
    ],
)
def test_a_y_that_would_be_stretched_is_refused_with_both_shapes(output, y, kind):
    said = re.escape(f"the model gives {output}, and y is {y}")
    with pytest.raises(ValueError, match=said):
        ddp_any_loss.check_shapes(torch.zeros(output), torch.zeros(y, dtype=kind))


def test_a_memory_format_chosen_after_wrapping_spoils_the_first_gradients(alone):
    """What the symptoms say of a warning of DDP's; and what they advise."""
    x = torch.randn(4, 16, 9, 9, generator=torch.Generator().manual_seed(0))

    def gradients(first, steps=2):
        """DDP's and the true ones, of a convolution that is `channels_last` before or after it is wrapped."""
        torch.manual_seed(0)
        conv = nn.Conv2d(16, 8, 3, bias=False)
        if first == "format":
            conv.to(memory_format=torch.channels_last)
        ddp = nn.parallel.DistributedDataParallel(conv)
        conv.to(memory_format=torch.channels_last)
        (true,) = torch.autograd.grad(conv(x).square().mean(), conv.weight)
        for _ in range(steps):
            conv.zero_grad()
            ddp(x).square().mean().backward()
            yield conv.weight.grad.clone(), true

    for gradient, true in gradients(first="format"):
        torch.testing.assert_close(gradient, true)
    with pytest.warns(UserWarning, match="Grad strides do not match bucket view strides"):
        (first, true), (second, _) = gradients(first="wrap")
    assert not torch.allclose(first, true, rtol=0.1, atol=1e-3)
    torch.testing.assert_close(first.flatten().sort().values, true.flatten().sort().values)
    torch.testing.assert_close(second, true)


def test_each_way_to_wrap_has_its_error_in_each_step():
    result = run_alone("training/wrapped_then_channels_last", ranks=2, STEPS=3, ROWS=2)
    derived = wrapped_then_channels_last.derive(result)
    assert result["ranks"] == 2 and len(result["parameters"]) == 6
    for way in ("before", "before, view", "before, search"):
        assert derived["first"][way] < 1e-4 and not derived["warned"][way]
    assert derived["first"]["after"] > 0.1 and derived["wrong_steps"]["after"] == [1]
    assert derived["numbers"]["after"] < 1e-4 and derived["warned"]["after"]
    assert derived["wrong_steps"]["after, search"] == [1, 2, 3]  # its buckets are never made anew
    assert derived["steps"]["after, search"] == "all" and derived["last"]["after, search"] > 0.1
    assert derived["steps"]["after, static"] == "1 and 2" and derived["steps"]["before"] == "none"
    assert derived["wrong_steps"]["after, view"] == derived["wrong_steps"]["after, search, view"] == []
    assert derived["wrong_steps"]["after, static"] == [1, 2]
    first = result["ways"]["after"]["by_layer"][0]
    assert max(first[:3:2]) > 0.1 and max(first[1], *first[3:]) < 1e-4  # two weights of 3 × 3, no other


def test_numbers_in_other_places_are_the_same_in_order():
    a, b = torch.randn(3, 4), torch.randn(2)
    there = [a.T.reshape(3, 4), b]
    assert ddp_equality.farthest(there, [a, b]) > 0
    in_order = wrapped_then_channels_last.in_order
    assert ddp_equality.farthest(in_order(there), in_order([a, b])) == 0


@pytest.mark.gpu(2)
@pytest.mark.program("training/wrapped_then_channels_last", ranks=2, STEPS=2)
def test_a_format_chosen_before_wrapping_gives_right_gradients_on_two_gpus(returned):
    derived = wrapped_then_channels_last.derive(returned)
    for way in ("before", "before, view", "before, search"):
        assert derived["first"][way] < 1e-4 and derived["wrong_steps"][way] == []


def test_new_memory_is_filled_in_one_setting_only():
    for name, strict in {"off": False, "unfilled": True, "filled": True}.items():
        with deterministic_fill.setting(name):
            assert torch.are_deterministic_algorithms_enabled() is strict
            found = {
                call: deterministic_fill.content(new, "cpu") for call, new in deterministic_fill.NEW.items()
            }
        filled = [("largest" if "integers" in call else "nan") for call in found]
        assert ([*found.values()] == filled) is (name == "filled"), found
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.utils.deterministic.fill_uninitialized_memory


def test_the_price_of_filling_is_a_ratio_and_no_bit(monkeypatch, capsys):
    small = {"ROWS": 4, "WIDTH": 4, "IMAGES": 2, "SIDE": 4, "LAYERS": 1, "PASSES": 2, "STEPS": 2}
    for name, value in small.items():
        monkeypatch.setattr(deterministic_fill, name, value)
    monkeypatch.setattr(deterministic_fill, "take_turns", lambda works, **how: take_turns(works, 0, 2, 1))
    monkeypatch.setattr(deterministic_fill, "networks", dict)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    result = json.loads(json.dumps(deterministic_fill.main()))
    assert set(result["networks"]) == {"dense block", "into new buffers"}
    derived = deterministic_fill.derive(result)
    assert derived["same"] and min(derived["price"].values()) > 0 and derived["added"] == {}
    assert "filled" in derived["filled_in"], "what else new memory of a CPU holds, nobody knows"
    contents = {"off": ["other", "other"], "unfilled": ["other", "nan"], "filled": ["nan", "largest"]}
    result["content"] = {name: dict(zip("ab", each, strict=True)) for name, each in contents.items()}
    for row in result["networks"].values():
        row["fills"] = {"filled": {"count": 9, "ms": 2.5}, "unfilled": {"count": 4, "ms": 1.0}}
    derived = deterministic_fill.derive(result)
    assert derived["added"]["dense block"] == 5 and derived["filling_ms"]["dense block"] == 1.5
    assert derived["filled_in"] == ["filled"] and derived["unfilled_in"] == ["off"]
    assert "a step; deterministic" in capsys.readouterr().out
    assert deterministic_fill.plot(result, {})


def test_what_is_written_into_buffers_is_what_it_got_and_what_it_gives(monkeypatch):
    monkeypatch.setattr(deterministic_fill, "WIDTH", 3)
    monkeypatch.setattr(deterministic_fill, "PASSES", 2)
    net, x = deterministic_fill.IntoBuffers(), torch.randn(5, 3)
    torch.testing.assert_close(net(x), torch.cat([x, x.relu()], 1))


@pytest.mark.gpu
def test_filling_adds_kernels_on_a_gpu():
    result = run_alone("training/deterministic_fill", quick=True, ROWS=64, WIDTH=64, LAYERS=2, STEPS=2)
    derived = deterministic_fill.derive(result)
    assert derived["added"]["into new buffers"] >= deterministic_fill.PASSES and derived["same"]
    assert result["content"]["filled"]["torch.empty"] == "nan" != result["content"]["unfilled"]["torch.empty"]


def test_farthest_finds_one_wrong_entry():
    right = [torch.ones(3, 3), torch.tensor([2.0, -4.0])]
    wrong = [torch.ones(3, 3), torch.tensor([2.0, -3.0])]
    assert ddp_equality.farthest(right, right) == 0
    assert ddp_equality.farthest(wrong, right) == pytest.approx(0.25)


def test_the_ranks_have_unlike_rows():
    rows = ddp_equality.unlike_rows(3, torch.device("cpu"))
    stds = [part.std().item() for part in rows.chunk(3)]
    assert stds == pytest.approx([1, 2, 3], rel=0.01) and rows.shape == (
        3 * ddp_equality.ROWS,
        ddp_equality.WIDTH,
    )


def test_by_hand_puts_the_parts_together_in_order(monkeypatch):
    module = dataparallel_by_hand
    monkeypatch.setattr(module, "replicate", lambda model, gpus: [deepcopy(model) for _ in gpus])
    monkeypatch.setattr(module, "scatter", lambda rows, gpus: rows.chunk(len(gpus)))
    monkeypatch.setattr(
        module, "parallel_apply", lambda models, parts: [*map(nn.Module.__call__, models, parts)]
    )
    monkeypatch.setattr(module, "gather", lambda outputs, gpu: torch.cat(outputs) if gpu == 0 else None)
    model, rows = nn.Linear(8, 8), torch.randn(6, 8)
    torch.testing.assert_close(module.by_hand(model, rows, [0, 1, 2]), model(rows))


def test_a_step_of_training_moves_the_weights():
    model, rows = nn.Linear(4, 4), torch.randn(16, 4)
    before = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dp_vs_ddp.step(model, rows, optimizer)
    torch.testing.assert_close(model.weight, before - 0.1 * model.weight.grad)


def test_the_slowest_rank_decides(alone, monkeypatch):
    monkeypatch.setattr(dp_vs_ddp, "wall_clock", lambda work, calls: 0.25)
    assert dp_vs_ddp.slowest_rank(None, 1) == 0.25


def test_speeds_follow_from_the_trials_of_each_round(monkeypatch):
    new_group = dist.new_group
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(dist, "new_group", lambda backend: new_group(backend="gloo"))
    start = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    join = dist.init_process_group
    monkeypatch.setattr(dist, "init_process_group", lambda backend: join(backend, **start))
    monkeypatch.setattr(dp_vs_ddp, "MODELS", {"wide": (2, 8, 16), "deep": (3, 4, 4)})
    monkeypatch.setattr(nn.Module, "to", lambda module, device: module)
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, device=None: randn(*shape))
    monkeypatch.setattr(nn, "DataParallel", lambda model, gpus: model)
    result = dp_vs_ddp.main()
    assert not dist.is_initialized() and result["ranks"] == 1
    for name in ("wide", "deep"):
        trials = result[name]["ms_trials"]
        expected = [one / ddp for one, ddp in zip(trials["one_gpu"], trials["ddp"], strict=True)]
        assert result[name]["speedup_trials"]["ddp"] == pytest.approx(expected)
    assert result["ddp_samples_s"] == pytest.approx(16e3 / result["wide"]["ms"]["ddp"])


EVENTS = [
    ["CPU", 0.0, 9000.0, "cudaLaunchKernel"],
    ["stream 7", 1000.0, 2000.0, "gemm"],
    ["stream 7", 3000.0, 1000.0, "gemm"],
    ["stream 20", 2500.0, 1000.0, "ncclDevKernel_AllReduce_Sum_f32"],
    ["stream 20", 3800.0, 1200.0, "ncclDevKernel_AllReduce_Sum_f32"],
]


def test_the_account_of_a_step_knows_what_is_hidden():
    expected = {"step": 4.0, "all_reduce": 2.2, "hidden": 1.2, "others": 3.0}
    assert ddp_timeline.account(EVENTS) == pytest.approx(expected)
    assert ddp_timeline.account(EVENTS[:3])["all_reduce"] == 0


def test_an_all_reduce_beside_ddp_s_own_copies_is_not_beside_matmuls():
    copies = [["stream 7", 3800.0, 600.0, "Memcpy DtoD"], ["CPU", 3800.0, 600.0, "cudaMemcpyAsync"]]
    events = [*EVENTS[:2], *EVENTS[3:], *copies]
    ms = {name: ddp_timeline.account(events) for name in ("one_gpu", "ddp")}
    result = {"ms": ms, "timelines": {"one_gpu": EVENTS[:3], "ddp": events}}
    assert ddp_timeline.derive(result)["beside"] == pytest.approx({"matmuls": 0.5 / 2.2, "copies": 0.6 / 2.2})


def test_the_picture_of_a_step_shows_which_of_its_all_reduces_are_exposed():
    """Here one ends 100 µs after the GPU's last other work; before, two gaps are too short to be seen."""
    late = ["stream 20", 6000.0, 500.0, "ncclDevKernel_AllReduce_Sum_f32"]
    works = [["stream 7", 4010.0, 1000.0, "gemm"], ["stream 7", 6005.0, 395.0, "Memcpy DtoD"]]
    events = [*EVENTS, late, *works]
    picture = ddp_timeline.plot({"timelines": {"one_gpu": EVENTS[:3], "ddp": events}}, {})
    (exposed,) = [mark for mark in picture.panels[1].marks if getattr(mark, "name", "")[:7] == "exposed"]
    assert exposed.spans == [pytest.approx((6.4, 0.1))] and exposed.row == "all-reduce"
    (copies,) = [mark for mark in picture.panels[1].marks if getattr(mark, "text", "") == "from buckets"]
    assert (copies.x, copies.y) == (6.005, "copies")


#: Runs the snippets of the third and later arguments one after the other, with the constants of the first and
#: a model of two layers.
SMALL = """
import gc, json, os, sys
from functools import partial
from importlib import import_module
import torch
import torch.distributed as dist
from torch import nn
from snippets.timing import take_turns as turns
from snippets.training import models

if not torch.cuda.is_available():
    to = nn.Module.to
    nn.Module.to = lambda module, *a, **how: module if a[:1] == ("cuda",) else to(module, *a, **how)
    for name in ("memory_allocated", "max_memory_allocated", "reset_peak_memory_stats"):
        setattr(torch.cuda, name, int)
    nn.DataParallel = lambda model, gpus: model
    nn.parallel.DistributedDataParallel._check_comm_hook = lambda ddp, hook: None  # it asks for NCCL

def quick(works, warmup=1, trials=2, calls=1, **options):
    return turns.take_turns(works, 0, 2, 1, **options)

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
modules = {name: import_module(f"snippets.training.{name}") for name in json.loads(sys.argv[1])}
for name, constants in json.loads(sys.argv[1]).items():  # a snippet may use what another holds
    modules[name].take_turns = modules[name].both_orders = quick
    vars(modules[name]).update(constants)
gc.freeze()  # a collection in a child need not look at all of torch
for name in sys.argv[3:]:
    if child := os.fork():  # a process of its own for each, and torch is imported once
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name} failed")
        continue
    store = dist.FileStore(f"{sys.argv[2]}/{name}", ranks)
    dist.init_process_group = partial(dist.init_process_group, store=store, rank=rank, world_size=ranks)
    module = modules[name]
    if hasattr(module, "transformer"):
        module.transformer = lambda layers=2, width=64: models.transformer(2, width)
    if hasattr(module, "MODELS"):
        module.MODELS = {"densenet": (partial(models.densenet, (1, 1), 4), (3, 32, 32), 2, 1)}
        module.MODELS["tiny"] = (models.tiny, (20,), 4, 1)
    with open(f"{sys.argv[2]}/{name}.{rank}", "w") as file:
        json.dump(module.main(), file, allow_nan=False)
    sys.stdout.flush()
    os._exit(0)
"""
SIZES: dict[str, dict] = {
    "ddp_equality": {},
    "gradient_buckets": {},
    "ddp_from_scratch": {"WIDTH": 64, "TOKENS": 8, "ROWS": 2},
    "bucket_sizes": {"WIDTH": 64, "TOKENS": 8, "ROWS": 2, "BUCKETS_MIB": [0.01, 1]},
    "dp_vs_ddp_models": {},
    "small_network_loses": {"ROWS": [8, 32]},
    "ddp_old_buckets": {"LAYERS": 2, "WIDTH": 16, "ROWS": 4},
    "fsdp_memory": {"WIDTH": 64, "TOKENS": 8, "ROWS": 2, "LAYERS": 2},
    "pipeline_bubble": {"WIDTH": 16, "ROWS": 512, "LAYERS": 1, "MICRO_BATCHES": [1, 4]},
    "tensor_parallel_mlp": {"WIDTH": 100, "ROWS": 64, "HIDDEN": 600},
    "ddp_options": {},
    "accumulate_no_sync": {"WIDTH": 64, "TOKENS": 8, "ROWS": 2, "CHECK_TOKENS": 4},
    "ddp_bf16": {"WIDTH": 64, "TOKENS": 8, "ROWS": 2, "CHECK_TOKENS": 4},
    "ddp_compile": {"LAYERS": 3, "WIDTH": 256, "ROWS": 2, "TOKENS": 4, "BACKEND": "aot_eager"},
}
#: Without PowerSGD, whose callbacks call gloo in an order of their own in each rank.
GLOO = {"WAYS": {name: way for name, way in ddp_bf16.WAYS.items() if "powersgd" not in way}}


@pytest.fixture(scope="session")
def small(where, tmp_path_factory) -> list[dict]:
    """What the snippets gave in small in each of two ranks."""
    folder = tmp_path_factory.mktemp("small")
    sizes = SIZES if where == "gpus" else SIZES | {"ddp_bf16": SIZES["ddp_bf16"] | GLOO}
    run_in_small(SMALL, sizes, folder, where)
    return [
        {name: json.loads((folder / f"{name}.{rank}").read_text()) for name in SIZES} for rank in range(2)
    ]


def test_an_average_is_that_of_all_rows_and_nothing_is_not(small):
    error = small[0]["gradient_buckets"]["error"]
    assert small[1]["gradient_buckets"]["error"] == error, "every rank knows all errors"
    assert max(error["buckets"] + error["one_by_one"]) < 1e-5 and min(error["nothing"]) > 0.1


def test_the_comparison_fails_without_an_exchange(small):
    error = small[0]["ddp_equality"]["error"]
    assert small[1]["ddp_equality"]["error"] == error, "every rank knows all errors"
    assert max(error["ddp"]) < 1e-5 and min(error["no_sync"]) > 0.1


@pytest.mark.parametrize("name", ["pipeline_bubble", "tensor_parallel_mlp"])
def test_split_models_have_the_gradients_of_whole_ones(small, name):
    error = small[0][name]["error"]
    assert len(error) == 2 and max(error) < 1e-5


def test_a_sharded_model_has_the_gradients_of_ddp(small):
    assert small[0]["fsdp_memory"]["gradients_differ_by"] < 1e-5
    assert small[0]["fsdp_memory"]["parameters"] == sum(
        p.numel() for p in models.transformer(2, 64).parameters()
    )


def test_all_ranks_end_with_the_same_weights(small):
    result = small[0]["dp_vs_ddp_models"]
    assert result["densenet"]["weights_differ_by"] == result["tiny"]["weights_differ_by"] == 0
    assert result["v100_speedup"] == pytest.approx(2.99, abs=0.005)
    trials = result["tiny"]["ms_trials"]
    expected = [2 * one / ddp for one, ddp in zip(trials["one_gpu"], trials["ddp"], strict=True)]
    assert result["tiny"]["speedup_trials"]["ddp"] == pytest.approx(expected)


def test_the_rows_of_a_sweep_are_those_of_its_sizes(small):
    sweep, bubble = small[0]["bucket_sizes"], small[0]["pipeline_bubble"]
    assert len(sweep["ms"]) == len(sweep["ms_trials"]) == len(sweep["buckets_mib"]) == 2
    assert len(bubble["alone_ms"]) == len(bubble["pipeline_ms"]) == len(bubble["micro_batches"]) == 2
    ways = {"nothing", "one_by_one", "in_buckets", "from_hooks", "ddp"}
    assert set(small[0]["ddp_from_scratch"]["ms"]) == ways
    assert len(small[0]["ddp_old_buckets"]["peak_gb"]["new_buckets"]) == len(ddp_old_buckets.PAUSES_S)


def test_no_option_changes_gradients(small):
    for name, buffers in {"densenet": 21, "tiny": 0}.items():
        result = small[0]["ddp_options"][name]
        assert result["buffers"] == buffers and set(result["ms"]) == {"one_gpu", *ddp_options.OPTIONS}
        assert max(result["differ"][option] for option in ddp_options.OPTIONS) < 1e-5
        assert result["differ"]["one_gpu"] > 0.1, "and without an exchange they differ"


def test_work_on_the_gpu_is_counted_by_kind():
    copies = [["stream 7", 0.0, 20.0, "Memcpy DtoD (Device -> Device)"]] * 3
    work = ddp_options.gpu_work([*EVENTS, *copies, ["CPU", 0.0, 9.0, "Memcpy DtoD"]])
    assert work["copies"] == {"count": 3, "ms": pytest.approx(0.06)}
    assert work["all_reduces"] == {"count": 2, "ms": pytest.approx(2.2)}
    assert work["broadcasts"]["count"] == 0 and work["everything"]["count"] == 7


def test_a_large_batch_in_parts_is_exchanged_once(small, where):
    result = small[0]["accumulate_no_sync"]
    for name, errors in result["error"].items():
        if name == "in_none":
            assert min(errors) > 0.1
        else:
            assert max(errors) < (1e-5 if where == "cpu" else 0.02), "TF32 rounds parts otherwise"
    once, sent = result["exchanged_gb"]["at_once"], result["exchanged_gb"]
    assert sent["accumulate"] == once > 0 and sent["in_none"] == 0
    assert sent["in_every"] == sent["only_backward"] == pytest.approx(4 * once)


def test_accumulating_takes_any_loss(alone):
    torch.manual_seed(0)
    model, rows = nn.Linear(4, 1), torch.randn(6, 4)
    ddp = nn.parallel.DistributedDataParallel(deepcopy(model))
    accumulate_no_sync.accumulate(ddp, list(rows.split(2)), lambda output: output.abs().mean())
    model(rows).abs().mean().backward()
    torch.testing.assert_close(ddp.module.weight.grad, model.weight.grad)


def test_hooks_send_half_and_autocast_all(small, where):
    result = small[0]["ddp_bf16"]
    sent, differ = result["sent_gb"], result["differ"]
    assert sent["autocast"] == sent["tf32"] == pytest.approx(4e-9 * 2 * 49_984)
    for name in ("tf32_bf16_hook", "autocast_bf16_hook", "autocast_fp16_hook", "bf16_weights"):
        assert sent[name] == pytest.approx(sent["tf32"] / 2)
    assert differ["tf32"] < (1e-5 if where == "cpu" else 0.005), "a CPU has no TF32"
    assert 1e-5 < differ["tf32_bf16_hook"] < 0.01 < 0.03 < differ["tf32_alone"]
    trials = result["ms_trials"]
    assert "autocast_fp16_hook" not in trials and set(result["gpu"]) < set(trials)
    expected = [a / b for a, b in zip(trials["tf32"], trials["tf32_bf16_hook"], strict=True)]
    assert result["gain_trials"]["tf32_bf16_hook"] == pytest.approx(expected)


def test_what_is_sent_is_what_is_given_to_all_reduce(alone):
    """A hook that keeps half of each bucket back is seen; DDP's buckets hold all gradients."""
    model, rows = nn.Linear(6, 4), torch.randn(3, 6)
    group = dist.group.WORLD
    sent = {hook: ddp_bf16.sent(deepcopy(model), hook, group, rows, False) for hook in ("float32", "fp16")}
    assert sent == {"float32": pytest.approx(4e-9 * 28), "fp16": pytest.approx(2e-9 * 28)}


def test_the_length_of_a_difference():
    expected = [torch.tensor([3.0, 0.0]), torch.tensor([4.0])]
    found = [torch.tensor([3.0, 0.0]), torch.tensor([4.5])]
    assert ddp_bf16.apart(found, expected) == pytest.approx(0.1)


def test_a_compiled_model_is_cut_at_the_buckets(small, where):
    result = small[0]["ddp_compile"]
    ways = result["ways"]
    assert max(way["error"] for way in ways.values()) < (1e-5 if where == "cpu" else 0.02)
    assert {name: way["graphs"] for name, way in ways.items()} == {
        **{"after": 1, "unsplit": 1},
        **{"blocks": 2, "blocks_unsplit": 2},  # the first block's input needs no gradient
    }
    assert ways["unsplit"]["parts"] == 1 < ways["after"]["parts"]
    assert ways["blocks_unsplit"]["parts"] == 2 <= ways["blocks"]["parts"]
    cut = {"graphs": 1, "parts": ways["after"]["parts"]}
    assert result["pieces_before"] == result["pieces_after"] == cut
    assert not any(way["recompiles"] for way in ways.values())
    assert result["sequential"] == {"graphs": 0, "parts": 0}, "classes of torch.nn alone are not compiled"


def test_the_rank_that_waits_least_speaks_for_a_step(monkeypatch):
    def gathered(every, own):
        every[:] = [own, [{"nccl": 2.0, "exposed": 0.5}, {"nccl": 1.0, "exposed": 0.2}]]

    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_gather_object", gathered)
    own = [{"nccl": 1.5, "exposed": 0.4}, {"nccl": 3.0, "exposed": 2.0}]
    assert ddp_compile.least_waiting(own) == [own[0], {"nccl": 1.0, "exposed": 0.2}]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo looks whether it has one
@pytest.mark.parametrize(("asks", "graphs"), [(False, 2), (True, 1)])
def test_a_stack_needs_a_second_graph_where_its_input_needs_no_gradient(asks, graphs):
    ddp_compile.start_over(False)
    model = ddp_compile.Stack(3, 64)
    for block in model.blocks:
        block.compile(backend="aot_eager")
    ddp_compile.forward_backward(model, torch.randn(2, 4, 64, requires_grad=asks))
    assert ddp_compile.graphs() == {"graphs": graphs, "parts": graphs}


class _Four(torch.nn.Module):
    """Four layers, in a class that PyTorch has not."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(600, 600) for _ in range(4)])

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(
    ("order", "pieces", "name"),
    [
        ("compile, wrap, call", 3, "_orig_mod.layers.0.weight"),
        ("compile, call, wrap, call", 1, "_orig_mod.layers.0.weight"),
        ("compile in place, wrap, call", 3, "layers.0.weight"),
        ("wrap, compile in place, call", 3, "layers.0.weight"),
    ],
)
def test_ddp_cuts_what_is_compiled_in_its_own_forward_pass(alone, order, pieces, name):
    """What the section on `torch.compile` says of the order, and of saved names."""
    torch._dynamo.config.optimize_ddp = True  # other tests switch it off
    torch._dynamo.reset()
    compiled, model, x = [], _Four(), torch.randn(2, 600)

    def backend(graph, example):
        compiled.append(graph)
        return graph

    for word in order.split(", "):
        match word:
            case "compile":
                model = torch.compile(model, backend=backend)
            case "compile in place":
                model.compile(backend=backend)
            case "wrap":
                model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=2)
            case "call":
                model(x).sum().backward()
    assert len(compiled) == pieces and next(iter(model.module.state_dict())) == name


def test_without_gradients_ddp_sends_buffers_once(alone, monkeypatch):
    """The first forward pass after a step of training sends them; with gradients each does."""
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(3))
    sent, x = [], torch.randn(4, 3)
    monkeypatch.setattr(ddp, "_sync_buffers", lambda: sent.append(1))

    def sends(calls):
        sent.clear()
        for _ in range(calls):
            ddp(x)
        return len(sent)

    ddp(x).sum().backward()
    ddp.eval()
    assert sends(3) == 3
    with torch.no_grad():
        assert sends(3) == 1
    with ddp.no_sync():
        assert sends(3) == 0
    ddp(x).sum().backward()
    with ddp.no_sync():
        assert sends(3) == 1


def test_a_prefix_of_a_wrapper_is_taken_off():
    """What the page says to those who come from `DataParallel`."""
    state = torch.nn.DataParallel(torch.nn.Linear(2, 2)).state_dict()
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict"):
        torch.nn.Linear(2, 2).load_state_dict(state)
    torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    torch.nn.Linear(2, 2).load_state_dict(state)


def test_a_block_is_one_of_a_transformer():
    block, x = ddp_compile.Block(128), torch.randn(2, 5, 128)
    layer = nn.TransformerEncoderLayer(128, 2, 512, 0.0, "gelu", batch_first=True, norm_first=True)
    names = {"norm1": "before_attention", "norm2": "before_mlp", "linear1": "up", "linear2": "down"}
    for theirs, ours in names.items():
        getattr(layer, theirs).load_state_dict(getattr(block, ours).state_dict())
    layer.self_attn.out_proj.load_state_dict(block.out.state_dict())
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(block.qkv.weight)
        layer.self_attn.in_proj_bias.copy_(block.qkv.bias)
    torch.testing.assert_close(block(x), layer(x))


def test_a_new_thread_tells_its_error():
    threads = []
    forgetful_threads.in_new_thread(lambda name: threads.append((name, threading.get_ident())), "a")
    assert threads[0][0] == "a" and threads[0][1] != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        forgetful_threads.in_new_thread(lambda: 1 / 0)


def test_densenet_has_the_parameters_that_its_authors_count():
    sizes = {make: sum(p.numel() for p in make().parameters()) for make in (models.densenet, models.tiny)}
    assert sizes == {models.densenet: 7_978_856, models.tiny: 20 * 20 + 20 + 20 * 4 + 4}
    layers = [layer for layer in models.densenet().modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(layers) == 121
    assert models.densenet((1, 2), growth=4, outputs=3)(torch.randn(2, 3, 32, 32)).shape == (2, 3)


@pytest.mark.parametrize(("mb", "sent"), [(0, [2, 3, 4]), (0.00002, [5, 4]), (1, [9])])
def test_a_bucket_is_sent_when_it_is_full(alone, monkeypatch, mb, sent):
    sizes, real = [], dist.all_reduce

    def all_reduce(flat, **options):
        sizes.append(flat.numel())
        return real(flat, **options)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    parameters = [nn.Parameter(torch.zeros(n)) for n in (2, 3, 4)]
    buckets = gradient_buckets.Buckets(dist.group.WORLD, mb)
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.arange(1.0, parameter.numel() + 1)
            buckets.add(parameter)
        buckets.finish()
    assert sizes == 2 * sent
    assert [parameter.grad.tolist() for parameter in parameters] == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]


def test_the_parts_of_a_step_are_the_step():
    events = [*EVENTS, ["stream 7", 5500.0, 500.0, "void multi_tensor_apply_kernel"]]
    parts = scaling_residual.parts(events)
    assert parts == pytest.approx({"passes": 3.0, "optimizer": 0.5, "exposed": 1.0, "idle": 0.5})
    assert sum(parts.values()) == pytest.approx(ddp_timeline.account(events)["step"])


@pytest.mark.gpu(2)
@pytest.mark.program("training/ddp_minimal", ranks=2)
def test_two_gpus_learn_the_same(returned):
    assert returned["weights_differ_by"] == 0 and returned["loss"][-1] < 1e-3 < returned["loss"][0]


@pytest.mark.gpu(2)
@pytest.mark.program(
    "training/dp_vs_ddp", ranks=2, quick=True, MODELS={"wide": (2, 512, 64), "deep": (4, 64, 32)}
)
def test_both_ways_to_use_two_gpus_train(returned):
    for name in ("wide", "deep"):
        assert set(returned[name]["speedup"]) == {"dp", "ddp"} and min(returned[name]["speedup"].values()) > 0


@pytest.mark.gpu(2)
@pytest.mark.program("training/ddp_memory", ranks=2, WIDTH=1024)
def test_gradients_in_buckets_need_no_second_place_on_two_gpus(returned):
    peak, model_gb = returned["peak_gb"], returned["model_gb"]
    saved = [twice - once for twice, once in zip(peak["ddp"], peak["ddp_view"], strict=True)]
    assert max(saved) > 0.8 * model_gb, "on a busy host what came before may not be free yet on the other"


@pytest.mark.gpu(2)
@pytest.mark.program("training/ddp_timeline", ranks=2, WIDTH=1024, ROWS=512)
def test_only_ddp_has_exchanges_on_two_gpus(returned):
    assert returned["ms"]["one_gpu"]["all_reduce"] == 0 < returned["ms"]["ddp"]["all_reduce"]


@pytest.mark.gpu(2)
@pytest.mark.filterwarnings(
    "ignore:Attempting to run cuBLAS:UserWarning"
)  # each replica's thread meets its GPU anew
def test_by_hand_is_dataparallel_on_every_gpu():
    gpus = list(range(torch.cuda.device_count()))
    model, rows = nn.Linear(64, 64).to("cuda"), torch.randn(8 * len(gpus), 64, device="cuda")
    found = dataparallel_by_hand.by_hand(model, rows, gpus)
    torch.testing.assert_close(found, nn.DataParallel(model, gpus)(rows), rtol=0, atol=0)
    torch.testing.assert_close(found, model(rows))


def test_one_network_is_trained_in_each_precision(gpu, monkeypatch):
    sizes = {"LAYERS": 1, "WIDTH": 64, "BATCH": 2, "TOKENS": 16, "VOCABULARY": 16, "STEPS": 3, "ROUNDS": 3}
    for name, size in sizes.items():
        monkeypatch.setattr(precisions, name, size)
    result = precisions.main()
    losses = {way: row["losses"] for way, row in result["ways"].items()}
    assert list(losses) == list(precisions.WAYS) and losses["fp32"] == losses["tf32"]
    assert losses["bf16"] != losses["bf16_weights"] != losses["fp32"]
    assert result["ways"]["bf16_weights"]["weights_mib"] == result["ways"]["fp32"]["weights_mib"] / 2
    assert all(row["returned_ms"] <= row["ms"] for row in result["ways"].values())
    assert result["flop"] > 0 and torch.get_float32_matmul_precision() == "highest"


def test_least_loss_is_that_of_the_rule(monkeypatch):
    monkeypatch.setattr(precisions, "TRUE", 0.5)
    monkeypatch.setattr(precisions, "VOCABULARY", 2)
    shares = torch.tensor([0.75, 0.25])
    assert precisions.least_loss() == pytest.approx(-float((shares * shares.log()).sum()))


def test_kernels_are_told_apart_by_their_names(monkeypatch):
    names = ("nvjet_tst_128", "fmha_cutlassF_f32", "sm80_xmma_gemm_f32", "vectorized_elementwise")
    rows = [["stream 7", 0, 1000, name] for name in names] + [["CPU", 0, 1000, "cudaLaunchKernel"]]
    monkeypatch.setattr(precisions, "lanes", lambda work: rows)
    found = precisions.in_kernels(print)
    assert (found["kernels"], found["kernels_ms"], found["matmuls_ms"]) == (4, 4, 2)
    assert (found["attention_ms"], found["other_ms"], found["optimizer_ms"]) == (1, 1, 0)


def test_zeros_among_gradients_are_counted():
    net = nn.Linear(2, 1)
    net.weight.grad, net.bias.grad = torch.tensor([[0.0, 1.0]]), torch.tensor([2.0])
    assert precisions.underflow(net) == pytest.approx(1 / 3)


def test_of_a_profile_only_matmuls_on_the_gpu_count():
    on_gpu, on_cpu = torch.autograd.DeviceType.CUDA, torch.autograd.DeviceType.CPU
    names = ["nvjet_tst", "ProfilerStep#3", "flash_fprop_gemm", "elementwise"]
    events = [SimpleNamespace(name=n, device_type=on_gpu, self_device_time_total=3000) for n in names]
    events.append(SimpleNamespace(name="aten::gemm", device_type=on_cpu, self_device_time_total=9000))
    assert steps_for_seconds.matmuls_ms(events) == 3.0 / steps_for_seconds.PROFILED


def test_flop_of_a_step_are_those_of_its_matmuls():
    net, x = nn.Linear(4, 2, bias=False), torch.ones(3, 4)
    assert steps_for_seconds.flop_of(lambda x: net(x).sum().backward(), [x]) == 2 * (2 * 3 * 4 * 2)


def test_parameters_without_a_gradient_are_named_and_frozen_ones_are_not():
    layers = ddp_parameters.Layers(lambda rank, step: False)
    ddp_parameters.gradients(layers, rank=0, step=1)
    assert ddp_parameters.without_gradient(layers) == ["second.weight", "second.bias"]
    ddp_parameters.freeze(layers)
    assert ddp_parameters.without_gradient(layers) == []


@pytest.mark.parametrize(
    ("case", "options", "ends"),
    [
        ("all used", {}, "right"),
        ("never used", {}, "Expected to have finished reduction"),
        ("never used", {"find_unused_parameters": True}, "right"),
        ("used in steps 1 and 3", {"static_graph": True}, "Expected to have finished reduction"),
    ],
)
def test_a_lone_rank_is_told_of_unused_parameters(alone, case, options, ends):
    steps = ddp_parameters.train(*ddp_parameters.CASES[case], options)
    assert steps[0] == "right" and steps[-1].startswith(ends)


@pytest.mark.parametrize(
    ("ranks", "word"),
    [
        ([["right", "right"], ["right", "right"]], "right"),
        ([["right", "wrong"], ["right", "right"]], "wrong"),
        ([["Timed out"], ["wrong", "Expected"]], "error in step 1"),
        ([["wrong", "Expected"], ["wrong", "Expected"]], "error in step 2"),
    ],
)
def test_the_first_error_of_any_rank_is_the_word_for_a_training(ranks, word):
    assert ddp_parameters.word(ranks) == word


COUNTS = """
import json, sys
import torch
import torch.distributed as dist
from snippets.training.ddp_unequal_batches import as_many_as_all
dist.init_process_group("gloo")
rank, device = dist.get_rank(), torch.device("cpu")
found = [list(as_many_as_all(range(n[rank]), device)) for n in ([2, 3, 1], [2, 2, 2], [0, 1, 4], [3, 2, 3])]
total = torch.ones(1)
dist.all_reduce(total)  # no collective of the loops is left over
with open(f"{sys.argv[1]}/{rank}", "w") as file:
    json.dump([found, total.item()], file)
dist.destroy_process_group()
"""


def test_all_ranks_stop_when_the_first_has_no_more(tmp_path):
    (tmp_path / "run.py").write_text(COUNTS)
    on_ranks(3, str(tmp_path / "run.py"), str(tmp_path))
    for rank in range(3):
        assert json.loads((tmp_path / str(rank)).read_text()) == [[[0], [0, 1], [], [0, 1]], 3]


def test_ranks_that_evaluate_a_part_each_count_what_one_counts():
    ends = ddp_evaluation.on_two_ranks("on all ranks")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    ddp_evaluation.step(model)  # the running means are those of one step
    expected = ddp_evaluation.positive(model, ddp_evaluation.ROWS)
    assert [(end["exit"], end["steps"], end["counted"]) for end in ends] == [(0, 2, expected)] * 2
    assert 0 < expected < len(ddp_evaluation.ROWS)


def test_a_row_of_ranks_is_alike_only_where_all_are_equal():
    rows = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 3.0, 5.0]])
    assert seed_per_rank.alike(rows) == 0.5 and seed_per_rank.alike(rows[:1]) == 1


def test_a_seed_for_each_rank_gives_each_its_own_masks():
    shares = seed_per_rank.on_ranks()
    assert shares["one seed"] == {"mask": 1, "numbers": 1}
    assert shares["seed + rank"]["numbers"] == 0 and 0.4 < shares["seed + rank"]["mask"] < 0.6


def test_a_run_that_is_resumed_with_its_generator_is_the_run_without_a_break(monkeypatch):
    monkeypatch.setattr(same_bits, "ROWS", 8)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    whole = same_bits.Run().train(same_bits.EPOCHS).weights()
    assert torch.equal(same_bits.interrupted(with_generator=True), whole)
    assert not torch.equal(same_bits.interrupted(with_generator=False), whole)
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


def test_what_is_not_deterministic_is_refused_for_this_call_only():
    assert "does not have a deterministic" in same_bits.asked_to_be_deterministic(same_bits.put)
    assert same_bits.put().tolist() == [1, 0, 0, 0]
    assert not torch.are_deterministic_algorithms_enabled()


def test_results_are_counted_by_their_bits():
    values = iter([1.0, 1.0 + 1e-7, 1.0, 1.0 + 3e-7, 1.0 + 1e-7])
    assert other_bits.distinct(lambda: torch.tensor([2.0, next(values)]), 5) == 3


def test_results_of_any_kind_are_told_apart_by_bits():
    told = bits_told.distinct
    kinds = [torch.zeros(2), torch.zeros(2).long(), torch.zeros(2, 1), -torch.zeros(2), [torch.zeros(2)] * 2]
    kinds += [np.zeros(2), 0, 0.0, False, "0", None]
    values = iter(kinds)
    assert told(lambda: next(values), len(kinds)) == len(kinds)
    others = iter([torch.tensor(1.0).bfloat16(), {"a": (torch.ones(2, 2).T, 1)}, torch.ones(2, 0)] * 2)
    assert told(lambda: next(others), 6) == 3
    complexes = torch.tensor([1 + 1j])
    pair = iter([complexes.conj(), complexes.conj().clone(), torch.ones(2).requires_grad_(), torch.ones(2)])
    assert told(lambda: next(pair), 4) == 2
    assert told(lambda: torch.tensor(float("nan"))) == 1 and told(pytest.fail, 0) == 0
    with pytest.raises(TypeError, match="a object has no bits to compare"):
        told(object)
    with pytest.raises((NotImplementedError, RuntimeError)):
        told(lambda: torch.eye(2).to_sparse())
    square = torch.arange(4.0).view(2, 2)
    for strided in (square[:, 0], square.diagonal(), complexes.real, square[:1, 0].expand(2), square[:0, 0]):
        assert told(lambda: strided, 2) == 1  # noqa: B023
    assert told(lambda: np.float32(1), 2) == 1
    counts = bits_told.main()["counts"]
    assert list(counts.values()) == [1, 1, 2, 3, 2]


def test_deterministic_algorithms_are_asked_for_inside_alone():
    with pytest.raises(ZeroDivisionError), other_bits.deterministic():
        assert torch.are_deterministic_algorithms_enabled()
        raise ZeroDivisionError
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_operation_without_a_deterministic_algorithm_is_refused_in_its_own_words():
    def work():
        if torch.are_deterministic_algorithms_enabled():
            raise RuntimeError("it does not have a deterministic implementation. You can turn off")
        return torch.ones(2)

    row = other_bits.looked_at(work)
    assert row == {"default": 1, "refusal": "it does not have a deterministic implementation"}


def test_a_deterministic_algorithm_that_computes_something_else_is_seen():
    with pytest.raises(AssertionError, match="off by"):
        other_bits.looked_at(lambda: torch.ones(2) + torch.are_deterministic_algorithms_enabled())


def test_operations_are_repeated_with_the_same_inputs(monkeypatch, capsys):
    monkeypatch.setenv(other_bits.CONFIG, "as it was")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(other_bits, "NUMBERS", 1000)
    operations = other_bits.operations("cpu")
    few = {name: operations[name] for name in ("index_add_", "bincount", "sum")}
    torch.testing.assert_close(operations["index_add_"](), operations["bincount"]())
    monkeypatch.setattr(other_bits, "operations", lambda device: few)
    result = json.loads(json.dumps(other_bits.main()))
    assert other_bits.derive(result)["vary"] == [] == other_bits.derive(result)["refused"]
    assert other_bits.plot(result, {}) and capsys.readouterr().out.count("µs") == 3


@pytest.mark.gpu
@pytest.mark.program("training/other_bits", quick=True, REPEATS=8)
def test_additions_in_any_order_differ_on_a_gpu(returned):
    derived = other_bits.derive(returned)
    assert "index_add_" in derived["vary"] and "sum" not in derived["vary"]
    assert all(row.get("deterministic", 1) == 1 for row in returned["operations"].values())
    assert returned["refused_matmul"] == ""  # the request for a variable is gone from PyTorch 2.11


@pytest.fixture
def short_training(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv(other_bits.CONFIG, "as it was")
    nets = lambda: {  # noqa: E731
        "linear layers": (nn.Linear(4, 4), torch.ones(2, 4)),
        "attention": (same_seed.Attention(), torch.ones(2, 3, 128)),
    }
    monkeypatch.setattr(same_seed, "networks", lambda: dict([next(iter(nets().items()))]))
    monkeypatch.setattr(same_seed, "STEPS", 3)


def test_runs_from_one_seed_are_counted_and_compared(short_training, monkeypatch):
    torch.manual_seed(0)
    network = nn.Linear(4, 4)
    monkeypatch.setattr(same_seed, "networks", lambda: {"one": (deepcopy(network), torch.ones(2, 4))})
    result = json.loads(json.dumps(same_seed.main()))
    row = result["networks"]["one"]
    assert row["default"]["distinct"] == 1 and row["default"]["first_step_apart"] is None
    assert row["default"]["losses_apart"] == [0.0] * 3 and same_seed.plot(result, {})


def test_a_run_that_goes_another_way_is_seen_at_its_step(short_training, monkeypatch):
    runs = iter([([1.0, 2.0], [5.0, 4.0]), ([1.0, 2.5], [5.0, 4.5])] * 2)

    def trained(name, device):
        weights, losses = next(runs)
        return torch.tensor(weights), losses

    monkeypatch.setattr(same_seed, "STEPS", 2)
    monkeypatch.setattr(same_seed, "trained", trained)
    row = same_seed.compared("any", "cpu")
    assert (row["distinct"], row["first_step_apart"], row["weights_differ_by"]) == (2, 2, 0.5)
    assert row["losses_apart"] == [0.0, 0.125]


def test_each_network_is_trained_both_ways_whatever_was_timed_before(short_training, monkeypatch):
    modes = []

    def compared(name, device):
        modes.append(torch.are_deterministic_algorithms_enabled())
        return {"distinct": 1}

    nets = {name: (nn.Linear(4, 4), torch.ones(2, 4)) for name in ("one", "other")}
    monkeypatch.setattr(same_seed, "networks", lambda: nets)
    monkeypatch.setattr(same_seed, "compared", compared)
    same_seed.main()
    assert modes == [False, True, False, True] and not torch.are_deterministic_algorithms_enabled()


def test_networks_are_the_same_each_time(monkeypatch):
    for name, size in {"NODES": 20, "EDGES": 100}.items():
        monkeypatch.setattr(same_seed, name, size)
    for one, other in zip(same_seed.networks().values(), same_seed.networks().values(), strict=True):
        assert torch.equal(one[1], other[1]) and torch.equal(one[0](one[1]), other[0](other[1]))


@pytest.mark.gpu
@pytest.mark.program("training/same_seed", quick=True)
def test_a_deterministic_training_gives_the_same_bits_on_a_gpu(returned):
    networks = returned["networks"]
    assert {row["deterministic"]["distinct"] for row in networks.values()} == {1}
    assert networks["sums over neighbours"]["default"]["distinct"] > 1


def test_each_size_comes_twice_and_its_first_step_is_new(monkeypatch):
    seen = []
    monkeypatch.setattr(
        cudnn_benchmark, "step_ms", lambda net, side, device: float(seen.append(side) or side)
    )
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    times = cudnn_benchmark.times(True, "cpu")
    assert torch.backends.cudnn.benchmark and len(times["fixed"]) == cudnn_benchmark.STEPS
    count = len(cudnn_benchmark.SIDES)
    first, second = times["changing"][:count], times["changing"][count:]
    assert sorted(first) == sorted(second) == list(cudnn_benchmark.SIDES) and first != second
    means = cudnn_benchmark.halves([3.0] * count + [1.0] * count)
    assert means == {"new_ms": 3.0, "known_ms": 1.0}


def test_a_step_takes_images_of_any_size(monkeypatch):
    monkeypatch.setattr(cudnn_benchmark, "IMAGES", 1)
    net = cudnn_benchmark.network("cpu")
    assert cudnn_benchmark.step_ms(net, 8, "cpu") > 0 < cudnn_benchmark.step_ms(net, 16, "cpu")
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_benchmarks_are_compared_in_processes_of_their_own(monkeypatch, capsys):
    count = len(cudnn_benchmark.SIDES)

    def alone(benchmark):
        first = 50.0 if benchmark else 10.0
        return {"fixed": [first] + [2.0 - benchmark] * 23, "changing": [first] * count + [1.0] * count}

    monkeypatch.setattr(cudnn_benchmark, "in_process_of_its_own", alone)
    result = json.loads(json.dumps(cudnn_benchmark.main()))
    assert (result["spent_ms"], result["saved_ms"]) == (40.0, 1.0)
    assert cudnn_benchmark.plot(result, {}) and "a new size    50.0" in capsys.readouterr().out


@pytest.mark.gpu
def test_a_new_size_costs_more_with_benchmark_on_a_gpu():
    rows = run_alone("training/cudnn_benchmark", LAYERS=2, SIDES=(64, 80, 96), STEPS=6)["benchmark"]
    assert rows["on"]["new_ms"] > rows["off"]["new_ms"] and rows["on"]["new_ms"] > rows["on"]["known_ms"]


def test_results_are_counted_in_a_process_and_over_all():
    one = [{"bits": ["a", "a"], "kernels": "k"}, {"bits": ["a", "b"], "kernels": "k"}]
    other = [{"bits": ["c", "c"], "kernels": "l"}, {"bits": ["a", "b"], "kernels": "k"}]
    assert chosen_algorithms.counted([one, other]) == [
        {"in_a_process": 1, "over_processes": 2, "kernels": 2},
        {"in_a_process": 2, "over_processes": 2, "kernels": 1},
    ]


def test_the_most_results_are_told_by_setting():
    rows = [{"kernels": 1, "over_processes": 4}, {"kernels": 3, "over_processes": 2}]
    derived = chosen_algorithms.derive({"found": {"default": rows}})
    assert derived == {"most": {"default": {"kernels": 3, "over_processes": 4}}}


def test_on_a_cpu_a_convolution_gives_the_same_bits(monkeypatch):
    monkeypatch.setattr(chosen_algorithms, "SHAPES", [(2, 4, 8, 3)])
    (row,) = chosen_algorithms.choices("default", "cpu")
    assert len(set(row["bits"])) == 1 and len(row["bits"]) == 3
    x, weight = chosen_algorithms.passes((2, 4, 8, 1), "cpu")[1:]
    assert x.shape == (2, 4, 8, 8) and weight.shape == (4, 4, 1, 1)


@pytest.mark.gpu
def test_what_cudnn_chooses_is_counted_on_a_gpu():
    found = run_alone("training/chosen_algorithms", RUNS=2, BESIDE=2)["found"]
    assert all(1 <= row["over_processes"] <= 6 for rows in found.values() for row in rows)


def test_each_way_to_wrap_is_a_step_with_gradients(alone):
    steps = ddp_search.steps_of((2, 4, 3), "cpu")
    assert set(steps) == set(ddp_search.WAYS)
    for name, step in steps.items():
        for _ in range(3):
            step()
        ddp = step.args[0]
        used = [p.grad is not None for p in ddp.module.layers.parameters()]
        assert all(used), name


def test_options_are_compared_with_the_default(alone, monkeypatch, capsys):
    monkeypatch.setattr(ddp_search, "ROUNDS", 2)
    row = json.loads(json.dumps(ddp_search.timed((2, 4, 3), "cpu")))
    assert row["slower"]["default"] == 1 and row["more_ms"]["default"] == 0
    assert set(row["step"]["ms"]) == set(row["return"]["ms"]) == set(ddp_search.WAYS)
    assert all(row["return"]["ms"][name] <= row["step"]["ms"][name] for name in ddp_search.WAYS)


def test_ranks_that_search_are_timed_alike():
    result = run_alone(
        "training/ddp_search_ranks",
        ranks=2,
        NETWORKS={"small layers": (2, 4, 3), "wide layers": (1, 4, 3)},
    )
    assert result["ranks"] == 2
    for row in result["networks"].values():
        assert row["slower"]["default"] == 1 and set(row["step"]["ms"]) == set(ddp_search.WAYS)


@pytest.mark.gpu
def test_the_search_is_timed_on_a_gpu():
    result = run_alone("training/ddp_search", NETWORKS={"small layers": (20, 16, 8)}, ROUNDS=3)
    assert result["parameters"] == 42 and result["networks"]["small layers"]["slower"]["find_unused"] > 0.5


def test_a_wrapped_step_keeps_the_addresses_of_its_gradients(alone):
    net, step = ddp_captured.training("cpu")
    for _ in range(3):
        step()  # after the first DDP makes new buckets
    before = [p.grad.data_ptr() for p in net.parameters()]
    weights = ddp_captured.weights(net)
    step()
    assert before == [p.grad.data_ptr() for p in net.parameters()]
    assert not torch.equal(weights, ddp_captured.weights(net))


@pytest.mark.gpu
def test_a_step_under_ddp_is_captured_after_eleven_steps():
    rows = run_alone("training/ddp_captured", WARMUPS=(11,))["found"]["11"]
    assert all(row["says"] == "" and row["differs_by"] < 1e-4 for row in rows)
