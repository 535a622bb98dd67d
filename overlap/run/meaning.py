"""What Python code means, as digests: comments, annotations, layout, `plot` and `derive` may change.

A digest of a file is made of its syntax tree; of a file that others import, of the statements they use alone,
so that a new helper beside them makes nobody stale. Digests stand in recordings and must not change, whatever
Python version computes them.

Docstrings and annotations do not count, and neither do imports that only these, `plot` or `derive` use.
What a class or a decorator may read is: annotations of a class's fields, and those of a decorated function.
"""

import ast
import hashlib
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from overlap import OverlapError

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
#: What the main guard is called, the function that draws, and the one that adds to the result.
GUARD, PLOT, DERIVE = "__main__", "plot", "derive"
#: What is computed from a recording, and never recorded.
AFTERWARDS = frozenset({PLOT, DERIVE})
_LEFT_OUT = frozenset({"annotation", "returns", "kind", "type_comment", "ctx"})


class Borrow(NamedTuple):
    """An import of another snippet: its name, the name taken from it, and the line."""

    snippet: str
    name: str
    line: int


@dataclass(frozen=True)
class Part:
    """A statement at the top of a file; of an import, one of its names; or the main guard.

    `binds` are the names it defines; without any it always counts. `uses` are the names that its code takes
    from outside, `annotation_uses` those of its annotations.
    """

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]
    annotation_uses: frozenset[str]
    borrows: tuple[Borrow, ...]

    @property
    def is_import(self) -> bool:
        """Whether it imports a name."""
        return isinstance(self.node, _IMPORTS)

    @property
    def counts(self) -> bool:
        """Whether it is part of what was recorded: neither `plot` nor `derive`."""
        return not self.binds & AFTERWARDS

    @cached_property
    def text(self) -> str:
        """What counts of it, as text; kept, since every file that imports it asks again."""
        return repr(_plain(self.node))


def of_file(parts: list[Part], launcher: str) -> str:
    """SHA-256 of a file's code, and of how it is launched."""
    return _sha256(repr([of_parts(code_parts(parts)), launcher]))


def of_parts(parts: Iterable[Part]) -> str:
    """SHA-256 of some parts of a file."""
    return _sha256(f"[{', '.join(part.text for part in parts)}]")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def parts_of(text: str, tree: ast.Module, origin: str) -> list[Part]:
    """The statements of a file in order, without its docstring; `tree` is the one of its `text`."""
    lines = text.split("\n")
    parts = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            singles = [ast.Import([alias]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            singles = [ast.ImportFrom(node.module, [alias], node.level) for alias in node.names]
        elif is_docstring(node):
            singles = []
        else:
            singles = [node]
        parts += [_part(ast.copy_location(single, node), lines, origin) for single in singles]
    return parts


def code_parts(parts: list[Part]) -> list[Part]:
    """The parts that count: without `plot`, `derive`, and imports for these and annotations alone."""
    uses = set()
    left_out = set()
    for part in parts:
        left_out |= part.annotation_uses
        if part.counts:
            uses |= part.uses
        else:
            left_out |= part.uses
    idle = left_out - uses
    code = []
    for part in parts:
        is_idle = part.is_import and part.binds and part.binds <= idle
        if part.counts and not is_idle:
            code.append(part)
    return code


def used(parts: list[Part], names: Iterable[str], annotations: bool = False) -> list[Part]:
    """The parts that these names need, in order; with `annotations` also what these need."""
    needed: set[int] = set()
    wanted = set(names)
    size = -1
    while len(needed) > size:
        size = len(needed)
        for number, part in enumerate(parts):
            if number not in needed and (not part.binds or part.binds & wanted):
                needed.add(number)
                wanted |= part.uses
                if annotations:
                    wanted |= part.annotation_uses
    return [parts[number] for number in sorted(needed)]


def _borrows(nodes: list[ast.AST], origin: str) -> list[Borrow]:
    """What code imports of other snippets."""
    borrowed = []
    for node in nodes:
        if not isinstance(node, _IMPORTS):
            continue
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            modules = ["snippets" if node.level else node.module]
        for module in modules:
            root, *path = module.split(".")
            if root == "snippets" and path != ["pictures"]:  # what `plot` returns, which is no snippet
                if isinstance(node, ast.Import) or len(path) != 2 or node.names[0].name == "*":
                    remedy = "import a snippet as `from snippets.chapter.snippet import name`"
                    raise OverlapError(f"{origin}:{node.lineno}: {remedy}")
                borrowed += [Borrow("/".join(path), alias.name, node.lineno) for alias in node.names]
    return borrowed


def is_docstring(node: ast.AST) -> bool:
    """A text that stands alone."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def is_guard(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`, which an import does not run."""
    return isinstance(node, ast.If) and not node.orelse and ast.unparse(node.test) == "__name__ == '__main__'"


def first_line(node: ast.stmt) -> int:
    """The first line of a statement, with its decorators."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _part(node: ast.stmt, lines: list[str], origin: str) -> Part:
    nodes = list(_statements(node))
    annotation_uses = set()
    for annotation in _annotations(nodes):
        annotation_uses |= {inner.id for inner in ast.walk(annotation) if isinstance(inner, ast.Name)}
    names = (frozenset(_bound(node)), frozenset(_uses(node, lines)), frozenset(annotation_uses))
    return Part(node, *names, tuple(_borrows(nodes, origin)))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """A statement and those in it, with the arguments of functions."""
    yield node
    if isinstance(node, _FUNCTIONS):
        yield from ast.walk(node.args)
    for block in ("body", "handlers", "cases", "orelse", "finalbody"):
        for inner in getattr(node, block, ()):
            yield from _statements(inner)


def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement defines; none where it does more than that, such as to set an attribute."""
    if is_guard(node):
        return {GUARD}
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    if isinstance(node, _IMPORTS) and getattr(node, "module", None) != "__future__":
        return {(alias.asname or alias.name.split(".")[0]) for alias in node.names} - {"*"}
    targets = getattr(node, "targets", [])
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    names = set()
    for target in targets:
        for inner in ast.walk(target):
            if isinstance(inner, (ast.Attribute, ast.Subscript)):
                return set()
            if isinstance(inner, ast.Name):
                names.add(inner.id)
    return names


def _uses(node: ast.stmt, lines: list[str]) -> set[str]:
    """Names that code takes from outside of it, without those of its annotations.

    Of two statements in one line each uses what both do.
    """
    if isinstance(node, _IMPORTS):
        return set()
    code = "\n".join(["from __future__ import annotations", *lines[first_line(node) - 1 : node.end_lineno]])
    module = symtable.symtable(code, "snippet", "exec")
    names = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_referenced()}
    inner = module.get_children()
    for table in inner:
        if table.get_type() != "annotation":
            if isinstance(table, symtable.Function):
                names.update(table.get_globals())
            else:
                names |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
            inner += table.get_children()
    return names


def _annotations(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    annotations = []
    for node in nodes:
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            annotations.append(node.annotation)
        elif isinstance(node, _FUNCTIONS):
            annotations.append(node.returns)
    return [annotation for annotation in annotations if annotation]


def _read_annotations(node: ast.stmt) -> list:
    """What a class or a decorator may read: the fields with their annotations, or those of the function."""
    if isinstance(node, ast.ClassDef):
        return [[row.target, row.annotation] for row in node.body if isinstance(row, ast.AnnAssign)]
    if isinstance(node, _FUNCTIONS) and node.decorator_list:
        return _annotations(ast.walk(node))
    return []


def _is_declaration(node: object) -> bool:
    """`name: kind` without a value."""
    return isinstance(node, ast.AnnAssign) and node.value is None


def _plain(node: object) -> object:
    """Nested tuples that are the same for each Python version: without empty fields and `_LEFT_OUT`."""
    if isinstance(node, list):
        return tuple(_plain(item) for item in node if not _is_declaration(item))
    if node is None:
        return None
    if not isinstance(node, ast.AST):
        return (type(node).__name__, repr(node))
    if isinstance(node, ast.AnnAssign):
        node = ast.Assign([node.target], node.value)
    fields = []
    for name, value in ast.iter_fields(node):
        if value is None or name in _LEFT_OUT:
            continue
        if name == "body" and isinstance(node, _DEFINITIONS) and value and is_docstring(value[0]):
            value = value[1:]
        if isinstance(node, ast.JoinedStr):
            # Python 3.12 ends a nested format with an empty text, 3.11 and 3.13 do not
            value = [part for part in value if getattr(part, "value", None) != ""]
        inner = _plain(value)
        if inner != ():
            fields.append((name, inner))
    if isinstance(node, _DEFINITIONS):
        fields += [("annotation", _plain(annotation)) for annotation in _read_annotations(node)]
    return (type(node).__name__, *fields)
