"""A strip of dots under a claim's sentence: what each machine gave, and the bound as a dashed line.

Above the line stand the bounds, below it the least and the greatest of the dots.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from overlap.blocks.comparison import ORDERS, compared, factored, is_formula, named, unit
from overlap.book.statistic import middle, show
from overlap.run.hardware import label

WIDTH, HEIGHT = 300, 46
#: A claim shows at most this many.
MOST = 3
#: The line that dots lie on, the feet of the texts above and below it, and how far dots stay from both ends.
AXIS, ABOVE, BELOW, _MARGIN = 24, 11, 44, 8
#: How wide a character is, and how far texts stay apart, in px.
_CHARACTER, _GAP = 7, 8
#: What picks one of several numbers, in words; so are the first and the last, and no other place.
_PICKS = {"min": "least", "max": "greatest"}
_WORDS = {">": "more than", ">=": "at least", "<": "less than", "<=": "at most"}
_SIGNS = {">": ">", ">=": "≥", "<": "<", "<=": "≤"}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


class Label(NamedTuple):
    """A text of the strip: its place, in px from the left, and which end of it stands there."""

    x: float
    text: str
    anchor: str

    @property
    def span(self) -> tuple[float, float]:
        """From where to where it reaches, in px."""
        width = _CHARACTER * len(self.text)
        left = {"start": self.x, "middle": self.x - width / 2, "end": self.x - width}[self.anchor]
        return left, left + width


@dataclass
class Strip:
    """One quantity, as it is written: its bounds as pairs of sign and number, and its value by machine."""

    source: str
    bounds: list[tuple[str, float]] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)

    def holds(self, machine: str) -> bool:
        """Whether the value of a machine is within all bounds."""
        return all(ORDERS[sign](self.values[machine], bound) for sign, bound in self.bounds)

    def x(self, number: float) -> float:
        """Where a number lies, in px from the left: the outermost of values and bounds are at the ends."""
        numbers = [*self.values.values(), *(bound for _, bound in self.bounds)]
        low, high = min(numbers), max(numbers)
        share = (number - low) / (high - low) if high > low else 0.5
        return round(_MARGIN + share * (WIDTH - 2 * _MARGIN), 1)

    @property
    def name(self) -> str:
        """What the dots are, in words; a formula where it has parts that no words stand for."""
        return named(_Picks().visit(_tree(self.source)))

    @property
    def is_formula(self) -> bool:
        """Whether its name is one."""
        return is_formula(self.name)

    @property
    def words(self) -> str:
        """`a: at most 1.05. 1 × H200: 0.92; 1 × H100: 1.1, not so.`"""
        bounds = " and ".join(f"{_WORDS[sign]} {show(bound)}" for sign, bound in self.bounds)
        values = map(self.dot, self.values)
        what = "Bound" if self.is_formula else self.name
        return f"{what}: {bounds}. {'; '.join(values)}."

    def dot(self, machine: str) -> str:
        """`1 × H200: 0.92`; where it is not within the bounds, it says so."""
        text = f"{label(machine)}: {show(self.values[machine])}"
        return text if self.holds(machine) else f"{text}, not so"

    @property
    def lines(self) -> list[float]:
        """Where the bounds stand."""
        return [self.x(bound) for _, bound in self.bounds]

    @property
    def limits(self) -> list[Label]:
        """The texts of the bounds: `≥ 2 ms`."""
        texts = [_placed(self.x(bound), f"{_SIGNS[sign]} {self._text(bound)}") for sign, bound in self.bounds]
        texts.sort(key=lambda text: text.x)
        if any(map(_meet, texts, texts[1:])):
            middle_of_all = (texts[0].x + texts[-1].x) / 2
            return [_placed(middle_of_all, ", ".join(text.text for text in texts))]
        return texts

    @property
    def ends(self) -> list[Label]:
        """The texts of the least and the greatest dot: of one, if they read the same or have no room."""
        low, high = min(self.values.values()), max(self.values.values())
        first, last = _placed(self.x(low), self._text(low)), _placed(self.x(high), self._text(high))
        middle_of_both = (self.x(low) + self.x(high)) / 2
        if first.text == last.text:
            return [_placed(middle_of_both, first.text)]
        if _meet(first, last):
            return [_placed(middle_of_both, f"{show(low)}–{last.text}")]
        return [first, last]

    def _text(self, number: float) -> str:
        """A number with the unit of the quantity, if it has one."""
        return f"{show(number)} {unit(_tree(self.source))}".strip()


class _Picks(ast.NodeTransformer):
    """Names that read `greatest gain` and `last gain` in the place of `max(gain)` and `gain[-1]`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`max(gain)`."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=[quantity], keywords=[]):
                return _picked(node, _PICKS[name], quantity)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """`gain[-1]`."""
        self.generic_visit(node)
        match node:
            case ast.Subscript(value=quantity, slice=ast.Constant(value=0)):
                return _picked(node, "first", quantity)
            case ast.Subscript(value=quantity, slice=ast.UnaryOp(ast.USub(), ast.Constant(value=1))):
                return _picked(node, "last", quantity)
        return node


def _picked(node: ast.AST, word: str, quantity: ast.AST) -> ast.AST:
    is_one = isinstance(quantity, ast.Name | ast.Attribute)
    return ast.Name(f"{word} {named(quantity)}") if is_one else node


def strips(expression: str, by_machine: Mapping[str, Sequence[dict]]) -> list[Strip]:
    """The strips of a claim, from what its machines gave in each run.

    A comparison has one if its bound is the same number on all machines, or a multiple of another quantity;
    then the strip shows the ratio of the two. Bounds of one quantity share a strip. What cannot be drawn of
    every machine has none.
    """
    by_source: dict[str, Strip] = {}
    for machine, scopes in by_machine.items():
        for item in compared(expression, scopes):
            left, right, sign = _tree(item.source), _tree(item.against), item.sign
            lefts, rights = item.left, item.right
            if _is_constant(left):
                left, right, sign = right, left, _MIRRORED[sign]
                lefts, rights = rights, lefts
            source, bound = ast.unparse(left), rights[0]
            values = lefts
            if not _is_constant(right):
                factor, quantity = factored(right)
                factor = 1 if factor is None else factor
                if min(*lefts, *rights) <= 0 or factor <= 0:
                    continue
                source, bound = ast.unparse(ast.BinOp(left, ast.Div(), quantity)), factor
                values = [factor * a / b for a, b in zip(lefts, rights, strict=True)]
            strip = by_source.setdefault(source, Strip(source))
            strip.values[machine] = middle(values)
            if (sign, bound) not in strip.bounds:
                strip.bounds.append((sign, bound))
    whole = [strip for strip in by_source.values() if len(strip.values) == len(by_machine)]
    return whole[:MOST]


def _placed(x: float, text: str) -> Label:
    """In the middle over its mark, unless it would leave the picture."""
    half = _CHARACTER * len(text) / 2
    anchor = "middle"
    if x < half:
        anchor = "start"
    elif x > WIDTH - half:
        anchor = "end"
    return Label(round(x, 1), text, anchor)


def _meet(first: Label, second: Label) -> bool:
    """Whether two texts of a row, from the left, have less than a gap between them."""
    return first.span[1] + _GAP > second.span[0]


def _tree(source: str) -> ast.AST:
    return ast.parse(source, mode="eval").body


def _is_constant(node: ast.AST) -> bool:
    return not any(isinstance(part, ast.Name) for part in ast.walk(node))
