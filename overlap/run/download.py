"""A snippet as one file that runs alone: what a borrower takes home.

A download has the snippet's header, all imports, the functions that it uses of other snippets, and its own
code without `plot`.
"""

import ast
import re
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from overlap import OverlapError
from overlap.run import fingerprint
from overlap.run.fingerprint import Part
from overlap.run.snippet import Snippet

_ORIGIN = "# From the book Overlap, {}, MIT licence, (c) 2026 the Overlap authors"
_WIDTH = 88


def program(snippet: Snippet) -> str:
    """The file that the site offers, with checks that say in a sentence what a machine lacks."""
    return _fold(snippet, alone=True)


def cell(snippet: Snippet) -> str:
    """The same as the cell of a notebook: without header and checks."""
    return _fold(snippet, alone=False).strip()


@dataclass(frozen=True)
class _Import:
    """`import name`, or with a module `from module import name`; the name as it is written, with `as`."""

    module: str | None
    name: str
    comment: str = ""

    @property
    def root(self) -> str:
        """The package."""
        return re.match(r"\w+", self.module or self.name)[0]

    @property
    def section(self) -> int:
        """Where isort puts it: the future, the standard library, the rest."""
        if self.root == "__future__":
            return 0
        return 1 if self.root in sys.stdlib_module_names else 2

    @property
    def order(self) -> tuple:
        """Constants stand before classes, and these before functions."""
        plain = self.name.partition(" as ")[0]
        kind = 2
        if plain.isupper() and len(plain) > 1:
            kind = 0
        elif plain[:1].isupper():
            kind = 1
        return kind, _alphabetic(self.name)


@dataclass(frozen=True)
class _Chunk:
    """A statement as it is written, with the comments above it, after so many blank lines."""

    text: str
    blank: int
    node: ast.stmt | None = None

    @property
    def is_definition(self) -> bool:
        """Whether two blank lines stand around it."""
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


@dataclass(frozen=True)
class _File:
    """What a download holds of one file; `new_names` are those that other files define, too."""

    snippet: Snippet
    parts: list[Part]
    is_own: bool = False
    new_names: dict[str, str] = field(default_factory=dict)

    @property
    def docstring(self) -> list[str]:
        """The module's docstring, or nothing."""
        first = self.snippet.tree.body[0]
        return [self.lines(first.lineno, first.end_lineno)] if fingerprint.is_docstring(first) else []

    @property
    def imports(self) -> list[_Import]:
        """What it imports from outside the book."""
        imports = []
        for node in self.snippet.tree.body:
            if _is_future(node):
                if not self.is_own:
                    remedy = "`from __future__` cannot be folded into others; do without it"
                    raise OverlapError(f"{self.snippet.path}: {remedy}")
                imports += [_Import("__future__", alias.name) for alias in node.names]
        for part in self.parts:
            if part.is_import and not part.borrows:
                imports.append(_Import(part.module, part.alias, self._comment(part)))
        return imports

    @property
    def definitions(self) -> set[str]:
        """Names that it defines itself."""
        names = set()
        for part in self.parts:
            if not part.is_import:
                names |= part.binds
        return names

    @property
    def bound(self) -> dict[str, object]:
        """All names that come from here, each with what it is: equal ones are the same thing."""
        bound = {}
        for part in self.parts:
            name, _, alias = part.alias.partition(" as ")
            if part.borrows and not alias:
                continue  # the file that it is borrowed from binds it
            meaning = (part.module, name)
            if not part.is_import:
                meaning = self.snippet.path
            elif part.module is None and not alias:
                meaning = name.split(".")[0]
            for old in part.binds:
                bound[self.new_names.get(old, old)] = meaning
        return bound

    @property
    def chunks(self) -> list[_Chunk]:
        """The code in order, without imports; names for what is borrowed under another name come first."""
        chunks = []
        aliases = [part.alias.partition(" as ") for part in self.parts if part.is_import and part.borrows]
        lines = [f"{alias} = {name}" for name, _, alias in aliases if alias not in ("", name)]
        if lines:
            chunks.append(_Chunk("\n".join(lines), 1))
        wanted = {part.last for part in self.parts if not part.is_import}
        end = 0
        for node in self.snippet.tree.body:
            is_guard = fingerprint.is_guard(node)
            if node.lineno <= end or (is_guard and node.body[0].lineno == node.lineno):
                where = f"{self.snippet.path}:{node.lineno}"
                raise OverlapError(f"{where}: two statements on one line; give each a line of its own")
            is_import = isinstance(node, (ast.Import, ast.ImportFrom))
            if (is_guard and self.is_own) or (node.end_lineno in wanted and not is_import):
                text = self.lines(end + 1, node.end_lineno)
                bare = text.lstrip("\n")
                chunks.append(_Chunk(bare, len(text) - len(bare), node))
            end = node.end_lineno
        rest = self.lines(end + 1, None).strip("\n")
        if self.is_own and rest:
            chunks.append(_Chunk(rest, 1))
        return chunks

    @property
    def folded_in(self) -> list[_Chunk]:
        """The code with a comment that says what it is."""
        names = []
        for part in self.parts:
            if not part.is_import:
                names += [self.new_names.get(name, name) for name in sorted(part.binds)]
        comment = f"# Folded in from {self.snippet.path}: {', '.join(dict.fromkeys(names))}".rstrip(": ")
        chunks = self.chunks
        if chunks:
            chunks[0] = replace(chunks[0], text=f"{comment}\n{chunks[0].text}")
        return chunks

    def lines(self, first: int, last: int | None) -> str:
        """Lines of the file, with the new names in them."""
        text = "\n".join(self.snippet.text.split("\n")[first - 1 : last])
        for name, new_name in self.new_names.items():
            # no attribute, and no keyword of a call
            text = re.sub(rf"(?<![\w.]){name}(?!\w|=(?!=))", new_name, text)
        return text

    def _comment(self, part: Part) -> str:
        """The comment behind an import of one name."""
        if part.first != part.last:
            return ""
        comment = re.search(rf"\b{re.escape(part.alias)}\s+(#.*)", self.lines(part.first, part.last))
        return comment[1] if comment else ""


def _fold(snippet: Snippet, alone: bool) -> str:
    files = _files(snippet)
    _refuse_clashes(snippet, files)
    *helpers, own = files
    imports: dict[tuple, _Import] = {}
    for file in files:
        for item in file.imports:
            known = imports.setdefault((item.module, item.name), item)
            if item.comment and not known.comment:
                imports[item.module, item.name] = item

    head, checks, gpu_checks = [_ORIGIN.format(snippet.path), *own.docstring], [], []
    if alone:
        head.insert(0, snippet.header.rstrip())
        if any(fingerprint.is_guard(node) for node in snippet.tree.body):
            gpu_checks = _gpu_checks(snippet)
        if gpu_checks:
            imports.setdefault((None, "torch"), _Import(None, "torch"))
        checks = _package_checks(snippet, imports.values())
        if checks:
            imports.setdefault(("importlib.util", "find_spec"), _Import("importlib.util", "find_spec"))

    future, standard, other = (_section(imports.values(), number) for number in range(3))
    chunks = [chunk for file in helpers for chunk in file.folded_in]
    chunks += [_with_checks(chunk, gpu_checks) for chunk in own.chunks]
    blocks = ["\n".join(head), future, standard, "\n".join(checks), other]
    return "\n\n".join(filter(None, blocks)) + _spaced(chunks) + "\n"


def _files(snippet: Snippet) -> list[_File]:
    """What a download holds of each file: a file stands after what it imports, the snippet is the last."""
    own = _without_plot(snippet)
    borrowed = snippet.borrowed_by([borrow for part in own for borrow in part.borrows])
    order: list[str] = []

    def visit(parts: list[Part]) -> None:
        for part in parts:
            for borrow in part.borrows:
                if not (part.module or "").startswith("snippets.") or part.module.count(".") != 2:
                    module = f"snippets.{borrow.snippet.replace('/', '.')}"
                    remedy = f"import {module} as `from {module} import name`"
                    raise OverlapError(f"{snippet.path}: {remedy}, so that the download can fold it in")
                if borrow.snippet not in order:
                    visit(borrowed[borrow.snippet])
                    order.append(borrow.snippet)

    visit(own)
    helpers = [_File(snippet.others[name], borrowed[name]) for name in order]
    return _renamed([*helpers, _File(snippet, own, is_own=True)])


def _without_plot(snippet: Snippet) -> list[Part]:
    """The parts of the snippet but for `plot` and what nothing else uses."""
    body = [node for node in snippet.tree.body if not _is_future(node)]
    if fingerprint.is_docstring(body[0]):
        del body[0]
    parts = fingerprint.parts(ast.Module(body, []), snippet.path)
    for_plot = set(map(id, fingerprint.used(parts, {"plot"})))
    names = set()
    for part in parts:
        if id(part) not in for_plot:
            names |= part.binds
    for node in body:
        if fingerprint.is_guard(node):
            names |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return fingerprint.used(parts, names)


def _renamed(files: list[_File]) -> list[_File]:
    """A helper's name that another file has, too, gets the helper's own before it, if it is not borrowed."""
    wanted = set()
    for file in files:
        for part in file.parts:
            wanted |= {(borrow.snippet, borrow.name) for borrow in part.borrows}
    renamed = []
    for file in files:
        new_names = {}
        for other in files:
            for name in sorted(file.definitions & other.bound.keys()):
                is_wanted = wanted & {(file.snippet.name, name), (file.snippet.name, "*")}
                if other is not file and not is_wanted and _is_safe(file.snippet.tree, name):
                    new_names[name] = f"{file.snippet.name.rpartition('/')[2]}_{name}"
        renamed.append(file if file.is_own else replace(file, new_names=new_names))
    return renamed


def _is_safe(tree: ast.Module, name: str) -> bool:
    """Whether a word can be replaced throughout a file: it is no parameter, and stands in no text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == name:
            return False
        text = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and re.search(rf"\b{name}\b", text):
            return False
    return True


def _refuse_clashes(snippet: Snippet, files: list[_File]) -> None:
    known: dict[str, tuple[object, str]] = {}
    for file in files:
        for name, meaning in file.bound.items():
            other, path = known.setdefault(name, (meaning, file.snippet.path))
            if other != meaning:
                remedy = "give one of them another name, so that one download can hold both"
                raise OverlapError(
                    f"{snippet.path}: `{name}` of {file.snippet.path} is another in {path}; {remedy}"
                )


def _gpu_checks(snippet: Snippet) -> list[str]:
    """Lines for the main guard: what to say where there are too few GPUs, or no torchrun."""
    file = snippet.path.rpartition("/")[2]
    least = min(snippet.options["gpus"])
    lines = []
    if least == 1:
        lines.append("    if not torch.cuda.device_count():")
        lines.append(_stop(2, f'f"{file} needs 1 CUDA GPU; torch {{torch.__version__}} sees none."'))
    elif least:
        seen = "torch {torch.__version__} sees {torch.cuda.device_count() or 'none'}"
        lines.append(f"    if torch.cuda.device_count() < {least}:")
        lines.append(_stop(2, f'f"{file} needs {least} CUDA GPUs; {seen}."'))
    # one that asks for itself can do without torchrun
    does_without = "is_torchelastic_launched" in snippet.text
    if snippet.options["launcher"] == "torchrun" and not does_without:
        start = f"start it with torchrun --nproc-per-node {snippet.options['ranks'] or 'gpu'} {file}"
        lines.append("    if not torch.distributed.is_torchelastic_launched():")
        lines.append(_stop(2, f'"{file} is for several processes: {start}"'))
    return lines


def _with_checks(chunk: _Chunk, checks: list[str]) -> _Chunk:
    """A main guard with these lines first; anything else as it is."""
    if not checks or not chunk.node or not fingerprint.is_guard(chunk.node):
        return chunk
    first, rows = chunk.node.body[0], chunk.text.split("\n")
    place = len(rows) - 1 - (chunk.node.end_lineno - first.lineno)
    indent = rows[place][: first.col_offset]
    lines = textwrap.indent(textwrap.dedent("\n".join(checks)), indent)
    return replace(chunk, text="\n".join([*rows[:place], lines, *rows[place:]]))


def _package_checks(snippet: Snippet, imports: Iterable[_Import]) -> list[str]:
    """Lines to stand before what is imported: what to say where it is not installed."""
    roots = sorted({item.root for item in imports} - sys.stdlib_module_names)
    if not roots:
        return []
    file = snippet.path.rpartition("/")[2]
    named = [re.match(r"[\w.-]*", text)[0] for text in snippet.metadata.get("dependencies", [])] or roots
    lacks = f'not find_spec("{roots[0]}")'
    if len(roots) > 1:
        lacks = f"None in map(find_spec, {tuple(roots)})".replace("'", '"')
    message = f"{file} needs {' and '.join(roots)}: pip install {' '.join(named)}, or uv run {file}"
    return [f'if __name__ == "__main__" and {lacks}:', _stop(1, f'"{message}"')]


def _stop(depth: int, text: str) -> str:
    indent = "    " * depth
    line = f"{indent}raise SystemExit({text})"
    return line if len(line) <= _WIDTH else f"{indent}raise SystemExit(\n{indent}    {text}\n{indent})"


def _section(imports: Iterable[_Import], number: int) -> str:
    """Imports as isort writes them: modules, then names by module; `as` and comments have their own line."""
    section = [item for item in imports if item.section == number]
    modules = [item for item in section if item.module is None]
    lines = [
        _commented(f"import {item.name}", item) for item in sorted(modules, key=lambda i: _alphabetic(i.name))
    ]
    named = [item for item in section if item.module is not None]
    named.sort(key=lambda item: (_alphabetic(item.module), item.order))
    merged: dict[tuple[str, str], list[str]] = {}
    for item in named:
        own_line = item.name if " as " in item.name or item.comment else ""
        merged.setdefault((item.module, own_line), []).append(item.name)
    comments = {(item.module, item.name): item for item in named}
    for (module, own_line), names in merged.items():
        line = f"from {module} import {', '.join(names)}"
        if own_line:
            line = _commented(line, comments[module, own_line])
        elif len(line) > _WIDTH:
            line = f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"
        lines.append(line)
    return "\n".join(lines)


def _commented(line: str, item: _Import) -> str:
    return f"{line}  {item.comment}" if item.comment else line


def _alphabetic(name: str) -> tuple[str, str]:
    return name.lower(), name


def _spaced(chunks: list[_Chunk]) -> str:
    """The chunks with line breaks before them: two blank lines around what is defined."""
    text = ""
    after_definition = False
    for number, chunk in enumerate(chunks):
        blank = min(chunk.blank, 2) if number else 1
        if chunk.is_definition or after_definition:
            blank = 2
        text += "\n" * (1 + blank) + chunk.text
        after_definition = chunk.is_definition
    return text


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
