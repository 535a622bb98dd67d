"""A snippet as one file that runs alone: what a borrower takes home.

A download has the snippet's header, all imports, what it uses of other snippets, and its own code without
`plot` and `derive`. A function can be taken alone, too, with what it needs.
"""

import ast
import re
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import replace

from overlap import OverlapError
from overlap.run import meaning
from overlap.run.meaning import AFTERWARDS, GUARD, Part
from overlap.run.snippet import Snippet
from overlap.run.text import plural

ORIGIN = "# From the book Overlap, {}, MIT licence, (c) 2026 the Overlap authors"
_WIDTH = 88
#: The comment behind each import: its module (of `from module import`) or None, and the name as written.
Imports = dict[tuple[str | None, str], str]
#: A statement, and its lines with those between it and the one before.
Chunk = tuple[ast.stmt, str]
#: Of each file what is taken of it.
Files = list[tuple[Snippet, list[Part]]]


def program(snippet: Snippet) -> str:
    """The file that the site offers, with checks that say in a sentence what a machine lacks."""
    files = _files(snippet, _recorded(snippet))
    origin = _origin(snippet, files, snippet.credits)
    head = [_header(snippet), *origin, *_docstring(snippet)]
    imports = _imports(files)
    lacks_gpus = []
    if any(meaning.is_guard(node) for node in snippet.tree.body):
        lacks_gpus = _gpu_checks(snippet)
    if lacks_gpus:
        imports.setdefault((None, "torch"), "")
    lacks_packages = _package_checks(snippet, imports)
    if lacks_packages:
        imports.setdefault(("importlib.util", "find_spec"), "")
    return _text(head, files, imports, lacks_packages, lacks_gpus)


def cell(snippet: Snippet) -> str:
    """The file as the cell of a notebook: without header and checks."""
    files = _files(snippet, _recorded(snippet))
    origin = _origin(snippet, files, snippet.credits)
    return _text([*origin, *_docstring(snippet)], files, _imports(files)).strip()


def piece(snippet: Snippet, name: str) -> str:
    """One function or class with what it needs, as a file to import."""
    files = _files(snippet, meaning.used(snippet.parts, {name}, annotations=True))
    text = _text(_origin(snippet, files), files, _imports(files))
    needs = []
    packages = _packages(text)
    if packages:
        needs += snippet.metadata.get("dependencies", [])
    for other in ("numpy", "matplotlib"):  # torch warns without the first; the rest of the file may draw
        if other in needs and other not in packages:
            needs.remove(other)
    uses_cuda = any("cuda" in part.text for _, parts in files for part in parts)
    runs_on_cpu = 0 in snippet.options["gpus"] or name in snippet.options["take_on_cpu"]
    if uses_cuda and not runs_on_cpu:
        needs.append("a CUDA GPU")
    needs = needs or ["Python alone"]
    origin, line, code = text.partition("\n")
    return f"{origin}{line}# Needs {', '.join(needs)}{line}{code}"


def _packages(text: str) -> set[str]:
    """What code imports from outside the standard library, anywhere in it."""
    modules = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append(node.module)
    return {module.partition(".")[0] for module in modules} - sys.stdlib_module_names


def _text(
    head: list[str],
    files: Files,
    imports: Imports,
    lacks_packages: Iterable[str] = (),
    lacks_gpus: Iterable[str] = (),
) -> str:
    """The file: comments on top, imports, what is folded in, and at last the snippet's own code."""
    future, standard, other = (_section(imports, number) for number in range(3))
    text = "\n\n".join(filter(None, ["\n".join(head), future, standard, "\n".join(lacks_packages), other]))
    chunks = []
    for file, parts in files[:-1]:
        chunks += _folded_in(file, parts)
    chunks += _chunks(*files[-1])

    after_definition = False
    for number, (node, chunk) in enumerate(chunks):
        code = chunk.lstrip("\n")
        blank = min(len(chunk) - len(code), 2)
        if number == 0:  # it stands behind the imports
            blank = 1
        is_definition = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if is_definition or after_definition:
            blank = 2
        if meaning.is_guard(node):
            code = _with_checks(code, node, lacks_gpus)
        text += "\n" * (1 + blank) + code
        after_definition = is_definition
    return text + "\n"


def _folded_in(file: Snippet, parts: list[Part]) -> list[Chunk]:
    """The code that is taken of another snippet, with a comment that says so."""
    chunks = _chunks(file, parts)
    names = set()
    for part in parts:
        if not part.is_import:
            names |= part.binds
    if chunks:
        node, code = chunks[0]
        comment = f"# Folded in from {file.path}: {', '.join(sorted(names))}".rstrip(": ")
        chunks[0] = (node, f"\n{comment}\n{code.lstrip()}")
    return chunks


def _chunks(snippet: Snippet, parts: list[Part]) -> list[Chunk]:
    """The statements of these parts, without imports; each with the lines between it and the one before."""
    wanted = [part.node for part in parts if not part.is_import]
    lines = snippet.text.split("\n")
    chunks = []
    end = 0
    for node in snippet.tree.body:
        if node in wanted:
            chunks.append((node, "\n".join(lines[end : node.end_lineno])))
        end = node.end_lineno
    return chunks


def _files(snippet: Snippet, parts: list[Part]) -> Files:
    """The files to fold, with the parts used of each; a file comes after its imports, the snippet last."""
    borrows = []
    for part in parts:
        borrows += part.borrows
    borrowed = snippet.borrowed_by(borrows, annotations=True)
    order: list[str] = []
    visited: set[str] = set()

    def visit(needed: list[Part]) -> None:
        for part in needed:
            for borrow in part.borrows:
                if not part.is_import or part.node.names[0].asname:
                    module = f"snippets.{borrow.snippet.replace('/', '.')}"
                    remedy = f"import {module} as `from {module} import name` at the top of the file"
                    raise OverlapError(f"{snippet.path}: {remedy}, so that the download can fold it in")
                if borrow.snippet not in visited:
                    visited.add(borrow.snippet)
                    visit(borrowed[borrow.snippet])
                    order.append(borrow.snippet)

    visit(parts)
    files = [(snippet.known[name], borrowed[name]) for name in order]
    files.append((snippet, parts))
    return _apart(snippet, files)


def _apart(snippet: Snippet, files: Files) -> Files:
    """Rename what would clash: a name that a later file binds to something else gets an underscore."""
    names = _longer_names(snippet, files)
    for file, parts in files:
        for part in parts:
            for borrow in part.borrows:
                if borrow.name in names[borrow.snippet]:
                    names[file.name][borrow.name] = names[borrow.snippet][borrow.name]
    return [_renamed(file, parts, names[file.name]) for file, parts in files]


def _longer_names(snippet: Snippet, files: Files) -> dict[str, dict[str, str]]:
    """New names by file: for each name that a later file binds to something else."""
    names: dict[str, dict[str, str]] = {file.name: {} for file, _ in files}
    known: dict[str, tuple[str, Snippet]] = {}
    for file, parts in reversed(files):
        for part in parts:
            if part.borrows:
                continue
            meaning = _meaning(file, part)
            for name in part.binds:
                other, later = known.setdefault(name, (meaning, file))
                if other == meaning or name in names[file.name]:
                    continue
                if other != later.path or part.is_import:
                    remedy = "give one of them another name, so that one download can hold both"
                    raise OverlapError(
                        f"{snippet.path}: `{name}` of {file.path} is another in {later.path}; {remedy}"
                    )
                longer = name
                while longer in known:
                    longer += "_"
                known[longer] = (meaning, file)
                names[file.name][name] = longer
    return names


def _meaning(file: Snippet, part: Part) -> str:
    """What a statement binds its names to: a package, what an import names, or a definition of the file."""
    if not part.is_import:
        return file.path
    if isinstance(part.node, ast.Import) and not part.node.names[0].asname:
        return "package"
    return ast.unparse(part.node)


def _renamed(file: Snippet, parts: list[Part], names: dict[str, str]) -> tuple[Snippet, list[Part]]:
    """A file and the parts taken of it, with other names for some of what they bind."""
    if not names:
        return file, parts
    pattern = rf"(?<![\w.])({'|'.join(names)})(?!\w)"
    renamed = replace(file, text=re.sub(pattern, lambda name: names[name[1]], file.text))
    return renamed, [renamed.parts[file.parts.index(part)] for part in parts]


def _recorded(snippet: Snippet) -> list[Part]:
    """The parts of the snippet but for `plot`, `derive` and what nothing else uses."""
    afterwards = meaning.used(snippet.parts, AFTERWARDS, annotations=True)
    names = {GUARD}
    for part in snippet.parts:
        if part not in afterwards:
            names |= part.binds
    return meaning.used(snippet.parts, names, annotations=True)


def _header(snippet: Snippet) -> str:
    """The header without `[tool.overlap]`, which means nothing outside the book."""
    lines = []
    table = ""
    for line in snippet.header.splitlines():
        if line.startswith("# ["):
            table = line
        if line == "# ///":
            table = ""
        if not table.startswith("# [tool.overlap"):
            lines.append(line)
    return "\n".join(lines)


def summary(snippet: Snippet, name: str) -> str:
    """What a function or class is for: the first sentence of its docstring."""
    for node in snippet.tree.body:
        if getattr(node, "name", "") == name:
            text = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
            return re.split(r"(?<=[.;])\s", text)[0].rstrip(".:;")
    return ""


def _origin(snippet: Snippet, files: Files, in_docstring: Iterable[str] = ()) -> list[str]:
    """Comments: the book and its licence, and whose code the files follow unless the docstring says it."""
    credits: dict[str, None] = {}
    for file, _ in files:
        credits |= dict.fromkeys(file.credits)
    others = [f"# {credit}" for credit in credits if credit not in in_docstring]
    return [ORIGIN.format(snippet.path), *others]


def _docstring(snippet: Snippet) -> list[str]:
    """The lines of the module's docstring, if it has one."""
    first = snippet.tree.body[0]
    if not meaning.is_docstring(first):
        return []
    return snippet.text.split("\n")[first.lineno - 1 : first.end_lineno]


def _imports(files: Files) -> Imports:
    """What the files import from outside the book."""
    imports: Imports = {}
    for file, parts in files:
        for part in parts:
            if part.is_import and not part.borrows:
                module = getattr(part.node, "module", None)
                if module == "__future__" and file is not files[-1][0]:
                    remedy = "`from __future__` cannot be folded into others; do without it"
                    raise OverlapError(f"{file.path}: {remedy}")
                name = ast.unparse(part.node.names[0])
                comment = _comment(file, part.node, name)
                imports[module, name] = imports.get((module, name)) or comment
    return imports


def _comment(file: Snippet, node: ast.stmt, name: str) -> str:
    """The comment behind the import of a name."""
    for line in file.text.split("\n")[node.lineno - 1 : node.end_lineno]:
        comment = re.search(rf"\b{re.escape(name)},?\s+(#.*)", line)
        if comment:
            return comment[1]
    return ""


def _section(imports: Imports, number: int) -> str:
    """Sorted imports of the future, the standard library, or others; one with a comment has its own line."""
    names: dict[str, list[str]] = {}
    lines = []
    for module, name in sorted(imports, key=lambda item: (item[0] or "", item[1])):
        if _section_of(module or name) == number:
            comment = imports[module, name]
            if module is None:
                lines.append(f"import {name}  {comment}".rstrip())
            elif comment or " as " in name:
                lines.append(f"from {module} import {name}  {comment}".rstrip())
            else:
                names.setdefault(module, []).append(name)
    for module, several in names.items():
        line = f"from {module} import {', '.join(several)}"
        if len(line) > _WIDTH:
            rows = "".join(f"    {name},\n" for name in several)
            line = f"from {module} import (\n{rows})"
        lines.append(line)
    return "\n".join(sorted(lines, key=lambda line: (line.startswith("from"), line)))


def _section_of(module: str) -> int:
    """0 for the future, 1 for the standard library, 2 for others."""
    root = module.split()[0].split(".")[0]
    if root == "__future__":
        return 0
    return 1 if root in sys.stdlib_module_names else 2


def _gpu_checks(snippet: Snippet) -> list[str]:
    """Lines for the main guard: what to say where there are too few GPUs, or no torchrun."""
    file = snippet.path.rpartition("/")[2]
    least = min(snippet.options["gpus"])
    lines = []
    if least:
        needs = f"{file} needs {plural(least, 'CUDA GPU')}"
        lines.append(f"    if torch.cuda.device_count() < {least}:")
        sees = "torch {torch.__version__} sees {torch.cuda.device_count()}"
        lines.append(_stop(2, f'f"{needs}; {sees}"'))
    # one that asks for itself can do without torchrun
    does_without = "is_torchelastic_launched" in snippet.text
    if snippet.options["launcher"] == "torchrun" and not does_without:
        start = f"start it with torchrun --nproc-per-node {snippet.options['ranks'] or 'gpu'} {file}"
        lines.append("    if not torch.distributed.is_torchelastic_launched():")
        lines.append(_stop(2, f'"{file} is for several processes: {start}"'))
    return lines


def _with_checks(code: str, guard: ast.stmt, checks: Iterable[str]) -> str:
    """A main guard with these lines first."""
    rows = code.split("\n")
    first = guard.body[0]
    place = len(rows) - 1 - (guard.end_lineno - first.lineno)
    lines = textwrap.indent(textwrap.dedent("\n".join(checks)), " " * first.col_offset)
    return "\n".join([*rows[:place], *filter(None, [lines]), *rows[place:]])


def _package_checks(snippet: Snippet, imports: Imports) -> list[str]:
    """Lines to stand before what is imported: what to say where it is not installed."""
    roots = {re.match(r"\w+", module or name)[0] for module, name in imports}
    roots = sorted(roots - sys.stdlib_module_names)
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
