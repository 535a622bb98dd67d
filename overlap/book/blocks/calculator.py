"""A calculator: a formula whose inputs begin at what was measured on the picked machine, and which the reader may change."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source
from overlap.book.expression import as_json, evaluate, names, parse
from overlap.book.statistic import show
from overlap.book.value import Value

_FORM = "write `name = value | low to high | label` for an input, `name = formula | label` for the result, `curve: name`"
_INPUT = re.compile(r"([a-z]\w*)\s*=\s*([^|]+?)\s*\|\s*(\S+) to (\S+)\s*\|\s*([^|]+?)")
_RESULT = re.compile(r"([a-z]\w*)\s*=\s*([^|]+?)\s*\|\s*([^|]+?)")
#: The curve: its size in pixels, and how many points it has.
_WIDE, _HIGH, _POINTS = 320, 110, 64


class Input(NamedTuple):
    """A number the reader may change: where it begins, as an expression over the snippet's result, and its bounds."""

    name: str
    start: Value
    low: float
    high: float
    label: str

    def at(self, share: float) -> float:
        """The value at a share of the way; by factors where the way is long, by steps where it is short."""
        if self.low > 0 and self.high / self.low >= 50:
            return self.low * (self.high / self.low) ** share
        return self.low + (self.high - self.low) * share


@dataclass(frozen=True)
class Calculator(Block):
    """```` ```calculator chapter/snippet ````: inputs, the result, and `curve: name` for the input along which it is drawn."""

    inputs: tuple[Input, ...]
    formula: str
    label: str
    curve: str

    kind: ClassVar[str] = "calculator"
    template: ClassVar[str] = """
<form class="ov-calculator" data-formula="{{ formula }}" data-curve="{{ curve.name }}" data-starts="{{ starts }}">
{% for input in inputs %}
<label>{{ input.label }}
<input type="range" min="0" max="1" step="0.001" aria-label="{{ input.label }}" disabled>
<input type="number" name="{{ input.name }}" value="{{ start[input.name] }}" min="{{ input.low }}" max="{{ input.high }}" step="any" disabled></label>
{% endfor %}
<p class="ov-result"><output>{{ result }}</output> {{ text }}</p>
<svg viewBox="0 0 {{ wide }} {{ high + 16 }}" role="img" aria-label="{{ text }}, against {{ curve.label }}">
<polyline points="{{ points }}"/><circle cx="{{ dot[0] }}" cy="{{ dot[1] }}" r="3.5"/>
<text x="0" y="{{ high + 13 }}">{{ show(curve.low) }}</text><text x="{{ wide / 2 }}" y="{{ high + 13 }}" text-anchor="middle">{{ curve.label }}</text>
<text x="{{ wide }}" y="{{ high + 13 }}" text-anchor="end">{{ show(curve.high) }}</text>
<text class="ov-top" x="4" y="9">{{ show(top) }}</text></svg>
</form>"""

    @classmethod
    def read(cls, source: Source) -> "Calculator":
        """Read inputs, result and curve."""
        inputs, result, curve = [], None, ""
        for row in source.rows():
            if found := _INPUT.fullmatch(row):
                name, start, low, high, label = found.groups()
                try:
                    bounds = float(low), float(high)
                except ValueError:
                    raise source.refuse(f"`{row}`: {low} to {high} are no numbers", _FORM) from None
                if not -1e12 <= bounds[0] < bounds[1] <= 1e12:
                    raise source.refuse(f"`{row}`: {low} is not below {high}", _FORM)
                inputs.append(Input(name, Value(source.snippet, None, start, ""), *bounds, label))
            elif (found := _RESULT.fullmatch(row)) and not result:
                result = found.groups()
            elif (found := re.fullmatch(r"curve:\s*(\w+)", row)) and not curve:
                curve = found[1]
            else:
                raise source.refuse(f"`{row}` is no line of a calculator", _FORM)
        known = [each.name for each in inputs]
        if not inputs or not result or curve not in known or len(set(known)) < len(known):
            raise source.refuse(
                "a calculator needs inputs with names of their own, one result, and a curve along an input",
                _FORM,
            )
        try:
            as_json(result[1])
            for each in inputs:
                parse(each.start.expression)
        except OverlapError as error:
            raise source.refuse(str(error), "mend the formula") from None
        if unknown := names(result[1]) - set(known) - {"abs", "max", "min", "round", "if", "else"}:
            raise source.refuse(
                f"the formula names {', '.join(sorted(unknown))}", f"its inputs are {', '.join(known)}"
            )
        return cls(source.page, source.line, tuple(inputs), result[1], result[2], curve)

    def starts(self, book) -> dict[str, dict[str, float]]:
        """Where the inputs begin, per machine that has them all."""
        found = {each.name: book.numbers(each.start) for each in self.inputs}
        for each in self.inputs:
            for profile, number in found[each.name].items():
                if (
                    isinstance(number, bool)
                    or not isinstance(number, (int, float))
                    or not math.isfinite(number)
                ):
                    raise OverlapError(
                        f"{self.where}: `{each.start.expression}` is {show(number)} on {profile}; give a number"
                    )
        shared = set.intersection(*map(set, found.values()))
        if not shared:
            raise OverlapError(
                f"{self.where}: no machine has all inputs; record the snippet, or read the inputs of one"
            )
        ordered = [profile for profile in found[self.inputs[0].name] if profile in shared]
        return {profile: {name: numbers[profile] for name, numbers in found.items()} for profile in ordered}

    def result(self, numbers: dict[str, float]) -> float:
        """The formula at these inputs."""
        return evaluate(self.formula, numbers)

    def snippets(self, book) -> set[str] | None:
        """Snippets whose results the inputs begin at."""
        return set().union(
            *({each.start.snippet} | book.reads(each.start.expression) for each in self.inputs)
        )

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether each machine's numbers lie within the bounds and give a result."""
        for profile, numbers in self.starts(book).items():
            for each in self.inputs:
                if not each.low <= numbers[each.name] <= each.high:
                    said = f"{each.name} is {show(numbers[each.name])} on {profile}, outside {show(each.low)} to {show(each.high)}"
                    yield f"{self.where}: {said}; widen its bounds"
            self.drawn(profile, numbers)

    def drawn(self, profile: str, numbers: dict[str, float]) -> list[float]:
        """The results along the curve; what is no number from 0 to 1e12 is an error."""
        curve, found = next(each for each in self.inputs if each.name == self.curve), []
        for i in range(_POINTS + 1):
            at = curve.at(i / _POINTS)
            try:
                found.append(self.result(numbers | {curve.name: at}))
            except OverlapError as error:
                raise OverlapError(
                    f"{self.where}: at {curve.name} = {at:.3g} on {profile}: {error}; narrow its bounds"
                ) from None
            if not isinstance(found[-1], (int, float)) or not 0 <= found[-1] <= 1e12:
                said = f"at {curve.name} = {at:.3g} on {profile} the result is {show(found[-1])}, not from 0 to 1e12"
                raise OverlapError(f"{self.where}: {said}; mend the formula or narrow its bounds")
        return found

    def html(self, view) -> str:
        """A form that shows the default machine's numbers, and that the page's script brings to life."""
        starts = self.starts(view.book)
        profile = view.book.first(starts, self.inputs[0].start.snippet)
        start = starts[profile]
        curve = next(each for each in self.inputs if each.name == self.curve)
        drawn = self.drawn(profile, start)
        top, now = max(*drawn, self.result(start), 1e-9), self.result(start)

        def place(share: float, value: float) -> tuple[float, float]:
            return round(_WIDE * share, 1), round(_HIGH * (1 - 0.9 * value / top), 1)

        shares = [i / _POINTS for i in range(_POINTS + 1)]
        at = min(shares, key=lambda share: abs(curve.at(share) - start[curve.name]))
        return view.render(
            self.template,
            formula=json.dumps(as_json(self.formula)),
            curve=curve,
            starts=json.dumps(starts),
            inputs=self.inputs,
            start={name: f"{number:.4g}" for name, number in start.items()},
            result=show(now),
            text=self.label,
            points=" ".join(f"{x},{y}" for x, y in map(place, shares, drawn)),
            dot=place(at, now),
            wide=_WIDE,
            high=_HIGH,
            top=top,
        )

    def cells(self, notebook) -> list[dict]:
        """The formula as code that begins at one machine's numbers."""
        starts = self.starts(notebook.book)
        start = starts[notebook.book.first(starts, self.inputs[0].start.snippet)]
        rows = [f"{each.name} = {start[each.name]:.4g}  # {each.label}" for each in self.inputs]
        said = {
            "output_type": "stream",
            "name": "stdout",
            "text": f"{show(self.result(start))} {self.label}\n",
        }
        shown = f"print(f'{{{self.formula}:.3g}}', {self.label!r})"
        return [notebook.code("\n".join([*rows, shown]), [said], [])]
