"""The strip of dots of a claim: which comparisons have one, where its dots and bounds lie, what it says."""

from itertools import pairwise

import pytest

from overlap.blocks.strip import WIDTH, strips

#: What two machines gave: the first in three runs.
RUNS = {
    "h100-80gb-hbm3": [{"a": 0.98, "b": 2.0}, {"a": 0.9, "b": 2.0}, {"a": 1.0, "b": 2.0}],
    "h200-x2": [{"a": 1.2, "b": 1.0}],
}


def test_dots_are_medians_of_runs_and_lie_on_the_side_of_the_bound_that_they_are_on():
    (strip,) = strips("a <= 1.05", RUNS)
    assert strip.values == {"h100-80gb-hbm3": 0.98, "h200-x2": 1.2}
    assert strip.words == "a: at most 1.05. 1 × H100: 0.98; 2 × H200: 1.2, not so."
    (bound,) = strip.lines
    assert [text for _, text, _ in strip.limits] == ["≤ 1.05"]
    assert 0 < strip.x(0.98) < bound < strip.x(1.2) < WIDTH
    share = (bound - strip.x(0.98)) / (strip.x(1.2) - strip.x(0.98))
    assert share == pytest.approx((1.05 - 0.98) / (1.2 - 0.98), abs=0.001)


#: What each strip of a claim is called, in words where there are some.
NAMES = {
    "1 <= min(cures) and max(cures) <= 3": ["least cures", "greatest cures"],
    "cures[0] < 2 * cures[-1] and cures[1] < 9": ["first cures ÷ last cures", "cures[1]"],
    "max(c - 1 for c in cures) < 3": ["max((c - 1 for c in cures))"],
}


@pytest.mark.parametrize("expression", NAMES)
def test_each_strip_of_a_claim_is_named(expression):
    drawn = strips(expression, {"h200": [{"cures": [1, 2, 3]}], "h200-x2": [{"cures": [2, 2, 2.5]}]})
    assert [strip.name for strip in drawn] == NAMES[expression]
    assert [strip.is_formula for strip in drawn] == [bool({*"(["} & {*name}) for name in NAMES[expression]]


#: Expressions, and the words of their strips.
WORDS = {
    "0.5 < a < 1.5": ["a: more than 0.5 and less than 1.5. 1 × H100: 0.98; 2 × H200: 1.2."],
    "a >= 2 * b": ["a ÷ b: at least 2. 1 × H100: 0.49, not so; 2 × H200: 1.2, not so."],
    "a < b": ["a ÷ b: less than 1. 1 × H100: 0.49; 2 × H200: 1.2, not so."],
    "a == 1": [],
    "a > 1 or b > 1": [],
    "a - 1 >= -b": [],  # below zero a ratio says nothing
    "a > c": [],
    "a > 0 and b > 0 and a + b > 0 and a * b > 0": [
        "a: more than 0. 1 × H100: 0.98; 2 × H200: 1.2.",
        "b: more than 0. 1 × H100: 2; 2 × H200: 1.",
        "a + b: more than 0. 1 × H100: 2.98; 2 × H200: 2.2.",
    ],
}


@pytest.mark.parametrize("expression", WORDS)
def test_bounds_and_values_in_words(expression):
    assert [strip.words for strip in strips(expression, RUNS)] == WORDS[expression]


def test_a_text_at_an_end_stays_in_the_picture():
    for expression, anchor in (("a >= 0.1", "start"), ("a <= 9", "end"), ("a <= 1.09", "middle")):
        (strip,) = strips(expression, RUNS)
        assert [text.anchor for text in strip.limits] == [anchor]
        assert all(text.span[0] >= 0 and text.span[1] <= WIDTH for text in (*strip.limits, *strip.ends))


#: Expressions, and the texts under their dots and over their bounds.
TEXTS = {
    "us <= 30": (["9 µs", "21 µs"], ["≤ 30 µs"]),
    "us <= 900": (["9–21 µs"], ["≤ 900 µs"]),
    "us >= 3 * us_of_one": (["3", "7"], ["≥ 3"]),
    "count == 4": None,
    "count <= 40": (["4"], ["≤ 40"]),
    "0 < us < 900": (["9–21 µs"], ["> 0 µs", "< 900 µs"]),
    "0.1 < us < 0.2": (["9 µs", "21 µs"], ["> 0.1 µs, < 0.2 µs"]),
}


@pytest.mark.parametrize("expression", TEXTS)
def test_the_outermost_dots_and_the_bounds_have_numbers_with_their_unit_and_room(expression):
    runs = {
        "h100-80gb-hbm3": [{"us": 9, "us_of_one": 3, "count": 4}],
        "h200-x2": [{"us": 21, "us_of_one": 3, "count": 4}],
    }
    drawn = strips(expression, runs)
    assert bool(drawn) == bool(TEXTS[expression])
    for strip in drawn:
        rows = strip.ends, strip.limits
        assert tuple([text.text for text in row] for row in rows) == TEXTS[expression]
        for row in rows:
            assert all(first.span[1] < second.span[0] for first, second in pairwise(row))
