"""A function of a snippet, such as `plot`, without importing the snippet: only what it reaches is executed.

    results → function(snippet, "plot")(results, ceilings)

By the syntax tree (see `meaning`) these are the definitions, constants and imports that it names, also
through another and in the snippets that it imports from. So torch is imported only where the function reaches
it. Annotations are not evaluated. Tracebacks have the file and its lines.

What was executed is kept with the snippet: its functions share it, and those of snippets that import from it.
"""

import __future__

import ast
import builtins
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from threading import RLock
from types import CodeType, ModuleType

from overlap import OverlapError
from overlap.run import meaning
from overlap.run.meaning import Part
from overlap.run.snippet import Snippet

_NO_ANNOTATIONS = __future__.annotations.compiler_flag
_lock = RLock()


def function(snippet: Snippet, name: str) -> Callable:
    """The function of this name at the top of a snippet; what fails while it is defined raises as it is."""
    if name not in snippet.functions:
        raise OverlapError(f"{snippet.path}: has no function {name}; it has {', '.join(snippet.functions)}")
    _ = snippet.imported  # all that it imports is read
    executed = _executed(snippet)
    executed.need([name])
    return getattr(executed.module, name)


def _executed(snippet: Snippet) -> "Executed":
    """What of a snippet was executed in this process; its `main` never is."""
    if "executed" not in snippet.kept:
        snippet.kept["executed"] = Executed(snippet)
    return snippet.kept["executed"]


def raised_at(error: BaseException, snippet: Snippet) -> str:
    """`snippets/chapter/snippet.py:12`, where a function of a snippet failed; else its file alone."""
    folder = f"{snippet.root}/"
    places = []
    for frame in traceback.extract_tb(error.__traceback__):
        path = frame.filename.removeprefix(folder)
        if path.startswith("snippets/"):
            places.append(f"{path}:{frame.lineno}")
    return places[-1] if places else snippet.path


@cache
def _declared(root: Path) -> ModuleType:
    """What pictures are declared with, of this book: its root need not be where Python looks."""
    spec = importlib.util.spec_from_file_location("snippets.pictures", root / "snippets/pictures.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks there for its module
    spec.loader.exec_module(module)
    return module


class Executed:
    """What was executed of a snippet, in a module of its own, which is no `snippets.chapter.snippet`."""

    def __init__(self, snippet: Snippet):
        self._snippet = snippet
        self._begun: set[int] = set()
        self.module = ModuleType(f"{__name__}.{snippet.name.replace('/', '.')}")
        self.module.__file__ = str(snippet.root / snippet.path)
        self.module.__builtins__ = vars(builtins) | {"__import__": self._import}
        sys.modules[self.module.__name__] = self.module  # a dataclass looks there for `ClassVar`

    def need(self, names: Iterable[str]) -> None:
        """Execute what these names need and what was not executed, in the order of the file.

        A statement has begun before it is executed: files may import each other.
        """
        with _lock:
            for part in self._parts(set(names)):
                if id(part) not in self._begun:
                    self._begun.add(id(part))
                    try:
                        exec(self._compiled(part.node), vars(self.module))
                    except BaseException:
                        self._begun.remove(id(part))
                        raise

    def _parts(self, names: set[str]) -> list[Part]:
        """What these names need, and what a dataclass looks up of the annotations of its fields."""
        parts = meaning.used(self._snippet.parts, names)
        classes = [part for part in parts if isinstance(part.node, ast.ClassDef)]
        return meaning.used(self._snippet.parts, names.union(*(part.annotation_uses for part in classes)))

    def _compiled(self, node: ast.stmt) -> CodeType:
        code = ast.Module([node], [])
        return compile(code, self.module.__file__, "exec", _NO_ANNOTATIONS, dont_inherit=True)

    def _import(self, name: str, globals=None, locals=None, fromlist=(), level: int = 0) -> ModuleType:
        """What `import` does in a snippet: of other snippets it executes what the imported names need."""
        if name == "snippets.pictures":
            return _declared(self._snippet.root)
        if name.partition(".")[0] != "snippets":
            return builtins.__import__(name, globals, locals, fromlist, level)
        executed = _executed(self._snippet.known[name.removeprefix("snippets.").replace(".", "/")])
        executed.need(fromlist)
        return executed.module
