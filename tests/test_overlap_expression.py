"""Expressions: what they may say, that nothing else runs, and what they may cost."""

import time

import pytest

from overlap import OverlapError
from overlap.book.expression import Chapter, Data, Undecided, as_json, check_spec, evaluate, show, sides, wrap

RESULT = {
    "a": [{"b": 1}],
    "c": {"d": 2, "items": 5},
    "trials": [3.0, 1.0, 2.0],
    "name": "x",
    "ok": True,
    "_key": 7,
    "max": 8,
}
SCOPE = dict(Data(RESULT, "s")) | {"data": Data(RESULT, "s"), "other": Chapter("o", lambda name: {"is": name})}

VALUES = {
    "a[0].b + c.d + len([1]) + median(trials)": 6.0,
    "data.c['d']": 2,
    "other.snippet['is']": "o/snippet",
    "[v for v in c.values()]": [2, 5],
    "sum(v for k, v in c.items() if k == 'd')": 2,
    "sorted(c.keys(), reverse=True)": ["items", "d"],
    "c.items": 5,
    "{t: 1 for t in trials if 1 < t <= 2}": {2.0: 1},
    "set(trials) == {1.0, 2.0, 3.0} and not ok": False,
    "1 if ok else 2": 1,
    "list": Undecided,
    "max(trials[1:]) ** 2 % 3 // 1 - -1": 2.0,
    "zip(trials, range(3))": [(3.0, 0), (1.0, 1), (2.0, 2)],
    "'d' in c and 'x' not in c": True,
    "round(7.5) * 'ab'": "ab" * 8,
    "str(data)[:5]": "{'a':",
    "lost": Undecided,
    "c.lost": Undecided,
    "data.lost": Undecided,
    "a[7]": OverlapError,
    "trials.d": OverlapError,
    "name + 1": OverlapError,
}


@pytest.mark.parametrize("expression", VALUES)
def test_values(expression):
    expected = VALUES[expression]
    if isinstance(expected, type):
        with pytest.raises(expected, match=r"^`"):
            evaluate(expression, SCOPE)
    else:
        assert evaluate(expression, SCOPE) == expected
        assert evaluate(expression, SCOPE) == expected, "the same when it is asked again"


REFUSED = """
().__class__
(1).__class__.__base__.__subclasses__()
max.__self__.__import__('os')
max.__self__
median.__globals__
[median][0]
name.format(1)
name.upper()
name.join(trials)
trials.append(1)
trials.sort()
c.get('d')
c.items(1)
data._items
data.of.__class__
_key
_call_max(1)
_loop([1])
__builtins__
__import__('os').system('true')
other._load('x')
lambda: 1
(lambda: 1)()
f'{name}'
f'{().__class__}'
b'x'
1j
...
(x := 1)
[*trials]
max(*trials)
max(**c)
open('x')
trials('x')
[1 for trials[0] in [999]]
[1 for c.d in [999]]
[k(1) for k in [max]]
[k('x') for D in [{}] for D['{0.__class__}'.format] in [1] for k in D]
[1 for L in [[0]] for L[0].gi_frame in [1]]
1e999
-1e999
sorted(trials, key=abs)
name if ok else max
await name
yield name
name is ok
~1
1 @ 1
1 << 9
1 | 2
x = 1
import os
del name
pass
1; 2
a.b.
1 +
(
"""


@pytest.mark.parametrize("expression", REFUSED.strip().splitlines())
def test_whatever_else_is_refused_before_it_runs(expression):
    with pytest.raises(OverlapError, match="is not an expression"):
        evaluate(expression, SCOPE)


def test_recorded_names_replace_nothing_that_guards():
    assert evaluate("c.d + max(trials)", SCOPE | {"_loop": 1, "__builtins__": {"open": open}, "_call_max": min}) == 5


COSTLY = [
    "9**9**9",
    "2**-5000",
    "sum(range(10**10))",
    "range(10**30)",
    "len([1 for a in range(9999) for b in range(9999)])",
    "sum(sum(1 for b in range(99999)) for a in range(99999))",
    "'a' * 10**9",
    "[0] * 10**9",
    "10**9 * [0]",
    "*".join(["(2**4000)"] * 200),
    "'%1000000000d' % 3",
    "+".join(["1"] * 20_000),
    "(" * 500 + "1" + ")" * 500,
    "-" * 900 + "1",
    "[" * 80 + "]" * 80,
    "str(10**4000 * 10**4000)",
    "max(" * 90 + "1" + ")" * 90,
    "(-1) ** 0.5",
    "1e308 * 10",
    "1e308 * 10 - 1e308 * 10",
    "9**1000 * 9**1000 * 9**1000",
    "sum([[0] * 9999] * 9999, [])",
    "sum(1 for l in [[0] * 999999] for i in range(999999) if 1 in l)",
    "[z for a0 in [(0, 0)] " + "".join(f"for a{i + 1} in [(a{i}, a{i})] " for i in range(45)) + "for z in [{a45}]]",
    "[z for a0 in [(0, 0)] " + "".join(f"for a{i + 1} in [(a{i}, a{i})] " for i in range(45)) + "for z in [str(a45)]]",
    "[1 for a0 in ['xx'] " + "".join(f"for a{i + 1} in [a{i} + a{i}] " for i in range(40)) + "]",
    "[1 for a0 in [[0, 0]] " + "".join(f"for a{i + 1} in [sorted([a{i}, a{i}])] " for i in range(40)) + "]",
    "[1 for a0 in [[0, 0]] " + "".join(f"for a{i + 1} in [[a{i}, a{i}][0:2]] " for i in range(40)) + "]",
]


@pytest.mark.parametrize("expression", COSTLY, ids=[text[:30] for text in COSTLY])
def test_what_would_never_end_ends_soon(expression):
    started = time.monotonic()
    with pytest.raises(OverlapError, match=r"^`") as caught:
        evaluate(expression, SCOPE)
    assert time.monotonic() - started < 8 and len(str(caught.value)) < 5_000


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.0, "0"), (-1234.5, "-1,234"), (999.96, "1e+03"), (None, "None"), (True, "True")]
)
def test_show(value, text):
    assert show(value) == text


@pytest.mark.parametrize("spec", ["99999d", "400000000d", ".999f", "{}", "s!r", "x" * 9, "%Y", "c"])
def test_a_format_has_two_digits_at_most(spec):
    with pytest.raises(ValueError, match="is no format"):
        check_spec(spec)
    with pytest.raises(ValueError, match="is no format"):
        show(1, spec)


def test_sides_say_what_is_compared_and_whether_it_is_so():
    assert sides("1 < c.d <= 2 and ok", [SCOPE]) == "1 < c.d = 2 ≤ 2, ok: True"
    assert sides("c.d > 2", [SCOPE]) == "c.d = 2, not > 2"


def test_data_inside_lists_are_wrapped_and_the_rest_is_not():
    trials, rows = [1.0, 2.0], [{"x": 1}, [{"y": 2}]]
    assert wrap(trials, "s") is trials
    wrapped = wrap(rows, "s")
    assert wrapped[0]["x"] == 1 and wrapped[1][0]["y"] == 2 and wrapped[1][0].of == "s[1][0]"
    assert len(Data(RESULT, "s")) == len(RESULT) and repr(Data({"a": 1}, "s")) == "{'a': 1}"


FORMULAS = {
    "1 + x * 2": ["+", 1, ["*", ["name", "x"], 2]],
    "-x ** 2 if x > 1 else abs(x)": [
        "if",
        [">", ["name", "x"], 1],
        ["-", 0, ["**", ["name", "x"], 2]],
        ["abs", ["name", "x"]],
    ],
    "min(x, 3) // 2 % 5": ["%", ["//", ["min", ["name", "x"], 3], 2], 5],
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas_that_a_page_can_compute(formula):
    assert as_json(formula) == FORMULAS[formula]


@pytest.mark.parametrize(
    "formula", ["[x]", "x.y", "'a'", "1 < x < 2", "len(x)", "max(x, default=1)", "x and 1", "not x"]
)
def test_formulas_that_it_cannot(formula):
    with pytest.raises(OverlapError, match="cannot be computed by a page"):
        as_json(formula)
