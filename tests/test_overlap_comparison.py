"""A thin claim is named."""

import pytest

from overlap.blocks.comparison import compared, is_close, sides
from overlap.book.limits import most

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


def test_most_runs_are_more_than_half_of_them():
    assert most([3, 0, "x"]) and not most([True, False]) and not most([])
    votes = {runs: [most([1] * true + [0] * (runs - true)) for true in range(runs + 1)] for runs in (4, 5)}
    assert votes == {4: [False] * 3 + [True] * 2, 5: [False] * 3 + [True] * 3}
    assert sides("a > 1", [{"a": 0}, {"a": 2}]) == "a = 0, not > 1"
