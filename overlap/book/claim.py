"""Values and claims: expressions over recorded results."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from overlap import OverlapError

#: A result may beat its ceiling by this factor before that is an error: clocks and counters are not exact.
TOLERANCE = 1.03
_FUNCTIONS = {f.__name__: f for f in (abs, all, any, len, max, median, min, range, round, set, sorted, str, sum, zip)}
_SIGNS = {"GtE": "≥", "LtE": "≤", "Gt": ">", "Lt": "<", "Eq": "==", "NotEq": "≠", "In": "in", "NotIn": "not in"}


class Undecided(OverlapError):
    """An expression names something this machine has no data for."""


class Data(dict):
    """A recorded dict whose keys are attributes too."""

    def __init__(self, items: dict, of: str):
        super().__init__((key, _wrap(value, f"{of}.{key}")) for key, value in items.items())
        self.of = of

    def __getattr__(self, name: str):
        return self[name]

    def __missing__(self, name: str):
        raise Undecided(f"{self.of} has no {name!r}; it has {', '.join(map(str, self)) or 'nothing'}")


class Chapter:
    """Other snippets' results on the same machine, as attributes."""

    def __init__(self, load: Callable[[str], dict], chapter: str):
        self._load, self._chapter = load, chapter

    def __getattr__(self, name: str) -> Data:
        return Data(self._load(f"{self._chapter}/{name}"), f"{self._chapter}.{name}")


def _wrap(value, of: str):
    if isinstance(value, dict):
        return Data(value, of)
    return [_wrap(item, f"{of}[{i}]") for i, item in enumerate(value)] if isinstance(value, list) else value


def evaluate(expression: str, scope: dict):
    """Value of a Python expression; errors name the expression and what it could have used."""
    try:
        return eval(expression, {"__builtins__": {}} | _FUNCTIONS | scope)
    except OverlapError as error:
        raise type(error)(f"`{expression}`: {error}") from None
    except SyntaxError as error:
        raise OverlapError(f"`{expression}`: not an expression ({error.msg})") from None
    except NameError as error:
        names = ", ".join(sorted(set(scope) - set(_FUNCTIONS)))
        raise Undecided(f"`{expression}`: {error}; there are {names}") from None
    except Exception as error:
        raise OverlapError(f"`{expression}`: {type(error).__name__}: {error}") from None


def show(value, spec: str = "") -> str:
    """A value as text: by its format, else with about three significant digits."""
    if spec:
        return format(value, spec)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        text = str(value)
        return text if len(text) <= 60 else text[:57] + "…"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


@dataclass(frozen=True)
class Verdict:
    """What the data of one machine say of a claim; `holds` is None where it cannot be decided there."""

    profile: str
    holds: bool | None
    figures: str
    live: bool = False
    path: str = ""


@dataclass(frozen=True)
class Claim:
    """A sentence, and the expression over one snippet's result that must be true for it to stand."""

    snippet: str
    expression: str
    condition: str
    limits: tuple[tuple[str, str], ...]
    text: str
    page: str
    line: int

    @classmethod
    def parse(cls, snippet: str, body: str, page: str, line: int) -> "Claim":
        """Read a claim fence: expression, `limit:` lines, sentence."""
        where = f"docs/{page}:{line}: claim {snippet}"
        lines = body.strip().splitlines()
        if len(lines) < 2:
            raise OverlapError(f"{where}: needs an expression on its first line and a sentence after it")
        expression, _, condition = re.sub(r"\s+for\s+(?=gpus\b)", "\0", lines[0]).partition("\0")
        limits, text = [], []
        for row in lines[1:]:
            found = re.fullmatch(r"limit:\s*(.+?)\s+of\s+(.+)", row)
            if row.startswith("limit:") and not found:
                raise OverlapError(f"{where}: write `limit: VALUE of CEILING`, not `{row}`")
            limits.append(found.groups()) if found else text.append(row.strip())
        for source in (expression, condition or "True", *(part for limit in limits for part in limit)):
            try:
                ast.parse(source.strip(), mode="eval")
            except SyntaxError as error:
                raise OverlapError(f"{where}: `{source}` is not an expression ({error.msg})") from None
        return cls(snippet, expression.strip(), condition.strip(), tuple(limits), " ".join(text), page, line)

    @property
    def anchor(self) -> str:
        """HTML id of the claim."""
        return f"claim-{self.snippet.replace('/', '-')}-{self.line}"

    def applies(self, gpus: int) -> bool:
        """Whether the claim speaks of machines with this many GPUs."""
        return bool(evaluate(self.condition, {"gpus": gpus})) if self.condition else True

    def verdict(self, profile: str, scope: dict, live: bool = False, path: str = "") -> Verdict:
        """Decide the claim on one machine's data."""
        try:
            holds = bool(evaluate(self.expression, scope))
            figures = [_figures(self.expression, scope)]
            for value, ceiling in self.limits:
                share = evaluate(f"({value}) / ({ceiling})", scope)
                holds = holds and share <= TOLERANCE
                sign = "" if share <= TOLERANCE else " — beats its ceiling"
                figures.append(f"{show(evaluate(value, scope))} of {show(evaluate(ceiling, scope))}: {share:.0%}{sign}")
        except Undecided as error:
            return Verdict(profile, None, str(error), live, path)
        return Verdict(profile, holds, " · ".join(figures), live, path)


def _figures(expression: str, scope: dict) -> str:
    """The sides of each comparison with their values."""
    node = ast.parse(expression, mode="eval").body
    parts = node.values if isinstance(node, ast.BoolOp) else [node]
    return ", ".join(_side(part, scope) for part in parts)


def _side(node: ast.AST, scope: dict) -> str:
    if not isinstance(node, ast.Compare):
        return f"{ast.unparse(node)}: {show(evaluate(ast.unparse(node), scope))}"
    text = ""
    for i, side in enumerate([node.left, *node.comparators]):
        source = ast.unparse(side)
        value = show(evaluate(source, scope))
        text += f" {_SIGNS.get(type(node.ops[i - 1]).__name__, '?')} " if i else ""
        plain = isinstance(side, (ast.Constant, ast.UnaryOp)) or len(source) > 40
        text += value if plain else f"{source} = {value}"
    return text
