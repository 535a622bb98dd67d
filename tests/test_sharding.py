"""The page `sharding` of chapter `training`: models that do not fit, on two ranks of the CPU."""

import json
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import TORCH, on_ranks, run_in_small
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DistributedSampler

from snippets.training import (
    built_in_parts,
    checkpoint_or_nothing,
    clip_over_meshes,
    compile_unprofiled,
    compiled_and_split,
    context_parallel,
    fsdp_account,
    fsdp_activations,
    fsdp_beside_ddp,
    fsdp_options,
    fsdp_saves_nothing,
    fsdp_step_profile,
    options_unprofiled,
    parts_from_a_file,
    pipeline_equal_rows,
    pipeline_schedules,
    sequence_parallel,
    sharded_checkpoint,
    steps_between_waits,
    too_large_for_one,
)
from snippets.training.ddp_options import OPTIONS

#: Runs the snippets of the third and later arguments one after the other, each in a process of its own, with
#: the constants of the first; `fsdp_options` has its own in all of them, since others take its model.
RUNNER = """
import gc, json, os, sys
from functools import partial
from importlib import import_module
import torch
import torch.distributed as dist
from snippets.timing import take_turns as turns

exec(os.environ.get("LENT", ""))
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sizes = json.loads(sys.argv[1])
modules = {name: import_module(f"snippets.training.{name}") for name in sizes}

diary, enter = [], torch.profiler.profile.__enter__  # what is timed, and what is profiled, in order

def quick(works, warmup=1, trials=2, calls=1, **options):
    diary.append("time")
    return turns.take_turns(works, 0, 2, 1, **options)

def entered(profiler):
    diary.append("profile")
    return enter(profiler)

torch.profiler.profile.__enter__ = entered

profiled = import_module("snippets.training.fsdp_step_profile")  # others take its functions
for work in (profiled.gpu_steps, profiled.profiled_steps):
    work.__defaults__ = (2,)  # trials

gc.freeze()  # a collection in a child need not look at all of torch
for name in sys.argv[3:]:
    module = modules[name]
    if child := os.fork():  # torch is imported once
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name} failed")
        continue
    store = dist.FileStore(f"{sys.argv[2]}/{name}", ranks)
    dist.init_process_group = partial(dist.init_process_group, store=store, rank=rank, world_size=ranks)
    vars(modules["fsdp_options"]).update(sizes["fsdp_options"])
    vars(module).update(sizes[name])
    module.take_turns = module.both_orders = quick
    with open(f"{sys.argv[2]}/{name}.{rank}", "w") as file:
        json.dump(module.main() | {"diary": diary}, file, allow_nan=False)
    sys.stdout.flush()
    os._exit(0)
"""
#: Context parallel knows the kernels of GPUs alone. Lends it the CPU's, by the same functions.
LENT = """
import torch
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default

def whole(mesh, tensors):
    return tuple(DTensor.from_local(each, mesh, [Shard(2)], run_check=False) for each in tensors)

def forward(op, args, options):
    mesh, causal = args[0].device_mesh, options.get("is_causal", (*args, 0.0, False)[4])
    local = [each.to_local() for each in args[:3]]
    return whole(mesh, ring._templated_ring_attention(mesh.get_group(), 2, flash, *local, is_causal=causal))

def backward(op, args, options):
    mesh, names = args[0].device_mesh, ("grad_out", "query", "key", "value", "out", "logsumexp")
    local = {name: each.to_local() for name, each in zip(names, args)}
    local |= {"grad_out_name": "grad_out", "dropout_p": 0.0, "is_causal": args[7]}
    return whole(mesh, ring._templated_ring_attention_backward(mesh.get_group(), 2, back, **local))

ring.custom_ops |= {flash: forward, back: backward}
"""
CPU = torch.device("cpu")
SMALL = {"LAYERS": 4, "WIDTH": 128, "TOKENS": 16}
SIZES: dict[str, dict] = {
    "fsdp_options": SMALL | {"FEW": 1, "MANY": 2, "CHECKED": [1, 16]},
    "fsdp_step_profile": SMALL | {"SHORT": 8, "BLOCKS": {"fsdp": 1, "fsdp_two": 2, "fsdp_four": 4}},
    "sharded_checkpoint": SMALL | {"LAYERS": 2},
    "pipeline_schedules": SMALL | {"LAYERS": 2, "MICRO_BATCHES": [1, 2, 4], "CHECKED_TOKENS": 8},
    "sequence_parallel": {
        "WIDTH": 64,
        "HIDDEN": 256,
        "BATCH": 2,
        "TOKENS": 32,
        "CHECKED": [2, 16],
        "BLOCKS": 2,
    },
    "zero_optimizer": {"WIDTH": 128, "TOKENS": 16, "CHECKED_TOKENS": 8},
    "built_in_parts": {"LAYERS": 2, "WIDTH": 64},
    "time_first": {"WIDTH": 128, "TOKENS": 16, "IMAGES": 2, "SHAPE": [3, 32, 32]},
    "too_large_for_one": {
        "WIDTH": 64,
        "HEAD": 16,
        "RATE": 1e-3,
        "TOKENS": 16,
        "CHECKED": {"layers": 2, "rows": 1, "tokens": 16},
    },
    "fsdp_activations": {"LAYERS": 2, "WIDTH": 128, "ROWS": 1, "TOKENS": 16, "CHECKED": [1, 16]},
    "fsdp_saves_nothing": {"LAYERS": 8, "WIDTH": 256, "MANY": 1024},
    "rank_saves_alone": {"WIDTH": 8, "LIMIT_S": 1},
    "checkpoint_or_nothing": {"WIDTH": 8},
    "fsdp_accumulation": {"LAYERS": 2, "WIDTH": 128, "PARTS": 3, "TOKENS": 16, "CHECKED": [1, 16]},
    "parts_from_a_file": {"LAYERS": 2, "WIDTH": 128},
    "fsdp_beside_ddp": {"WIDTH": 128, "TOKENS": 16, "CHECKED": [1, 16], "ROWS": {"few": 1, "many": 2}},
    "fsdp_account": {"WIDTH": 128, "TOKENS": 16, "ROWS": {"few": 1, "many": 2}, "STEPS": 1, "PROFILES": 1},
    "steps_between_waits": {"LAYERS": 2, "WIDTH": 16, "ROWS": 8, "PROFILES": 1},
    "options_unprofiled": {"IMAGES": 2, "SHAPE": [3, 32, 32], "STEPS": 1},
    "compiled_and_split": {
        "LAYERS": 2,
        "WIDTH": 128,
        "TOKENS": 16,
        "ROWS": 2,
        "STEPS": 1,
        "BACKEND": "eager",
    },
    "compile_unprofiled": {
        "LAYERS": 3,
        "WIDTH": 256,
        "ROWS": 2,
        "TOKENS": 4,
        "STEPS": 1,
        "BACKEND": "aot_eager",
    },
    "context_parallel": {
        "HEADS": 2,
        "HEAD": 16,
        "TOKENS": {"short": 256, "long": 512},
        "STEPS": {"short": 1, "long": 1},
        "CHECKED": 128,
    },
    "pipeline_equal_rows": {"WIDTH": 16, "ROWS": 4, "CHECKED_ROWS": 4, "MICRO_BATCHES": [1, 2, 4]},
}
#: It profiles its steps before it times them. Two pages show these times, and say that profiles came first.
PROFILES_FIRST = ("fsdp_step_profile",)
if TORCH < (2, 13):  # there gloo cannot send to its own rank, as the zero bubble does
    del SIZES["pipeline_equal_rows"]


@pytest.fixture(scope="session")
def small(where, tmp_path_factory) -> dict[str, dict]:
    """What the snippets gave in small in the first of two ranks."""
    folder, sizes = tmp_path_factory.mktemp("small"), SIZES
    if where == "gpus":  # two blocks, as on the CPU, and not as many as fill a GPU
        two_blocks = too_large_for_one.STATE_BYTES * 2 * (12 * 64**2 + 13 * 64)
        full = {"FULL": two_blocks / torch.cuda.get_device_properties(0).total_memory}
        sizes = SIZES | {"too_large_for_one": SIZES["too_large_for_one"] | full}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LENT", LENT if where == "cpu" else "")
        run_in_small(RUNNER, sizes, folder, where)
    return {name: json.loads((folder / f"{name}.0").read_text()) for name in SIZES}


def test_every_switch_of_fsdp_keeps_the_losses_of_one_process(small):
    result = small["fsdp_options"]
    differ = result["losses_differ_by"]
    assert set(differ) == {"ddp", "ddp_bf16", *fsdp_options.FSDP} == set(result["many"]["ms"])
    for name, share in differ.items():
        assert share < (0.02 if "bf16" in name or name == "together" else 1e-5), name
    plain, clipped = result["losses"]["plain"], result["losses"]["clipped"]
    assert plain[0] == clipped[0] and plain[1] < clipped[1], "clipping is seen in the losses"
    assert plain[-1] < 0.99 * plain[0], "and so would be gradients of one rank"


def test_steps_are_timed_before_any_is_profiled(small):
    profiled = {name: result["diary"] for name, result in small.items() if "profile" in result["diary"]}
    assert {"fsdp_account", "steps_between_waits", *PROFILES_FIRST} <= set(profiled)
    first = {name for name, diary in profiled.items() if diary[0] == "profile" and "time" in diary}
    assert first <= set(PROFILES_FIRST)


def test_options_are_timed_without_a_profile_and_keep_the_gradients(small):
    result = small["options_unprofiled"]
    assert "profile" not in result["diary"] and "time" in result["diary"]
    assert set(result["ms"]) == {"one_gpu", "every_gpu", "default", "all_three"} | set(OPTIONS)
    derived = options_unprofiled.derive(result)
    assert derived["options_differ"] < 1e-5 < 0.1 < result["differ"]["every_gpu"]
    assert options_unprofiled.plot(result, {})


def test_compiled_and_split_blocks_learn_as_one_device(small):
    result = small["compiled_and_split"]
    assert "profile" not in result["diary"]
    differ = result["losses_differ_by"]
    assert set(differ) == {"alone", *compiled_and_split.WAYS}
    assert compiled_and_split.derive(result)["most_off"] < 1e-5 < 1e-3 < differ["alone"]
    assert set(result["speedup"]) == set(compiled_and_split.WAYS)
    assert result["graphs"]["ddp"] == result["graphs"]["fsdp"] == 0
    assert min(result["graphs"]["ddp_compiled"], result["graphs"]["fsdp_compiled"]) >= 1
    assert compiled_and_split.plot(result, {})


def test_compiled_ways_are_timed_beside_ddp_without_a_profile(small):
    result = small["compile_unprofiled"]
    assert "profile" not in result["diary"] and result["diary"].count("time") == len(result["ways"])
    assert {name: way["parts"] for name, way in result["ways"].items()} == {
        "after": 2,
        "unsplit": 1,
        "blocks": 4,
        "blocks_unsplit": 2,
    }
    derived = compile_unprofiled.derive(result)
    assert derived["most_error"] < 1e-3 and derived["recompiles"] == 0 and len(derived["gains"]) == 4
    assert compile_unprofiled.plot(result, {})


def test_tokens_on_two_ranks_give_the_attention_of_one(small):
    result = small["context_parallel"]
    assert "profile" not in result["diary"]
    assert max(result["transformer_error"][way] for way in context_parallel.WAYS) < 1e-4
    assert result["transformer_error"]["alone"] > 0.1, "a rank that exchanges nothing is wrong"
    for length in ("short", "long"):
        assert max(result[length]["error"][way] for way in context_parallel.WAYS) < 0.02
        for name in ("attention", "transformer"):
            assert set(result[length][name]["ms"]) == {"one_gpu", *context_parallel.WAYS}
    if min(result["long"]["transformer"]["gb"].values()) > 0:  # on GPUs
        assert context_parallel.derive(result)["most_off"] < 0.02
        assert context_parallel.plot(result, {})


def test_a_balanced_rank_has_tokens_of_the_head_and_the_tail():
    x = torch.arange(8).view(1, 8)
    parts = [context_parallel.tokens_of(x, 1, "balanced", rank, 2).tolist() for rank in (0, 1)]
    assert parts == [[[0, 1, 6, 7]], [[2, 3, 4, 5]]]
    assert context_parallel.tokens_of(x, 1, "in_order", 1, 2).tolist() == [[4, 5, 6, 7]]


def test_a_nan_is_no_small_error():
    good = [torch.ones(2)]
    assert context_parallel.off(good, good) == 0
    with pytest.raises(AssertionError, match="NaN"):
        context_parallel.off([torch.tensor([1.0, float("nan")])], good)


def test_a_large_model_in_parts_trains_as_the_whole_one(small):
    result = small["too_large_for_one"]
    assert result["loss"]["split"] == pytest.approx(result["loss"]["whole"], rel=1e-5)
    assert result["loss"]["whole"][-1] < 0.999 * result["loss"]["whole"][0], "the steps change the weights"
    first = result["first_losses"]
    assert first[-1] < first[0], "it learns in bf16, too"
    assert list(result["one"]["gb"]) == ["parameters", "forward", "backward", "adam"]
    assert not result["one"]["out_of_memory"], "two small blocks fit"
    assert result["parameters"] == 2 * (12 * 64**2 + 13 * 64)


def test_out_of_memory_ends_the_first_step_and_is_told(monkeypatch):
    def full(layers, width):
        raise torch.OutOfMemoryError("as CUDA says it")

    monkeypatch.setattr(too_large_for_one, "network", full)
    found = too_large_for_one.on_one(2, torch.ones(1))
    assert found["out_of_memory"] and found["gb"] == {}


def test_a_model_is_as_much_larger_than_a_gpu_as_asked(monkeypatch):
    monkeypatch.setattr(too_large_for_one, "WIDTH", 64)
    monkeypatch.setattr(too_large_for_one, "FULL", 1.5)
    state = 16 * (12 * 64**2 + 13 * 64)
    assert too_large_for_one.layers_for(20 * state) == 30


def test_a_token_of_a_block_sees_no_later_token(monkeypatch):
    monkeypatch.setattr(too_large_for_one, "HEAD", 8)
    block, x = too_large_for_one.Block(32), torch.randn(2, 5, 32)
    changed = x.clone()
    changed[:, 3:] += 1
    before, after = block(x), block(changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_activations_computed_twice_and_state_on_the_host_change_no_loss(small):
    result = small["fsdp_activations"]
    assert fsdp_activations.derive(result)["losses_differ_by"] < 1e-5
    kept = result["loss"]["kept"]
    assert kept[-1] < 0.999 * kept[0], "the steps change the weights"
    assert set(result["ms"]) == set(result["gb"]) == set(fsdp_activations.WAYS)


@pytest.mark.parametrize(("contexts", "matmuls"), [(None, 4), (fsdp_activations.keep_matmuls, 3)])
def test_blocks_are_computed_twice_but_for_what_is_kept(contexts, matmuls):
    seen = []

    class Spy(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    layer = fsdp_activations.Recomputed(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), contexts)
    with Spy():
        layer(torch.ones(2, 4, requires_grad=True)).sum().backward()
    of_matmuls = [func for func in seen if func in fsdp_activations.MATMULS]
    assert len(of_matmuls) == matmuls, "the forward pass, again for the backward pass, and two gradients"
    assert seen.count(torch.ops.aten.tanh.default) == 2


def test_each_way_to_load_gives_all_ranks_the_numbers_of_the_file(small):
    result = small["parts_from_a_file"]
    assert result["right_ranks"] == dict.fromkeys(["read", "each", "first", "parts"], 2)
    assert result["file_gb"] == pytest.approx(2 * (128 * 128 + 128) * 4e-9, rel=0.1)
    assert set(result["ms"]) == set(result["right_ranks"]) == set(result["peak_gb"]["host"])


def test_memory_that_is_held_for_a_moment_is_seen():
    peaks: dict[str, float] = {}
    with parts_from_a_file.watched(peaks):
        held = torch.ones(50_000_000)
        time.sleep(0.05)
        del held
    assert 0.19 < peaks["host"] < 0.3


def test_numbers_of_another_file_are_not_right(tmp_path, monkeypatch):
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.Tensor, "to_local", lambda tensor: tensor.chunk(2)[1], raising=False)
    model = nn.Linear(4, 4)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    assert parts_from_a_file.is_right(model, tmp_path / "weights.pt")
    model.weight.data[3, 0] += 1
    assert not parts_from_a_file.is_right(model, tmp_path / "weights.pt")


def test_fsdp_and_ddp_have_the_same_losses_in_each_precision(small):
    result = small["fsdp_beside_ddp"]
    off = fsdp_beside_ddp.derive(result)["losses_off"]
    assert set(off) == {"tf32", "autocast", "bf16"}
    assert off["tf32"] < 1e-5 and max(off.values()) < 0.005
    last = {precision: each["ddp"][-1] for precision, each in result["loss"].items()}
    assert len(set(last.values())) == 3, "three precisions"
    assert all(set(each) == set(fsdp_beside_ddp.WAYS) for each in result["ratio"].values())
    assert all(each["ddp"] == 1 for each in result["ratio"].values())


def test_an_account_is_of_one_step_of_those_profiled():
    trial = {"kernels": [(0, 4000), (6000, 8000)], "nccl": [(3000, 5000)], "wall": 10.0}
    ms = fsdp_account.account([trial], 2)["ms"]
    assert (ms["span"], ms["kernels"], ms["exposed"], ms["idle"], ms["wall"]) == (4, 3, 0.5, 0.5, 5)


def test_scaling_is_compared_with_the_same_number_of_steps_between_waits(small):
    result = small["steps_between_waits"]
    for steps in steps_between_waits.STEPS:
        ms = result[steps]["ms_trials"]
        ratios = [2 * one / weak for one, weak in zip(ms["one_gpu"], ms["weak"], strict=True)]
        assert result["speedup_trials"][steps]["weak"] == pytest.approx(ratios)
    assert set(result["profiled"]) == {"one_gpu", "one_gpu_part", "weak", "strong"}


@pytest.mark.skipif("pipeline_equal_rows" not in SIZES, reason="gloo sends to others only")
def test_pipelines_of_equal_rows_have_the_gradients_of_one_process(small):
    result = small["pipeline_equal_rows"]
    assert set(result["error"]) == {"gpipe", "one_f_one_b", "interleaved", "zero_bubble"}
    assert max(result["error"].values()) < 1e-5
    assert set(result["lost"]["gpipe"]) == {"1", "2", "4"} and "1" not in result["lost"]["zero_bubble"]


def test_a_zero_bubble_ends_where_it_began():
    places = {rank: pipeline_equal_rows.stages_of("zero_bubble", rank, 4) for rank in range(4)}
    assert places == {0: [0, 7], 1: [1, 6], 2: [2, 5], 3: [3, 4]}
    assert pipeline_equal_rows.stages_of("interleaved", 1, 4) == [1, 5]
    for name in ("gpipe", "zero_bubble"):
        layers = []
        for rank in range(4):
            for number in pipeline_equal_rows.stages_of(name, rank, 4):
                layers += pipeline_equal_rows.layers_of(name, number)
        assert sorted(layers) == list(range(4 * pipeline_equal_rows.LAYERS)), name


def test_parts_begin_as_the_whole_model_does_and_differ_from_rank_to_rank(small, where):
    result = small["built_in_parts"]
    assert result["spread"]["in_parts"] == pytest.approx(1, rel=0.05)
    one, other = result["first_numbers"]["in_parts"]
    assert one != other, "each rank has drawn its own part"
    alike = len(set(result["first_numbers"]["one_seed"])) == 1
    assert alike == (where == "cpu"), "on the CPU parts follow the rank's seed"
    assert result["model_gb"] == pytest.approx(2 * (64 * 64 + 64) * 4e-9)


class Scaled(nn.Module):
    """A layer that fills its own number where it is made, and can not do so again."""

    def __init__(self):
        super().__init__()
        self.layer = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.ones(4))


def test_a_model_built_without_memory_is_filled_module_by_module():
    places = []

    def split(model):
        places.extend(parameter.device.type for parameter in model.parameters())
        return model

    model = built_in_parts.built_in_parts(
        lambda: nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)), split, CPU
    )
    assert set(places) == {"meta"}, "nothing has memory when the model is split"
    assert 0 < float(model[0].weight.detach().abs().max()) <= 8**-0.5
    assert model[1].running_var.tolist() == [1.0] * 4 and model[1].running_mean.tolist() == [0.0] * 4


def test_a_module_that_cannot_fill_its_numbers_is_named_before_memory_is_taken():
    with pytest.raises(ValueError, match="1, a Scaled, has no reset_parameters; give `fill`, or give it one"):
        built_in_parts.built_in_parts(lambda: nn.Sequential(nn.Linear(4, 4), Scaled()), pytest.fail, CPU)


def kept(model: nn.Module) -> nn.Module:
    """The model, in one part."""
    return model


def test_a_model_whose_modules_cannot_fill_themselves_is_filled_by_a_function_of_yours():
    order = []

    def fill(module: nn.Module) -> None:
        order.append(type(module).__name__)
        for tensor in [*module.parameters(False), *module.buffers(False)]:
            tensor.fill_(2)

    model = built_in_parts.built_in_parts(
        lambda: nn.Sequential(nn.MultiheadAttention(4, 2), Scaled()), kept, "cpu", fill
    )
    assert {float(number) for part in model.state_dict().values() for number in part.flatten()} == {2.0}
    assert order[-1] == "Sequential" and order.index("Scaled") > order.index("BatchNorm1d")


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_a_buffer_that_nobody_fills_is_named(kind):
    class Positions(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.register_buffer("places", torch.zeros(5, dtype=kind))

    with pytest.raises(ValueError, match=r"^0\.places has numbers that nobody filled in"):
        built_in_parts.built_in_parts(lambda: nn.Sequential(Positions()), kept, CPU)


@pytest.mark.filterwarnings("ignore:DTensor random operators")  # on the CPU
def test_modules_that_share_a_weight_share_it_after_they_are_filled(alone):
    class Tied(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))
            self[1].weight = self[0].weight

    mesh = DeviceMesh("cpu", [0])
    for split in (kept, lambda model: built_in_parts.sharded(model, mesh, group=2)):
        model = built_in_parts.built_in_parts(Tied, split, CPU)
        assert model[0].weight is model[1].weight
        model(torch.tensor([1, 2])).sum().backward()
        assert model[0].weight.grad is not None


def test_blocks_of_any_model_are_sharded_in_groups(alone):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 4)
            self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return x

    mesh = DeviceMesh("cpu", [0])
    plain = Model()
    model = Model()
    model.load_state_dict(plain.state_dict())
    built_in_parts.sharded(model, mesh, model.blocks, group=2, ahead=1)
    states = [block._get_fsdp_state() for block in model.blocks]
    assert len(set(map(id, states))) == 3 and states[0] is states[1] and states[4] not in states[:4]
    assert states[0]._states_to_forward_prefetch == [states[2]] and not states[4]._states_to_forward_prefetch
    x = torch.rand(2, 3)
    torch.testing.assert_close(model(x), plain(x))
    for group, ahead in ((0, 0), (-1, 0), (1, -1)):
        with pytest.raises(ValueError, match="blocks in a group"):
            built_in_parts.sharded(Model(), mesh, group=group, ahead=ahead)


def test_all_steps_are_timed_before_and_after_profiles(small):
    times = small["time_first"]["times"]
    assert list(times) == small["time_first"]["phases"]
    names = {"densenet_alone", "ddp", "fsdp"}
    assert all(set(phase["ms_trials"]) == names for phase in times.values())


def test_groups_have_so_many_blocks_and_prefetch_asks_for_the_next(small, monkeypatch):
    groups, asked = [], []

    class Layer(nn.Linear):
        def set_modules_to_forward_prefetch(self, layers):
            asked.append(len(layers))

    def fully_shard(modules, mesh, **options):
        groups.append(len(modules) if isinstance(modules, list) else "root")

    monkeypatch.setattr(fsdp_options, "fully_shard", fully_shard)
    model = nn.Sequential(*(Layer(2, 2) for _ in range(5)))
    assert fsdp_options.sharded(model, None, blocks=2, ahead=2) is model
    assert groups == [2, 2, 1, "root"] and asked == [2, 2, 2, 1, 0]


def test_the_bars_of_a_step_are_as_long_as_without_a_profiler(recorded):
    """Kernels are as long as in the profile; exchanges and pauses share what is left of the timed step."""
    result = recorded("training/fsdp_account")["h200-x2"]
    _, parts = fsdp_account.plot(result, {})
    kernels, alone, waits = (mark.values for mark in parts["unprofiled"].panels[0].marks)
    names = {"DDP, 2,048": "ddp_few", "FSDP, 2,048": "fsdp_few", "DDP, 8,192": "ddp_many"}
    names |= {"FSDP, 8,192": "fsdp_many"}
    assert list(kernels) == [f"{row} tokens" for row in names]
    for row, long in kernels.items():
        name = names[row.removesuffix(" tokens")]
        profiled, timed = result["profiled"][name]["ms"], result["before"]["ms"][name]
        assert long == profiled["kernels"] and 0 <= alone[row] <= profiled["exposed"]
        assert waits[row] >= 0 and abs(long + alone[row] + waits[row] - timed) < 1e-6
    assert waits["FSDP, 2,048 tokens"] < result["profiled"]["fsdp_few"]["ms"]["idle"]


def test_the_cpu_s_part_of_a_step_is_split_by_phase_and_by_group(small, where):
    result = small["fsdp_step_profile"]
    assert result["groups"] == {"fsdp": 4, "fsdp_two": 2, "fsdp_four": 1}
    for each in result["cpu"].values():
        ms = each["ms"]
        assert ms["forward"] + ms["backward"] + ms["optimizer"] > 0
        assert len(each["ms_trials"]["whole"]) == 11
    assert set(result["ms_a_group"]) == set(fsdp_step_profile.PHASES)
    hooks = {name: each["ms"]["hooks"] for name, each in result["profile"].items()}
    assert hooks["ddp_few"] == 0 < hooks["fsdp_few"], "only FSDP has hooks of its own"
    fsdp = result["profile"]["fsdp_few"]["ms"]
    assert 0 < fsdp["hooks_operators"] < fsdp["hooks"]
    assert set(result["gpu"]) == set(result["profile"])
    lanes = {row[0] for row in result["timelines"]["fsdp"]}
    of_the_cpu = {"CPU: FSDP's hooks", "CPU: optimizer"}
    assert lanes == of_the_cpu if where == "cpu" else lanes > of_the_cpu


def test_the_account_of_a_step_adds_up():
    step = {
        "step": [(0.0, 10_000.0)],
        "hooks": [(0.0, 1000.0), (500.0, 2000.0), (3500.0, 4500.0)],
        "optimizer": [(5000.0, 5500.0)],
        "calls": [(100.0, 200.0), (3000.0, 3500.0), (5100.0, 5400.0)],
        "operators": [(100.0, 200.0), (50.0, 400.0), (1900.0, 2100.0), (3000.0, 3500.0)],
        "kernels": [(1000.0, 3000.0), (6000.0, 9000.0)],
        "nccl": [(2000.0, 4000.0), (6500.0, 7000.0)],
    }
    gpu = fsdp_step_profile.gpu_account(step)
    assert gpu["span"] == gpu["kernels"] + gpu["exposed"] + gpu["idle"] == 8.0
    assert (gpu["kernels"], gpu["exposed"], gpu["idle"]) == (5.0, 1.0, 2.0)
    assert (gpu["nccl"], gpu["launches"], gpu["nccl_kernels"]) == (2.5, 4, 2)
    cpu = fsdp_step_profile.cpu_account(step)
    assert cpu["step"] == 10.0 and cpu["hooks"] == 3.0
    assert cpu["hooks_calls"] == pytest.approx(0.1) and cpu["hooks_operators"] == pytest.approx(0.45)
    assert cpu["optimizer"] == 0.5 and cpu["optimizer_calls"] == pytest.approx(0.3)
    assert cpu["idle"] == 2.0 and cpu["idle_in_hooks"] == cpu["idle_in_optimizer"] == 0.5


def test_a_step_is_that_of_the_rank_that_waits_least(monkeypatch):
    late, early = {"nccl": [(0.0, 5.0)]}, {"nccl": [(0.0, 1.0), (3.0, 9.0)]}

    def gathered(every, own):
        every[:] = [own, [early, late]]

    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_gather_object", gathered)
    assert fsdp_step_profile.of_last_rank([late, early]) == [late, late]


def test_a_gpu_that_did_nothing_has_an_account():
    nothing = {"kernels": [], "nccl": []}
    assert set(fsdp_step_profile.gpu_account(nothing).values()) == {0}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("aten::mm", True),
        ("cudaLaunchKernel", True),
        ("c10d::_allgather_base_", True),
        ("FSDP::pre_forward", False),
    ],
)
def test_operators_are_not_python(name, is_one):
    assert fsdp_step_profile.is_operator(name) == is_one


def test_spans_that_touch_are_one():
    assert fsdp_step_profile.merged([(5, 6), (0, 2), (1, 3)]) == [(0, 3), (5, 6)]
    assert fsdp_step_profile.merged([(0, 1), (2, 3)], gap=1) == [(0, 3)]
    assert fsdp_step_profile.merged([]) == []


def test_a_checkpoint_gives_the_same_weights_and_moments_in_any_arrangement(small):
    result = small["sharded_checkpoint"]
    differ = result["weights_differ_by"]
    assert set(differ) == {"load", "load_alone", "load_file", "save_behind", "next_step"}
    assert differ["load"] == differ["load_alone"] == differ["load_file"] == differ["save_behind"] == 0
    assert differ["next_step"] < 1e-6 < result["next_step_moves"] and result["differed_by"] > 0.01
    sizes = result["parts_bytes"]
    parts = [size for name, size in sizes.items() if name.endswith(".distcp")]
    assert len(parts) == 2 and ".metadata" in sizes
    assert sum(parts) >= 12 * result["parameters"] and result["file_bytes"] >= 12 * result["parameters"]
    assert 0 < result["held_ms"] <= max(result["ms_trials"]["save_behind"])


class Encoder(nn.Module):
    """A network with a method beside `forward`, and with a buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)
        self.register_buffer("place", torch.ones(2))

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x)

    def forward(self, x: torch.Tensor, cast: bool = True) -> torch.Tensor:
        return self.last(self.encode(x) + (self.place.to(x.dtype) if cast else self.place))


def test_only_forward_gathers_unless_a_method_is_registered(alone):
    model, x = Encoder(), torch.ones(1, 2)
    expected = model.encode(x)
    fully_shard(model, mesh=DeviceMesh("cpu", [0]))
    with pytest.raises(RuntimeError, match=r"got mixed torch\.Tensor and DTensor"):
        model.encode(x)
    register_fsdp_forward_method(model, "encode")
    torch.testing.assert_close(model.encode(x), expected)


def test_a_policy_casts_no_buffer(alone):
    model = Encoder()
    fully_shard(model, mesh=DeviceMesh("cpu", [0]), mp_policy=MixedPrecisionPolicy(torch.bfloat16))
    with pytest.raises(RuntimeError, match="must have the same dtype"):
        model(torch.ones(1, 2), cast=False)
    model.reshard()
    assert model(torch.ones(1, 2)).dtype == torch.bfloat16 and model.place.dtype == torch.float32


@pytest.mark.parametrize(
    ("when", "reshard", "kept"),
    [("before", None, False), ("after", None, True), ("resharded", None, False), ("after", True, False)],
)
def test_an_optimizer_made_after_a_forward_pass_updates_nothing(alone, when, reshard, kept):
    """Unless the root is split again; a group of one has the same states as larger ones."""
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    fully_shard(model, mesh=DeviceMesh("cpu", [0]), reshard_after_forward=reshard)
    x = torch.ones(1, 2)
    if when != "before":
        model(x)
    if when == "resharded":
        model.reshard()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(x).sum().backward()
    old = model.weight.full_tensor().clone()
    optimizer.step()
    assert torch.equal(old, model.weight.full_tensor()) == kept


def test_a_checkpoint_of_two_ranks_is_whole_and_loads_whole_or_not_at_all(small):
    result = small["checkpoint_or_nothing"]
    assert result["same_weights"] and result["same_alone"] and result["gradients_stay"]
    assert result["next_step_off"] < 1e-6 < result["next_step_moves"]
    errors = dict.fromkeys(result["errors"], "ValueError")
    errors |= {"save again": "FileExistsError", "load what is not there": "FileNotFoundError"}
    assert result["errors"] == errors and result["folders"] == ["three"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_one_process_saves_and_loads_with_gradients_and_without_a_group(tmp_path):
    def trained(seed: int, optimizer: type) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        return model, optimizer(model.parameters(), lr=0.1 * (1 + seed))

    model, adam = trained(0, torch.optim.Adam)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
        adam.step()
    folder = tmp_path / "deep" / "two"
    left = folder.with_name("two.part")
    left.mkdir(parents=True)
    (left / "__9_0.distcp").write_text("of a run that was killed")
    with pytest.raises(FileNotFoundError):
        checkpoint_or_nothing.load(model, adam, folder)
    checkpoint_or_nothing.save(model, adam, folder)
    assert not left.exists() and not (folder / "__9_0.distcp").exists()

    other, fresh = trained(1, torch.optim.Adam)
    other(torch.ones(2, 4)).sum().backward()
    gradients = [parameter.grad for parameter in other.parameters()]
    checkpoint_or_nothing.load(other, fresh, str(folder))
    assert all(p.grad is g for p, g in zip(other.parameters(), gradients, strict=True))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    states = [list(optimizer.state.values()) for optimizer in (adam, fresh)]
    for expected, state in zip(*states, strict=True):
        assert state["step"] == 2 and torch.equal(state["exp_avg"], expected["exp_avg"])
    assert fresh.param_groups[0]["lr"] == 0.1

    compiled = torch.compile(trained(2, torch.optim.SGD)[0])
    checkpoint_or_nothing.load_alone(compiled, folder)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, compiled._orig_mod.state_dict()[name])

    class Counts(nn.Linear):
        """Its extra state is a dict, which is saved key by key."""

        def get_extra_state(self) -> dict:
            return {"k": torch.ones(1)}

        def set_extra_state(self, state: dict) -> None:
            self.told = state["k"]

    counts = Counts(4, 2)
    steps = torch.optim.SGD(counts.parameters(), lr=0.1)
    checkpoint_or_nothing.save(counts, steps, tmp_path / "counts")
    checkpoint_or_nothing.load(counts, steps, tmp_path / "counts")
    assert counts.told == 1

    class Told(nn.Linear):
        """Its extra state is what it is given: no tensor, but it is saved, too."""

        told: object = None

        def get_extra_state(self) -> object:
            return self.told

        def set_extra_state(self, state: object) -> None:
            self.told = state

    for i, (told, before) in enumerate(
        [(3, 4), ([1, 2], [3]), ("", "b"), ({}, {}), ({"k": {}}, {}), ({}, None)]
    ):
        counts, alone, other = Told(4, 2), Told(4, 2), Told(4, 2)
        counts.told, alone.told, other.told = told, before, before
        checkpoint_or_nothing.save(counts, torch.optim.SGD(counts.parameters()), tmp_path / f"told{i}")
        optimizer = torch.optim.SGD(other.parameters())
        if before is None:  # nothing is saved, and something wanted
            with pytest.raises(ValueError, match="_extra_state"):
                checkpoint_or_nothing.load(other, optimizer, tmp_path / f"told{i}")
            continue
        checkpoint_or_nothing.load_alone(alone, tmp_path / f"told{i}")
        checkpoint_or_nothing.load(other, optimizer, tmp_path / f"told{i}")
        expected = {} if told == {"k": {}} else told
        assert alone.told == other.told == expected, (told, before)
        assert torch.equal(alone.weight, counts.weight) and torch.equal(other.weight, counts.weight)
    half = trained(3, torch.optim.SGD)[0].bfloat16()
    checkpoint_or_nothing.load_alone(half, folder)
    assert torch.equal(half[0].weight, model[0].weight.bfloat16())


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_what_fails_while_it_saves_leaves_no_checkpoint_and_wrong_models_load_nothing(tmp_path, monkeypatch):
    model = nn.Linear(4, 4)
    adam = torch.optim.Adam(model.parameters())
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_or_nothing.dcp, "save", lambda *args, **how: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            checkpoint_or_nothing.save(model, adam, tmp_path / "one")
    assert not (tmp_path / "one").exists()
    checkpoint_or_nothing.save(model, adam, tmp_path / "one")
    with pytest.raises(FileExistsError, match="one is there already"):
        checkpoint_or_nothing.save(model, adam, tmp_path / "one")
    more, less = nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 4, bias=False)
    for other, says in ((more, r"0\.bias, 0\.weight, bias, weight"), (less, "both: bias")):
        weights = [parameter.detach().clone() for parameter in other.parameters()]
        with pytest.raises(ValueError, match=says):
            checkpoint_or_nothing.load_alone(other, tmp_path / "one")
        with pytest.raises(ValueError, match=says):
            checkpoint_or_nothing.load(other, torch.optim.Adam(other.parameters()), tmp_path / "one")
        assert all(torch.equal(p, w) for p, w in zip(other.parameters(), weights, strict=True))
    with pytest.raises(CheckpointException, match="Size"):
        checkpoint_or_nothing.load_alone(nn.Linear(5, 4), tmp_path / "one")


def test_a_folder_knows_its_file_system(monkeypatch, tmp_path):
    mounts = f"/dev/a / ext4 rw 0 0\nnone {tmp_path} tmpfs rw 0 0\nnone /elsewhere proc rw 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda path: mounts)
    if Path("/proc/self/mounts").exists():
        assert sharded_checkpoint.filesystem(tmp_path / "x") == "tmpfs"
        assert sharded_checkpoint.filesystem(tmp_path.parent) == "ext4"


def test_a_parameter_is_cut_by_columns():
    cut = [sharded_checkpoint.by_columns(nn.Parameter(torch.zeros(shape))) for shape in [(2, 3), (4,)]]
    assert [shard.dim for shard in cut] == [1, 0]


def test_schedules_have_the_gradients_of_one_process(small):
    result = small["pipeline_schedules"]
    assert result["micro_batches"] == [2, 4], "one would leave a rank without work"
    for name in pipeline_schedules.SCHEDULES:
        assert len(result["error"][name]) == 2 and max(result["error"][name]) < 1e-5
        assert len(result["waiting"][name]) == len(result["peak_gb"][name]) == 2
    trials = result["gpipe"]["ms_trials"]["4"], result["alone"]["ms_trials"]["4"]
    shares = [1 - alone / whole for whole, alone in zip(*trials, strict=True)]
    assert result["waiting_trials"]["gpipe"][1] == pytest.approx(shares)


def test_a_rank_has_a_stage_of_each_half():
    model = nn.Sequential(*(nn.Linear(1, number + 1) for number in range(8)))
    sizes = [
        [[layer.out_features for layer in stage] for stage in pipeline_schedules.chunks_of(model, 1, 2, n)]
        for n in (1, 2)
    ]
    assert sizes == [[[5, 6, 7, 8]], [[3, 4], [7, 8]]]


def test_a_bubble_is_smaller_with_more_micro_batches_and_stages():
    assert pipeline_schedules.bubble(4, 8, 1) == pytest.approx(3 / 11)
    assert pipeline_schedules.bubble(4, 8, 2) == pytest.approx(3 / 19)
    assert pipeline_schedules.bubble(1, 8, 1) == 0


def test_split_blocks_have_the_gradients_of_whole_ones(small):
    result = small["sequence_parallel"]
    assert max(result["error"]["tensor"] + result["error"]["sequence"]) < 1e-5
    assert {"one_gpu", "tensor", "sequence", "all_reduces", "gathers_and_scatters"} == set(result["ms"])
    assert result["hidden_gb"] == pytest.approx(4 * result["rows_gb"])


def test_a_block_adds_to_what_it_is_given(monkeypatch):
    monkeypatch.setattr(sequence_parallel, "WIDTH", 8)
    monkeypatch.setattr(sequence_parallel, "HIDDEN", 16)
    block = sequence_parallel.Block()
    block.narrow.weight.data.zero_()
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(block(x), x)


def test_ranks_share_moments_and_end_with_adam_s_weights(small):
    result = small["zero_optimizer"]
    assert max(result["weights_differ_by"].values()) == 0 < result["moved_by"]
    whole = 8e-9 * result["parameters"]
    assert result["moments_gb"]["adam"] == pytest.approx([whole, whole])
    for name in ("zero", "zero_views"):
        assert sum(result["moments_gb"][name]) == pytest.approx(whole)
        assert max(result["moments_gb"][name]) < 0.7 * whole


def test_fsdp_saves_little_in_each_of_five_ways(small):
    result = small["fsdp_saves_nothing"]
    each = fsdp_saves_nothing.derive(result)["each"]
    assert set(each) == set(fsdp_saves_nothing.WAYS)
    fsdp = each.pop("fsdp")
    assert fsdp < 0.8 * each["ddp"], "a group for each layer does save memory"
    assert min(each.values()) > fsdp + 1, "each other way needs a byte a parameter more, at least"


def test_a_rank_that_gathers_alone_waits_until_the_timeout(small):
    result = small["rank_saves_alone"]
    assert 0.9 <= result["alone"]["seconds"] <= 10 and "Timed out" in result["alone"]["says"]
    assert result["together"] == {"tensors": [4, 0], "of": 4}
    assert result["parts"] == 4, "its own parts need no other rank"


def test_gradients_exchanged_once_are_those_exchanged_in_every_part(small):
    loss = small["fsdp_accumulation"]["loss"]
    assert loss["last"] == pytest.approx(loss["every"], rel=1e-5)
    assert loss["last_kept"] == pytest.approx(loss["every"], rel=1e-5)
    assert loss["every"][-1] < 0.99 * loss["every"][0], "the steps change the weights"


CLIPPED = """
import json, os
from pathlib import Path
from snippets.training import clip_over_meshes

told = clip_over_meshes.main()
if os.environ["RANK"] == "0":
    Path(os.environ["TOLD"]).write_text(json.dumps(told))
"""


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="four ranks on the CPU")
def test_one_norm_clips_over_meshes_and_stages(tmp_path, monkeypatch):
    (tmp_path / "runner.py").write_text(CLIPPED)
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    on_ranks(4, str(tmp_path / "runner.py"))
    told = json.loads((tmp_path / "told").read_text())
    assert "same mesh" in told["says"] and max(told["off"].values()) < 1e-4
    assert list(told["norms"].values()) == pytest.approx([told["norm"]] * 2, rel=1e-5)
    one, other = told["own_norms"]
    assert (one**2 + other**2) ** 0.5 == pytest.approx(told["norm"], rel=1e-5)


#: Two ranks of the CPU, with layers of their own in one group: what gradients they get. Then float16.
BRANCHES = """
import copy, json, os
from io import BytesIO
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = dist.device_mesh.init_device_mesh("cpu", (2,))

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    def forward(self, x, way, number):
        y = (self.b if number else self.a)(x)
        if "both" in way and number == 0:  # this rank uses both layers, the other only the second
            y = y + self.b(x)
        return y + 0 * sum(p.sum() for p in self.parameters()) if way == "zeros" else y

ways = ("nothing", "zeros", "option", "option, both")
told = {}
for way in os.environ.get("WAYS", ";".join(ways)).split(";"):
    torch.manual_seed(0)
    whole, x = Two(), torch.ones(2, 4)
    model = fully_shard(copy.deepcopy(whole), mesh=mesh)
    if "option" in way:
        if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
            continue
        model.set_reduce_scatter_unused_params(True)
    model(x * (rank + 1), way, rank).sum().backward()
    for number in range(2):
        given = way if "both" in way else "zeros"
        (whole(x * (number + 1), given, number).sum() / 2).backward()
    pairs = zip(model.named_parameters(), whole.parameters(), strict=True)
    off = {}
    for (name, mine), other in pairs:
        off[name] = None if mine.grad is None else float((mine.grad.full_tensor() - other.grad).abs().max())
    told[way] = [None] * 2
    dist.all_gather_object(told[way], off)

saved = BytesIO()
torch.save(model.state_dict(), saved)
loaded = torch.load(BytesIO(saved.getvalue()))
told["saved"] = {name: list(weight.to_local().shape) for name, weight in loaded.items()}

half = MixedPrecisionPolicy(torch.float16, reduce_dtype=torch.float32)
model = fully_shard(nn.Linear(4, 4), mesh=mesh, mp_policy=half)
optimizer, scaler = torch.optim.SGD(model.parameters()), torch.amp.GradScaler("cpu", init_scale=1024.0)
told["scaler"] = []
for overflow in (False, True):
    old = model.weight.to_local().detach().clone()
    scaler.scale(model(torch.ones(1, 4)).float().mean()).backward()
    if overflow and rank:
        model.weight.grad.to_local().fill_(torch.inf)  # in the part of one rank
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    both = [None] * 2
    dist.all_gather_object(both, (scaler.get_scale(), torch.equal(old, model.weight.to_local())))
    told["scaler"].append(both)
if rank == 0:
    open(os.environ["TOLD"], "w").write(json.dumps(told))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def branches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("branches")
    (folder / "runner.py").write_text(BRANCHES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOLD", str(folder / "told"))
        on_ranks(2, str(folder / "runner.py"))
    return json.loads((folder / "told").read_text())


def test_a_layer_that_one_rank_uses_gets_anothers_gradient(branches):
    """In one group of FSDP, silently: each rank also lacks the gradient of the layer that it did not use."""
    first, second = branches["nothing"]
    assert first["b.weight"] is None and second["a.weight"] is None
    assert min(first["a.weight"], second["b.weight"]) >= 0.5


def test_a_layer_that_one_rank_does_not_use_ends_the_job(tmp_path, monkeypatch):
    """Rank 0 uses both layers, rank 1 one: the gradients of the group have other sizes."""
    (tmp_path / "runner.py").write_text(BRANCHES)
    monkeypatch.setenv("WAYS", "both")
    with pytest.raises(AssertionError, match="collective mismatch"):
        on_ranks(2, str(tmp_path / "runner.py"))


def test_to_save_a_split_models_state_dict_writes_a_ranks_part(branches):
    assert branches["saved"] == {"a.weight": [2, 4], "b.weight": [2, 4]}


@pytest.mark.parametrize("way", ["zeros", "option", "option, both"])
def test_layers_that_only_some_ranks_use_get_their_gradients(branches, way):
    if way not in branches:
        pytest.skip("this PyTorch has no set_reduce_scatter_unused_params")
    assert branches[way] == [{"a.weight": 0.0, "b.weight": 0.0}] * 2


def test_an_overflow_in_one_ranks_part_is_skipped_by_all(branches):
    assert branches["scaler"] == [[[1024.0, False]] * 2, [[512.0, True]] * 2]


def test_a_split_model_is_not_copied_but_its_parts_are_averaged(alone):
    """An average of the weights, as the page writes it, beside PyTorch's of the whole model."""
    whole, model = nn.Linear(3, 3), nn.Linear(3, 3)
    model.load_state_dict(whole.state_dict())
    fully_shard(model, mesh=DeviceMesh("cpu", [0]))
    with pytest.raises(AssertionError, match="FSDP does not support deepcopy"):
        torch.optim.swa_utils.AveragedModel(model)
    averaged = torch.optim.swa_utils.AveragedModel(
        whole, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    averaged.update_parameters(whole)
    ema = {name: p.detach().clone() for name, p in model.named_parameters()}
    for each in (whole, model):
        torch.optim.SGD(each.parameters(), lr=1.0)
        each(torch.ones(1, 3)).sum().backward()
        torch.optim.SGD(each.parameters(), lr=1.0).step()
    for name, p in model.named_parameters():
        ema[name].lerp_(p.detach(), 0.1)
    averaged.update_parameters(whole)
    for name, expected in averaged.module.named_parameters():
        torch.testing.assert_close(ema[name].full_tensor(), expected.detach())


@pytest.mark.parametrize("resharded", [True, False])
def test_averaged_weights_are_copied_in_and_back_after_a_reshard(alone, resharded):
    """After a forward pass alone the next one uses the root's gathered weights, without an error."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), torch.ones(1, 2)
    fully_shard(model[0], mesh=DeviceMesh("cpu", [0]))
    fully_shard(model, mesh=DeviceMesh("cpu", [0]))
    parts = list(model.parameters())
    kept, averaged = [p.detach().clone() for p in parts], [torch.ones_like(p.detach()) for p in parts]
    outputs = []
    with torch.no_grad():
        before = model(x)
        for weights in (averaged, kept):
            if resharded:
                model.reshard()
            for p, weight in zip(parts, weights, strict=True):
                p.copy_(weight)
            outputs.append(model(x))
        model.reshard()
        torch.testing.assert_close(model(x), before)
    right = [torch.allclose(*each) for each in zip(outputs, (torch.full((1, 2), 7.0), before), strict=True)]
    assert right == ([True, True] if resharded else [False, True])


def test_one_group_has_one_type_unless_the_others_are_frozen(alone):
    for frozen in (True, False):
        model = nn.Sequential(nn.Linear(2, 2, dtype=torch.bfloat16), nn.Linear(2, 2))
        model[0].requires_grad_(not frozen)
        policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
        fully_shard(model, mesh=DeviceMesh("cpu", [0]), mp_policy=policy)
        if frozen:
            assert model(torch.ones(1, 2)).dtype == torch.bfloat16
        else:
            with pytest.raises(AssertionError, match="FSDP expects uniform original parameter dtype"):
                model(torch.ones(1, 2))


def test_each_step_has_the_same_rows_on_any_number_of_ranks():
    """As the page says of a resumed epoch, if a step has as many rows."""

    def steps(ranks: int) -> list[set[int]]:
        rows, own = 12 // ranks, []
        for rank in range(ranks):
            sampler = DistributedSampler(range(103), ranks, rank, seed=5)
            sampler.set_epoch(3)
            own.append(list(sampler))
        starts = range(0, 8 * rows, rows)
        return [{row for each in own for row in each[at : at + rows]} for at in starts]

    assert steps(2) == steps(3) == steps(4) and len(set.union(*steps(2))) == 96


def test_gradients_on_no_mesh_are_clipped_as_ever():
    """And parameters without a gradient are left out."""
    layers, expected = nn.Linear(3, 3), nn.Linear(3, 3)
    expected.load_state_dict(layers.state_dict())
    for each in (layers, expected):
        each.weight.grad = torch.ones(3, 3)
    norm = clip_over_meshes.clip_over_meshes(layers.parameters(), 1.0)
    assert norm == nn.utils.clip_grad_norm_(expected.parameters(), 1.0) == 3
    torch.testing.assert_close(layers.weight.grad, expected.weight.grad)
    assert layers.bias.grad is None
