"""Margins: which numbers are measurements, how far they are moved, and that a thin claim is named."""

import copy

import pytest

from overlap.book import margin


def measured(result: dict) -> dict[str, list[float]]:
    return {".".join(map(str, path)): trials for path, trials in margin.measurements(result)}


def test_spread_is_the_interquartile_range_over_the_median():
    assert margin.spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert margin.spread([4.0] * 5) == 0 and margin.spread([-1.0, 0.0, 1.0]) == 0


def test_trials_stand_beside_a_number_or_beside_what_holds_it():
    trials = [1.0, 2.0, 3.0]
    assert measured({"ms": 2.0, "ms_trials": trials}) == {"ms": trials, "ms_trials": trials}
    inner = {"ms": {"copy": 2.0, "mm": 9.0}, "ms_trials": {"copy": trials}}
    assert set(measured(inner)) == {"ms.copy", "ms_trials.copy"}
    rows = {"us": [7.0, 2.0], "us_trials": [[7.0, 7.0, 7.0], trials]}
    assert measured(rows)["us.1"] == trials and measured(rows)["us.0"] == [7.0] * 3


@pytest.mark.parametrize("trials", [[1.0, 2.0], "123", [1, 2, None], [True, False, True], {"a": 1}, None])
def test_what_is_no_list_of_three_numbers_is_no_trials(trials):
    assert measured({"ms": 2.0, "ms_trials": trials, "yes": True, "name": "x"}) == {}


def test_each_measurement_is_moved_by_three_spreads_alone_and_the_recording_stays():
    result = {"deep": {"ms": 10.0, "ms_trials": [9.0, 10.0, 11.0]}, "other": 1.0, "other_trials": [1.0] * 3}
    before = copy.deepcopy(result)
    seen = [
        (path, spread, moved["deep"]["ms"], moved["other"]) for path, spread, moved in margin.moved([result], {"ms"})
    ]
    assert seen == [(("deep", "ms"), 0.1, pytest.approx(low_high), 1.0) for low_high in (7.0, 13.0)]
    assert result == before


def test_a_list_of_trials_that_a_claim_reads_is_moved_as_a_whole():
    result = {"ms_trials": [9.0, 10.0, 11.0]}
    assert [moved["ms_trials"] for _, _, moved in margin.moved([result], {"ms_trials"})] == [
        pytest.approx([6.3, 7.0, 7.7]),
        pytest.approx([11.7, 13.0, 14.3]),
    ]


def test_no_time_becomes_negative():
    result = {"ms": 10.0, "ms_trials": [1.0, 10.0, 20.0]}
    assert [moved["ms"] > 0 for _, _, moved in margin.moved([result], {"ms"})] == [True, True]


def test_the_spread_over_runs_takes_the_place_of_that_of_trials():
    runs = [
        {"ms": ms, "ms_trials": [5.0, 6.0, 7.0], "same": 3, "rows": [{"us": us}]}
        for ms, us in ((9, 2), (10, 2), (12, 2))
    ]
    assert [(path, spread, moved["ms"]) for path, spread, moved in margin.moved(runs, {"ms", "same", "rows"})] == [
        (("ms",), 0.15, pytest.approx(5.5)),
        (("ms",), 0.15, pytest.approx(14.5)),
    ]
    assert [
        moved["rows"][0]["us"]
        for _, _, moved in margin.moved([{"rows": [{"us": 4}]}, {"rows": [{"us": 6}]}], {"us", "rows"})
    ]
