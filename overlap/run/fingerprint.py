"""What Python code means, as hashes: comments, docstrings, layout and `plot` make no recording stale.

A file is hashed by its syntax tree. Of a file that others import only the statements they use are hashed, so
that a new helper beside them makes nobody stale. The hashes stand in recordings and must not change, whatever
Python version computes them.
"""

import ast
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from overlap import OverlapError

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: Code that calls these may use any name of its file.
_DYNAMIC = {"globals", "eval", "exec"}


class Borrow(NamedTuple):
    """An import of another snippet: its name, the name taken from it (`*`: any), and the line."""

    snippet: str
    name: str
    line: int


@dataclass(frozen=True)
class Part:
    """A statement at the top of a file; of an import, one of its names.

    `binds` are the names it defines; without any it always counts. `uses` are other names of the file.
    """

    binds: frozenset[str]
    uses: frozenset[str]
    hash: str
    first: int
    last: int
    borrows: tuple[Borrow, ...]
    #: Of an import: whether it is one, the module of `from module import`, and what is imported, as written.
    is_import: bool = False
    module: str | None = None
    alias: str = ""


def strip(tree: ast.Module) -> ast.Module:
    """The tree without what is not hashed: `plot`, imports of snippets for it alone, docstrings.

    Functions are those of `tree`, which lose their docstrings there, too.
    """
    code = ast.Module(_without_plot(tree), [])
    for node in ast.walk(code):
        if isinstance(node, (ast.Module, *_DEFINITIONS)):
            if node.body and is_docstring(node.body[0]):
                del node.body[0]
        elif isinstance(node, ast.JoinedStr):
            # Python 3.12 ends a nested format with an empty text, 3.11 and 3.13 do not
            node.values = [part for part in node.values if not _is_empty_text(part)]
    return code


def of_file(tree: ast.Module, launcher: str) -> str:
    """SHA-256 of a stripped file and of how it is launched."""
    return _digest([_plain(tree), launcher])


def of_parts(parts: Iterable[Part]) -> str:
    """SHA-256 of some parts of a file."""
    return _digest([part.hash for part in parts])


def parts(tree: ast.Module, origin: str) -> list[Part]:
    """The statements of a tree in order, without the main guard."""
    every = []
    for node in tree.body:
        if not is_guard(node):
            every += _parts(node, origin)
    names = set()
    for part in every:
        names |= part.binds
    return [
        replace(part, uses=frozenset(names if part.uses & _DYNAMIC else part.uses & names)) for part in every
    ]


def used(parts: list[Part], names: Iterable[str]) -> list[Part]:
    """The parts that an import of these names needs (`*`: all but `main` and `plot`), in order."""
    names = set(names)
    by_name: dict[str, list[int]] = {}
    for number, part in enumerate(parts):
        for name in part.binds:
            by_name.setdefault(name, []).append(number)
    if "*" in names:
        names |= by_name.keys() - {"main", "plot"}
    todo = [number for number, part in enumerate(parts) if not part.binds or part.binds & names]
    needed = set(todo)
    while todo:
        for name in parts[todo.pop()].uses:
            new = set(by_name[name]) - needed
            needed |= new
            todo += new
    return [parts[number] for number in sorted(needed)]


def borrows(tree: ast.AST, origin: str) -> list[Borrow]:
    """What code imports of other snippets."""
    borrowed = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level or node.module == "snippets":
                remedy = "import a snippet as `from snippets.chapter.snippet import name`"
                raise OverlapError(f"{origin}:{node.lineno}: {remedy}")
            root, *path = node.module.split(".")
            if root == "snippets" and len(path) == 1:
                borrowed += [Borrow(f"{path[0]}/{alias.name}", "*", node.lineno) for alias in node.names]
            elif root == "snippets":
                borrowed += [Borrow("/".join(path), alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                root, *path = alias.name.split(".")
                if root == "snippets":
                    borrowed.append(Borrow("/".join(path), "*", node.lineno))
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


def _without_plot(tree: ast.Module) -> list[ast.stmt]:
    """The statements of a file without `plot`, and without what only `plot` takes from other snippets."""
    plots = [node for node in tree.body if getattr(node, "name", "") == "plot"]
    if not plots:
        return list(tree.body)
    body = [node for node in tree.body if node not in plots]
    for_plot_alone = _names(plots) - _names(body)
    kept = []
    for node in body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("snippets."):
            aliases = [alias for alias in node.names if (alias.asname or alias.name) not in for_plot_alone]
            if not aliases:
                continue
            node = ast.copy_location(ast.ImportFrom(node.module, aliases, node.level), node)
        kept.append(node)
    return kept


def _names(nodes: list[ast.stmt]) -> set[str]:
    return {node.id for statement in nodes for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _parts(node: ast.stmt, origin: str) -> list[Part]:
    if isinstance(node, ast.Import):
        return [_imported(node, ast.Import([alias]), alias, origin) for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module != "__future__":
        return [
            _imported(node, ast.ImportFrom(node.module, [alias], node.level), alias, origin)
            for alias in node.names
        ]
    return [_part(node, _bound(node), origin)]


def _imported(node: ast.Import | ast.ImportFrom, single: ast.stmt, alias: ast.alias, origin: str) -> Part:
    binds = set() if alias.name == "*" else {alias.asname or alias.name.split(".")[0]}
    part = _part(ast.copy_location(single, node), binds, origin)
    return replace(part, is_import=True, module=getattr(node, "module", None), alias=ast.unparse(alias))


def _part(node: ast.stmt, binds: set[str], origin: str) -> Part:
    digest, borrowed = _digest(_plain(node)), tuple(borrows(node, origin))
    return Part(frozenset(binds), frozenset(_uses(node)), digest, first_line(node), node.end_lineno, borrowed)


def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement defines; none where it does more than that, such as to set an attribute."""
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = set()
    for target in targets:
        for part in ast.walk(target):
            if isinstance(getattr(part, "ctx", None), ast.Store):
                if not isinstance(part, (ast.Name, ast.Tuple, ast.List, ast.Starred)):
                    return set()
                if isinstance(part, ast.Name):
                    names.add(part.id)
    return names | {part.target.id for part in ast.walk(node) if isinstance(part, ast.NamedExpr)}


def _uses(node: ast.AST) -> set[str]:
    """Names that a node takes from outside: read there, and no local of the function that reads them."""
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Store) else {node.id}
    if isinstance(node, ast.Global):
        return set(node.names)
    names = set()
    for field, value in ast.iter_fields(node):
        values = value if isinstance(value, list) else [value]
        children = [child for child in values if isinstance(child, ast.AST)]
        inner = set()
        for child in children:
            inner |= _uses(child)
        if field == "body" and isinstance(node, _FUNCTIONS):
            inner -= _locals(node)
        names |= inner
        if field in ("annotation", "returns"):
            names |= _quoted(children)
    return names


def _quoted(annotations: list[ast.AST]) -> set[str]:
    """Names in annotations that are written as text."""
    words = set()
    for annotation in annotations:
        for part in ast.walk(annotation):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                words |= set(re.findall(r"[^\W\d]\w*", part.value))
    return words


def _locals(function: ast.AST) -> set[str]:
    """Parameters and assigned names of a function; rather too few than too many, so that no use is missed."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names = {argument.arg for argument in arguments if argument}
    shared = set()
    todo = list(function.body) if isinstance(function.body, list) else [function.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Global):
            shared |= set(node.names)
        if not isinstance(node, _SCOPES):
            todo += ast.iter_child_nodes(node)
    return names - shared


def _is_empty_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _plain(node: object) -> object:
    """Nested tuples that do not depend on the Python version: without empty fields and hints of spelling."""
    if isinstance(node, ast.AST):
        fields = []
        for name, value in ast.iter_fields(node):
            if name not in ("kind", "type_comment", "ctx"):
                inner = _plain(value)
                if inner is not None and inner != ():
                    fields.append((name, inner))
        return (type(node).__name__, *fields)
    if isinstance(node, list):
        return tuple(_plain(item) for item in node)
    if node is None:
        return None
    return (type(node).__name__, repr(node))
