"""Calculators: each formula of a page gives what was measured, within what the page says."""

import json
import os
import subprocess
import sys
from functools import partial

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
        FSDP,
    }


CORES = "cores needed (upper bound)"
TOKENS = "tokens a second, one for each sequence in a step, at most"
ROOF = "per cent of what the GPU allows"
PREFETCH = "times as fast as without prefetching"
BUBBLE = "per cent of a step that a GPU waits"
EXCHANGE = "µs, about, for one all-reduce of all"
PEAK = "GiB at the peak of the second step"
TRANSFORMER = "GiB at the peak of a transformer's second step"
FSDP = "GB at the peak of a step with FSDP"
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
        numbers = {"rate": result["images_per_s"]["workers_0"], "image": price, "share": 100}
        assert formulas[CORES].result(numbers) == pytest.approx(0.8, abs=0.2)


def test_a_loaders_calculator_says_what_is_the_limit(formulas):
    numbers = {"rate": 2000, "image": 3.9, "have": 16, "share": 80}
    said = " ".join(formulas[CORES].said(numbers))
    assert "Loading takes 7.8 seconds a second, so begin with num_workers=8. On busy cores" in said
    assert "add workers while the loop gets faster, up to 10. Your cores" in said
    assert said.startswith("The GPUs are the limit") and "about 3,282 images" in said
    one = " ".join(formulas[CORES].said(numbers | {"rate": 100}))
    assert "num_workers=1. Your cores load about" in one, "more are not needed"
    (said,) = formulas[CORES].said(numbers | {"have": 4})
    assert said.startswith("The loader is the limit: your cores load about 821 images a second")
    assert "to 1.6 ms, or get 10 cores in all" in said


def test_a_loaders_calculator_agrees_with_the_measured_workers(formulas):
    """As many workers as it asks for at most are enough for a measured rate; it begins with no more."""
    (start,) = (found for name, found in formulas[CORES].starts(committed().book).items() if name == "h200")
    (recording,) = runs("transfers/loader_scales")
    none, *_, all_cores = recording["images_per_s"]
    start |= {"image": 1000 / none, "share": 100 * all_cores / none / recording["workers"][-1]}
    for workers, rate in zip(recording["workers"], recording["images_per_s"], strict=True):
        most = formulas[CORES].result(start | {"rate": rate})
        assert rate * start["image"] / 1000 <= max(1, workers) * 1.03
        assert most >= workers * 0.95


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


#: What each recorded case is to the calculator, where it knows the loss.
RELU = 2
CASES = {"fp32": {"format": 1, "twice": 0}, "bf16": {"format": 0, "twice": 0}}
CASES |= {"recomputed": {"format": 0, "twice": 3}}


def test_a_transformers_peak_is_what_was_measured(formulas):
    calculator = formulas[TRANSFORMER]
    found = []
    for result in runs("memory/peak_predicted"):
        shape = {"width": 1024, "layers": 4, "words": 16384, "tokens": 8192, "gpu": 80}
        for case in (case for case in result["cases"] if case["case"] in CASES):
            numbers = shape | CASES[case["case"]] | {"mlp": RELU}
            assert calculator.result(numbers) * 2**30 == pytest.approx(case["measured"], rel=0.002), case
            assert not any("Not confirmed" in sentence for sentence in calculator.said(numbers))
            found.append(case["case"])
    assert set(found) == set(CASES)


def test_what_no_run_confirms_is_called_so(formulas):
    shape = {"width": 1024, "layers": 4, "words": 16384, "tokens": 8192, "gpu": 80}
    confirmed = [(case["format"], case["twice"] > 0) for case in CASES.values()]
    for number in range(4):
        for twice in (0, 4):
            said = formulas[TRANSFORMER].said(shape | {"format": number, "twice": twice, "mlp": RELU})
            assert not any("This MLP" in each for each in said)
            assert any("Not confirmed" in each for each in said) != ((number, twice > 0) in confirmed)


def test_a_transformers_calculator_says_what_a_block_keeps(formulas):
    shape = {"width": 1024, "layers": 4, "words": 16384, "tokens": 8192, "gpu": 80, "twice": 0, "format": 0}
    for mlp, kept in enumerate(["19.7", "17", "13"]):
        said = formulas[TRANSFORMER].said(shape | {"mlp": mlp})
        assert any(f"a block keeps {kept} activations" in each for each in said), said
        assert any("This MLP was compared with dry runs" in each for each in said) == (mlp != RELU)


def gated(block):
    """A `TransformerEncoderLayer` with Llama's MLP, of as many weights."""
    import torch

    width = block.linear1.in_features
    gate, up = (torch.nn.Linear(width, 8 * width // 3) for _ in range(2))
    block.gate, block.up, block.linear1 = gate, up, torch.nn.Identity()
    block.linear2 = torch.nn.Linear(8 * width // 3, width)
    block._ff_block = lambda x: block.linear2(torch.nn.functional.silu(gate(x)) * up(x))
    return block


@pytest.mark.parametrize("words", [512, 8192])
@pytest.mark.parametrize("mlp", range(3))
@pytest.mark.parametrize(("number", "twice"), [(0, 0), (0, 2), (1, 2), (2, 0), (2, 2)])
def test_other_numbers_and_blocks_computed_twice_follow_a_dry_run(formulas, number, twice, mlp, words):
    """On a CPU: there attention keeps one activation less, and autocast's loss two bytes a score more."""
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint_sequential

    from snippets.memory import peak_predicted

    width, layers, tokens = 256, 2, 4096
    activation = "relu" if mlp == RELU else "gelu"

    def step() -> None:
        torch.set_default_dtype(torch.bfloat16 if number == 2 else torch.float32)
        try:
            layer = partial(torch.nn.TransformerEncoderLayer, width, 8, 4 * width, 0, activation)
            blocks = [layer() if mlp else gated(layer()) for _ in range(layers)]
            net, x = torch.nn.Sequential(*blocks, torch.nn.Linear(width, words)), torch.randn(1024, 4, width)
        finally:
            torch.set_default_dtype(torch.float32)
        targets = torch.arange(tokens) % words
        optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16, enabled=number == 0):
                y = checkpoint_sequential(net, twice + 1, x, False, preserve_rng_state=False)
                loss = torch.nn.functional.cross_entropy(y.flatten(0, 1), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    dry, by = peak_predicted.predicted(step, "cpu")
    shape = {"width": width, "layers": layers, "words": words, "tokens": tokens}
    numbers = shape | {"format": number, "twice": twice, "mlp": mlp}
    peak = formulas[TRANSFORMER].result(numbers) * 2**30
    if "Softmax" in by:
        peak += -2 * tokens * width * (layers - twice) * (1 + (number == 1)) if number else 2 * words * tokens
    assert peak == pytest.approx(dry, rel=0.035)


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
    numbers = dict(zip(names, shape, strict=True)) | {"format": 1, "twice": 0, "mlp": RELU}
    peak = formulas[TRANSFORMER].result(numbers) * 2**30
    width, layers, _, tokens = shape
    less = 4 * width * layers * tokens if "Loss" in by or "LogSoftmax" in by else 0
    assert peak - less == pytest.approx(dry, rel=0.004)


def fsdp_numbers(result: dict, width: int, kept: int, twice: int = 0) -> dict:
    """What the calculator takes, of a model without a vocabulary."""
    numbers = {"billions": result["parameters"] / 1e9, "gpus": result["ranks"], "layers": result["layers"]}
    return numbers | {"width": width, "words": 0, "tokens": result["tokens"], "kept": kept, "twice": twice}


def test_a_peak_of_fsdp_is_what_was_measured(formulas):
    found = []
    for result in runs("training/too_large_for_one"):
        found.append((fsdp_numbers(result, 4096, 32), result["peak_gb"]["train"]))
    for result in runs("training/fsdp_activations"):
        for twice, way in enumerate(("kept", "twice")):
            found.append((fsdp_numbers(result, 4096, 32, twice), result["gb"][way]["peak"]))
    for result in runs("training/fsdp_options"):
        many = result | {"tokens": result["tokens"]["many"]}
        found.append((fsdp_numbers(many, 1536, 24), result["gb"]["bf16"]["peak"]))
    assert len(found) >= 7
    for numbers, peak in found:
        assert formulas[FSDP].result(numbers) == pytest.approx(peak, rel=0.03)


def test_fsdps_calculator_says_whether_it_fits_and_what_ddp_keeps(formulas):
    numbers = {"billions": 7, "gpus": 8, "layers": 32, "width": 4096, "words": 0, "tokens": 8192, "kept": 38}
    peak = formulas[FSDP].result(numbers | {"twice": 0})
    fits, ddp = formulas[FSDP].said(numbers | {"twice": 0, "gpu": peak + 10})
    assert fits == "It fits, with 10 GB to spare."
    assert ddp == "DDP keeps 112 GB of weights, gradients and moments on each GPU, FSDP 14."
    missing, _ = formulas[FSDP].said(numbers | {"twice": 0, "gpu": peak - 10})
    assert missing.startswith("It does not fit: 10 GB are missing.")
    assert len(formulas[FSDP].said(numbers | {"twice": 0, "gpu": peak, "gpus": 1})) == 1, (
        "one GPU splits nothing"
    )


#: A step of a Llama of so many blocks, width, words, tokens and ranks, counted by PyTorch in a dry run.
COUNTED = """
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from snippets.pastes.checkpointed import checkpointed

LAYERS, WIDTH, WORDS, TOKENS, RANKS, TWICE = map(int, sys.argv[1:])
HIDDEN = WIDTH * 43 // 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN), nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, -1, 128)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        rows = self.between(x)
        return x + self.down(F.silu(self.gate(rows)) * self.up(rows))


dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
with FakeTensorMode():
    blocks = [Block() for _ in range(LAYERS)]
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))
    parameters = sum(p.numel() for p in model.parameters())
    if TWICE:
        checkpointed(model, blocks)
    for block in model[1:-2]:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    adam = torch.optim.Adam(model.parameters(), foreach=False)
    rows = torch.randint(0, WORDS, (1, TOKENS))
    with FSDPMemTracker(model, adam) as tracker:
        for _ in range(2):
            scores = model(rows).float()
            F.cross_entropy(scores.flatten(0, 1), rows.flatten()).backward()
            adam.step()
            adam.zero_grad()
            tracker.reset_mod_stats()
    (peak,) = (each["Total"] for each in tracker.get_tracker_snapshot("peak").values())
print(parameters, peak)
"""


@pytest.mark.parametrize(
    "ranks, tokens, words, twice", [(8, 8192, 32000, 1), (8, 8192, 128256, 1), (2, 2048, 32000, 0)]
)
def test_a_peak_of_fsdp_is_what_pytorch_counts(formulas, tmp_path, ranks, tokens, words, twice):
    """With a vocabulary, and where gradients make the peak; in a process of its own."""
    pytest.importorskip("torch")
    shape = {"layers": 16, "width": 4096, "words": words, "tokens": tokens, "gpus": ranks}
    (tmp_path / "file.py").write_text(COUNTED)
    command = [sys.executable, str(tmp_path / "file.py"), *map(str, shape.values()), str(twice)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    parameters, peak = map(int, done.stdout.split()[-2:])
    numbers = shape | {"billions": parameters / 1e9, "kept": 38, "twice": twice}
    assert formulas[FSDP].result(numbers) * 1e9 == pytest.approx(peak, rel=0.05)


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
