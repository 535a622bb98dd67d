"""Calculators: each formula of a page gives what was measured, within what the page says."""

import json

import pytest
from conftest import ROOT, committed

from overlap.blocks.calculator import Calculator


@pytest.fixture(scope="module")
def formulas() -> dict[str, Calculator]:
    """The formula of each calculator of the book, by the name of its result on the page."""
    blocks = [block for block in committed().blocks if isinstance(block, Calculator)]
    assert len({block.label for block in blocks}) == len(blocks)
    return {block.label: block for block in blocks}


def runs(name: str) -> list[dict]:
    """Results of all recordings of a snippet on GPUs."""
    files = sorted(ROOT.glob(f"docs/recordings/h*/{name}.json"))
    assert files
    return [json.loads(file.read_text())["result"] for file in files]


def test_every_calculator_is_held_against_recordings(formulas):
    assert set(formulas) == {
        PREFETCH,
        BUBBLE,
        EXCHANGE,
        PEAK,
        TRANSFORMER,
        ALTERNATING,
        BEND,
        ROOF,
        LAUNCHES,
        CORES,
        TOKENS,
    }


CORES = "cores that do nothing else"
TOKENS = "tokens a second, one for each text in a step, at most"
ROOF = "per cent of its roof"
PREFETCH = "times as fast as without prefetching"
BUBBLE = "per cent of a step that a GPU waits"
EXCHANGE = "µs, about, for one all-reduce of all"
PEAK = "GiB at the peak of the second step"
TRANSFORMER = "GiB at the peak of a transformer's second step"
LAUNCHES = "ms a step, launched one by one"
ALTERNATING = "times as fast as one GPU, from one thread that alternates"
BEND = "rows and columns, from which on one thread that alternates keeps all GPUs busy"


def test_prefetching_gains_what_the_formula_says(formulas):
    for result in runs("transfers/prefetcher_gain"):
        for row in result["rows"]:
            numbers = {"work": row["ms"]["work"], "copy": row["ms"]["transfer"], "steps": result["steps"]}
            assert formulas[PREFETCH].result(numbers) == pytest.approx(row["gain"], rel=0.07)


def test_a_loop_that_loads_needs_one_core(formulas):
    for result in runs("transfers/loader_decodes"):
        price = sum(result["image"]["ms"].values())
        numbers = {"rate": result["images_per_s"]["workers_0"], "image": price}
        assert formulas[CORES].result(numbers) == pytest.approx(0.8, abs=0.2)


def test_no_step_makes_more_tokens_than_memory_allows(formulas):
    for file in sorted(ROOT.glob("docs/recordings/h*/graphs/decode_sizes.json")):
        recording = json.loads(file.read_text())
        start = formulas[TOKENS].starts(committed().book)[recording["profile"]]
        shares = []
        for row in recording["result"]["widths"] + recording["result"]["texts"]:
            cache = row["bytes"]["cache"] / row["texts"] / 1e9
            numbers = start | {"texts": row["texts"], "cache": cache}
            numbers["parameters"] = row["bytes"]["weights"] / 2e9  # of bf16; of the embeddings a row is read
            shares.append(1e6 * row["texts"] / row["us"]["graph"] / formulas[TOKENS].result(numbers))
        assert max(shares) < 1 and shares[3] == max(shares) > 0.45, "the widest model is the nearest"


def test_a_pipeline_waits_as_the_formula_says(formulas):
    for result in runs("training/pipeline_bubble"):
        trials = zip(result["micro_batches"], result["alone_ms"], result["pipeline_ms"], strict=True)
        for micro, alone, pipeline in trials:
            waiting = formulas[BUBBLE].result({"gpus": result["ranks"], "micro": micro})
            assert waiting == pytest.approx(100 * (1 - alone / pipeline), abs=5)


def test_gradients_cost_what_the_line_says(formulas):
    for result in runs("collectives/alpha_beta"):
        line = {"alpha": result["alpha_us"], "rate": result["gb_s"]}
        for size, us in zip(result["bytes"], result["us"], strict=True):
            if size < 2**27:
                continue
            takes = formulas[EXCHANGE].result(line | {"size": size / 2**20})
            assert takes == pytest.approx(us, rel=0.15)
        assert formulas[EXCHANGE].result(line | {"size": 1}) >= result["alpha_us"] >= 1, "small ones, too"


def test_peaks_are_where_the_rule_puts_them(formulas):
    for result in runs("memory/memory_timeline"):
        shapes = [{"layers": 4, "width": 4096, "rows": 16384, "peak": result["measured"]["second"][-1]}]
        for row in result["others"]:
            shapes.append({"peak": row["peaks"][1]} | {key: row[key] for key in ("layers", "width", "rows")})
        for shape in shapes:
            assert formulas[PEAK].result(shape) * 2**30 == pytest.approx(shape["peak"], rel=0.001)


def test_a_transformers_peak_is_what_was_measured(formulas):
    for result in runs("memory/peak_predicted"):
        shape = {"width": 1024, "layers": 4, "words": 16384, "tokens": 8192}
        peak = formulas[TRANSFORMER].result(shape) * 2**30
        assert peak == pytest.approx(result["cases"][0]["measured"], rel=0.002)


@pytest.mark.parametrize("shape", [(512, 6, 8192, 4096), (1024, 4, 16384, 1024)])
def test_a_transformers_peak_follows_its_sizes(formulas, monkeypatch, shape):
    """In a dry run; on a CPU attention keeps one activation less. The second peak is the optimizer's."""
    torch = pytest.importorskip("torch")
    from snippets.memory import peak_predicted

    block = torch.nn.TransformerEncoderLayer
    monkeypatch.setattr(
        torch.nn, "TransformerEncoderLayer", lambda w, heads, _, drop: block(w, heads, 4 * w, drop)
    )
    for name, size in zip(["WIDTH", "BLOCKS", "WORDS", "TOKENS"], shape, strict=True):
        monkeypatch.setattr(peak_predicted, name, size)
    dry, by = peak_predicted.predicted(lambda: peak_predicted.two_steps(device="cpu"), "cpu")
    names = ["width", "layers", "words", "tokens"]
    peak = formulas[TRANSFORMER].result(dict(zip(names, shape, strict=True))) * 2**30
    width, layers, _, tokens = shape
    less = 4 * width * layers * tokens if "Loss" in by or "LogSoftmax" in by else 0
    assert peak - less == pytest.approx(dry, rel=0.004)


def test_an_operation_has_the_share_of_its_roof_that_the_book_prints(formulas):
    for file in sorted(ROOT.glob("docs/recordings/h*/clinic/roofline_map.json")):
        recording = json.loads(file.read_text())
        start = formulas[ROOF].starts(committed().book)[recording["profile"]]
        best = recording["result"]["rows"]["bf16 8192"]["tflop_s"]
        assert formulas[ROOF].result(start) == pytest.approx(100 * best / start["peak"], rel=0.02)
        addition = recording["result"]["rows"]["add"]  # so few FLOP a byte that memory is its roof
        numbers = start | {
            "gflop": 1,
            "megabytes": 1e3 / addition["flop_per_byte"],
            "ms": 1 / addition["tflop_s"],
        }
        rate = 1e3 * addition["tflop_s"] / addition["flop_per_byte"]
        assert formulas[ROOF].result(numbers) == pytest.approx(100 * rate / start["memory"])


def test_a_step_takes_the_longer_of_launches_and_kernels(formulas):
    for result in runs("devices/launch_bound_crossover"):
        for i, measured in enumerate(result["one_ms"]["one_thread"]):
            products, launch = result["products"][i], result["launch_us"][i]
            kernel = 1e3 * result["one_ms"]["graphs"][i] / products
            step = formulas[LAUNCHES].result({"kernels": products, "kernel": kernel, "launch": launch})
            assert step == pytest.approx(measured, rel=0.15 if kernel > launch else 0.4)


def test_two_gpus_alternate_as_the_formula_says(formulas):
    for result in runs("devices/launch_bound_crossover"):
        gpus = result["visible_gpus"]
        for i, speedup in enumerate(result["speedup"]["one_thread"] if gpus > 1 else []):
            kernel = 1e3 * result["one_ms"]["graphs"][i] / result["products"][i]
            numbers = {"kernel": kernel, "launch": result["launch_us"][i], "gpus": gpus}
            predicted = formulas[ALTERNATING].result(numbers)
            assert max(predicted / speedup, speedup / predicted) <= 1.25
            bend = formulas[BEND].result(numbers | {"rate": 2e-6 * result["n"][i] ** 3 / kernel})
            if result["n"][i] >= 2 * bend:
                assert speedup >= 0.95 * gpus
