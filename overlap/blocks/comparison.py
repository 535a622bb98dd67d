"""Comparisons of a claim: how their sides read, and whether other runs could turn them."""

import ast
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import median, quantiles
from typing import NamedTuple

from overlap.book.expression import COMPARISONS, evaluate, over, parse
from overlap.book.limits import SPREADS, most
from overlap.book.statistic import is_number, middle, show

#: What the signs of order mean.
ORDERS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_SIGNS = COMPARISONS | {ast.GtE: "≥", ast.LtE: "≤", ast.NotEq: "≠", ast.In: "in", ast.NotIn: "not in"}
#: A side that has more characters is not written out before its value.
_LONGEST_SIDE = 40


class Comparison(NamedTuple):
    """Two sides as they are written, the sign of order between them, and the numbers of each run."""

    source: str
    sign: str
    against: str
    left: list[float]
    right: list[float]


def compared(expression: str, scopes: Sequence[Mapping]) -> Iterator[Comparison]:
    """The comparisons by order that must all hold, with both sides in each scope that has them."""
    node = _tree(expression)
    parts = node.values if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else [node]
    for part in parts:
        for left, sign, right in _pairs(part):
            source = ast.unparse(left)
            against = ast.unparse(right)
            pairs = [pair for pair in over(f"({source}), ({against})", scopes) if all(map(is_number, pair))]
            if pairs and COMPARISONS.get(type(sign)) in ORDERS:
                lefts, rights = map(list, zip(*pairs, strict=True))
                yield Comparison(source, COMPARISONS[type(sign)], against, lefts, rights)


def sides(expression: str, scopes: Sequence[Mapping]) -> str:
    """Each comparison of a condition with the values of its sides: the median over the scopes."""
    node = _tree(expression)
    parts = node.values if isinstance(node, ast.BoolOp) else [node]
    return ", ".join(_sides(part, scopes) for part in parts)


@lru_cache(maxsize=1024)  # for each machine
def _tree(expression: str) -> ast.AST:
    return parse(expression).body


def is_close(comparison: Comparison) -> bool:
    """Whether the comparison would turn if its sides moved by three times their spread over the runs.

    The difference of the two sides is taken run by run, and their ratio, so that what moves both sides in the
    same way does not count. It is close where both are. (An error near zero may double from run to run and
    still be far below its bound.) A single run has no spread, and is never close.
    """
    pairs = list(zip(comparison.left, comparison.right, strict=True))
    if len(pairs) == 1:
        return False
    scale = abs(median(comparison.right)) or 1
    by_difference = _has_room(comparison.sign, [(left - right) / scale for left, right in pairs])
    by_ratio = False
    if all(left > 0 and right > 0 for left, right in pairs):
        by_ratio = _has_room(comparison.sign, [math.log(left / right) for left, right in pairs])
    return not (by_difference or by_ratio)


def _has_room(sign: str, distances: list[float]) -> bool:
    """Whether the median, moved against the comparison by three spreads, is still on its side of zero."""
    lower, centre, upper = quantiles(distances, n=4, method="inclusive")
    room = SPREADS * (upper - lower)
    worst = centre - room if sign in (">", ">=") else centre + room
    return ORDERS[sign](worst, 0)


def _pairs(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST, ast.AST]]:
    """Left side, sign and right side of each link of a comparison; `1 < x < 3` has two."""
    if isinstance(node, ast.Compare):
        yield from zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)


def _sides(node: ast.AST, scopes: Sequence[Mapping]) -> str:
    if not isinstance(node, ast.Compare):
        return f"{ast.unparse(node)}: {_value(node, scopes)}"
    text = _side(node.left, scopes)
    for left, sign, right in _pairs(node):
        source = ast.unparse(ast.Compare(left, [sign], [right]))
        is_true = most(evaluate(source, scope) for scope in scopes)
        text += " " if is_true else ", not "
        text += f"{_SIGNS[type(sign)]} {_side(right, scopes)}"
    return text


def _side(node: ast.AST, scopes: Sequence[Mapping]) -> str:
    source = ast.unparse(node)
    value = _value(node, scopes)
    if isinstance(node, (ast.Constant, ast.UnaryOp)) or len(source) > _LONGEST_SIDE:
        return value
    return f"{source} = {value}"


def _value(node: ast.AST, scopes: Sequence[Mapping]) -> str:
    source = ast.unparse(node)
    return show(middle([evaluate(source, scope) for scope in scopes]))
