"""Expressions in pages: what they may say, and what they see.

A page may come from a stranger, and a check or a build runs its expressions. So the syntax tree
decides before anything runs: arithmetic, comparisons, comprehensions, the functions below, and keys of
recorded data. An attribute is read as a key, so that no attribute of any object is ever looked up, except
the three views of a dict.
"""

import ast
import contextlib
import math
import warnings
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, Sequence, ValuesView
from functools import lru_cache
from statistics import median
from types import CodeType, GeneratorType

from overlap import OverlapError

#: What an expression may call; nothing else of Python is within its reach.
_CALLABLE = (abs, all, any, len, max, median, min, range, round, set, sorted, str, sum, zip)
FUNCTIONS = {function.__name__: function for function in _CALLABLE}
#: The same by the names that calls have once compiled; no key of data begins so.
_CALLED = {f"_{name}": function for name, function in FUNCTIONS.items()}
VIEWS = ("items", "keys", "values")
ARITHMETIC = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
COMPARISONS = {ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!="}
_SYNTAX = """
    Expression Constant Name Load Store Attribute Subscript Slice Call keyword IfExp comprehension
    BoolOp And Or UnaryOp Not USub UAdd BinOp Compare In NotIn
    List Tuple Set Dict ListComp SetComp DictComp GeneratorExp
"""
_ALLOWED = {*(getattr(ast, name) for name in _SYNTAX.split()), *ARITHMETIC, *COMPARISONS}
#: What stands in a sentence, and what becomes a list there.
_DATA = (int, float, str, list, tuple, set, dict, type(None))
#: What a list is looked through for: recorded data are plain JSON.
_NESTED = {dict, list}
_LISTED = (range, zip, GeneratorType, KeysView, ValuesView, ItemsView)


class Undecided(OverlapError):
    """An expression names something this machine has no data for."""


class Data(dict):
    """A recorded dict; a key that it lacks leaves the expression undecided. `of` says what it is part of."""

    def __init__(self, items: Mapping, of: str):
        super().__init__((key, wrap(value, f"{of}.{key}")) for key, value in items.items())
        self.of = of

    def __missing__(self, key):
        there = ", ".join(map(str, self)) or "nothing"
        raise Undecided(f"{self.of} has no {key!r}; it has {there}")


class Chapter:
    """Other snippets' results on the same machine, by name."""

    def __init__(self, chapter: str, load: Callable[[str], dict]):
        self._chapter = chapter
        self._load = load
        self._results: dict[str, Data] = {}

    def __getitem__(self, name: str) -> Data:
        if name not in self._results:
            of = f"{self._chapter}/{name}"
            self._results[name] = Data(self._load(of), of)
        return self._results[name]


def wrap(value, of: str):
    """Recorded data as an expression sees them."""
    if isinstance(value, dict):
        return Data(value, of)
    if isinstance(value, list) and not _NESTED.isdisjoint(map(type, value)):
        return [wrap(item, f"{of}[{i}]") for i, item in enumerate(value)]
    return value


def parse(expression: str) -> ast.Expression:
    """Syntax tree of an expression; what is none, or says more than expressions may, is an error."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = getattr(error, "msg", type(error).__name__)
        raise OverlapError(f"`{expression[:200]}` is not an expression ({why})") from None
    for node in ast.walk(tree):
        if why := _refusal(node):
            reason = f"is not an expression of this book: {why}; see docs/contributing.md, A page"
            raise OverlapError(f"`{expression[:200]}` {reason}")
    return tree


def _refusal(node: ast.AST) -> str:
    """Why an expression may not hold this node; empty where it may."""
    if type(node) not in _ALLOWED:
        return f"{type(node).__name__} is not allowed"
    name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
    if isinstance(name, str) and name.startswith("_"):
        return f"no name begins with _, as {name!r} does"
    match node:
        case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
            return "a loop gives its items to plain names"
        case ast.Call(func=ast.Name(id=function)) if function in FUNCTIONS:
            return ""
        case ast.Call(func=ast.Attribute(attr=view), args=[], keywords=[]) if view in VIEWS:
            return ""
        case ast.Call():
            there = ", ".join(sorted(FUNCTIONS))
            return f"`{ast.unparse(node.func)}` is none of the functions there are: {there}"
    return ""


class _KeysForAttributes(ast.NodeTransformer):
    """`data.key` becomes `data['key']`, `sum(…)` becomes `_sum(…)`; `data.items()` and other views stay."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        key = ast.copy_location(ast.Constant(node.attr), node)
        return ast.copy_location(ast.Subscript(self.visit(node.value), key, ast.Load()), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
            return node
        node.func.id = f"_{node.func.id}"  # data may have a key `sum`, too
        return self.generic_visit(node)


@lru_cache(maxsize=8192)
def _compiled(expression: str) -> CodeType:
    tree = _KeysForAttributes().visit(parse(expression))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # as for `'text'.key`, which fails when evaluated
        return compile(tree, "<expression>", "eval")


def evaluate(expression: str, scope: Mapping):
    """Value of an expression; errors name it and what it could have used."""
    try:
        value = eval(_compiled(expression), {**FUNCTIONS, **scope, **_CALLED, "__builtins__": {}})
        if isinstance(value, _LISTED):
            value = list(value)
    except Undecided as error:
        raise Undecided(f"`{expression}`: {error}") from None
    except OverlapError:
        raise
    except NameError as error:
        there = ", ".join(sorted(name for name in scope if not name.startswith("_")))
        raise Undecided(f"`{expression}`: {error}; there are {there}") from None
    except Exception as error:
        raise OverlapError(f"`{expression[:200]}`: {type(error).__name__}: {error}") from None
    if not isinstance(value, _DATA):
        raise OverlapError(f"`{expression}`: gives no data; name a key of it")
    if isinstance(value, float) and not math.isfinite(value):
        raise OverlapError(f"`{expression}`: {value} is no finite number")
    return value


def over(expression: str, scopes: Iterable[Mapping]) -> list:
    """What an expression gives in those scopes that have data for it."""
    values = []
    for scope in scopes:
        with contextlib.suppress(Undecided):
            values.append(evaluate(expression, scope))
    return values


def over_some(expression: str, scopes: Sequence[Mapping]) -> list:
    """What it gives in those scopes; where none has data for it, an error that says why."""
    return over(expression, scopes) or [evaluate(expression, scopes[0])]


def as_json(expression: str) -> list | str | float:
    """A formula over numbers as nested lists for a script: `["+", 1, "x"]`, where text is a name.

    Numbers, names, arithmetic, one comparison, `a if b else c`, abs and round of one number, max and min of
    several; nothing else.
    """
    signs = ARITHMETIC | COMPARISONS

    def convert(node: ast.AST):
        match node:
            case ast.Constant(int() | float() as number):
                return number
            case ast.Name(name):
                return name
            case ast.UnaryOp(ast.USub(), inner):
                return ["-", 0, convert(inner)]
            case ast.BinOp(left, operator, right):
                return [signs[type(operator)], convert(left), convert(right)]
            case ast.Compare(left, [operator], [right]) if type(operator) in signs:
                return [signs[type(operator)], convert(left), convert(right)]
            case ast.IfExp(test, body, orelse):
                return ["if", convert(test), convert(body), convert(orelse)]
            case ast.Call(ast.Name("abs" | "round" as name), [inner], []):
                return [name, convert(inner)]
            case ast.Call(ast.Name("max" | "min" as name), [_, _, *_] as arguments, []):
                return [name, *map(convert, arguments)]
        source = ast.unparse(node)
        raise OverlapError(f"`{expression}`: `{source}` cannot be computed by a page; write plain arithmetic")

    return convert(parse(expression).body)
