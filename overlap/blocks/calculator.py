"""A calculator: a formula whose inputs begin at what was measured, and which the reader may change."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.blocks.block import Block, Notebook, Pages, Source, View, read_template
from overlap.book import select
from overlap.book.book import Book
from overlap.book.expression import as_json, evaluate
from overlap.book.statistic import is_number, show
from overlap.book.value import Value, key

_FORM = (
    "write `name = value | low to high | label, unit` for an input, `name = formula | label` for the result, "
    "`limit = formula | label` for a line across the curve, `say = condition | sentence`, "
    "`let name = formula`, `curve: name`"
)
_NUMBER = r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)"
_INPUT = re.compile(rf"([a-z]\w*)\s*=\s*([^|]+?)\s*\|\s*{_NUMBER} to {_NUMBER}\s*\|\s*([^|]+?)")
_LET = re.compile(r"let ([a-z]\w*)\s*=\s*([^|]+)")
_CHOICE = re.compile(r"([a-z]\w*)\s*=\s*one of ([^|]+?)\s*\|\s*([^|]+?)")
_RESULT = re.compile(r"[a-z]\w*\s*=\s*([^|]+?)\s*\|\s*([^|]+?)")
#: A formula in a sentence.
_IN_SENTENCE = re.compile(r"\{([^{}]+)\}")
#: The stops of a slider, which are the points of the curve, too.
_STOPS = 65


class Input(NamedTuple):
    """A number the reader may change: where it begins, an expression over the result, and its bounds."""

    name: str
    start: Value
    low: float
    high: float
    label: str
    unit: str
    choices: tuple[str, ...] = ()  # what 0, 1 … mean, where only these are allowed

    def stops(self) -> list[float]:
        """Numbers from `low` to `high`: by factors where the way is long, by steps where it is short."""
        shares = [stop / (_STOPS - 1) for stop in range(_STOPS)]
        if self.low > 0 and self.high / self.low >= 50:
            stops = [self.low * (self.high / self.low) ** share for share in shares]
        else:
            stops = [self.low + (self.high - self.low) * share for share in shares]
        return [self.low, *(_rounded(stop) for stop in stops[1:-1]), self.high]

    def step(self, start: float) -> int | str:
        """How a field counts: in whole numbers where it begins at one and its bounds are whole."""
        is_whole = isinstance(start, int) and self.low.is_integer() and self.high.is_integer()
        return 1 if is_whole else "any"


@dataclass(frozen=True)
class Calculator(Block):
    """```` ```calculator chapter/snippet ````: inputs, the result, and `curve: name` of an input.

    Along this input the results are drawn. What follows the last comma of an input's label is its unit. A
    line `limit = formula | label` says what the result is to be compared with, as a GPU's memory: it is
    drawn across the curve, and the page says where they meet. A line `name = one of this; that | label` is
    an input that is 0 for the first, and so on; `let name = formula` names a part of the result's formula.
    A line `say = condition | sentence` stands below the result where its condition is true; both it and the
    formulas in its `{}` know the inputs, `result` and `limit`. The page computes and draws:
    `docs/assets/overlap.js` reads all formulas as data.
    """

    inputs: tuple[Input, ...]
    formula: str
    label: str
    curve: str
    limit: str = ""
    limit_label: str = ""
    says: tuple[tuple[str, str], ...] = ()
    lets: tuple[tuple[str, str], ...] = ()

    kind: ClassVar[str] = "calculator"

    @classmethod
    def read(cls, source: Source) -> "Calculator":
        """Read inputs, result and curve."""
        inputs: dict[str, Input] = {}
        formula = label = limit = limit_label = ""
        says: list[tuple[str, str]] = []
        lets: list[tuple[str, str]] = []
        options, rows = source.options("curve")
        curve = options.get("curve", "")
        for row in rows:
            if match := _LET.fullmatch(row):
                lets.append((match[1], match[2].strip()))
            elif match := _CHOICE.fullmatch(row):
                name, choices, title = match.groups()
                value = Value(source.snippet, None, "0 * 1", "")
                named = tuple(choice.strip() for choice in choices.split(";"))
                inputs[name] = Input(name, value, 0.0, float(len(named) - 1), title, "", named)
            elif match := _INPUT.fullmatch(row):
                name, start, low, high, title = match.groups()
                value = Value(source.snippet, None, start, "")
                label_of, _, unit = title.rpartition(", ") if ", " in title else (title, "", "")
                inputs[name] = Input(name, value, float(low), float(high), label_of, unit)
            elif (match := _RESULT.fullmatch(row)) and row.split()[0] == "limit":
                limit, limit_label = match.groups()
            elif match and row.split()[0] == "say":
                says.append((match[1], match[2]))
            elif match:
                formula, label = match.groups()
            else:
                raise source.refuse(f"`{row}` is no line of a calculator", _FORM)
        if not formula or curve not in inputs:
            raise source.refuse("a calculator needs inputs, one result, and a curve along an input", _FORM)
        try:
            _whole(lets, formula)
            as_json(limit or "0")
            _sentences(says)
        except OverlapError as error:
            raise source.refuse(str(error), "mend the formula") from None
        return cls(
            source.page,
            source.line,
            tuple(inputs.values()),
            formula,
            label,
            curve,
            limit,
            limit_label,
            tuple(says),
            tuple(lets),
        )

    @property
    def snippet(self) -> str:
        """Where its inputs begin."""
        return self.inputs[0].start.snippet

    @property
    def key(self) -> str:
        """Identifies it among all calculators."""
        return key(self.formula, [(item.name, str(item.start)) for item in self.inputs])

    @property
    def anchor(self) -> str:
        """HTML id of its place."""
        return f"calculator-{self.key}"

    def starts(self, book: Book) -> dict[str, dict[str, float]]:
        """Where the inputs begin, per machine that has them all."""
        names = [item.name for item in self.inputs]
        table = book.table([item.start for item in self.inputs])
        starts = {}
        for machine, numbers in table.items():
            starts[machine] = {name: _rounded(number) for name, number in zip(names, numbers, strict=True)}
        return starts

    @property
    def of_machines(self) -> "tuple[Calculator]":
        """Where its inputs begin."""
        return (self,)

    def of_machine(self, book: Book, machine: str) -> dict[str, float] | None:
        """Where its inputs begin on this machine, if they can begin there."""
        source = select.stand_in(machine, book.recordings(self.snippet)) or ""
        start = self.starts(book).get(source)
        if start and all(item.low <= start[item.name] <= item.high for item in self.inputs):
            return start
        return None

    def result(self, numbers: dict[str, float]) -> float:
        """The formula at these inputs."""
        for name, part in self.lets:
            numbers = numbers | {name: evaluate(part, numbers)}
        return evaluate(self.formula, numbers)

    def said(self, numbers: dict[str, float]) -> list[str]:
        """The sentences that are true at these inputs."""
        limit = {"limit": evaluate(self.limit, numbers)} if self.limit else {}
        known = numbers | limit | {"result": self.result(numbers)}
        true = [text for condition, text in self.says if evaluate(condition, known)]
        return [_IN_SENTENCE.sub(lambda match: show(evaluate(match[1], known)), text) for text in true]

    def check(self, pages: Pages) -> Iterator[str]:
        """Whether each machine's numbers lie within the bounds and give results along the curve."""
        for machine, numbers in self.starts(pages.book).items():
            for item in self.inputs:
                number = numbers[item.name]
                if not is_number(number) or not item.low <= number <= item.high:
                    reason = f"{item.name} is {show(number)} on {machine}"
                    bounds = f"{show(item.low)} to {show(item.high)}"
                    yield f"{self.where}: {reason}, outside {bounds}; widen its bounds"
                    return
            least = min(self.results(numbers))
            if least < 0:
                yield f"{self.where}: the result falls to {show(least)} on {machine}; narrow the bounds"
            self.said(numbers)
            if self.limit and not evaluate(self.limit, numbers) > 0:
                yield f"{self.where}: its limit is not above 0 on {machine}; mend the limit"

    def results(self, numbers: dict[str, float]) -> list[float]:
        """The results along the curve."""
        return [self.result(numbers | {self.curve: stop}) for stop in self._axis.stops()]

    @property
    def _axis(self) -> Input:
        """The input along which the curve is drawn."""
        return next(item for item in self.inputs if item.name == self.curve)

    def html(self, view: View) -> str:
        """A form that shows the default machine's numbers, and that the page's script brings to life."""
        starts = self.starts(view.book)
        start = starts[view.first(starts, self.snippet)]
        return view.render(
            read_template("calculator"),
            key=self.key,
            formula=_compact(_whole(self.lets, self.formula)),
            limit=_compact(as_json(self.limit)) if self.limit else "",
            limit_label=self.limit_label,
            says=_compact(_sentences(self.says)) if self.says else "",
            said=self.said(start),
            curve=self._axis,
            inputs=self.inputs,
            started=_compact(start),
            start=start,
            result=show(self.result(start)),
            text=self.label,
            rules=[*(f"{name} = {part}" for name, part in self.lets), self.formula],
        )

    def cells(self, notebook: Notebook) -> list[dict]:
        """The formula as code that begins at one machine's numbers."""
        starts = self.starts(notebook.book)
        start = starts[select.of_values(notebook.book, starts, self.snippet)]
        rows = []
        for item in self.inputs:
            label = f"{item.label}, {item.unit}" if item.unit else item.label
            if item.choices:
                label += ": " + ", ".join(f"{at} for {name}" for at, name in enumerate(item.choices))
            rows.append(f"{item.name} = {start[item.name]:.4g}  # {label}")
        rows += [f"{name} = {part}" for name, part in self.lets]
        text = ""
        limit = evaluate(self.limit, start) if self.limit else 0
        results = (self.formula, self.result(start), self.label), (self.limit, limit, self.limit_label)
        for formula, result, label in results:
            if formula:
                rows.append(f"print(f'{{{formula}:.3g}}', {label!r})")
                text += f"{show(result)} {label}\n"
        text += "".join(f"{sentence}\n" for sentence in self.said(start))
        rows += [f"print({sentence!r})" for sentence in self.said(start)]
        output = {"output_type": "stream", "name": "stdout", "text": text}
        return [notebook.code("\n".join(rows), [output], [])]


def _rounded(number):
    """A number as a field shows it: whole ones as they are, others to four digits."""
    return float(f"{number:.4g}") if isinstance(number, float) else number


def _whole(lets, formula: str) -> list | str | float:
    """A formula with its named parts, as a page computes it: `["let", name, part, formula]`."""
    whole = as_json(formula)
    for name, part in reversed(lets):
        whole = ["let", name, as_json(part), whole]
    return whole


def _compact(data) -> str:
    """JSON without spaces: in an attribute of a page, where each quotation mark takes six bytes."""
    return json.dumps(data, separators=(",", ":"))


def _sentences(says) -> list[list]:
    """Conditions and sentences as a page computes them: `[condition, ["Use ", formula, " cores."]]`."""
    rows = []
    for condition, text in says:
        parts = [as_json(part) if at % 2 else part for at, part in enumerate(_IN_SENTENCE.split(text))]
        rows.append([as_json(condition), parts])
    return rows
