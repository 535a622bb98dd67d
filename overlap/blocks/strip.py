"""A strip of dots under a claim's sentence: what each machine gave, and the bound as a dashed line."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from overlap.blocks.comparison import ORDERS, compared, factored, named, unit
from overlap.book.statistic import middle, show
from overlap.run.hardware import label

WIDTH, HEIGHT = 220, 30
#: A claim shows at most this many.
MOST = 3
#: The line that dots lie on, and how far it stays away from both ends.
AXIS, _MARGIN = 21, 8
_WORDS = {">": "more than", ">=": "at least", "<": "less than", "<=": "at most"}
_SIGNS = {">": ">", ">=": "≥", "<": "<", "<=": "≤"}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


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
        """What the dots are, in words."""
        return named(_tree(self.source))

    @property
    def words(self) -> str:
        """`a: at most 1.05. 1 × H200: 0.92; 1 × H100: 1.1, not so.`"""
        bounds = " and ".join(f"{_WORDS[sign]} {show(bound)}" for sign, bound in self.bounds)
        values = map(self.dot, self.values)
        return f"{self.source}: {bounds}. {'; '.join(values)}."

    def dot(self, machine: str) -> str:
        """`1 × H200: 0.92`; where it is not within the bounds, it says so."""
        text = f"{label(machine)}: {show(self.values[machine])}"
        return text if self.holds(machine) else f"{text}, not so"

    def lines(self) -> Iterator[tuple[float, str, str]]:
        """Of each bound: its place, its text, and which end of the text stands there."""
        for sign, bound in self.bounds:
            x = self.x(bound)
            text = f"{_SIGNS[sign]} {show(bound)} {unit(_tree(self.source))}".strip()
            room = 4 * len(text)
            anchor = "middle"
            if x < room:
                anchor = "start"
            elif x > WIDTH - room:
                anchor = "end"
            yield x, text, anchor


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


def _tree(source: str) -> ast.AST:
    return ast.parse(source, mode="eval").body


def _is_constant(node: ast.AST) -> bool:
    return not any(isinstance(part, ast.Name) for part in ast.walk(node))
