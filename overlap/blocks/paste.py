"""Lines to paste: a short file of snippets/pastes/, whole, that needs nothing but torch, or pycuda."""

import ast
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
        """The file without its docstring, in the checkout `root`; a wrong name is an error."""
        folder = root / "snippets" / PASTES
        files = {file.stem: file for file in sorted(folder.glob("*.py")) if file.stem != "__init__"}
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
        code = self.code(pages.book.root)
        where = f"snippets/{PASTES}/{self.name}.py"
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


def _imported(code: str) -> set[str]:
    """The top names of the modules that it imports."""
    modules = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").split(".")[0])
    return modules
