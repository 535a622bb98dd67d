"""A snippet as one file that runs alone: what a borrower takes home."""

import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from overlap import OverlapError
from overlap.run import meaning

if TYPE_CHECKING:
    from overlap.run.snippet import Snippet

_ORIGIN = "# From the book Overlap, {}, MIT licence, (c) 2026 the Overlap authors"
_WIDTH = 88
#: Module (None: the module itself is imported) and what is imported, as it is written.
Import = tuple[str | None, str]


def fold(snippet: "Snippet", alone: bool) -> str:
    """The snippet with what it uses of others: imports, then what is folded in, then its own code without what only `plot` uses.

    `alone`: with its header, and with checks that say in a sentence what a machine lacks; without, as for a cell of a notebook.
    """
    files = _renamed(list(_files(snippet)))
    _refuse_clashes(snippet, files)
    imports = {found for file in files for found in file.imports}
    lack = _lack_of_gpus(snippet) if alone and any(map(meaning.is_guard, snippet.tree.body)) else []
    imports |= {(None, "torch")} if lack else set()
    stop = _lack_of_packages(snippet, imports) if alone else []
    imports |= {("importlib.util", "find_spec")} if stop else set()
    *helpers, own = files
    code = [chunk for file in helpers for chunk in file.folded_in]
    code += [chunk.checked(lack) for chunk in own.chunks]
    above = [snippet.header.rstrip()] if alone else []
    top = "\n".join([*above, _ORIGIN.format(snippet.path), *own.docstring])
    return "\n\n".join(filter(None, [top, *_sections(imports, stop)])) + "".join(_spaced(code)) + "\n"


@dataclass(frozen=True)
class _Chunk:
    """A statement as it is written, with the comments above it, after so many blank lines."""

    text: str
    blank: int
    node: ast.stmt | None = None

    @property
    def alone(self) -> bool:
        """Whether two blank lines stand around it."""
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))

    def checked(self, lines: list[str]) -> "_Chunk":
        """With these lines first, if this is what runs when the file is started."""
        if not lines or not self.node or not meaning.is_guard(self.node):
            return self
        first, rows = self.node.body[0], self.text.split("\n")
        at = len(rows) - 1 - (self.node.end_lineno - first.lineno)
        checks = textwrap.indent(textwrap.dedent("\n".join(lines)), rows[at][: first.col_offset])
        return replace(self, text="\n".join([*rows[:at], checks, *rows[at:]]))


@dataclass(frozen=True)
class _File:
    """The parts of a project file that a download holds."""

    snippet: "Snippet"
    parts: list[dict]
    own: bool = False
    other_names: dict[str, str] = field(default_factory=dict)

    @property
    def docstring(self) -> list[str]:
        """The module's docstring, or nothing."""
        first = self.snippet.tree.body[:1]
        return [self._text(node.lineno, node.end_lineno) for node in first if meaning.is_docstring(node)]

    @property
    def imports(self) -> list[Import]:
        """What is imported from outside the book."""
        future = [alias.name for node in self.snippet.tree.body if _is_future(node) for alias in node.names]
        if future and not self.own:
            raise OverlapError(f"{self.snippet.path}: `from __future__` cannot be folded into others; do without it")
        found = [(part["module"], part["alias"]) for part in self.parts if "alias" in part and not part["borrows"]]
        return [("__future__", name) for name in future] + found

    @property
    def bound(self) -> dict[str, object]:
        """Names that come from here, each with what it is."""
        found = {}
        for part in self.parts:
            name, _, alias = part.get("alias", "").partition(" as ")
            if not part["borrows"] or alias:
                root = part.get("module") is None and not alias
                what = name.split(".")[0] if root else (part["module"], name)
                names = [self.other_names.get(bound, bound) for bound in part["binds"]]
                found |= dict.fromkeys(names, what if name else self.snippet.path)
        return found

    @property
    def private(self) -> set[str]:
        """Names that it defines."""
        return {name for part in self.parts if "alias" not in part for name in part["binds"]}

    @property
    def borrowed(self) -> set[tuple[str, str]]:
        """What it takes of other files: (chapter/snippet, name)."""
        return {(name, wanted) for part in self.parts for name, wanted, _ in part["borrows"]}

    @cached_property
    def chunks(self) -> list[_Chunk]:
        """The code in order, without imports; names for what is borrowed under another name come first."""
        borrowed = (part["alias"].partition(" as ") for part in self.parts if "alias" in part and part["borrows"])
        aliases = "\n".join(f"{alias} = {name}" for name, _, alias in borrowed if alias not in ("", name))
        found = [_Chunk(aliases, 1)] if aliases else []
        kept, end = {part["lines"][1] for part in self.parts if "alias" not in part}, 0
        for node in self.snippet.tree.body:
            guard = meaning.is_guard(node)
            if node.lineno <= end or (guard and node.body[0].lineno == node.lineno):
                where = f"{self.snippet.path}:{node.lineno}"
                raise OverlapError(f"{where}: two statements on one line; give each a line of its own")
            if (guard and self.own) or (node.end_lineno in kept and not isinstance(node, ast.Import | ast.ImportFrom)):
                text = self._text(end + 1, node.end_lineno)
                bare = text.lstrip("\n")
                found.append(_Chunk(bare, len(text) - len(bare), node))
            end = node.end_lineno
        if self.own and (rest := self._text(end + 1, None).strip("\n")):
            found.append(_Chunk(rest, 1))
        return found

    @property
    def folded_in(self) -> list[_Chunk]:
        """The code with a comment that says what it is."""
        names = [
            self.other_names.get(name, name) for part in self.parts if "alias" not in part for name in part["binds"]
        ]
        comment = f"# Folded in from {self.snippet.path}: {', '.join(dict.fromkeys(names))}".rstrip(": ")
        first, rest = self.chunks[:1], self.chunks[1:]
        return [*(replace(chunk, text=f"{comment}\n{chunk.text}") for chunk in first), *rest]

    def _text(self, first: int, last: int | None) -> str:
        text = "\n".join(self.snippet.text.split("\n")[first - 1 : last])
        for name, other in self.other_names.items():
            text = re.sub(rf"(?<![\w.]){name}(?!\w|=(?!=))", other, text)  # no attribute, and no keyword of a call
        return text


def _files(snippet: "Snippet") -> Iterator[_File]:
    """What a download holds of each file: of one that is imported before what imports it, of the snippet itself last."""
    own = _without_plot(snippet)
    borrowed = snippet.borrowed_by(own)
    order: list[str] = []

    def visit(parts: list[dict]) -> None:
        for part in parts:
            for name, _, _ in part["borrows"]:
                if not (part.get("module") or "").startswith("snippets.") or part["module"].count(".") != 2:
                    module = f"snippets.{name.replace('/', '.')}"
                    remedy = f"import {module} as `from {module} import name`, so that the download can fold it in"
                    raise OverlapError(f"{snippet.path}: {remedy}")
                if name not in order:
                    visit(borrowed[name])
                    order.append(name)

    visit(own)
    yield from (_File(snippet.others[name], borrowed[name]) for name in order)
    yield _File(snippet, own, own=True)


def _renamed(files: list[_File]) -> list[_File]:
    """A name that a file needs for itself alone gives way where another file has one that is spelt alike."""
    asked = set().union(*(file.borrowed for file in files))
    found = []
    for file in files:
        others = set().union(*(set(other.bound) for other in files if other is not file))
        alone = {
            name
            for name in file.private & others
            if not {(file.snippet.name, name), (file.snippet.name, "*")} & asked
            and _is_text_safe(file.snippet.tree, name)
        }
        prefix = file.snippet.name.rpartition("/")[2]
        found.append(file if file.own else replace(file, other_names={name: f"{prefix}_{name}" for name in alone}))
    return found


def _is_text_safe(tree: ast.Module, name: str) -> bool:
    """Whether a word can be replaced throughout a file: it is no parameter, which callers name, and stands in no text."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if (isinstance(node, ast.arg) and node.arg == name) or re.search(rf"\b{name}\b", text):
            return False
    return True


def _without_plot(snippet: "Snippet") -> list[dict]:
    """The parts of the snippet but for `plot` and what nobody else uses."""
    body = [node for i, node in enumerate(snippet.tree.body) if i or not meaning.is_docstring(node)]
    parts = meaning.parts(ast.Module([node for node in body if not _is_future(node)], []), snippet.path)
    drawn = [id(part) for part in meaning.used(parts, {"plot"})]
    names = {name for part in parts if id(part) not in drawn for name in part["binds"]}
    started = (name for node in body if meaning.is_guard(node) for name in ast.walk(node) if isinstance(name, ast.Name))
    return meaning.used(parts, names | {name.id for name in started})


def _refuse_clashes(snippet: "Snippet", files: list[_File]) -> None:
    known: dict[str, tuple[object, str]] = {}
    for file in files:
        for name, what in file.bound.items():
            other, path = known.setdefault(name, (what, file.snippet.path))
            if other != what:
                remedy = "give one of them another name, so that one download can hold both"
                raise OverlapError(f"{snippet.path}: `{name}` of {file.snippet.path} is another in {path}; {remedy}")


def _lack_of_gpus(snippet: "Snippet") -> list[str]:
    """Lines for the main guard: what to say where there are too few GPUs, or no torchrun."""
    file, least, lines = snippet.path.rpartition("/")[2], min(snippet.options["gpus"]), []
    if least:
        few = "not torch.cuda.device_count()" if least == 1 else f"torch.cuda.device_count() < {least}"
        seen = "none" if least == 1 else "{torch.cuda.device_count() or 'none'}"
        needs = f"{file} needs {least} CUDA GPU{'s' * (least > 1)}; torch {{torch.__version__}} sees {seen}."
        lines += [f"    if {few}:", _stop(2, f'f"{needs}"')]
    alone = "is_torchelastic_launched" in snippet.text  # one that asks for itself can do without torchrun
    if snippet.options["launcher"] == "torchrun" and not alone:
        start = f"start it with torchrun --nproc-per-node {snippet.options['ranks'] or 'gpu'} {file}"
        lines += ["    if not torch.distributed.is_torchelastic_launched():"]
        lines += [_stop(2, f'"{file} is for several processes: {start}"')]
    return lines


def _lack_of_packages(snippet: "Snippet", imports: Iterable[Import]) -> list[str]:
    """Lines to stand before what is imported: what to say where it is not installed."""
    roots = sorted(set(map(_root, imports)) - sys.stdlib_module_names)
    if not roots:
        return []
    file = snippet.path.rpartition("/")[2]
    named = [re.match(r"[\w.-]*", given)[0] for given in snippet.metadata.get("dependencies", [])] or roots
    several = f"None in map(find_spec, {tuple(roots)})".replace("'", '"')
    lacks = f'not find_spec("{roots[0]}")' if len(roots) == 1 else several
    says = f"{file} needs {' and '.join(roots)}: pip install {' '.join(named)}, or uv run {file}"
    return [f'if __name__ == "__main__" and {lacks}:', _stop(1, f'"{says}"')]


def _stop(depth: int, text: str) -> str:
    indent = "    " * depth
    line = f"{indent}raise SystemExit({text})"
    return line if len(line) <= _WIDTH else f"{indent}raise SystemExit(\n{indent}    {text}\n{indent})"


def _sections(imports: Iterable[Import], stop: list[str]) -> list[str]:
    """Imports as isort writes them; `stop` stands before what has to be installed."""
    future, standard, other = [], [], []
    for found in imports:
        root = _root(found)
        (future if root == "__future__" else standard if root in sys.stdlib_module_names else other).append(found)
    return [_section(future), _section(standard), "\n".join(stop), _section(other)]


def _section(imports: list[Import]) -> str:
    """Whole modules, then names by their modules; a name that gets another one has its own line."""
    lines = [f"import {name}" for name in sorted((name for module, name in imports if not module), key=_folded)]
    merged: dict[tuple[str, str], list[str]] = {}
    for module, name in sorted((i for i in imports if i[0]), key=lambda i: (_folded(i[0]), _rank(i[1]))):
        merged.setdefault((module, name if " as " in name else ""), []).append(name)
    for (module, _), names in merged.items():
        line = f"from {module} import {', '.join(names)}"
        tall = "".join(f"    {name},\n" for name in names)
        lines.append(line if len(line) <= _WIDTH else f"from {module} import (\n{tall})")
    return "\n".join(lines)


def _root(found: Import) -> str:
    return re.match(r"\w+", found[0] or found[1])[0]


def _folded(name: str) -> tuple[str, str]:
    return name.lower(), name


def _rank(name: str) -> tuple:
    """Constants before classes before functions."""
    plain = name.partition(" as ")[0]
    return (0 if plain.isupper() and len(plain) > 1 else 1 if plain[:1].isupper() else 2), _folded(name)


def _spaced(chunks: list[_Chunk]) -> Iterator[str]:
    """Each with the line breaks before it: two blank lines around what is defined."""
    above = False
    for i, chunk in enumerate(chunks):
        blank = 2 if chunk.alone or above else min(chunk.blank, 2) if i else 1
        yield "\n" * (1 + blank) + chunk.text
        above = chunk.alone


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
