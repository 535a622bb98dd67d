"""A snippet: one file under snippets/, read but never imported."""

import ast
import hashlib
import re
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from overlap import OverlapError

_HEADER = re.compile(r"^# /// script\n((?:#(?: .*)?\n)+?)# ///\n", re.M)
_OPTIONS = {"gpus", "timeout", "exclusive", "launcher", "missing"}


@dataclass(frozen=True)
class Snippet:
    """One runnable file of the book, named `<chapter>/<snippet>`."""

    root: Path
    name: str
    text: str = field(repr=False)

    @classmethod
    def read(cls, root: Path, name: str) -> "Snippet":
        """Read snippets/<name>.py; a name that leaves snippets/ is refused."""
        name = name.removesuffix(".py")
        folder, path = (root / "snippets").resolve(), (root / "snippets" / f"{name}.py").resolve()
        if not re.fullmatch(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*", name) or not path.is_relative_to(folder):
            raise OverlapError(f"{name!r}: a snippet is named <chapter>/<snippet>, lower case, inside snippets/")
        try:
            snippet = cls(root, name, path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise OverlapError(f"snippets/{name}.py: there is no such file; see `overlap list`") from None
        except (OSError, UnicodeDecodeError) as error:
            raise OverlapError(f"snippets/{name}.py: cannot be read ({error}); save it as UTF-8 text") from None
        snippet.options, snippet.tree  # noqa: B018 - a bad header or syntax error surfaces here, with its file
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
    def metadata(self) -> dict:
        """The PEP 723 header."""
        found = _HEADER.search(self.text)
        if not found:
            raise OverlapError(f"{self.path}: no `# /// script` header; see docs/contributing.md, 'A snippet'")
        lines = (line[2:] if line.startswith("# ") else line[1:] for line in found[1].splitlines())
        try:
            return tomllib.loads("\n".join(lines))
        except tomllib.TOMLDecodeError as error:
            raise OverlapError(
                f"{self.path}: the header is not TOML ({error}); mend the lines after `# /// script`"
            ) from None

    @cached_property
    def options(self) -> dict:
        """`[tool.overlap]` of the header, with defaults filled in."""
        given = self.metadata.get("tool", {}).get("overlap", {})
        if unknown := sorted(set(given) - _OPTIONS):
            raise OverlapError(f"{self.path}: [tool.overlap] has unknown keys {unknown}; known are {sorted(_OPTIONS)}")
        options = {"timeout": 60, "exclusive": True, "launcher": "python", "missing": {}} | given
        counts = options.get("gpus")
        if not isinstance(counts, list) or not counts or not all(type(n) is int and n >= 0 for n in counts):
            raise OverlapError(f"{self.path}: [tool.overlap] needs gpus = [counts], for instance [0, 1]")
        if options["launcher"] not in ("python", "torchrun"):
            raise OverlapError(f"{self.path}: launcher is 'python' or 'torchrun', not {options['launcher']!r}")
        return options

    @cached_property
    def tree(self) -> ast.Module:
        """Syntax tree of the file."""
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            raise OverlapError(f"{self.path}:{error.lineno}: {error.msg}; mend this line") from None

    @property
    def summary(self) -> str:
        """First line of the module docstring."""
        return (ast.get_docstring(self.tree) or "").partition("\n")[0]

    @cached_property
    def functions(self) -> dict[str, ast.AST]:
        """Top-level functions and classes by name."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return {node.name: node for node in self.tree.body if isinstance(node, kinds)}

    @cached_property
    def inputs(self) -> dict[str, "Snippet"]:
        """Project files this one imports, directly or through another, by path."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("snippets."):
                parts = node.module.split(".")[1:]
                names = ["/".join(parts)] if len(parts) == 2 else [f"{parts[0]}/{alias.name}" for alias in node.names]
                for name in names:
                    other = Snippet.read(self.root, name)
                    found |= {other.path: other} | other.inputs
        return found

    @cached_property
    def hash(self) -> str:
        """SHA-256 of what the code means: no comments, docstrings, layout or `plot`."""
        parts = [_meaning(_stripped(self.text)), self.options["launcher"]]
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    @property
    def input_hashes(self) -> dict[str, str]:
        """Hash of each imported project file, by path."""
        return {path: other.hash for path, other in sorted(self.inputs.items())}

    def show(self, names: list[str]) -> str:
        """Source of the named functions, or of the file without header and main guard."""
        if not names:
            return re.sub(
                r'\n*^if __name__ == "__main__":\n(?:    .*\n?)+', "\n", _HEADER.sub("", self.text), flags=re.M
            ).strip()
        if unknown := [name for name in names if name not in self.functions]:
            raise OverlapError(f"{self.path}: no function {', '.join(unknown)}; it has {', '.join(self.functions)}")
        return "\n\n\n".join(_verbatim(self.text, self.functions[name]) for name in names)

    @cached_property
    def download(self) -> str:
        """The file with imported project files folded in, so that it runs alone."""
        text = self.text
        for other in self.inputs.values():
            module = other.path.removesuffix(".py").replace("/", ".")
            kept = (node for node in other.tree.body if not (_is_guard(node) or _is_docstring(node)))
            kept = [node for node in kept if getattr(node, "name", "") not in ("main", "plot")]
            helper = "\n".join(
                "\n\n" * isinstance(node, (ast.FunctionDef, ast.ClassDef)) + _verbatim(other.text, node)
                for node in kept
            )
            folded = f"# --- folded in from {other.path}: {other.summary}\n{helper}\n# --- end of {other.path}"
            line = rf"^from {re.escape(module)} import (?:\([^)]*\)|.*)$"
            text, count = re.subn(line, lambda _, folded=folded: folded, text, flags=re.M)
            if not count:
                raise OverlapError(
                    f"{self.path}: import {module} as `from {module} import name`, so that the download can fold it in"
                )
        return text

    @property
    def body(self) -> str:
        """The download without its header."""
        return _HEADER.sub("", self.download).strip()


def discover(root: Path) -> dict[str, Snippet]:
    """All snippets by name, in order."""
    paths = sorted((root / "snippets").glob("*/*.py"))
    names = (f"{path.parent.name}/{path.stem}" for path in paths if path.stem != "__init__")
    return {name: Snippet.read(root, name) for name in names}


def _verbatim(text: str, node: ast.AST) -> str:
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _stripped(text: str) -> ast.Module:
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if getattr(node, "name", "") != "plot"]
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            node.body = [child for i, child in enumerate(node.body) if i or not _is_docstring(child)]
        elif isinstance(
            node, ast.JoinedStr
        ):  # Python 3.12 ends a nested format with an empty text, 3.11 and 3.13 do not
            node.values = [part for part in node.values if not (isinstance(part, ast.Constant) and part.value == "")]
    return tree


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
