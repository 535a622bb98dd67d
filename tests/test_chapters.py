"""All chapters: snippets run on imitated GPUs, recordings follow from their trials and can be drawn."""

import importlib
import json
from collections.abc import Iterator
from statistics import fmean, median

import pytest
from conftest import ROOT, all_snippets
from fake_cuda import imitated
from torch import nn

from overlap.book.statistic import is_number
from overlap.site.draw import placed

SNIPPETS = all_snippets()
CEILINGS = {
    "bf16_tflop_s": 1071,
    "tf32_tflop_s": 535.3,
    "fp32_tflop_s": 66.91,
    "hbm_gb_s": 4814,
    "clock_mhz": 1980,
    "pcie_gb_s": 63.0,
    "pcie_payload_gb_s": 58.0,
    "nvlink_gb_s": 450.0,
}
MEMORY = [
    "allocated_vs_reserved",
    "allocator_rules",
    "empty_cache_cost",
    "empty_cache_myth",
    "per_stream_pools",
]
#: Not imitated as a whole: chapters that train, or start processes; what asks NVML, pycuda, the
#: compiler, a profiler, another process, or on which device a tensor is; what reads what only CUDA's
#: allocator records; what computes on the CPU until a clock has gone on, which an imitated one does
#: not do. A language model is imitated smaller, by a test of its own, and so is a twin with large
#: constants.
ELSEWHERE = [
    "clinic",
    "collectives",
    "processes",
    "training",
    "asynchrony/async_warmup",
    "asynchrony/debug_mode_misses",
    "asynchrony/error_messages",
    "asynchrony/errors_arrive_late",
    "asynchrony/generation_blockers",
    "asynchrony/training_blockers",
    "devices/backward_on_two",
    "devices/cross_device",
    "devices/every_way",
    "devices/launch_groups",
    "devices/module_threads",
    "devices/network_graph",
    "devices/visible_devices",
    "devices/worker_per_gpu",
    "devices/workers_alone",
    "first_steps/choose_a_gpu",
    "first_steps/default_device",
    "first_steps/tensors_left_behind",
    "first_steps/tensors_on_devices",
    "first_steps/where_tensors_land",
    "first_steps/which_gpu",
    "first_steps/why_no_cuda",
    "graphs/autocast_captured",
    "graphs/block_autotuned",
    "graphs/blocks_compiled",
    "graphs/capture_beside_threads",
    "graphs/capture_refused",
    "graphs/compile_by_depth",
    "graphs/depth_timed_first",
    "graphs/compile_cold_start",
    "graphs/compiled_call",
    "graphs/decode_batches",
    "graphs/decode_eight_bits",
    "graphs/decode_sizes",
    "graphs/decode_step",
    "graphs/fusion_bytes",
    "graphs/graph_buckets",
    "graphs/hybridize_now",
    "graphs/padded_batches",
    "graphs/prefill_and_decode",
    "graphs/int8_counters",
    "graphs/one_row_products",
    "graphs/seven_billion",
    "graphs/seven_billion_low",
    "graphs/seven_billion_tuned",
    "graphs/sizes_compiled",
    "graphs/sizes_recorded",
    "graphs/small_step_compiled",
    "graphs/static_cache",
    "graphs/step_compiled",
    "graphs/train_captured",
    "graphs/workspace_freed",
    "machine/about_cuda_devices",
    "machine/as_printed",
    "machine/clock_beside_matmuls",
    "machine/clock_by_data",
    "machine/clock_of_each_sm",
    "machine/compile_kernel_types",
    "machine/cpu_peak",
    "machine/device_card",
    "machine/eight_bit_matmul",
    "machine/env_report",
    "machine/first_uses",
    "machine/four_a_thread",
    "machine/is_cuda_there",
    "machine/kernel_from_source",
    "machine/launch_shares",
    "machine/loading_modes",
    "machine/memory_counters",
    "machine/nvml_by_uuid",
    "machine/pycuda_beside_torch_broken",
    "machine/pycuda_beside_torch_fixed",
    "machine/pycuda_context",
    "machine/pycuda_exit",
    "machine/pycuda_kernel",
    "machine/pycuda_kernel_broken",
    "machine/pycuda_memory",
    "machine/pycuda_stream",
    "machine/read_or_write",
    "machine/three_names",
    "machine/two_contexts",
    "memory/accumulate_parts",
    "memory/activations_on_host",
    "memory/activations_twice",
    "memory/allocator_settings",
    "memory/changing_sizes",
    "memory/convnet_peak",
    "memory/kept_outputs",
    "memory/loss_in_parts",
    "memory/loss_keeps_memory",
    "memory/nvidia_smi",
    "memory/oom_snapshot",
    "memory/orphan_holds",
    "memory/pinned_rounding",
    "memory/rank_contexts",
    "memory/resume_checkpoint",
    "memory/peak_predicted",
    "memory/snapshot_reading",
    "streams/hardware_queues",
    "streams/kernel_waves",
    "streams/race_under_sanitizer",
    "streams/reserved_sms",
    "timing/core_pace",
    "timing/duty_cycle",
    "timing/first_trace",
    "timing/kernel_counters",
    "timing/kernel_shapes",
    "timing/labels",
    "timing/pictures",
    "timing/profile_reading",
    "timing/short_kernels",
    "timing/sm_activity",
    "timing/warmup_curve",
    "timing/wrong_device_sync_broken",
    "timing/wrong_device_sync_fixed",
    "transfers/any_batch",
    "transfers/loader_decodes",
    "transfers/loader_scales",
    "transfers/loader_gpu_tensors",
    "transfers/loader_workers",
    "transfers/pinning_threads",
]


def small_models() -> dict[str, nn.Module]:
    """In the place of the three models of the chapter on streams."""
    return {name: nn.Flatten() for name in ("mlp", "cnn", "resnet")}


#: Constants that make a snippet small, or how its GPU is imitated.
SMALL: dict[str, dict] = {
    "asynchrony/cpu_beside_gpu": {"N_CPU": 64, "N_GPU": 64},
    "asynchrony/copies_that_wait": {"KIB": (4, 8), "most": None},
    "asynchrony/index_blockers": {"most": None},
    "asynchrony/queue_memory": {"late": True, "most": None, "STEPS": 20},
    "asynchrony/run_ahead": {"LAUNCHES": 100},
    "asynchrony/launch_vs_finish": {"SIZES": (128, 1024, 8192)},
    "devices/auto_parallel_original": {"calls": 50, "CALLS": 50},
    "devices/auto_parallel_scaled": {"calls": 50},
    "devices/copy_ways": {"SIZES": [1024, 4096], "most": None},
    "devices/launch_bound_crossover": {"PRODUCTS": {8: 4, 16: 2}},
    "devices/ensemble": {"most": None, "LARGE": 16, "LARGE_ROWS": 8},
    "devices/one_gpu_first": {"CALLS": 60, "FEWER": 30},
    "devices/replays_in_a_row": {"PRODUCTS": 2},
    "devices/two_gpus_broken": {"CALLS": 50},
    "devices/two_gpus_fixed": {"CALLS": 50},
    "first_steps/three_lines": {"late": True},
    "first_steps/three_memory_calls": {"values": False, "most": None},
    "graphs/cuda_graph_capture": {"PRODUCTS": {8: 4, 16: 2}},
    "graphs/capture_timed_first": {"PRODUCTS": {8: 4, 16: 2}},
    "graphs/python_loop_as_written": {"N": 4, "MILLION": 8},
    "graphs/python_loop_broken": {"ELEMENTS": 10},
    "graphs/stale_input_broken": {"most": None},
    "graphs/stale_input_fixed": {"most": None},
    "machine/small_copy": {"MIB": 1, "most": None},
    "machine/small_matmul": {"N": 16, "CALLS": {16: 1}, "most": None},
    "memory/memory_timeline": {"WIDTH": 16, "ROWS": 16, "OTHERS": [(2, 16, 16)]},
    "streams/forks_alone": {"LAUNCHES": (8,)},
    "streams/branch_times": {"three_models": small_models},
    "streams/three_blocks_broken": {"RUNS": 2, "three_models": small_models},
    "streams/three_streams_cka": {"three_models": small_models},
    "streams/when_streams_help": {"LAUNCHES": {128: 8}},
    "transfers/chunked_copy": {"ROWS": 256, "N": 32, "most": None},
    "transfers/d2h_too_early_broken": {"ELEMENTS": 64, "STRIDE": 8, "TRIES": 6},
    "transfers/copies_both_ways": {"PIECES": [64, 256, 1024], "PIECE": 1024},
    "transfers/many_small_copies": {"COUNT": 5, "SIZES": [1, 4, 16], "most": None},
    "transfers/pcie_bandwidth": {"SIZES": [64, 256, 1024]},
    "transfers/pinning_costs": {"ELEMENTS": 64},
    "transfers/prefetcher_gain": {"ROWS": 8, "N": 16, "OUT": 4},
    **{f"memory/{name}": {"values": False, "most": None} for name in MEMORY},
}


def is_imitated(name: str) -> bool:
    """Whether it is run on imitated GPUs: two where it takes several."""
    snippet = SNIPPETS[name]
    if not snippet.options["gpus"][-1] or {name, snippet.chapter} & {*ELSEWHERE}:
        return False
    return not any(need.startswith("pycuda") for need in snippet.metadata["dependencies"])


IMITATED = list(filter(is_imitated, SNIPPETS))


def module_of(name: str):
    return importlib.import_module(f"snippets.{name.replace('/', '.')}")


def fewer(timed):
    """The same with three trials of one call: the imitated clock is exact."""

    def few(*args, **kwargs):
        return timed(*args[:1], **kwargs | {"trials": 3, "calls": 1})

    return few


@pytest.mark.parametrize("name", IMITATED)
def test_a_snippet_runs_on_an_imitated_gpu_and_can_be_drawn(name, monkeypatch, capsys):
    module = module_of(name)
    options = {"most": 16, "gpus": min(2, SNIPPETS[name].options["gpus"][-1])}
    for key, value in SMALL.get(name, {}).items():
        if key in ("most", "late", "values"):
            options[key] = value
        elif key == "calls":
            monkeypatch.setitem(module.run.__kwdefaults__, key, value)
        else:
            monkeypatch.setattr(module, key, value)
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)  # the tests after it keep theirs
    for timed in ("take_turns", "both_orders", "measure"):
        if hasattr(module, timed):
            monkeypatch.setattr(module, timed, fewer(getattr(module, timed)))
    with imitated(**options):
        result = json.loads(json.dumps(module.main(), allow_nan=False))
    assert result and capsys.readouterr().out
    if hasattr(module, "plot"):
        assert drawn(module.plot(result, CEILINGS)) >= drawn(module.plot(result, {})) > 0


def drawn(picture) -> int:
    """How many marks its panels have, and those of its parts; each panel has one at least.

    It is asked for its panels, not for its class: a snippet that is drawn alone has a class of its own.
    """
    if isinstance(picture, tuple):
        return sum(map(drawn, [picture[0], *picture[1].values()]))
    assert all(panel.marks for panel in picture.panels) and placed(picture, 504).svg
    return sum(len(panel.marks) for panel in picture.panels)


RECORDED = sorted(
    path.relative_to(ROOT / "docs/recordings") for path in ROOT.glob("docs/recordings/*/*/*.json")
)


def measurements(value, path: tuple = ()) -> Iterator[tuple[tuple, list[float]]]:
    """(path, raw trials) of each number in a result that has trials.

    The trials of `result["ms"]["copy"]` are in `result["ms_trials"]["copy"]` or in
    `result["ms"]["copy_trials"]`: the same path, but with one key followed by `_trials`.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _beside(inner, value.get(f"{key}_trials"), (*path, key))
            yield from measurements(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from measurements(inner, (*path, i))


def _beside(value, trials, path: tuple) -> Iterator[tuple[tuple, list[float]]]:
    """Numbers with the trials that stand at the same place of what is beside them."""
    if is_number(value):
        if isinstance(trials, list) and len(trials) > 2 and all(map(is_number, trials)):
            yield path, trials
    elif isinstance(value, dict) and isinstance(trials, dict):
        for key, inner in value.items():
            yield from _beside(inner, trials.get(key), (*path, key))
    elif isinstance(value, list) and isinstance(trials, list):
        for i, (inner, beside) in enumerate(zip(value, trials, strict=False)):
            yield from _beside(inner, beside, (*path, i))


@pytest.mark.parametrize("chapter", sorted({path.parts[1] for path in RECORDED}))
def test_a_recorded_value_is_the_median_of_its_trials_or_their_mean_or_best(chapter):
    count = 0
    for path in RECORDED:
        if path.parts[1] != chapter:
            continue
        result = json.loads((ROOT / "docs/recordings" / path).read_text())["result"]
        for keys, trials in measurements(result):
            value = result
            for key in keys:
                value = value[key]
            if not isinstance(value, list):
                count += 1
                allowed = (median(trials), fmean(trials), min(trials), max(trials))
                assert any(value == pytest.approx(each) for each in allowed), (path, keys)
    assert count > 5


HAVE_RUN = {path.with_suffix("").relative_to(path.parents[1]).as_posix() for path in RECORDED}
DRAWN = [name for name in SNIPPETS if name in HAVE_RUN and hasattr(module_of(name), "plot")]


@pytest.mark.parametrize("name", DRAWN)
def test_a_recording_can_be_drawn_with_and_without_ceilings(name, recorded):
    plot = module_of(name).plot
    result = next(iter(recorded(name).values()))
    assert drawn(plot(result, CEILINGS)) >= drawn(plot(result, {})) > 0
