"""A thin claim is named."""

import ast

import pytest

from overlap.blocks.comparison import compared, is_close, named, sides, unit
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


#: Expressions, how they read, and their units.
READ = {
    "ms.item": ("item", "ms"),
    "large.us.unwaited - small.us.unwaited": ("large unwaited − small unwaited", "µs"),
    "2 * queue.blocked_us": ("2 × queue blocked", "µs"),
    "max(a.first_s, b.first_s) / 2": ("max(a first, b first) ÷ 2", "s"),
    "(ms.a + ms.b) / ms.a": ("(a + b) ÷ a", ""),
    "ms.a - (ms.b - ms.c)": ("a − (b − c)", "ms"),
    "ms.a * gpus": ("a × GPUs", ""),
    "ms.one_gpu - ms.ddp": ("one GPU − DDP", "ms"),
    "1e9 * memory_gb": ("1,000,000,000 × memory", ""),
    'gb_s["shared memory"][-1]': ("shared memory[-1]", "GB/s"),
    "us": ("time", "µs"),
    "us[3:]": ("time[3:]", "µs"),
    "off_large": ("difference, large", ""),
    "ways.decode_tokens_s": ("decode tokens", "tokens/s"),
    "ways.whole.peak.compiled / ways.whole.peak.eager": ("whole peak: compiled ÷ eager", ""),
    "middle.off.a / middle.on.a": ("middle a: off ÷ on", ""),
    "ms.large_alone / ms.large": ("large alone ÷ large", ""),
    "images_per_s.workers_4": ("images workers 4", "images/s"),
    "ms.a + mib.b": ("a + b", ""),
    "len(ms.a)": ("len(a)", ""),
    "flop_per_byte": ("flop per byte", ""),
    "[row.ms for row in rows]": ("[row.ms for row in rows]", ""),
}


@pytest.mark.parametrize("expression", READ)
def test_an_expression_reads_as_words_with_the_unit_that_its_keys_tell(expression):
    node = ast.parse(expression, mode="eval").body
    assert (named(node), unit(node)) == READ[expression]


#: Comparisons and what a reader is told of them.
TOLD = {
    "ms.all >= 2.5 * ms.item": "all = 92 ms ≥ 64 ms (2.5 × item, 25.6 ms)",
    "2.5 * ms.item <= ms.all": "64 ms (2.5 × item, 25.6 ms) ≤ 92 ms (all)",
    "60 <= ms.all <= 4 * ms.item": "60 ms ≤ all = 92 ms ≤ 102 ms (4 × item, 25.6 ms)",
    "queue.blocked_us >= 6000": "queue blocked = 7,000 µs ≥ 6,000 µs",
    "ms.all >= 100": "all = 92 ms, not ≥ 100 ms",
    "gain <= 0.5": "gain = 0.4 ≤ 0.5",
    "flags == [1, 2]": "flags = [1, 2]",
    "flags == [1]": "flags = [1, 2], not == [1]",
    "flags[2:] == []": "none",
    "sizes.n8192 > 1": "2 > 1",  # a key that a program alone reads
    "all(flag > 0 for flag in flags) and not queue.blocked_us": "true, queue blocked: 7,000",
    "gain > 1 if flags else gain < 1": "gain = 0.4, not > 1",
    f"max({', '.join(['ms.item'] * 12)}) <= 90": "25.6 ms ≤ 90 ms",  # too long for words
}


@pytest.mark.parametrize("expression", TOLD)
def test_a_comparison_is_told_with_words_and_units(expression):
    scope = {"ms": {"all": 92, "item": 25.6}, "queue": {"blocked_us": 7000}, "gain": 0.4, "flags": [1, 2]}
    scope["sizes"] = {"n8192": 2}
    assert sides(expression, [scope]) == TOLD[expression]
