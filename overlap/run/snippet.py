"""A snippet: one file under snippets/, read but never imported."""

import ast
import hashlib
import re
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from overlap import OverlapError
from overlap.run import meaning, strict

if TYPE_CHECKING:
    from overlap.run.memo import Memo

_HEADER = re.compile(r"^# /// script\n((?:#(?: .*)?\n)+?)# ///\n", re.M)
_DEFAULTS = {
    "timeout": 60,
    "exclusive": True,
    "launcher": "python",
    "missing": {},
    "ranks": None,
}
_HOUSE_RULE = "see docs/contributing.md, 'A snippet'"


@dataclass(frozen=True)
class Snippet:
    """One runnable file of the book, named `<chapter>/<snippet>`.

    `memo` keeps what was once found out about a text; `others` are snippets that are read already.
    """

    root: Path
    name: str
    text: str = field(repr=False)
    memo: "Memo | None" = field(default=None, repr=False, compare=False)
    others: "dict[str, Snippet]" = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(
        cls, root: Path, name: str, memo: "Memo | None" = None, others: "dict[str, Snippet] | None" = None
    ) -> "Snippet":
        """Read snippets/<name>.py; a name that leaves snippets/ is refused, and so is a bad header or syntax."""
        name = name.removesuffix(".py")
        snippet = cls(root, name, _text(root, name), memo, {} if others is None else others)
        if not snippet.facts["main"]:
            raise OverlapError(f"{snippet.path}: has no main() to run; write `def main() -> dict`, {_HOUSE_RULE}")
        return snippet

    @property
    def path(self) -> str:
        """Path from the project's root."""
        return f"snippets/{self.name}.py"

    @property
    def chapter(self) -> str:
        """Folder name, which is also the page's name."""
        return self.name.split("/")[0]

    @cached_property
    def facts(self) -> dict:
        """What `facts` finds out about the text, from the memo where it is known."""
        if self.memo is None:
            return facts(self.text, self.path)
        content = hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()
        return self.memo.get("snippet", content, lambda: facts(self.text, self.path))

    @cached_property
    def metadata(self) -> dict:
        """The PEP 723 header."""
        return _metadata(self.text, self.path)

    @property
    def options(self) -> dict:
        """`[tool.overlap]` of the header, with defaults filled in."""
        return self.facts["options"]

    @cached_property
    def tree(self) -> ast.Module:
        """Syntax tree of the file."""
        return _tree(self.text, self.path)

    @property
    def summary(self) -> str:
        """First line of the module docstring."""
        return self.facts["summary"]

    @property
    def functions(self) -> dict[str, list[int]]:
        """Top-level functions and classes by name, with their first and last line."""
        return self.facts["functions"]

    @cached_property
    def inputs(self) -> dict[str, "Snippet"]:
        """Project files of which this one uses something, directly or through another, by path."""
        return {f"snippets/{name}.py": self.others[name] for name in self._borrowed}

    @property
    def hash(self) -> str:
        """SHA-256 of what the code means: no comments, docstrings, layout or `plot`."""
        return self.facts["hash"]

    @cached_property
    def input_hashes(self) -> dict[str, str]:
        """Hash of what is used of each imported project file, by path."""
        return {f"snippets/{name}.py": meaning.of_parts(parts) for name, parts in sorted(self._borrowed.items())}

    def show(self, names: list[str]) -> str:
        """Source of the named functions, or of the file without header and main guard."""
        if not names:
            return re.sub(
                r'\n*^if __name__ == "__main__":\n(?:    .*\n?)+', "\n", _HEADER.sub("", self.text), flags=re.M
            ).strip()
        if unknown := [name for name in names if name not in self.functions]:
            raise OverlapError(f"{self.path}: no function {', '.join(unknown)}; it has {', '.join(self.functions)}")
        return "\n\n\n".join(_lines(self.text, self.functions[name]) for name in names)

    @cached_property
    def drawing_hashes(self) -> dict[str, str]:
        """Hash of what is used of each imported project file, by `plot` too, by path."""
        found = self.borrowed_by([{"borrows": self.facts["imports"]}])
        return {f"snippets/{name}.py": meaning.of_parts(parts) for name, parts in sorted(found.items())}

    @property
    def header(self) -> str:
        """The PEP 723 header as it is written."""
        return _HEADER.search(self.text)[0]

    @cached_property
    def download(self) -> str:
        """One file that runs alone (see `overlap.run.download`)."""
        return self._fold("download", alone=True)

    @cached_property
    def body(self) -> str:
        """The download as the cell of a notebook: without header and checks."""
        return self._fold("cell", alone=False).strip()

    def _fold(self, kind: str, alone: bool) -> str:
        def fold() -> str:
            from overlap.run import download  # nobody needs it where the memo knows

            return download.fold(self, alone)

        if self.memo is None:
            return fold()
        sources = "\0".join([self.path, self.text, *(f"{path}\0{other.text}" for path, other in self.inputs.items())])
        content = hashlib.sha256(sources.encode("utf-8", "surrogatepass")).hexdigest()
        return self.memo.get(kind, content, fold)

    @cached_property
    def _borrowed(self) -> dict[str, list[dict]]:
        """Parts that are used of other snippets, by their name."""
        return self.borrowed_by([self.facts])

    def borrowed_by(self, parts: list[dict]) -> dict[str, list[dict]]:
        """Parts of other snippets that these parts use, directly or through another, by the snippet's name."""
        self.refuse_circles()
        names: dict[str, set[str]] = {}
        todo = [(name, wanted) for part in parts for name, wanted, _ in part["borrows"]]
        while todo:
            name, wanted = todo.pop(0)
            if wanted not in names.setdefault(name, set()):
                names[name].add(wanted)
                found = meaning.used(self.others[name].facts["parts"], names[name])
                todo += [(other, needed) for part in found for other, needed, _ in part["borrows"]]
        return {name: meaning.used(self.others[name].facts["parts"], wanted) for name, wanted in names.items()}

    def refuse_circles(self, way: tuple[str, ...] = (), done: set[str] | None = None) -> None:
        """What imports itself, directly or through another, is an error; so is an import of what cannot be read."""
        way, done = (*way, self.name), set() if done is None else done
        for name, _, line in self.facts["imports"]:
            if name in way:
                circle = " → ".join((*way[way.index(name) :], name))
                remedy = "move what they share to a file of its own"
                raise OverlapError(f"{self.path}:{line}: imports itself: {circle}; {remedy}")
            if name not in done:
                self._other(name, line).refuse_circles(way, done)
        done.add(self.name)

    def _other(self, name: str, line: int) -> "Snippet":
        if name not in self.others:
            try:
                self.others[name] = Snippet.read(self.root, name, self.memo, self.others)
            except OverlapError as error:
                raise OverlapError(f"{self.path}:{line}: imports what cannot be read: {error}") from None
        return self.others[name]


def discover(root: Path, memo: "Memo | None" = None) -> dict[str, Snippet]:
    """All snippets by name, in order."""
    paths = sorted((root / "snippets").glob("*/*.py"))
    found: dict[str, Snippet] = {}
    problems = []
    for name in (f"{path.parent.name}/{path.stem}" for path in paths if path.stem != "__init__"):
        try:
            found[name] = Snippet.read(root, name, memo, found)
            found[name].refuse_circles()
        except OverlapError as error:
            problems.append(str(error))
    if problems:
        raise OverlapError("\n".join(problems))
    return dict(sorted(found.items()))


def facts(text: str, origin: str) -> dict:
    """What can be known of a snippet's text alone, as plain JSON; what is wrong with it is an error that names `origin`.

    `options`, `summary`, `functions` (name: first and last line), `main` (whether it can be called), `imports` (what it imports of other
    snippets: name, name in it or `*`, line), `borrows` (the same without what only `plot` uses), `hash` (of what the code means) and `parts` (see `overlap.run.meaning.parts`).
    """
    options = _options(_metadata(text, origin), origin)
    tree = _tree(text, origin)
    summary = (ast.get_docstring(tree) or "").partition("\n")[0]
    if mark := strict.control_in(summary):
        raise OverlapError(f"{origin}: the first line of its docstring has {mark}; write plain text")
    defined = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    try:
        return {
            "options": options,
            "summary": summary,
            "functions": {node.name: _span(node) for node in defined},
            "main": any(node.name == "main" and _is_callable(node) for node in defined),
            "imports": meaning.borrows(tree, origin),
            "hash": meaning.whole(tree, options["launcher"]),  # from here on without `plot`
            "borrows": meaning.borrows(tree, origin),
            "parts": meaning.parts(tree, origin),
        }
    except RecursionError:
        raise OverlapError(f"{origin}: its code is nested too deeply; write it in shorter expressions") from None


def _text(root: Path, name: str) -> str:
    file = f"snippets/{name}.py"
    folder, path = root / "snippets", root / file
    try:
        named = re.fullmatch(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*", name)
        linked = path.is_symlink() or path.parent.is_symlink()
        if not named:
            raise OverlapError(
                f"{name!r}: a snippet is named <chapter>/<snippet>, lower case, inside snippets/; see `overlap list`"
            )
        if linked and not path.resolve().is_relative_to(folder.resolve()):
            raise OverlapError(f"{file}: {name!r} is a link that leads away; a snippet is a file inside snippets/")
        if path.is_file():
            return (
                strict.decode(path.read_bytes(), file, "save it as UTF-8 text")
                .replace("\r\n", "\n")
                .replace("\r", "\n")
            )
    except (OSError, RuntimeError) as error:
        if "loop" not in str(error).lower() and "symbolic" not in str(error).lower():
            raise OverlapError(f"{file}: cannot be read ({error}); make it a file you may read") from None
    if path.is_symlink():
        raise OverlapError(f"{file}: is a link to nothing; remove it, or let it point to a file in snippets/")
    if path.exists():
        raise OverlapError(f"{file}: is no file; a name that ends in .py is a snippet, so rename it")
    raise OverlapError(f"{file}: there is no such file; see `overlap list`")


def _metadata(text: str, origin: str) -> dict:
    starts = [number for number, line in enumerate(text.split("\n"), 1) if line.rstrip() == "# /// script"]
    if len(starts) > 1:
        raise OverlapError(f"{origin}:{starts[1]}: a second `# /// script` header; keep one")
    found = _HEADER.search(text)
    if not found:
        raise OverlapError(f"{origin}: no `# /// script` header; {_HOUSE_RULE}")
    lines = (line[2:] if line.startswith("# ") else line[1:] for line in found[1].splitlines())
    try:
        return tomllib.loads("\n".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OverlapError(f"{origin}: the header is not TOML ({error}); mend the lines after `# /// script`") from None


def _options(metadata: dict, origin: str) -> dict:
    schema = strict.schema()
    problems = schema.problems(schema.Header, metadata) if schema else _bare_problems(metadata)
    strict.refuse(f"{origin}: header", problems, _HOUSE_RULE)
    return _DEFAULTS | metadata["tool"]["overlap"]


def _bare_problems(metadata: dict) -> list[tuple[str, str]]:
    """What a machine without pydantic looks at before it runs something."""
    given = metadata.get("tool")
    given = given.get("overlap") if isinstance(given, dict) else None
    if not isinstance(given, dict):
        return [("tool.overlap", "is missing, or no table")]
    counts, launcher = given.get("gpus"), given.get("launcher", "python")
    problems = [(f"tool.overlap.{key}", "is unknown") for key in given if key not in {"gpus", *_DEFAULTS}]
    if not isinstance(counts, list) or not counts or not all(type(n) is int and n >= 0 for n in counts):
        problems.append(("tool.overlap.gpus", f"must be counts such as [0, 1], not {strict.shown(counts)}"))
    if launcher not in ("python", "torchrun"):
        problems.append(("tool.overlap.launcher", f"must be 'python' or 'torchrun', not {strict.shown(launcher)}"))
    return problems


def _tree(text: str, origin: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise OverlapError(f"{origin}:{error.lineno}: {error.msg}; mend this line") from None
    except ValueError as error:
        raise OverlapError(f"{origin}: {error}; write plain text") from None
    except (RecursionError, MemoryError):
        raise OverlapError(f"{origin}: its code is nested too deeply; write it in shorter expressions") from None


def _is_callable(main: ast.AST) -> bool:
    """Whether this is a plain function that can be called without arguments."""
    if not isinstance(main, ast.FunctionDef):
        return False
    given = main.args
    needed = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    return not needed and None not in given.kw_defaults


def _span(node: ast.AST) -> list[int]:
    return [min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]), node.end_lineno]


def _lines(text: str, span: list[int]) -> str:
    first, last = span
    return "\n".join(text.split("\n")[first - 1 : last])
