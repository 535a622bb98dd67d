"""Expressions: what they may say, and that nothing else runs."""

import pytest

from overlap import OverlapError
from overlap.blocks.comparison import sides
from overlap.book.expression import Chapter, Data, Undecided, as_json, evaluate
from overlap.book.statistic import is_format, show

RESULT = {
    "a": [{"b": 1}],
    "c": {"d": 2, "items": 5},
    "trials": [3.0, 1.0, 2.0],
    "name": "x",
    "ok": True,
    "_key": 7,
    "max": 8,
}
OTHER = Chapter("o", lambda name: {"is": name})
SCOPE = dict(Data(RESULT, "s")) | {"data": Data(RESULT, "s"), "other": OTHER}

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
    "name.upper": OverlapError,
    "[t for t in (x for x in trials)]": [3.0, 1.0, 2.0],
    "c.keys()": ["d", "items"],
    "(t for t in trials)": [3.0, 1.0, 2.0],
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
name.format(1)
name.upper()
name.join(trials)
trials.append(1)
trials.sort()
c.get('d')
c.items(1)
data._items
data.of.__class__
data.of()
_key
__builtins__
__import__('os').system('true')
other._load('x')
lambda: 1
(lambda: 1)()
f'{name}'
f'{().__class__}'
(x := 1)
[*trials]
max(*trials)
open('x')
trials('x')
[1 for trials[0] in [999]]
[1 for c.d in [999]]
[k(1) for k in [max]]
[k('x') for D in [{}] for D['{0.__class__}'.format] in [1] for k in D]
[1 for L in [[0]] for L[0].gi_frame in [1]]
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


def test_recorded_names_replace_no_function_and_can_be_read():
    scope = SCOPE | {"max": {"ms": 2}, "__builtins__": {"open": open}}
    assert evaluate("c.d + max(trials) + max.ms", scope) == 7
    assert evaluate("max([[1], [2, 3]], key=len)", SCOPE) == [2, 3]


@pytest.mark.parametrize(
    "expression", ["1e308 * 10", "1e308 * 10 - 1e308 * 10", "(-1) ** 0.5", "other", "len", "1j", "[b'x'][0]"]
)
def test_what_is_no_data_is_an_error(expression):
    with pytest.raises(OverlapError, match=r"^`.*(finite number|gives no data)"):
        evaluate(expression, SCOPE)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0, "0"), (-1234.5, "-1,234"), (999.96, "1,000"), (None, "None"), (True, "True")],
)
def test_show(value, text):
    assert show(value) == text


@pytest.mark.parametrize("spec", ["99999d", "400000000d", ".999f", "{}", "s!r", "x" * 9, "%Y", "c"])
def test_a_format_has_two_digits_at_most(spec):
    assert not is_format(spec)


def test_sides_say_what_is_compared_and_whether_it_is_so():
    assert sides("1 < c.d <= 2 and ok", [SCOPE]) == "1 < c d = 2 ≤ 2, ok: True"
    assert sides("c.d > 2", [SCOPE]) == "c d = 2, not > 2"


FORMULAS = {
    "1 + x * 2": ["+", 1, ["*", "x", 2]],
    "-x ** 2 if x > 1 else abs(x)": [
        "if",
        [">", "x", 1],
        ["-", 0, ["**", "x", 2]],
        ["abs", "x"],
    ],
    "min(x, 3) // 2 % 5": ["%", ["//", ["min", "x", 3], 2], 5],
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas_that_a_page_can_compute(formula):
    assert as_json(formula) == FORMULAS[formula]


@pytest.mark.parametrize(
    "formula",
    [
        "[x]",
        "x.y",
        "'a'",
        "1 < x < 2",
        "len(x)",
        "max(x, default=1)",
        "max(x)",
        "round(x, 1)",
        "x and 1",
        "not x",
    ],
)
def test_formulas_that_it_cannot(formula):
    with pytest.raises(OverlapError, match="cannot be computed by a page"):
        as_json(formula)
