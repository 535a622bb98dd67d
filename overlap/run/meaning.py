"""What Python code means, as hashes: of a whole file, and of the parts of it that somebody else uses."""

import ast
import hashlib
import re
from collections.abc import Iterable

from overlap import OverlapError

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: Who calls these may use any name of the file.
_DYNAMIC = {"globals", "eval", "exec"}


def whole(tree: ast.Module, launcher: str) -> str:
    """SHA-256 of a file without comments, docstrings, layout or `plot`, and of how it is launched; `tree` is stripped by this."""
    tree.body = without_plot(tree)
    _strip(tree)
    return _digest([_meaning(tree), launcher])


def without_plot(tree: ast.Module) -> list[ast.stmt]:
    """The statements of a file without `plot` and without what only `plot` takes from other snippets."""
    body = [node for node in tree.body if getattr(node, "name", "") != "plot"]
    read = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
    drawing = set(map(id, tree.body)) - set(map(id, body))
    for_plot = {n.id for node in tree.body if id(node) in drawing for n in ast.walk(node) if isinstance(n, ast.Name)}
    kept = []
    for node in body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("snippets."):
            names = [alias for alias in node.names if (alias.asname or alias.name) not in for_plot - read]
            node = ast.copy_location(ast.ImportFrom(node.module, names, node.level), node)
        if getattr(node, "names", True):
            kept.append(node)
    return kept


def parts(tree: ast.Module, origin: str) -> list[dict]:
    """Statements of a stripped tree in order, as plain JSON; an import of several names is several parts.

    `binds`: the names it defines (none: it always counts); `uses`: other names of the file it needs; `hash`: of what it means;
    `lines`: first and last; `borrows`: what it imports of other snippets; `module` and `alias` of an import.
    """
    found = [part for node in tree.body if not is_guard(node) for part in _parts(node, origin)]
    names = {name for part in found for name in part["binds"]}
    for part in found:
        part["uses"] = sorted(names if part["uses"] & _DYNAMIC else part["uses"] & names)
    return found


def used(parts: list[dict], names: Iterable[str]) -> list[dict]:
    """The parts somebody needs who imports these names (`*`: all but `main` and `plot`), in order."""
    names = set(names)
    by_name: dict[str, list[int]] = {}
    for i, part in enumerate(parts):
        for name in part["binds"]:
            by_name.setdefault(name, []).append(i)
    if "*" in names:
        names |= by_name.keys() - {"main", "plot"}
    todo = [i for i, part in enumerate(parts) if not part["binds"] or names & set(part["binds"])]
    found = set(todo)
    while todo:
        needed = {i for name in parts[todo.pop()]["uses"] for i in by_name[name]} - found
        found |= needed
        todo += needed
    return [parts[i] for i in sorted(found)]


def of_parts(parts: Iterable[dict]) -> str:
    """SHA-256 of some parts of a file."""
    return _digest([part["hash"] for part in parts])


def borrows(tree: ast.AST, origin: str) -> list[list]:
    """What code imports of other snippets: [chapter/snippet, name or `*`, line]."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or node.module == "snippets"):
            raise OverlapError(
                f"{origin}:{node.lineno}: import a snippet as `from snippets.chapter.snippet import name`"
            )
        if isinstance(node, ast.ImportFrom) and node.module.startswith("snippets."):
            chapter, *rest = node.module.split(".")[1:]
            for alias in node.names:
                item = ["/".join((chapter, *rest)), alias.name] if rest else [f"{chapter}/{alias.name}", "*"]
                found.append([*item, node.lineno])
        elif isinstance(node, ast.Import):
            modules = (alias.name.split(".")[1:] for alias in node.names if alias.name.split(".")[0] == "snippets")
            found += [["/".join(module), "*", node.lineno] for module in modules]
    return found


def is_docstring(node: ast.AST) -> bool:
    """A text that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_guard(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`, which an import does not run."""
    return isinstance(node, ast.If) and not node.orelse and ast.unparse(node.test) == "__name__ == '__main__'"


def _parts(node: ast.stmt, origin: str) -> list[dict]:
    if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") != "__future__":
        return [_imported(node, alias, origin) for alias in node.names]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        binds = {node.name}
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        stores = [
            part for target in targets for part in ast.walk(target) if isinstance(getattr(part, "ctx", 0), ast.Store)
        ]
        plain = all(isinstance(part, (ast.Name, ast.Tuple, ast.List, ast.Starred)) for part in stores)
        walrus = [part.target for part in ast.walk(node) if isinstance(part, ast.NamedExpr)]
        binds = {part.id for part in [*stores, *walrus] if isinstance(part, ast.Name)} if plain else set()
    else:
        binds = set()
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    return [_part(node, binds, first, origin)]


def _imported(node: ast.Import | ast.ImportFrom, alias: ast.alias, origin: str) -> dict:
    binds = set() if alias.name == "*" else {alias.asname or alias.name.split(".")[0]}
    if isinstance(node, ast.Import):
        single, module = ast.Import([alias]), None
    else:
        single, module = ast.ImportFrom(node.module, [alias], node.level), node.module
    part = _part(ast.copy_location(single, node), binds, node.lineno, origin)
    return part | {"module": module, "alias": ast.unparse(alias)}


def _part(node: ast.stmt, binds: set[str], first: int, origin: str) -> dict:
    lines, digest = [first, node.end_lineno], _digest(_meaning(node))
    return {
        "binds": sorted(binds),
        "uses": _uses(node),
        "hash": digest,
        "lines": lines,
        "borrows": borrows(node, origin),
    }


def _uses(node: ast.AST) -> set[str]:
    """Names a node takes from outside: read there, and no local of the function that reads them."""
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Store) else {node.id}
    if isinstance(node, ast.Global):
        return set(node.names)
    found = set()
    for name, value in ast.iter_fields(node):
        children = [child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)]
        names = set().union(*map(_uses, children))
        found |= names - _locals(node) if name == "body" and isinstance(node, _FUNCTIONS) else names
        if name in ("annotation", "returns"):
            texts = (part.value for child in children for part in ast.walk(child) if isinstance(part, ast.Constant))
            found |= {word for text in texts if isinstance(text, str) for word in re.findall(r"[^\W\d]\w*", text)}
    return found


def _locals(function: ast.AST) -> set[str]:
    """Parameters and assigned names of a function; fewer rather than more, so that no use is missed."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names, shared = {argument.arg for argument in arguments if argument}, set()
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


def _strip(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            node.body = [child for i, child in enumerate(node.body) if i or not is_docstring(child)]
        elif isinstance(node, ast.JoinedStr):
            # Python 3.12 ends a nested format with an empty text, 3.11 and 3.13 do not
            node.values = [part for part in node.values if not (isinstance(part, ast.Constant) and part.value == "")]


def _digest(value) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _meaning(node):
    """Nested tuples that do not depend on the Python version: empty fields and hints of spelling are left out."""
    if isinstance(node, ast.AST):
        fields = (
            (name, _meaning(value))
            for name, value in ast.iter_fields(node)
            if name not in ("kind", "type_comment", "ctx")
        )
        return (type(node).__name__, *((name, value) for name, value in fields if value not in (None, ())))
    if isinstance(node, list):
        return tuple(_meaning(item) for item in node)
    return None if node is None else (type(node).__name__, repr(node))
