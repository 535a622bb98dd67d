"""Lines to paste: a short file of snippets/pastes/, whole, that needs nothing but torch, or pycuda."""

import ast
import builtins
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from overlap import OverlapError
from overlap.blocks.block import Block, Notebook, Pages, Source, Text, View, read_template
from overlap.run.snippet import PASTES

#: Lines of code that a reader copies without thinking twice; empty ones are not counted.
MOST_LINES = 12
#: What a box may import beside the standard library.
PACKAGES = {"torch", "pycuda", "cuda"}


@dataclass(frozen=True)
class Paste(Block):
    """```` ```paste name ````: the code of snippets/pastes/<name>.py; the body says what it is for."""

    name: str
    caption: str

    kind: ClassVar[str] = "paste"

    @classmethod
    def read(cls, source: Source) -> "Paste":
        """Read the name and the sentence."""
        return cls(source.page, source.line, source.argument, " ".join(source.rows()))

    @property
    def prose(self) -> Text:
        """What it is for, which is text like any other of the page."""
        return Text(self.page, self.line + 1, self.caption)

    def code(self, root: Path) -> str:
        """The file without its docstring, in the checkout `root`; a wrong name is an error.

        If it uses what other boxes define, its first line says what.
        """
        code = self._code(root)
        needs = _free_names(code) & set(_defined(root))
        return f"# needs {', '.join(sorted(needs))}\n{code}" if needs else code

    def needs(self, root: Path) -> set[str]:
        """The boxes whose names its code uses."""
        boxes = _defined(root)
        return {boxes[name] for name in _free_names(self._code(root)) & set(boxes)}

    def _code(self, root: Path) -> str:
        files = _files(root)
        if self.name not in files:
            reason = f"no file {self.name!r} in snippets/{PASTES}/"
            raise OverlapError(f"{self.where}: {reason}; there are {', '.join(files) or 'none yet'}")
        text = files[self.name].read_text(encoding="utf-8")
        try:
            first = ast.parse(text).body[0]
        except (SyntaxError, IndexError) as error:
            reason = f"cannot be read ({error})"
            raise OverlapError(f"snippets/{PASTES}/{self.name}.py: {reason}; write Python") from None
        is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        lines = text.split("\n")
        code = "\n".join(lines[first.end_lineno if is_docstring else 0 :]).strip("\n")
        return code.replace("\n\n\n", "\n\n")  # a box on a page is small

    def check(self, pages: Pages) -> Iterator[str]:
        """More lines than one pastes, imports that a reader does not have, and what the sentence says."""
        yield from super().check(pages)
        code = self._code(pages.book.root)
        where = f"snippets/{PASTES}/{self.name}.py"
        above = {
            block.name for block in pages.on(self.page) if isinstance(block, Paste) and block.line < self.line
        }
        for box in sorted(self.needs(pages.book.root) - above):
            yield f"{self.where}: {where} uses what the box {box} defines; put that box above it on this page"
        count = sum(bool(line.strip()) for line in code.split("\n"))
        if count > MOST_LINES:
            yield f"{where}: {count} lines to paste; leave {MOST_LINES}, or make it a function to take home"
        for module in sorted(_imported(code)):
            if module not in PACKAGES | sys.stdlib_module_names:
                yield f"{where}: imports {module}, which a reader may not have; do without it"

    def markdown(self, view: View) -> str:
        """The sentence, then the code with its button."""
        lines = view.lines(self.code(view.book.root))
        box = view.stash(view.render(read_template("paste"), lines=lines))
        return f"\n{self.caption}\n\n{box}\n"

    def cells(self, notebook: Notebook) -> list[dict]:
        """A cell that runs there."""
        return [*self.prose.cells(notebook), notebook.code(self.code(notebook.book.root), [], ["paste"])]


def _files(root: Path) -> dict[str, Path]:
    """The files of all boxes, by name."""
    folder = root / "snippets" / PASTES
    return {file.stem: file for file in sorted(folder.glob("*.py")) if file.stem != "__init__"}


def _defined(root: Path) -> dict[str, str]:
    """What boxes define at the top, and which box does; two boxes may define a name for different readers."""
    return {
        node.name: name
        for name, file in _files(root).items()
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def _free_names(code: str) -> set[str]:
    """The names that code reads, and neither binds nor finds among Python's own."""
    read, bound = set(), set(dir(builtins))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
    return read - bound


def _imported(code: str) -> set[str]:
    """The top names of the modules that it imports."""
    modules = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").split(".")[0])
    return modules
