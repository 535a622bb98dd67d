"""Times and rates that claims read and that were taken only once: nothing tells how far they may be believed."""

import ast
from collections.abc import Iterator
from contextlib import suppress

from overlap import OverlapError
from overlap.book import margin
from overlap.book.blocks.claim import Claim
from overlap.book.expression import Undecided, evaluate, parse
from overlap.book.verdict import State

_REMEDY = "return its trials beside it, or say in the snippet's header why there are none: `once`"


def problems(book) -> list[str]:
    """Claims on home machines that read a number without trials, and excuses in headers that nothing needs."""
    found, used = [], set()
    for claim, run in _decided(book):
        bare = sorted(set(_bare(book, claim, run)))
        used |= {(snippet, key) for snippet, key, _ in bare}
        untried = [name for snippet, key, name in bare if key not in book.snippets[snippet].options["once"]]
        if untried:
            names = f"{', '.join(untried[:3])}{' …' * (len(untried) > 3)}"
            found.append(f"{claim.where}: claim reads {names}, of which {run.path} has no trials; {_REMEDY}")
    for name, snippet in book.snippets.items():
        idle = [key for key in snippet.options["once"] if (name, key) not in used]
        found += [f"{snippet.path}: header: once excuses `{key}`, which needs no excuse; drop it" for key in idle]
    return found


def _decided(book) -> Iterator[tuple[Claim, object]]:
    """Claims with the runs of home machines of which they speak; what is wrong with a page or a claim is told elsewhere."""
    for page in book.pages.values():
        with suppress(OverlapError):
            for claim in (block for block in page.blocks if isinstance(block, Claim)):
                for verdict in book.verdicts(claim):
                    if book.at_home(verdict.profile) and verdict.state is not State.OPEN:
                        yield claim, book.runs(claim.snippet)[verdict.profile]


def _bare(book, claim: Claim, run) -> Iterator[tuple[str, str, str]]:
    """(snippet, key of its result, full name) of each float without trials that a claim reads in the run shown whole."""
    scope, read = book.noted(claim.snippet, run)
    for expression in claim.expressions:
        said = {node.id for node in ast.walk(parse(expression)) if isinstance(node, ast.Name)}
        read |= {f"{claim.snippet}.{name}" for name in said & run.result.keys()}
        try:
            evaluate(expression, scope)
        except Undecided:
            continue
    for snippet in {name.partition(".")[0] for name in read} & book.snippets.keys():
        result = run.result if snippet == claim.snippet else book.runs(snippet)[run.profile].result
        measured = {path for path, _ in margin.measurements(result)}
        for path in _floats(result):
            if path not in measured and (name := _name(snippet, path)) in read:
                yield snippet, path[0], name


def _floats(item, path: tuple = ()) -> Iterator[tuple]:
    """Path of every float; raw trials are left out."""
    if isinstance(item, (dict, list)):
        for key, value in item.items() if isinstance(item, dict) else enumerate(item):
            if not str(key).endswith("_trials"):
                yield from _floats(value, (*path, key))
    elif isinstance(item, float):
        yield path


def _name(snippet: str, path: tuple) -> str:
    """As expressions write it; of a list of numbers all is read."""
    last = max(k for k, key in enumerate(path, 1) if isinstance(key, str))
    steps = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in path[:last])
    return snippet + "".join(steps)
