"""Expressions in pages: what they may say, what they see, what they cost, and how their values are shown.

Whoever checks or builds a page runs its expressions, also those of a stranger's page. So the syntax tree decides: names, numbers,
text, arithmetic, comparisons, comprehensions, the listed functions, subscripts and keys of recorded data, and nothing else.
"""

import ast
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import median, median_low
from types import CodeType
from typing import NamedTuple

from overlap import OverlapError
from overlap.run.text import visible

#: Bounds that no honest sentence meets: characters, levels, steps in loops, items in one value, bits of a whole number.
LENGTH, DEPTH, STEPS, ITEMS, BITS = 2_000, 60, 2_000_000, 1_000_000, 4_096
#: Seconds that one evaluation may take.
SECONDS = 2.0
SIGNS = {"GtE": "≥", "LtE": "≤", "Gt": ">", "Lt": "<", "Eq": "==", "NotEq": "≠", "In": "in", "NotIn": "not in"}
_SPEC = re.compile(r"[-+ ]?0?\d{0,2}[,_]?(?:\.\d{1,2})?[bdeEfFgGnosxX%]?")
_ALLOWED = tuple(
    getattr(ast, name)
    for name in [
        "Expression",
        "Constant",
        "Name",
        "Attribute",
        "Subscript",
        "Slice",
        "Call",
        "keyword",
        "Load",
        "Store",
        "BoolOp",
        "And",
        "Or",
        "UnaryOp",
        "Not",
        "USub",
        "UAdd",
        "BinOp",
        "Add",
        "Sub",
        "Mult",
        "Div",
        "FloorDiv",
        "Mod",
        "Pow",
        "Compare",
        "GtE",
        "LtE",
        "Gt",
        "Lt",
        "Eq",
        "NotEq",
        "In",
        "NotIn",
        "IfExp",
        "List",
        "Tuple",
        "Set",
        "Dict",
        "ListComp",
        "SetComp",
        "DictComp",
        "GeneratorExp",
        "comprehension",
    ]
)
_VIEWS = ("items", "keys", "values")


class Undecided(OverlapError):
    """An expression names something this machine has no data for."""


class Data(Mapping):
    """A recorded dict whose keys are attributes too; what is inside is wrapped when it is asked for, and noted in `note` where there is one."""

    def __init__(self, items: Mapping, of: str, note: set[str] | None = None):
        self.of, self._items, self._seen, self._note = of, items, {}, note

    def __getitem__(self, name: str):
        if self._note is not None:
            self._note.add(f"{self.of}.{name}")
        if name not in self._seen:
            if name not in self._items:
                raise Undecided(f"{self.of} has no {name!r}; it has {', '.join(map(str, self)) or 'nothing'}")
            self._seen[name] = wrap(self._items[name], f"{self.of}.{name}", self._note)
        return self._seen[name]

    def __contains__(self, name) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)


class Chapter:
    """Other snippets' results on the same machine, by name."""

    def __init__(self, chapter: str, load: Callable[[str], dict], note: set[str] | None = None):
        self._chapter, self._load, self._note = chapter, load, note

    def __getitem__(self, name: str) -> Data:
        return Data(self._load(f"{self._chapter}/{name}"), f"{self._chapter}/{name}", self._note)


def wrap(value, of: str, note: set[str] | None = None):
    """Recorded data as an expression sees them."""
    if isinstance(value, dict):
        return Data(value, of, note)
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return [wrap(item, f"{of}[{i}]", note) for i, item in enumerate(value)]
    return value


def evaluate(expression: str, scope: Mapping):
    """Value of an expression; errors name it and what it could have used."""
    code = compiled(expression)
    try:
        steps = _Steps()
        value = eval(code, {**scope, **_HELPERS, "_loop": steps.loop, "_pack": steps.pack})
        if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
            raise OverlapError(f"{value} is no finite number")
        return list(value) if isinstance(value, (range, zip)) else value
    except OverlapError as error:
        raise type(error)(f"`{expression}`: {error}") from None
    except NameError as error:
        names = ", ".join(sorted(name for name in scope if not name.startswith("_")))
        raise Undecided(f"`{expression}`: {error}; there are {names}") from None
    except RecursionError:
        raise OverlapError(f"`{expression}`: too deep; write it more simply") from None
    except Exception as error:
        raise OverlapError(f"`{expression}`: {type(error).__name__}: {error}") from None


@lru_cache(maxsize=8192)
def compiled(expression: str) -> CodeType:
    """Code of an expression that says only what expressions may say."""
    parse(expression)  # refuses what is not allowed; the tree it gives is shared and stays as it is
    guarded = _Guarded().visit(ast.parse(expression.strip(), mode="eval"))
    return compile(ast.fix_missing_locations(guarded), "<expression>", "eval")


@lru_cache(maxsize=8192)
def parse(expression: str) -> ast.Expression:
    """Syntax tree of an expression; what is none, or says more than expressions may, is an error."""
    if len(expression) > LENGTH:
        raise OverlapError(f"`{expression[:60]}…`: longer than {LENGTH:,} characters; let the snippet compute it")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as error:
        raise OverlapError(f"`{expression[:200]}` is not an expression ({error.msg})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise OverlapError(f"`{expression[:60]}…` is not an expression ({type(error).__name__})") from None
    _allow(tree, expression, 0)
    return tree


def _allow(node: ast.AST, expression: str, depth: int, called: bool = False) -> None:
    def refuse(what: str) -> None:
        raise OverlapError(f"`{expression}` is not an expression of this book: {what}; see docs/contributing.md")

    if depth > DEPTH:
        refuse("too deep")
    if not isinstance(node, _ALLOWED):
        refuse(f"{type(node).__name__} is not allowed")
    if isinstance(node, ast.Constant) and not isinstance(node.value, (int, float, str, type(None))):
        refuse(f"{type(node.value).__name__} is not allowed")
    if isinstance(node, ast.Constant) and node.value == math.inf:
        refuse("a number beyond all bounds")
    if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        refuse("a loop gives its items to plain names")
    if isinstance(node, ast.Dict) and None in node.keys:
        refuse("** is not allowed")
    name = getattr(node, "id", getattr(node, "attr", getattr(node, "arg", None)))
    if isinstance(name, str) and name.startswith("_"):
        refuse(f"no name begins with _, as {name!r} does")
    if isinstance(node, ast.Call):
        method = isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS and not node.args + node.keywords
        if not method and not (isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS):
            refuse(f"`{ast.unparse(node.func)}` is none of the functions there are: {', '.join(sorted(FUNCTIONS))}")
        if any(keyword.arg is None for keyword in node.keywords):
            refuse("** is not allowed")
    if isinstance(node, ast.Name) and node.id in FUNCTIONS and not called:
        refuse(f"{node.id} is a function; call it")
    for child in ast.iter_child_nodes(node):
        _allow(child, expression, depth + 1, called=child is getattr(node, "func", None))


class _Guarded(ast.NodeTransformer):
    """Keys instead of attributes, counted loops, bounded products and powers."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._call("_key", self.visit(node.value), ast.Constant(node.attr))

    def _packed(self, node: ast.AST) -> ast.AST:
        loads = isinstance(getattr(node, "ctx", None), (ast.Load, type(None)))
        return self._call("_pack", self.generic_visit(node)) if loads else node

    visit_List = visit_Tuple = visit_Set = visit_Dict = visit_ListComp = visit_SetComp = visit_DictComp = _packed

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.slice, ast.Slice):
            return self._packed(node)
        return self._call("_key", self.visit(node.value), self.visit(node.slice))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute):
            return self._call(f"_{node.func.attr}", self.visit(node.func.value))
        keywords = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords]
        called = ast.Name(f"_call_{node.func.id}", ast.Load())
        return self._call("_pack", ast.Call(called, list(map(self.visit, node.args)), keywords))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        bounded = {ast.Mult: "_times", ast.Pow: "_power", ast.Mod: "_rest"}.get(type(node.op))
        sides = self.visit(node.left), self.visit(node.right)
        return self._call("_pack", self._call(bounded, *sides) if bounded else ast.BinOp(sides[0], node.op, sides[1]))

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        counted = self._call("_loop", self.visit(node.iter))
        return ast.comprehension(node.target, counted, list(map(self.visit, node.ifs)), 0)

    @staticmethod
    def _call(name: str, *arguments: ast.AST) -> ast.Call:
        return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


class _Steps:
    """What one evaluation has spent: steps of loops, time, and the size of all it made, what is inside counted each time."""

    def __init__(self):
        self._left, self._end, self._sizes, self._made = STEPS, time.monotonic() + SECONDS, {}, []

    def loop(self, items: Iterable) -> Iterator:
        """The items, counted over all loops."""
        for item in items:
            self._left -= 1
            self._in_time(self._left >= 0)
            yield item

    def pack(self, value):
        """A value that was just made, unless it is too large."""
        if isinstance(value, int):
            if value.bit_length() > BITS:
                raise OverlapError(f"a whole number of more than {BITS:,} bits")
        elif isinstance(value, complex):
            raise OverlapError(f"{value} is no real number")
        elif isinstance(value, (str, list, tuple, set, dict)):
            self._in_time()
            if id(value) not in self._sizes:
                self._sizes[id(value)] = self._size(value)
                self._made.append(value)  # so that no other value gets its id
        return value

    def _size(self, value) -> int:
        inside = () if isinstance(value, str) else [*value, *value.values()] if isinstance(value, dict) else value
        size = len(value) + sum(self._sizes.get(id(item), len(item)) for item in inside if hasattr(item, "__len__"))
        if size > ITEMS:
            raise OverlapError(f"a value of more than {ITEMS:,} items")
        return size

    def _in_time(self, steps: bool = True) -> None:
        if not steps or time.monotonic() > self._end:
            raise OverlapError(f"more than {STEPS:,} steps or {SECONDS:.0f} s; let the snippet compute it")


def _key(value, key):
    if isinstance(key, str) and not isinstance(value, (Data, Chapter)):
        raise OverlapError(f"{type(value).__name__} has no key {key!r}")
    return value[key]


def _view(name: str) -> Callable:
    def view(value):
        if not isinstance(value, Data):
            raise OverlapError(f"{type(value).__name__} has no {name}()")
        return list(value) if name == "keys" else [value[k] if name == "values" else (k, value[k]) for k in value]

    return view


def _times(a, b):
    sized, count = (a, b) if hasattr(a, "__len__") else (b, a)
    if hasattr(sized, "__len__") and isinstance(count, int) and len(sized) * count > ITEMS:
        raise OverlapError(f"a value of more than {ITEMS:,} items")
    return a * b


def _power(a, b):
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() * abs(b) > BITS:
        raise OverlapError(f"a whole number of more than {BITS:,} bits")
    return a**b


def _rest(a, b):
    if isinstance(a, str):
        raise OverlapError("% of a text is not allowed; give the value a format")
    return a % b


def _sum(items: Iterable, start: float = 0) -> float:
    total = start
    for item in items:
        if not isinstance(item, (int, float)) or not isinstance(total, (int, float)):
            raise OverlapError("sum adds numbers")
        total += item
    return total


def _range(*bounds: int) -> range:
    found = range(*bounds)
    try:
        long = len(found) > ITEMS
    except OverflowError:
        long = True
    if long:
        raise OverlapError(f"a range of more than {ITEMS:,} items")
    return found


#: What an expression may call.
FUNCTIONS = {f.__name__: f for f in (abs, all, any, len, max, median, min, round, set, sorted, str, zip)}
FUNCTIONS |= {"range": _range, "sum": _sum}
_HELPERS = {"__builtins__": {}, "_key": _key, "_times": _times, "_power": _power, "_rest": _rest}
_HELPERS |= {f"_call_{name}": function for name, function in FUNCTIONS.items()}
_HELPERS |= {f"_{name}": _view(name) for name in _VIEWS}


def show(value, spec: str = "") -> str:
    """A value as text: by its format, else with about three significant digits."""
    if spec:
        return visible(format(value, check_spec(spec)))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        text = visible(str(value))
        return text if len(text) <= 60 else text[:57] + "…"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def is_spec(text: str) -> bool:
    """Whether this is a format such as `.2f`, `,` or `.0%`."""
    return bool(_SPEC.fullmatch(text))


def check_spec(spec: str) -> str:
    """The format, if it is one; a width has two digits at most."""
    if not is_spec(spec):
        raise ValueError(f"{spec!r} is no format; write for instance .2f, ',' or .0%")
    return spec


def sides(expression: str, scopes: Sequence[Mapping]) -> str:
    """The sides of each comparison of a condition, with their values: the median of those that the scopes give."""
    node = parse(expression).body
    parts = node.values if isinstance(node, ast.BoolOp) else [node]
    return ", ".join(_side(part, scopes) for part in parts)


def middle(values: Sequence):
    """The median of numbers; of anything else the first."""
    if not all(map(is_number, values)):
        return values[0]
    return median_low(values) if all(isinstance(value, int) for value in values) else median(values)


def is_number(value) -> bool:
    """Whether it is a number, and not true or false."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Comparison(NamedTuple):
    """Two sides of a comparison as they are written, its sign, and the numbers that several scopes give them."""

    source: str
    sign: str
    against: str
    left: list[float]
    right: list[float]


def compared(expression: str, scopes: Sequence[Mapping]) -> Iterator[Comparison]:
    """The comparisons of numbers that must all hold, with both sides in each scope that has them."""
    node = parse(expression).body
    parts = node.values if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else [node]
    for part in parts:
        sides = [part.left, *part.comparators] if isinstance(part, ast.Compare) else []
        for i, sign in enumerate(part.ops if sides else ()):
            source, against = ast.unparse(sides[i]), ast.unparse(sides[i + 1])
            pairs = [(_if_any(source, scope), _if_any(against, scope)) for scope in scopes]
            found = [pair for pair in pairs if all(map(is_number, pair))]
            if found and type(sign) in _OPERATORS:
                yield Comparison(source, _OPERATORS[type(sign)], against, *map(list, zip(*found, strict=True)))


def _if_any(source: str, scope: Mapping):
    try:
        return evaluate(source, scope)
    except Undecided:
        return None


def evaluated(source: str, scopes: Sequence[Mapping]) -> list:
    """What the scopes give that have it; at least one must."""
    found = [value for value in (_if_any(source, scope) for scope in scopes) if value is not None]
    return found or [evaluate(source, scopes[0])]


def _side(node: ast.AST, scopes: Sequence[Mapping]) -> str:
    if not isinstance(node, ast.Compare):
        return f"{ast.unparse(node)}: {show(_middle(ast.unparse(node), scopes))}"
    sources = [ast.unparse(side) for side in (node.left, *node.comparators)]
    text = _valued(node.left, sources[0], scopes)
    for i, operator in enumerate(node.ops):
        left = node.left if not i else node.comparators[i - 1]
        compared = ast.unparse(ast.Compare(left, [operator], [node.comparators[i]]))
        true = 2 * sum(bool(evaluate(compared, scope)) for scope in scopes) > len(scopes)
        sign = SIGNS[type(operator).__name__]
        text += f" {sign} " if true else f", not {sign} "
        text += _valued(node.comparators[i], sources[i + 1], scopes)
    return text


def _valued(node: ast.AST, source: str, scopes: Sequence[Mapping]) -> str:
    value = show(_middle(source, scopes))
    return value if isinstance(node, (ast.Constant, ast.UnaryOp)) or len(source) > 40 else f"{source} = {value}"


def _middle(source: str, scopes: Sequence[Mapping]):
    return middle([evaluate(source, scope) for scope in scopes])


def names(expression: str) -> set[str]:
    """Every word in an expression: what it may read."""
    return set(re.findall(r"[A-Za-z_]\w*", expression))


_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"}
_OPERATORS |= {ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!="}


def as_json(expression: str) -> list:
    """A formula over numbers as nested lists that a script can compute: `["+", 1, ["name", "x"]]`. Numbers, names, arithmetic, one
    comparison, `a if b else c`, abs, max, min, round; anything else is an error.
    """

    def convert(node: ast.AST):
        match node:
            case ast.Constant(int() | float() as number):
                return number
            case ast.Name(name):
                return ["name", name]
            case ast.UnaryOp(ast.USub(), inner):
                return ["-", 0, convert(inner)]
            case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
                return [_OPERATORS[type(operator)], convert(left), convert(right)]
            case ast.Compare(left, [operator], [right]) if type(operator) in _OPERATORS:
                return [_OPERATORS[type(operator)], convert(left), convert(right)]
            case ast.IfExp(test, body, orelse):
                return ["if", convert(test), convert(body), convert(orelse)]
            case ast.Call(ast.Name("abs" | "max" | "min" | "round" as name), arguments, []):
                return [name, *map(convert, arguments)]
        raise OverlapError(
            f"`{expression}`: `{ast.unparse(node)}` cannot be computed by a page; write plain arithmetic"
        )

    return convert(parse(expression).body)
