"""Comparisons of a claim: how their sides read, and whether other runs could turn them."""

import ast
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import median, quantiles
from typing import NamedTuple

from overlap.book.expression import COMPARISONS, evaluate, over, over_some, parse
from overlap.book.limits import SPREADS, most
from overlap.book.statistic import is_number, middle, show

#: What the signs of order mean.
ORDERS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_SIGNS = COMPARISONS | {ast.GtE: "≥", ast.LtE: "≤", ast.NotEq: "≠", ast.In: "in", ast.NotIn: "not in"}
#: A side that has more characters is not written out before its value.
_LONGEST_SIDE = 60
#: Units as keys are written, and as people write them.
_UNITS = {"s": "s", "seconds": "s", "ms": "ms", "us": "µs", "ns": "ns", "w": "W", "mhz": "MHz"}
_UNITS |= {"percent": "%"}
_UNITS |= {"bytes": "bytes", "kib": "KiB", "mib": "MiB", "gib": "GiB", "mb": "MB", "gb": "GB"}
_UNITS |= {"gb_s": "GB/s", "gflop_s": "GFLOP/s", "tflop_s": "TFLOP/s"}
_RATE = re.compile(r"(?:.*_)?([a-z]+)(?:_per_s|(?<=tokens)_s|(?<=requests)_s)")
#: Words of keys that people write in another way.
_WORDS = {
    "gpu": "GPU",
    "gpus": "GPUs",
    "cpu": "CPU",
    "sms": "SMs",
    "hbm": "HBM",
    "l2": "L2",
    "nvlink": "NVLink",
}
_WORDS |= {"nccl": "NCCL", "ddp": "DDP", "dp": "DataParallel", "fsdp": "FSDP", "mlp": "MLP", "cnn": "CNN"}
_WORDS |= {"resnet": "ResNet", "pcie": "PCIe", "python": "Python", "adam": "Adam", "nvml": "NVML"}
_WORDS |= {"smi": "nvidia-smi", "dataloader": "DataLoader", "pytorchs": "PyTorch’s"}
#: What a key is called that is a unit alone.
_QUANTITIES = dict.fromkeys(["s", "ms", "µs", "ns"], "time") | {"W": "power", "MHz": "clock", "%": "share"}
_QUANTITIES |= dict.fromkeys(["bytes", "KiB", "MiB", "GiB", "MB", "GB"], "size")
_QUANTITIES |= dict.fromkeys(["GB/s", "GFLOP/s", "TFLOP/s"], "rate")
#: Keys that group what a snippet gives, and say nothing of it.
_GROUPS = {"of", "results", "row", "rows", "times", "trials", "ways"}
#: A key that a program alone reads, as `n8192`: letters before a number, but for the types of numbers.
_CODE = re.compile(r"\b(?!(?:bf|fp|tf|f|int)\d+\b)[a-z]+\d\w*")
#: Factors that turn a unit into another one, which no key tells.
_CONVERTS = {1e3, 1e6, 1e9}
#: What calls give in the unit of what they are given.
_KEEPS_UNIT = {"abs", "max", "min", "median", "round", "sorted", "sum"}
_BINARY = {ast.Add: ("+", 1), ast.Sub: ("−", 1), ast.Mult: ("×", 2), ast.Div: ("÷", 2)}


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


def side(expression: str, scopes: Sequence[Mapping]) -> str:
    """What an expression gives, with its words and its unit: `loader = 63.9 ms`."""
    return _side(_tree(expression), scopes, "")


def other_side(expression: str, scopes: Sequence[Mapping]) -> str:
    """The same of what something is compared with: `63.9 ms (loader)`."""
    return _other_side(_tree(expression), scopes, "")


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
    match node:
        case ast.IfExp(test=test, body=body, orelse=orelse):
            is_so = most(evaluate(ast.unparse(test), scope) for scope in scopes)
            return sides(ast.unparse(body if is_so else orelse), scopes)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Name() | ast.Attribute() as key):
            return f"{named(key)}: {_value(key, scopes)}"
        case ast.Name() | ast.Attribute():
            return f"{named(node)}: {_value(node, scopes)}"
        case ast.Compare():
            return _pairwise(node, scopes)
    return "true" if most(evaluate(ast.unparse(node), scope) for scope in scopes) else "not true"


def _pairwise(node: ast.Compare, scopes: Sequence[Mapping]) -> str:
    units = [unit(side) for side in (node.left, *node.comparators)]
    unit_of_all = next(filter(None, units), "")  # a number alone has that of what it is compared with
    text = _side(node.left, scopes, units[0] or unit_of_all)
    for (left, sign, right), own in zip(_pairs(node), units[1:], strict=True):
        source = ast.unparse(ast.Compare(left, [sign], [right]))
        is_true = most(evaluate(source, scope) for scope in scopes)
        if is_true and isinstance(sign, ast.Eq) and _is_literal(right):
            continue  # it would be said twice
        is_first = _is_literal(node.left) and left is node.left
        tell = _side if is_first else _other_side
        text += " " if is_true else ", not "
        text += f"{_SIGNS[type(sign)]} {tell(right, scopes, own or unit_of_all)}"
    return text


def _side(node: ast.AST, scopes: Sequence[Mapping], unit_of_it: str) -> str:
    """`loader = 63.9 ms`; of a number, of a formula and of what is long, the value."""
    if factored(node)[0] is not None:
        return _other_side(node, scopes, unit_of_it)
    name, value = _told(node, scopes, unit_of_it)
    return f"{name} = {value}" if name else value


def _other_side(node: ast.AST, scopes: Sequence[Mapping], unit_of_it: str) -> str:
    """What it is compared with, the value first: `64 ms (2.5 × item, 25.6 ms)`."""
    name, value = _told(node, scopes, unit_of_it)
    return f"{value} ({name})" if name else value


def _told(node: ast.AST, scopes: Sequence[Mapping], unit_of_it: str) -> tuple[str, str]:
    """Its words, none of a number, of a formula and of what is long, and its value."""
    if _is_literal(node):
        return "", _value(node, scopes, unit_of_it)
    factor, quantity = factored(node)
    name = named(quantity)
    name = "" if is_formula(name) or len(name) > _LONGEST_SIDE else name
    if factor is not None:
        of_one = _value(quantity, scopes, unit(quantity))
        name = f"{show(factor)} × {name}, {of_one}" if name else f"{show(factor)} × {of_one}"
    return name, _value(node, scopes, unit(node))


def is_formula(name: str) -> bool:
    """Whether a name has parts that no words stand for: a reader of values does not ask for it."""
    return "(" in name or "[" in name or bool(_CODE.search(name))


def _is_literal(node: ast.AST) -> bool:
    return not any(isinstance(part, ast.Name) for part in ast.walk(node))


def _value(node: ast.AST, scopes: Sequence[Mapping], unit_of_it: str = "") -> str:
    source = ast.unparse(node)
    value = middle(over_some(source, scopes))
    if value in ("", []):
        return "none"
    return f"{show(value)} {unit_of_it}" if unit_of_it and is_number(value) else show(value)


def factored(node: ast.AST) -> tuple[float | None, ast.AST]:
    """`3 * a` as 3 and `a`; anything else has no factor."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for number, rest in ((node.left, node.right), (node.right, node.left)):
            if isinstance(number, ast.Constant) and isinstance(number.value, int | float):
                return number.value, rest
    return None, node


def unit(node: ast.AST) -> str:
    """The unit of an expression as its keys tell it, `µs` of `us.eager - us.graph`; else empty."""
    match node:
        case ast.Name(id=key) | ast.Attribute(attr=key):
            whole = unit(node.value) if isinstance(node, ast.Attribute) else ""
            return _of_key(key)[1] or whole
        case ast.Subscript():
            return unit(node.value)
        case ast.Call(func=ast.Name(id=name)) if name in _KEEPS_UNIT:
            return _common(node.args)
        case ast.List() | ast.Tuple():
            return _common(node.elts)
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub()):
            return _common([left, right])
        case ast.BinOp(left=left, right=ast.Constant(value=number), op=ast.Mult() | ast.Div()):
            return "" if number in _CONVERTS else unit(left)
        case ast.BinOp(left=ast.Constant(value=number), right=right, op=ast.Mult()):
            return "" if number in _CONVERTS else unit(right)
    return ""


def _common(nodes: Sequence[ast.AST]) -> str:
    """The unit that all of them have, but for plain numbers."""
    units = {unit(node) for node in nodes if not isinstance(node, ast.Constant)}
    return units.pop() if len(units) == 1 else ""


def _of_key(key: str) -> tuple[str, str]:
    """A key as words, and its unit: `blocked_us` is blocked, in µs; `one_gpu` is one GPU."""
    if rate := _RATE.fullmatch(key):
        return _in_words(key.removesuffix("_s").removesuffix("_per")), f"{rate[1]}/s"
    for suffix in sorted(_UNITS, key=len, reverse=True):
        if key == suffix or key.endswith(f"_{suffix}"):
            return _in_words(key.removesuffix(suffix).strip("_")), _UNITS[suffix]
    return _in_words(key), ""


def _in_words(key: str) -> str:
    return " ".join(_WORDS.get(word, word) for word in key.split("_"))


def named(node: ast.AST) -> str:
    """An expression as it reads: `ms.item / ms.all_at_once` as `item ÷ all at once`.

    What both sides of a ratio have in common stands before them: `peak: compiled ÷ eager`.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        one, other = _parts(node.left), _parts(node.right)
        common = []
        while min(len(one), len(other)) > 1 and one[0] == other[0]:
            common.append(one.pop(0))
            other.pop(0)
        ends = []
        while min(len(one), len(other)) > 1 and one[-1] == other[-1]:
            ends.append(one.pop())
            other.pop()
        if common or ends:
            return f"{' '.join([*common, *reversed(ends)])}: {' '.join(one)} ÷ {' '.join(other)}"
    return _named(node)[0]


def _named(node: ast.AST) -> tuple[str, int]:
    """With it how closely it binds; the code where it is no arithmetic of keys."""
    match node:
        case ast.Name() | ast.Attribute():
            return _path(node) or _QUANTITIES.get(unit(node)) or ast.unparse(node), 3
        case ast.Subscript(value=value, slice=ast.Constant(value=str())):
            return _path(node) or ast.unparse(node), 3
        case ast.Subscript(value=value, slice=place):
            return f"{named(value)}[{ast.unparse(place)}]", 3
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return f"{name}({', '.join(map(named, node.args))})", 3
        case ast.BinOp(left=left, right=right, op=op) if type(op) in _BINARY:
            sign, binds = _BINARY[type(op)]
            (first, closely), (second, closely_too) = _named(left), _named(right)
            first = f"({first})" if closely < binds else first
            second = f"({second})" if closely_too <= binds else second
            return f"{first} {sign} {second}", binds
        case ast.Constant(value=int() | float() as number):
            return show(number), 3
        case ast.List() | ast.Tuple():
            return ast.unparse(node), 3
    return ast.unparse(node), 0


def _path(node: ast.AST) -> str:
    """The words of keys that lead to a value, without their units; empty if nothing else is there."""
    return " ".join(_parts(node)) if _is_path(node) else named(node)


def _is_path(node: ast.AST) -> bool:
    match node:
        case ast.Name() | ast.Attribute() | ast.Subscript(slice=ast.Constant(value=str())):
            return True
    return False


def _parts(node: ast.AST) -> list[str]:
    """The words of each key; that of a group alone if nothing else is there. `off_large` is a difference."""
    match node:
        case ast.Name(id=key):
            if key == "off" or key.startswith("off_"):
                return [", ".join(filter(None, ["difference", _of_key(key[4:])[0]]))]
            return list(filter(None, [_of_key(key)[0]]))
        case ast.Attribute(value=value, attr=key):
            words = _of_key(key)[0]
        case ast.Subscript(value=value, slice=ast.Constant(value=str() as key)):
            words = key.rstrip(",")
        case _:
            return []
    is_group = words and isinstance(value, ast.Name) and value.id in _GROUPS
    before = [] if is_group else _parts(value) if _is_path(value) else [named(value)]
    return [*before, *filter(None, [words])]
