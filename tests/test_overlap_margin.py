"""Margins: which numbers are measurements, how far they spread, and that a thin claim is named."""

import pytest

from overlap.book import margin
from overlap.book.comparison import compared, distance, is_close


def measured(result: dict) -> dict[str, list[float]]:
    return {".".join(map(str, path)): trials for path, trials in margin.measurements(result)}


def test_spread_is_the_interquartile_range_over_the_median():
    assert margin.spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert margin.spread([4.0] * 5) == 0 and margin.spread([-1.0, 0.0, 1.0]) == 0


def test_trials_stand_beside_a_number_or_beside_what_holds_it():
    trials = [1.0, 2.0, 3.0]
    assert measured({"ms": 2.0, "ms_trials": trials}) == {"ms": trials}
    inner = {"ms": {"copy": 2.0, "mm": 9.0}, "ms_trials": {"copy": trials}}
    assert set(measured(inner)) == {"ms.copy"}
    rows = {"us": [7.0, 2.0], "us_trials": [[7.0, 7.0, 7.0], trials]}
    assert measured(rows)["us.1"] == trials and measured(rows)["us.0"] == [7.0] * 3


@pytest.mark.parametrize("trials", [[1.0, 2.0], "123", [1, 2, None], [True, False, True], {"a": 1}, None])
def test_what_is_no_list_of_three_numbers_is_no_trials(trials):
    assert measured({"ms": 2.0, "ms_trials": trials, "yes": True, "name": "x"}) == {}


#: Expressions over several runs, what the runs gave, and which comparisons are close.
SEVERAL = {
    "a >= 1": ([{"a": 1.5}, {"a": 1.6}, {"a": 1.7}], []),
    "a >= 1.2": ([{"a": 1.3}, {"a": 1.6}, {"a": 1.7}], ["a >= 1.2"]),
    "a > b": ([{"a": 10, "b": 5}, {"a": 100, "b": 50}, {"a": 50, "b": 25}], []),
    "a <= 2 * b": ([{"a": 9, "b": 5}, {"a": 50, "b": 50}, {"a": 50, "b": 25}], ["a <= 2 * b"]),
    "a == b": ([{"a": 1, "b": 1}, {"a": 2, "b": 2}], []),
    "1 < a < 3": ([{"a": 1.1}, {"a": 2.9}, {"a": 2.0}], ["1 < a", "a < 3"]),
    "a > -1 and b": ([{"a": 0.0, "b": 1}, {"a": 0.1, "b": 1}], []),
    "a > -1": ([{"a": 0.0}, {"a": 5.0}], ["a > -1"]),
    "a > 1 or b": ([{"a": 0.0, "b": 1}, {"a": 0.1, "b": 1}], []),
    "a <= 0.5": ([{"a": 0.0001}, {"a": 0.02}, {"a": 0.001}], []),  # an error near zero
    "a > c": ([{"a": 1, "c": 0.5}, {"a": 2}], []),
}


@pytest.mark.parametrize("text", SEVERAL)
def test_what_is_compared_must_hold_by_three_spreads_over_the_runs(text):
    scopes, expected = SEVERAL[text]
    assert [" ".join(item[:3]) for item in compared(text, scopes) if is_close(item)] == expected


def test_a_measured_limit_is_beaten_by_more_than_its_spread():
    assert margin.is_beaten([1.1, 1.11, 1.12]) and not margin.is_beaten([0.99, 1.01, 1.02])


#: An expression over `x`, which is 2 and 4 in two runs, and how far it is from false.
DISTANCES = {
    "x >= 2": "50%",
    "x <= 4": "25%",
    "x > 1 and x < 3.3": "9%",
    "x / 2 <= 30": "95%",
    "x == 3": "",
    "x > 0": "",
    "x": "",
}


@pytest.mark.parametrize("text", DISTANCES)
def test_the_nearest_bound_is_the_margin(text):
    assert distance(compared(text, [{"x": 2.0}, {"x": 4.0}])) == DISTANCES[text]
