"""Several runs behind each number: how they are kept, merged and shown, and what claims make of them.

Home machines and others are here, too.
"""

import itertools
from statistics import median

import pytest
from conftest import ROOT

from overlap import OverlapError
from overlap.blocks import inline, page
from overlap.book.recording import spread
from overlap.book.verdict import Counts, State, Tally
from overlap.cli import main
from overlap.run import recording
from overlap.run.noise import during, is_disturbed

pytestmark = pytest.mark.usefixtures("on_cpu")

GPU = {"name": "NVIDIA H200", "memory_bytes": 150_000_000_000, "capability": "9.0"}


@pytest.fixture
def book(small_book, template, monkeypatch):
    """a/b ran three times on one H200, each time on another host or later, and once on the CPU."""
    monkeypatch.chdir(small_book.root)
    small_book.snippet("a/b", "def main():\n    return {}\n", "gpus = [0, 1]")
    small_book.page("a", "```snippet a/b\n```\n")
    small_book.commit("a/b", template, result(5.0))
    made = [
        one(small_book, template, *each)
        for each in ((60.0, 1, "aaaaaaaa"), (100.0, 2, "bbbbbbbb"), (80.0, 3, "aaaaaaaa"))
    ]
    whole = recording.merged(recording.merged(made[0], made[1]), made[2])
    recording.write(small_book.path("a/b", "h200"), recording.dump(whole))
    return small_book


def result(us: float) -> dict:
    return {
        "us": us,
        "us_trials": [us] * 3,
        "name": f"{us}",
        "n": 3,
        "events": [["GPU", 0, us, "mm"]],
        "rows": [{"x": us}],
        "ms": {"events": us},
    }


def one(book, template, us: float, day: int, host: str, **run) -> dict:
    """A recording of one run on one H200, as `record` writes it."""
    here = template["machine"] | {"gpus": [GPU], "host_gpus": 1, "host": host}
    run = template["run"] | {"started": f"2026-01-0{day}T00:00:00+00:00"} | run
    return recording.read(book.commit("a/b", template, result(us), gpus=1, machine=here, run=run))


def statistics(book, text: str):
    ((_, found),) = inline.values(text)
    return book.book().statistics(found)


def test_one_run_is_whole_and_of_the_others_stays_what_was_measured(book):
    whole = recording.read(book.path("a/b", "h200"))
    assert recording.is_intact(whole) and whole["result"] == result(80.0)
    assert [each["result"] for each in whole["others"]] == [
        {"us": us, "name": str(us), "n": 3, "rows": [{"x": us}], "ms": {"events": us}} for us in (100.0, 60.0)
    ]
    assert sum(line.startswith('  {"digest') for line in recording.dump(whole).splitlines()) == 2


def test_a_run_that_is_recorded_among_others_is_shown_as_the_recording(book):
    book.snippet(
        "a/b", "import time\n\n\ndef main():\n    return {'us': time.time(), 'us_trials': [1, 2, 3]}\n"
    )
    assert main(["record", "--runs", "3"]) == 0
    three = recording.read(book.path("a/b"))
    assert (
        main(["record", "--bundle", "bundle.jsonl", "--runs", "4"]) == 0
        and main(["import", "bundle.jsonl"]) == 0
    )
    four, (local,) = recording.read(book.path("a/b")), book.book("auto").local.of("a/b").values()
    assert len(recording.all_runs(four)) == 4 and len(local.runs) < 4
    assert recording.has_runs_of(four, three) and recording.has_runs_of(four, local.data)
    assert not recording.has_runs_of(three, four)
    assert not book.book("auto").recordings("a/b")["cpu"].is_local, "the median of four runs, not one of them"
    book.commit("a/b", three)
    assert book.book("auto").recordings("a/b")["cpu"].is_local, "it is not recorded"


@pytest.mark.usefixtures("noisy")
def test_a_disturbed_run_does_not_take_the_place_of_a_calm_one(book, template):
    noise = {"steal": 0.05, "others": 0.3, "load": 0.1}
    calm, disturbed = (
        one(book, template, 70.0, 4, "aaaaaaaa"),
        one(book, template, 200.0, 5, "aaaaaaaa", noise=noise),
    )
    for pair in ((calm, disturbed), (disturbed, calm)):
        assert recording.merged(*pair)["result"]["us"] == 70.0
    assert recording.merged(disturbed, one(book, template, 90.0, 3, "aaaaaaaa"))["result"]["us"] == 90.0
    recording.write(book.path("a/b", "h200"), recording.dump(disturbed))
    assert (
        book.book()
        .recordings("a/b")["h200"]
        .provenance.endswith(
            "host disturbed: other processes took 30% of the CPU's time, "
            "other virtual machines took 5% of the CPU's time"
        )
    )


@pytest.mark.usefixtures("noisy")
def test_a_value_and_the_line_below_an_output_say_how_many_runs_were_disturbed(book, template):
    noise = {"steal": 0.05, "others": 0.0, "load": 0.1}
    runs = [one(book, template, us, 4, "aaaaaaaa") for us in (70.0, 80.0)]
    runs.append(one(book, template, 200.0, 5, "aaaaaaaa", noise=noise))
    recording.write(
        book.path("a/b", "h200"), recording.dump(recording.merged(recording.merged(*runs[:2]), runs[2]))
    )
    assert statistics(book, "{a/b: us}")["h200"].note == "70 to 200, 3 runs on one host, 1 of them disturbed"
    recorded = book.book().recordings("a/b")["h200"]
    assert recorded.runs_in_words == "3 runs on one host, 1 of them disturbed; the runs differ by about 162%"


@pytest.mark.parametrize(
    "change",
    [{"source": {"path": "snippets/a/b.py", "sha256": "0" * 64}}, {"inputs": {"snippets/a/c.py": "0" * 64}}],
)
def test_other_code_or_another_torch_begins_anew(book, template, change):
    whole, new = recording.read(book.path("a/b", "h200")), one(book, template, 70.0, 4, "cccccccc")
    assert len(recording.merged(whole, new)["others"]) == 3
    assert "others" not in recording.merged(whole, recording.sealed(new | change))
    other = recording.sealed(new | {"software": new["software"] | {"torch": "2.0.0"}})
    assert "others" not in recording.merged(whole, other)


def test_the_newest_runs_are_kept(book, template):
    whole = one(book, template, 1.0, 1, "aaaaaaaa")
    for second in range(12):
        started = {"started": f"2026-02-01T00:00:{second:02}+00:00"}
        whole = recording.merged(whole, one(book, template, float(second), 1, "aaaaaaaa", **started))
    assert [each["result"]["us"] for each in (whole, *whole["others"])] == [
        float(s) for s in range(11, 1, -1)
    ]


VALUES = {
    "{a/b: us}": ("80", "60–100", "60 to 100, 3 runs on 2 hosts"),
    "{a/b: us + 1000:,.0f}": ("1,080", "", "1,060 to 1,100, 3 runs on 2 hosts"),
    "{a/b: name}": ("80.0", "", "3 runs on 2 hosts"),
    "{a/b: rows[0].x}": ("80", "60–100", "60 to 100, 3 runs on 2 hosts"),
    "{a/b: max(us_trials)}": ("80", "", ""),
}


@pytest.mark.parametrize("text", VALUES)
def test_a_value_is_the_median_of_the_runs_and_says_their_range(book, text):
    found = statistics(book, text)["h200"]
    assert (found.text, found.wide_range, found.note) == VALUES[text]


def test_where_there_is_no_value_stands_why(book):
    found = statistics(book, "{a/b: us / ceiling.hbm_gb_s}")
    assert found["h200"].values and not found["cpu"].values
    assert found["cpu"].text == "–" and "ceiling of the CPU has no 'hbm_gb_s'" in found["cpu"].note


def test_another_snippets_result_is_that_of_the_same_host(book, template):
    book.snippet("a/c", "def main():\n    return {}\n", "gpus = [1]")
    whole = recording.read(book.path("a/b", "h200"))
    snippet = book.book().snippet("a/c")
    source = {"path": snippet.path, "sha256": snippet.digest}
    moved = {key: whole[key] for key in whole if key not in ("digest", "others")} | {
        "snippet": "a/c",
        "source": source,
    }
    runs = [
        moved | {"machine": moved["machine"] | {"host": host}, "result": {"x": x}}
        for host, x in (("bbbbbbbb", 2.0), ("aaaaaaaa", 1.0))
    ]
    recording.write(book.path("a/c", "h200"), recording.dump(recording.merged(*map(recording.sealed, runs))))
    ((_, found),) = inline.values("{a/b: us * a.c.x}")
    assert book.book().statistics(found)["h200"].values == (80.0, 200.0, 60.0)


CLAIMS = {
    "us >= 60": (State.HOLDS, "time = 80 µs ≥ 60 µs", 3),
    "us >= 70": (State.HOLDS, "time = 80 µs ≥ 70 µs · true in 2 of 3 runs", 2),
    "us >= 90": (State.FALSE, "time = 80 µs, not ≥ 90 µs · true in 1 of 3 runs", 1),
    "us >= 60\nlimit: us of ceiling.sms": (
        State.HOLDS,
        "time = 80 µs ≥ 60 µs · 61% of 132 (ceiling SMs)",
        3,
    ),
}


@pytest.mark.parametrize("text", CLAIMS)
def test_a_claim_is_decided_by_most_runs(book, text):
    (claim,) = page.parse(f"```claim a/b\n{text}\nSo.\n```", "a.md")
    found = {verdict.machine: verdict for verdict in book.book().verdicts(claim)}["h200"]
    assert (found.state, found.figures, found.true) == CLAIMS[text]


def at_home(book, said: str) -> None:
    (book.root / "pyproject.toml").write_text(f"[tool.overlap]\nhome = {said}\n")


def test_at_home_a_claim_must_hold_in_all_runs_and_by_their_spread(book):
    for expression, thin, wrong in (("us > 10", 0, 0), ("us > 55", 1, 0), ("us >= 70", 1, 1)):
        book.page("a", f"```snippet a/b\n```\n```claim a/b\n{expression} for gpus == 1\nSo.\n```\n")
        problems = book.check()
        assert (
            sum("claim holds by less than 3 times the spread of `us >" in each for each in problems) == thin
        )
        unlike = [each for each in problems if "claim is not true in all runs" in each]
        assert len(unlike) == wrong and all(
            each.endswith("; measure longer or claim less") for each in unlike
        )
        at_home(book, "{cpu = 1}")
        assert book.check() == []
        (book.root / "pyproject.toml").unlink()


def test_elsewhere_a_false_claim_is_a_finding(book):
    book.page(
        "a",
        "```snippet a/b\n```\n```claim a/b\nus < 10\nSo.\n```\n```claim a/b\nus > ceiling.sms\nThen.\n```\n",
    )
    at_home(book, "{cpu = 1}  # and no other")
    assert [problem.partition(":")[2][:40] for problem in book.check()] == [
        "7: claim cannot be decided in docs/recor"
    ]
    at_home(book, "{h200 = 3}")
    assert sum("claim is false" in each for each in book.check()) == 2
    verdicts = book.book().verdicts(book.pages().claims[0])
    tally = Tally.of(verdicts)
    assert tally.summary(str.upper) == "holds on 1 of 2 machines; not on H200" and tally.state is State.FALSE
    assert Counts.of([verdicts]).summary.startswith(
        "0 of 1 claim hold on every machine that decides it; 1 is"
    )
    held = [verdict for verdict in verdicts if verdict.state is State.HOLDS]
    assert Counts.of([held]).summary == "1 claim, checked on 1 machine, and true on each"
    assert Counts.of([held]).on(held[0].machine) == "1 holds", "a share is said only where it can be less"


def test_elsewhere_an_expression_that_finds_no_data_is_open(book):
    least = "median([t for t in us_trials if t < 10])"
    book.page(
        "a", f"```snippet a/b\n```\nOf {{a/b: {least}:.0f}} µs.\n\n```claim a/b\n{least} >= 1\nSo.\n```\n"
    )
    at_home(book, "{cpu = 1}")
    assert book.check() == []
    found = {verdict.machine: verdict for verdict in book.book().verdicts(book.pages().claims[0])}
    assert {machine: verdict.state for machine, verdict in found.items()} == {
        "cpu": State.HOLDS,
        "h200": State.OPEN,
    }
    assert "no median for empty data" in found["h200"].figures
    h200 = statistics(book, f"{{a/b: {least}}}")["h200"]
    assert not h200.values and "no median for empty data" in h200.note
    at_home(book, "{cpu = 1, h200 = 3}")
    assert sum("StatisticsError: no median for empty data, in docs/rec" in each for each in book.check()) == 2


def test_at_home_a_measurement_has_as_many_runs_as_the_book_wants(book):
    at_home(book, "{cpu = 2, h200 = 4}")
    assert [problem.partition(";")[0] for problem in book.check()] == [
        "docs/recordings/cpu/a/b.json: 1 of 2 runs",
        "docs/recordings/h200/a/b.json: 3 of 4 runs",
    ]
    at_home(book, "{cpu = 1, h200 = 3}")
    assert book.check() == []


def test_a_header_says_why_there_are_fewer_runs_and_no_longer_than_it_is_true(book):
    book.snippet("a/b", "def main():\n    return {}\n", 'gpus = [0, 1]\nfew = { h200 = "three so far" }')
    at_home(book, "{cpu = 1, h200 = 4}")
    assert book.check() == []
    at_home(book, "{cpu = 2, h200 = 3}")
    assert [problem.partition(";")[0] for problem in book.check()] == [
        "docs/recordings/cpu/a/b.json: 1 of 2 runs",
        "snippets/a/b.py: has 3 runs, so drop `few.h200` from its header",
    ]


def test_record_adds_a_run_and_import_merges(book, capsys):
    book.snippet(
        "a/b", "import time\n\n\ndef main():\n    return {'us': time.time(), 'us_trials': [1, 2, 3]}\n"
    )
    path = book.path("a/b")
    for arguments, count in (
        (["record", "a/b"], 1),
        (["record", "a/b"], 2),
        (["record"], 2),
        (["record", "--runs", "4"], 4),
        (["record", "--runs", "4"], 4),
    ):
        assert main(arguments) == 0
        assert len(recording.all_runs(recording.read(path))) == count
    assert "a/b on cpu: 0." in (out := capsys.readouterr().out) and ", run 4" in out
    assert recording.read(path)["run"]["noise"]["least_us"] > 0
    bundle = book.root / "bundle.jsonl"
    assert main(["record", "--bundle", str(bundle), "--runs", "6"]) == 0
    assert len(bundle.read_text().splitlines()) == 2
    assert main(["import", str(bundle)]) == 0
    assert len(recording.all_runs(recording.read(path))) == 6
    assert main(["import", str(bundle)]) == 0
    out = capsys.readouterr().out
    assert out.count("another run: a/b on cpu") == 2 and out.count("unchanged: a/b on cpu") == 2
    for wrong in ("0", "x", "11"):
        with pytest.raises(SystemExit):
            main(["record", "--runs", wrong])


@pytest.mark.parametrize("verdict", [True, False])
def test_an_older_recordings_verdict_on_a_small_call_marks_nothing(book, template, verdict):
    noise = {"dispatch_us": [1.0, 9.0], "least_us": 1.0, "steal": 0.0, "others": 0.0, "load": 0.1}
    run = one(book, template, 70.0, 4, "aaaaaaaa", noise=noise | {"disturbed": verdict})
    recording.write(book.path("a/b", "h200"), recording.dump(run))
    assert "disturbed" not in book.book().recordings("a/b")["h200"].provenance


def test_runs_say_how_far_they_are_typically_apart():
    def run(us: float, ms: float, count: int) -> dict:
        return {"result": {"us": us, "by": [{"ms": ms}], "n": count, "flop": 0.5, "us_trials": [us, 9 * us]}}

    runs = [run(100.0, 10.0, 1), run(104.0, 10.0, 7), run(102.0, 10.2, 9)]
    assert spread(runs) == pytest.approx((4 / 102 + 0.2 / 10) / 2), "the median of two numbers that differ"
    assert spread([{"result": {"n": 1, "us": 2.0}}, {"result": {"n": 5, "us": 2.0}}]) is None
    assert spread([{"result": {"us": 2.0}}, {"result": {"ms": 3.0}}]) is None


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize(
    ("load", "idle", "total", "cpu_s", "others", "disturbed"),
    [
        (0.1, 400, 1000, 6.0, 0.0, False),  # all that was used is ours
        (0.1, 400, 1000, 1.0, 0.5, True),
        (99.0, 400, 1000, 6.0, 0.0, False),  # the load of what we ran just before
        (99.0, 0, 0, 1.0, None, True),  # a system that tells its load alone
        (0.1, 0, 0, 1.0, None, False),
    ],
)
def test_others_are_told_from_what_a_run_takes_itself(
    monkeypatch, load, idle, total, cpu_s, others, disturbed
):
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.5, 0.5))
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    jiffies = iter([(0, 0, 0), (idle, 0, total)])
    monkeypatch.setattr("overlap.run.noise.jiffies", lambda: next(jiffies))
    noise = during(lambda: ({}, cpu_s))[1]
    assert (noise["others"], is_disturbed(noise, cores=8)) == (others, disturbed)


@pytest.mark.usefixtures("noisy")
def test_a_hypervisor_that_takes_the_cpu_disturbs(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.1, 0.1))
    jiffies = iter([(0, 0, 0), (97, 3, 100)])
    monkeypatch.setattr("overlap.run.noise.jiffies", lambda: next(jiffies))
    noise = during(lambda: ({}, 0.0))[1]
    assert noise["steal"] == 0.03 and is_disturbed(noise, cores=8)
    assert not is_disturbed(noise | {"steal": 0.01}, cores=8)


def test_the_schema_holds_for_other_runs(book):
    text = book.path("a/b", "h200").read_text()
    for old, new, why in (
        ('"others": [', '"others": [1, ', "x: others.0: Input should be a valid dictionary"),
        ('"others": [', '"Others": [', "x: Others: Extra inputs are not permitted"),
        ('  {"digest": "', '  {"digest": "0', "x: others.0.digest: String should match"),
    ):
        with pytest.raises(OverlapError) as error:
            recording.parse(text.replace(old, new, 1), "x")
        assert str(error.value).startswith(why)


def said_of(capsys) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_what_is_beside_a_run_is_the_median_of_the_recorded_ones(book, template, capsys):
    book.snippet("a/b", "def main():\n    return {'us': 160.0}\n")
    run = template["run"]
    days = [{"run": run | {"started": f"2026-01-0{day}T00:00:00+00:00"}} for day in (1, 2, 3)]
    made = [
        recording.read(book.commit("a/b", template, result(us), **day))
        for us, day in zip((60.0, 80.0, 100.0), days, strict=True)
    ]
    whole = recording.merged(recording.merged(made[0], made[1]), made[2])
    recording.write(book.path("a/b"), recording.dump(whole))
    assert whole["result"]["us"] == 100.0 and main(["compare", "a/b"]) == 0
    assert ["a/b", "(cpu", ":", "cpu)", "us", "160", "80", "2.00"] in said_of(capsys)


def test_a_slow_call_before_or_after_a_run_told_nothing_of_it():
    """Of numbers that two runs share: what a marked and an unmarked run differ by, and two unmarked ones."""
    apart: dict[bool, list[float]] = {True: [], False: []}
    for path in ROOT.glob("docs/recordings/*/*/*.json"):
        runs = [run for run in recording.all_runs(recording.read(path)) if "noise" in run["run"]]
        looked = [run for run in runs if "dispatch_us" in run["run"]["noise"]]
        for one_run, other in itertools.combinations(looked, 2):
            marked = [run["run"]["noise"]["disturbed"] for run in (one_run, other)]
            difference = spread([one_run, other])
            if difference is not None and not all(marked):
                apart[any(marked)].append(difference)
    assert min(map(len, apart.values())) > 200
    assert median(apart[True]) < 1.25 * median(apart[False])
