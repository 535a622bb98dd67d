"""`overlap verify`: what is low, what explains it, what it says of claims and of what was not measured."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from conftest import ROOT

from overlap.blocks.headlines import Headlines, all_headlines
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.book.ceiling import _tables, ceilings, family
from overlap.cli import main
from overlap.commands import diagnosis, verify
from overlap.commands.diagnosis import LOW, NONE, OK
from overlap.run import hardware, recording
from overlap.run.runner import RunFailed
from overlap.run.snippet import Snippet

pytestmark = pytest.mark.usefixtures("on_cpu", "noisy")

H200 = "NVIDIA H200"
PAGE = """# A

```headlines
copy | GB/s | a/copy: gb_s | ceiling.pcie_gb_s
product | TFLOP/s | a/product: tflop_s | ceiling.bf16_tflop_s
launch | µs | a/launch: us | -
```

```claim a/copy
gb_s >= 50 and cores >= 1
name: a-copy-is-fast
A copy is fast.
```

```claim a/launch
us <= 9 for gpus >= 1
A launch is short.
```

```claim a/other
n == 3 for gpus >= 9
Nine GPUs count to three.
```
"""
#: What each snippet gave where it was recorded, twice, and on a healthy machine.
RECORDED = {"copy": ("gb_s", 54.0, 56.0), "product": ("tflop_s", 700.0, 720.0), "launch": ("us", 6.5, 7.5)}
HEALTHY = {"copy": 55.0, "product": 710.0, "launch": 7.0}
#: What a healthy GPU says of itself to PyTorch, and to nvidia-smi.
CARD = {
    "memory_bytes": 150_000_000_000,
    "capability": "9.0",
    "sms": 132,
    "clock_mhz": 1980,
    "pcie_generation": 5,
}
CARD |= {"pcie_width": 16, "pcie_width_max": 16}
CALM = {"least_us": 1.0, "steal": 0.0, "load": 0.1}
SMI = {
    "clocks_event_reasons.active": "0x1",
    "clocks.sm": "1980",
    "clocks.max.sm": "1980",
    "temperature.gpu": "40",
}
SMI |= {"power.limit": "700.00", "power.default_limit": "700.00", "memory.used": "4", "utilization.gpu": "0"}
TOOL = """#!{python} -S
import sys
query = sys.argv[1].partition("=")[2].split(",")
known = {known!r}
for field in query:
    if field not in known:
        sys.exit(f"{{print('Field ' + field + ' is not a valid field to query.') or 2}}")
print(", ".join(known[field] for field in query))
"""


class Bench:
    """A small book on a machine with one GPU, or none, whose snippets give what is wanted without running."""

    def __init__(self, book, template, folder):
        self.book, self.template, self.folder = book, template, folder
        self.results, self.card, self.noise, self.gpu, self.ran = HEALTHY | {"other": 3}, {}, CALM, H200, []
        self.free = 79.0
        for name in ("copy", "product", "launch"):
            book.snippet(f"a/{name}", options="gpus = [1]")
        book.snippet("a/other", options="gpus = [0, 1]")
        book.page("a", PAGE)
        self.smi({})

    def smi(self, said: dict, gpu: str = H200) -> None:
        """Have an `nvidia-smi` that says this of one GPU."""
        known = {"uuid": "GPU-0", "driver_version": "580", "name": gpu} | SMI | said
        path = self.folder / "nvidia-smi"
        path.write_text(TOOL.format(python=sys.executable, known=known))
        path.chmod(0o755)
        self.gpu = gpu
        hardware.here.cache_clear()
        hardware._host.cache_clear()

    def data(self, name: str, value, gpus: int = 1, **run) -> dict:
        """A recording of a snippet with this value."""
        snippet, key = Snippet.read(self.book.root, f"a/{name}"), RECORDED.get(name, ("n",))[0]
        made = self.template | {
            "snippet": snippet.name,
            "result": {key: value},
            "inputs": snippet.input_digests,
        }
        made |= {"source": {"path": snippet.path, "sha256": snippet.digest}, "run": made["run"] | run}
        cards = [CARD | {"name": self.gpu} | self.card] * gpus
        made |= {"machine": made["machine"] | {"gpus": cards, "host_gpus": gpus}}
        return recording.sealed(made | {"profile": hardware.name_of([self.gpu] * gpus)})

    def record(self) -> None:
        """Commit two runs of each headline on a healthy H200."""
        for name, (_, *values) in RECORDED.items():
            run = {"seconds": 1.0, "noise": CALM}
            first, second = (self.data(name, value, **run) for value in values)
            recording.write(
                self.book.path(f"a/{name}", "h200"), recording.dump(recording.merged(first, second))
            )

    # What `verify` uses of a runner

    def __call__(self, root, watchful: bool) -> "Bench":
        return self

    def probe(self, gpus: int) -> dict:
        made = self.data("copy", 1.0, gpus)
        return {"machine": made["machine"], "software": made["software"]}

    def free_gib(self) -> float:
        return self.free

    def run_all(self, wanted: list, done=lambda *made: None, expected=None) -> list:
        failures = []
        for snippet, gpus in wanted:
            name = snippet.name.removeprefix("a/")
            self.ran.append(name)
            if isinstance(self.results[name], Exception):
                failures.append(self.results[name])
            else:
                done(snippet, gpus, self.data(name, self.results[name], gpus, noise=self.noise))
        return failures

    def __enter__(self):
        return self

    def __exit__(self, *exc_info) -> None:
        self.ran.append("closed")


@pytest.fixture
def bench(small_book, template, tmp_path_factory, monkeypatch):
    """The bench, as the working directory."""
    folder = tmp_path_factory.mktemp("tools")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.chdir(small_book.root)
    monkeypatch.setattr(diagnosis, "_EVERY_S", 0.01)
    monkeypatch.setattr("os.getloadavg", lambda: (0.5, 0.5, 0.5))
    monkeypatch.setattr(diagnosis, "_busy_share", lambda: 0.02)
    made = Bench(small_book, template, folder)
    monkeypatch.setattr(verify, "Runner", made)
    yield made
    hardware.here.cache_clear()
    hardware._host.cache_clear()


L40S = {"name": "NVIDIA L40S", "capability": "8.9", "sms": 142, "clock_mhz": 2520, "pcie_generation": 4}
H100_PCIE = {"name": "NVIDIA H100 PCIe", "sms": 114, "clock_mhz": 1755}
#: What is changed on a healthy H200: results, attributes, what nvidia-smi says, noise. Then: what is LOW and
#: what is said.
MACHINES: dict[str, Any] = {
    "healthy": ({}, {}, {}, {}, "", ["Nothing that could be compared is low."]),
    "half the lanes": (
        {"copy": 27.1},
        {"pcie_width": 8},
        {},
        {},
        "copy",
        [
            "43% of 63 (PCIe 5 x16)  recorded: 55 (54 to 56, 2 runs)",
            "The GPU uses 8 of its 16 PCIe lanes, which can hold down: copy.",
        ],
    ),
    "throttled": (
        {"product": 360.0},
        {},
        {"clocks_event_reasons.active": "0x28", "clocks.sm": "990"},
        {},
        "product",
        [
            "While a/product ran, the clock was at most 990 of 1,980 MHz; the driver's reason: "
            "hardware slowdown and thermal slowdown by the driver, which can hold down: product."
        ],
    ),
    "a driver that says nothing": (
        {"product": 360.0},
        {},
        dict.fromkeys(SMI, "[N/A]"),
        {},
        "product",
        ["the cause is not known: product."],
    ),
    "others use it": (
        {"copy": 20.0, "product": 300.0},
        {},
        {"memory.used": "40000", "utilization.gpu": "97"},
        {},
        "copy product",
        [
            "40,000 MiB of its memory were in use and it was busy 97% of the time, "
            "which can hold down: copy and product."
        ],
    ),
    "a slow host": (
        {"launch": 21.0},
        {},
        {},
        {"least_us": 3.0, "steal": 0.2},
        "launch",
        [
            "A small PyTorch call costs the CPU 3 µs, where it is recorded at most 1, "
            "which can hold down: launch.",
            "Other virtual machines took up to 20% of the CPU's time, which can hold down: launch.",
            "Other work disturbed the CPU in 5 of 5 runs, which",
        ],
    ),
    "another model": (
        {"copy": 27.0, "product": 250.0},
        L40S,
        {},
        {},
        "",
        [
            "86% of 31.5 (PCIe 4 x16)  neither this model nor its family is recorded  no verdict",
            "68% of 366                neither this model nor its family is recorded  no verdict",
            "  this model is not recorded                     no verdict",
            "Nothing could be compared with a recording.",
        ],
    ),
    "another model of the family": (
        {"copy": 31.0, "product": 500.0},
        H100_PCIE,
        {},
        {},
        "copy",
        [
            "49% of 63 (PCIe 5 x16)  this model is not recorded; its family reaches at least 86%  LOW",
            "61% of 820              this model is not recorded; its family reaches at least 65%  ok",
            "  this model is not recorded                                   no verdict",
        ],
    ),
    "a model of the family that nobody looked up": (
        {"product": 100.0},
        H100_PCIE | {"name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb"},
        {},
        {},
        "",
        ["neither this model nor its family is recorded"],
    ),
    "above its ceiling": (
        {"product": 1110.0},
        {},
        {},
        {},
        "",
        ["104% of 1,071           above its ceiling: the measurement is wrong, or the ceiling  no verdict"],
    ),
    "above its ceiling by less than a clock is above its highest": (
        {"product": 1090.0},
        {},
        {},
        {},
        "",
        ["Nothing that could be compared is low."],
    ),
    "low at a clock that healthy ones have": (
        {"product": 500.0},
        {},
        {"clocks_event_reasons.active": "0x4", "clocks.sm": "1350"},
        {},
        "product",
        [
            "the clock was at most 1,350 of 1,980 MHz; the driver's reason: power limit.",
            "Low, and the cause is not known: product.",
        ],
    ),
    "low at a clock that no GPU is fast enough at": (
        {"product": 360.0},
        {},
        {"clocks_event_reasons.active": "0x4", "clocks.sm": "990"},
        {},
        "product",
        ["at most 990 of 1,980 MHz; the driver's reason: power limit, which can hold down: product."],
    ),
    "low beside a process that only holds memory": (
        {"copy": 20.0},
        {},
        {"memory.used": "40000"},
        {},
        "copy",
        [
            "40,000 MiB of its memory were in use and it was busy 0% of the time.",
            "Low, and the cause is not known: copy.",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_low_and_why(bench, capsys, name):
    results, card, said, noise, low, words = MACHINES[name]
    bench.record()
    bench.results |= results
    bench.card, bench.noise = {key: value for key, value in card.items() if key != "name"}, CALM | noise
    bench.smi(said, card.get("name", H200))
    assert main(["verify"]) == 0
    printed = capsys.readouterr().out
    assert " ".join(line.split()[0] for line in printed.splitlines() if line.endswith("LOW")) == low
    assert [word for word in words if word not in printed] == [], printed
    assert bench.ran[-1] == "closed"
    false = "is false" in printed or "false on" in printed
    assert main(["verify", "--strict"]) == int(bool(low) or false)


def test_nothing_is_compared_with_itself_or_with_other_code(bench, capsys):
    for change in (
        lambda: None,
        lambda: (
            bench.record()
            or bench.book.snippet("a/copy", "def main():\n    return {'gb_s': 2}\n", "gpus = [1]")
        ),
    ):
        change()
        for _ in range(2):  # the second time, the first one's runs are in the cache
            assert main(["verify", "a/copy", "--strict"]) == 0
            printed = capsys.readouterr().out
            assert "nothing to compare with" in printed and "no verdict" in printed
            assert "Nothing could be compared with a recording." in printed


def test_a_snippet_that_fails_is_told_and_the_rest_goes_on(bench, capsys):
    bench.record()
    bench.results["product"] = RunFailed(
        "snippets/a/product.py failed with exit code 1", "snippets/a/product.py"
    )
    assert main(["verify"]) == 0
    printed = capsys.readouterr().out
    assert (
        "snippets/a/product.py failed with exit code 1\n" in printed
        and "Not measured (failed): a/product\n" in printed
    )
    assert [line.split()[0] for line in printed.splitlines() if line.endswith("ok")] == ["copy", "launch"]
    assert main(["verify", "--strict"]) == 1


def test_json_is_strict_and_complete(bench, capsys):
    bench.record()
    bench.results["copy"], bench.card = 27.1, {"pcie_width": 8}
    assert main(["verify", "--json", "--strict"]) == 1
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert set(found) == set(
        ["machine", "software", "quick", "headlines", "claims", "diagnosis", "unchecked", "failures"]
    )
    assert found["machine"]["gpus"][0]["pcie_width"] == 8 and found["software"]["torch"]
    copy, product, launch = found["headlines"]
    recorded = {"median": 55, "low": 54, "high": 56, "runs": 2, "share": pytest.approx(54 / 63.02)}
    assert copy["recorded"] == {"h200": recorded | {"family": "9.0"}}
    assert copy["why"] == ""
    assert (copy["state"], copy["compared"], copy["ceiling"], copy["bound"]) == (
        "LOW",
        "model",
        63.02,
        54 * verify.NEAR,
    )
    assert (launch["state"], launch["share"], launch["bound"]) == ("ok", None, 7.5 / verify.NEAR)
    assert set(copy) == set(product) == set(launch) and product["bound_by"] == "arithmetic"
    states = {claim["line"]: (claim["page"], claim["machine"], claim["state"]) for claim in found["claims"]}
    assert states == {9: ("a.md", "h200", "false"), 15: ("a.md", "h200", "holds"), 20: ("a.md", None, "open")}
    assert [claim["name"] for claim in found["claims"]] == ["a-copy-is-fast", "", ""]
    assert found["claims"][0]["figures"].startswith("rate = 27.1 GB/s, not ≥ 50 GB/s")
    assert found["diagnosis"] == [{"fact": "the GPU uses 8 of its 16 PCIe lanes", "explains": ["copy"]}]


@pytest.mark.parametrize(
    ("names", "ran", "left"),
    [
        ([], ["copy", "launch", "product"], "(left out by --quick): a/other"),
    ],
)
def test_quick_runs_headlines_alone(bench, capsys, names, ran, left):
    bench.record()
    assert main(["verify", "--quick", *names]) == 0
    printed = capsys.readouterr()
    assert sorted(bench.ran) == sorted([*ran, "closed"])
    assert (left in printed.out) if left else "Not measured" not in printed.out
    assert f"{len(ran)} run" in printed.err and "afresh" in printed.err


def test_a_machine_without_a_gpu_says_what_it_could_not_check(bench, monkeypatch, capsys):
    bench.record()
    monkeypatch.setenv("PATH", "/nowhere")
    hardware.here.cache_clear()
    hardware._host.cache_clear()
    for options in ([], ["--quick"]):
        assert main(["verify", "--strict", *options]) == 0
        printed = capsys.readouterr().out
        assert "Measured now: CPU" in printed and "No headline rate could be measured here." in printed
        assert "Not measured (needs 1 GPU): a/copy, a/launch, a/product\n" in printed
        assert "not checked: 3" in printed
    assert bench.ran == ["other", "closed"] * 2
    assert main(["verify", "a/copy"]) == 1
    assert "a/copy needs 1 GPU" in capsys.readouterr().err


def test_a_headline_that_breaks_here_is_a_failure(bench, capsys):
    bench.book.page("a", "```headlines\ncopy | GB/s | a/copy: [gb_s][round(gb_s)] | -\n```\n")
    assert main(["verify", "a/copy", "--strict"]) == 1
    assert "copy on h200: `[gb_s][round(gb_s)]`: IndexError" in capsys.readouterr().out
    bench.book.page("a", "```headlines\ncopy | GB/s | a/none: gb_s | -\n```\n")
    assert main(["verify", "a/copy"]) == 1
    assert "snippets/a/none.py: there is no such file" in capsys.readouterr().err


def test_a_busy_host_is_named_as_a_cause_and_beside_what_is_false_there(bench, monkeypatch, capsys):
    bench.record()
    bench.results |= {"copy": 46.0, "launch": 21.0}
    causes: dict[str, dict] = {
        "the load was 99.0 on": {"os.getloadavg": (99.0, 0.5, 0.5)},
        "other processes took up to 43% of the CPU's time": {BUSY_SHARE: 0.43},
        "other processes took up to 43% of the CPU's time, the load was 99.0 on": {
            BUSY_SHARE: 0.43,
            "os.getloadavg": (99.0, 0.5, 0.5),
        },
    }
    for words, changes in causes.items():
        with monkeypatch.context() as patch:
            for name, value in changes.items():
                patch.setattr(name, lambda value=value: value)
            assert main(["verify"]) == 0
        printed = capsys.readouterr().out
        assert printed.count("which can hold down: launch.") == 1 and "not known" not in printed
        assert f"\n{words[0].upper()}{words[1:]}" in printed
        assert "false: 2 (2 while this machine was busy); " in printed
        assert f"    But this machine was busy ({words}" in printed
        assert printed.count("): repeat it when calm.\n") == 2


def test_a_false_claim_is_named_by_its_page_for_the_program_alone_has_no_docs(bench, capsys):
    bench.record()
    bench.results |= {"copy": 27.1, "launch": 20.0}
    assert main(["verify"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "  page a, claim a-copy-is-fast: false on 1 × H200: A copy is fast." in printed
    assert "  page a: false on 1 × H200: A launch is short." in printed, "it has no name"
    assert not any("docs/" in line for line in printed)


def test_what_is_false_with_another_torch_names_both(bench, capsys):
    bench.record()
    bench.results |= {"copy": 46.0}
    recorded = bench.template["software"]["torch"]
    assert main(["verify", "a/copy"]) == 0
    assert "another torch" not in capsys.readouterr().out
    bench.template = bench.template | {"software": bench.template["software"] | {"torch": "2.99.0+cu130"}}
    assert main(["verify", "a/copy", "--json"]) == 0
    (claim,) = [claim for claim in json.loads(capsys.readouterr().out)["claims"] if claim["machine"]]
    assert claim["torch"] == f"torch 2.99.0+cu130 here, {recorded} recorded"
    assert main(["verify", "a/copy"]) == 0
    line = f"    But it is another torch: 2.99.0+cu130 here, {recorded} recorded."
    assert line in capsys.readouterr().out.splitlines()


# Every GPU of the table


def lines(pages: Pages, name: str, share: float) -> dict[str, dict]:
    """What is said of a GPU at this share of what its datasheet prints, by headline."""
    sheet = _tables()["datasheet"][name]
    here = {"gpus": [{"name": name, "capability": sheet["capability"]}]}
    most = ceilings(here)
    said = {}
    for headline in all_headlines(pages):
        key = headline.ceiling.removeprefix("ceiling.")
        printed = sheet["figures"].get(key, most.get(key) if headline.bound_by == "pcie" else None)
        if printed:
            value = share * printed
            rate = {"value": value, "ceiling": most[key], "share": value / most[key]}
            machine = hardware.name_of([name])
            recorded = verify._recorded(pages.book, headline)
            said[headline.label] = verify._line(headline, machine, family(here), rate, recorded)
    return said


@pytest.fixture(scope="module")
def whole_book() -> Pages:
    return Pages(Book(ROOT, "never"))


@pytest.mark.parametrize("name", _tables()["datasheet"])
def test_a_gpu_at_its_datasheets_rates_is_not_low_and_at_half_of_them_is(whole_book, name):
    """There is a verdict where its family is recorded, which is Hopper."""
    states = {OK} if _tables()["datasheet"][name]["capability"] == "9.0" else {NONE}
    for share in (1, 0.9):
        said = lines(whole_book, name, share)
        assert {line["state"] for line in said.values()} == states, said
    halved = lines(whole_book, name, 0.5)
    assert {line["state"] for line in halved.values()} == ({LOW} if states == {OK} else {NONE}), halved
    assert {line["why"] for line in halved.values()} == (
        {""} if states == {OK} else {"neither this model nor its family is recorded"}
    )


def test_a_geforce_that_does_not_hold_its_highest_clock_has_no_false_cause():
    """2,750 of 3,105 MHz is what a healthy RTX 4090 reaches; at 1,500 none could pass the bound."""
    low = {"label": "bf16", "bound_by": "arithmetic", "state": LOW, "ceiling": 203.5, "bound": 130.0}
    for clock, explains in ((2750, []), (1500, ["bf16"])):
        state = {"clock_mhz": clock, "clock_max_mhz": 3105, "reasons": []}
        facts = list(diagnosis.of_gpu([{}], {}, {"a/product": state}))
        assert next(diagnosis.explained([low], facts))["explains"] == explains


def test_the_recorded_hosts_are_of_one_kind(whole_book):
    """Home, *The machine* and *Check your GPU* say so: where another host or chip is recorded, mend them."""
    kinds = set()
    for by_machine in whole_book.book.committed.values():
        for recorded in by_machine.values():
            for here in (run["machine"] for run in recorded.runs):
                host = here["virtual"], here["cpu"]
                kinds |= {(*host, gpu["capability"], gpu["sms"]) for gpu in here["gpus"]}
    assert kinds == {(True, "Intel(R) Xeon(R) Processor", "9.0", 132)}
    for page in ("index", "machine", "check"):
        text = (ROOT / f"docs/{page}.md").read_text()
        assert "GH100" in text and "virtual machines of one kind" in text, page


# Little memory


@pytest.fixture
def tight(bench):
    """The bench with a large product, and a small one that stands in for it."""
    bench.book.snippet("a/product", options='gpus = [1]\ngpu_gib = 23\nsmall = "a/small"')
    bench.book.snippet("a/small", options="gpus = [1]")
    bench.results["small"] = 650.0
    bench.book.page("b", "```headlines\nsmall product | TFLOP/s | a/small: n | ceiling.bf16_tflop_s\n```\n")
    bench.record()
    return bench


FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB."


@pytest.mark.parametrize("options", [["--quick"], []])
@pytest.mark.parametrize("reason", ["", FULL, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when"])
def test_what_needs_more_memory_than_is_free_gives_way_to_a_small_one(tight, capsys, options, reason):
    """So does what runs out of it."""
    if reason:
        tight.results["product"] = RunFailed(f"it failed: {reason}", "snippets/a/product.py", reason)
        why = "found the GPU's memory full; 79.0 GiB were free before"
    else:
        tight.free = 22.5
        why = "needs 23 GiB of a GPU's memory, 22.5 are free"
    assert main(["verify", *options, "--strict"]) == 0
    printed = capsys.readouterr().out
    assert f"Not measured ({why}): a/product\n" in printed and "it failed" not in printed
    rows = [line.split("  ")[0] for line in printed.splitlines() if "TFLOP/s" in line]
    assert rows == ["small product"]
    assert tight.ran.count("small") == 1 and ("product" in tight.ran) == bool(reason)


@pytest.mark.parametrize("options", [["--quick"], []])
def test_where_memory_is_enough_the_small_one_says_nothing(tight, capsys, options):
    assert main(["verify", *options]) == 0
    printed = capsys.readouterr()
    rows = [line.split("  ")[0] for line in printed.out.splitlines() if "TFLOP/s" in line]
    assert rows == ["product"]
    assert ("small" in tight.ran) == (not options)


def test_what_is_free_is_at_most_what_a_process_may_have(monkeypatch):
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (5 * 2**30, 80 * 2**30))
    for fraction, free in ((1.0, 5), (0.025, 2)):
        monkeypatch.setattr(
            "torch.cuda.get_per_process_memory_fraction", lambda device, share=fraction: share
        )
        assert hardware.free_gib() == pytest.approx(free)


def test_a_small_one_that_is_not_there_is_a_problem(small_book):
    small_book.snippet("a/b", options='gpus = [0]\nsmall = "a/c"')
    problems = small_book.check()
    assert "snippets/a/b.py: header: small = 'a/c' is no snippet; write the name of one" in problems


BUSY_SHARE = "overlap.commands.diagnosis._busy_share"
BLOCKED = """
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "pydantic"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
"""


def test_quick_needs_torch_alone(small_book, template, tmp_path_factory):
    """Neither numpy nor pydantic is there, in this process or those it starts."""
    small_book.snippet(
        "a/copy", "import torch\n\n\ndef main():\n    return {'gb_s': float(torch.ones(2).sum())}\n"
    )
    small_book.page("a", "```snippet a/copy\n```\n```headlines\ncopy | GB/s | a/copy: gb_s | -\n```\n")
    small_book.commit("a/copy", template, {"gb_s": 2.0})
    folder = tmp_path_factory.mktemp("blocked")
    (folder / "sitecustomize.py").write_text(BLOCKED)
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "overlap", "verify", "--quick"]
    done = subprocess.run(command, cwd=small_book.root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "copy  2 GB/s" in done.stdout, done.stdout + done.stderr


BAD_HEADLINES = {
    "": "docs/a.md:1: headlines without rows; write `label |",
    "copy | GB/s | a/copy: gb_s": "docs/a.md:2: not a row of headlines; write `label |",
    "copy | GB/s | a/copy: gb_s+ | -": "docs/a.md:2: `gb_s+` is not an expression",
    "copy | GB/s | a/copy: lost | -": "docs/a.md:1: `copy`: `lost` has no value on any machine; mend",
    "copy | GB/s | a/copy: -gb_s | -": "docs/a.md:1: a/copy: `-gb_s` is -",
    "copy | GB/s | a/copy: gb_s | ceiling.lost": "docs/a.md:1: `copy`: `ceiling.lost` is known of no machine",
}


@pytest.mark.parametrize("row", BAD_HEADLINES)
def test_wrong_headlines_are_an_error_with_their_place(bench, row):
    bench.record()
    bench.book.page("a", f"```headlines\n{row}\n```\n")
    problems = [problem for problem in bench.book.check() if problem.startswith("docs/")]
    assert [problem[: len(BAD_HEADLINES[row])] for problem in problems] == [BAD_HEADLINES[row]], problems


def test_headlines_are_a_table_on_the_page_and_in_the_notebook(bench):
    from overlap.site.notebook import Notebook
    from overlap.site.view import Site, View

    bench.record()
    pages = bench.book.pages("never")
    (block,) = (each for each in pages.blocks if isinstance(each, Headlines))
    assert list(block.check(pages)) == []
    html = block.html(View(Site(pages, None)))
    assert (
        '<td data-machine="h200" title="2 runs on one host">55<br><small>54 to 56 · 87% of 63</small></td>'
        in html
    )
    (cell,) = block.cells(Notebook(pages, None))
    assert cell["source"].splitlines()[2:] == [
        "| copy, GB/s | 55 (54 to 56 · 87% of 63) |",
        "| product, TFLOP/s | 710 (700 to 720 · 66% of 1,071) |",
        "| launch, µs | 7 (6.5 to 7.5) |",
    ]
