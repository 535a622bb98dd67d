"""A snippet: one file under snippets/, read but never imported."""

import ast
import difflib
import re
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from overlap import OverlapError
from overlap.run import fingerprint
from overlap.run.fingerprint import Borrow, Part

NAME = r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*"
_HEADER = re.compile(r"^# /// script\n((?:#(?: .*)?\n)+?)# ///\n", re.M)
_GUARD = re.compile(r'\n*^if __name__ == "__main__":\n(?:    .*\n?)+', re.M)
#: `[tool.overlap]` of a header: `gpus`, the GPU counts to record at, must be there; the rest has defaults.
_DEFAULTS = {"timeout": 60, "exclusive": True, "launcher": "python", "missing": {}, "ranks": None}
_REMEDY = "see docs/contributing.md, 'A snippet'"


@dataclass(frozen=True)
class Snippet:
    """One runnable file of the book, named `<chapter>/<snippet>`; `others` were read before."""

    root: Path
    name: str
    text: str = field(repr=False)
    others: "dict[str, Snippet]" = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, root: Path, name: str, others: "dict[str, Snippet] | None" = None) -> "Snippet":
        """Read snippets/<name>.py; a name that leaves snippets/, a bad header or syntax is refused."""
        snippet = cls(root, name, _text(root, name), {} if others is None else others)
        mains = [node for node in snippet.tree.body if getattr(node, "name", "") == "main"]
        if not any(_is_callable(node) for node in mains):
            raise OverlapError(f"{snippet.path}: has no main() to run; write `def main() -> dict`, {_REMEDY}")
        try:
            _ = snippet.options, snippet.hash, snippet.imports
        except RecursionError:
            remedy = "write it in shorter expressions"
            raise OverlapError(f"{snippet.path}: is nested too deeply; {remedy}") from None
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
        return _metadata(self.text, self.path)

    @cached_property
    def options(self) -> dict:
        """`[tool.overlap]` of the header, with defaults filled in."""
        problems = _problems(self.metadata)
        if problems:
            raise OverlapError(f"{self.path}: header: {'; '.join(problems)}; {_REMEDY}")
        return _DEFAULTS | self.metadata["tool"]["overlap"]

    @cached_property
    def tree(self) -> ast.Module:
        """Syntax tree of the file."""
        return _tree(self.text, self.path)

    @cached_property
    def code(self) -> ast.Module:
        """Syntax tree of what counts for freshness: no `plot`, no docstrings."""
        return fingerprint.strip(self.tree)

    @cached_property
    def summary(self) -> str:
        """First line of the module docstring."""
        return (ast.get_docstring(self.tree) or "").partition("\n")[0]

    @cached_property
    def functions(self) -> dict[str, tuple[int, int]]:
        """Top-level functions and classes by name, with their first and last line."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        nodes = [node for node in self.tree.body if isinstance(node, kinds)]
        return {node.name: (fingerprint.first_line(node), node.end_lineno) for node in nodes}

    @cached_property
    def hash(self) -> str:
        """SHA-256 of what the code means: no comments, docstrings, layout or `plot`."""
        return fingerprint.of_file(self.code, self.options["launcher"])

    @cached_property
    def parts(self) -> list[Part]:
        """What others can import of this file."""
        return fingerprint.parts(self.code, self.path)

    @cached_property
    def imports(self) -> list[Borrow]:
        """What this file imports of other snippets, `plot` included."""
        return fingerprint.borrows(self.tree, self.path)

    @cached_property
    def inputs(self) -> dict[str, "Snippet"]:
        """Project files of which this one uses something, directly or through another, by path."""
        return {f"snippets/{name}.py": self.others[name] for name in self._borrowed_by_code}

    @cached_property
    def input_hashes(self) -> dict[str, str]:
        """Hash of what is used of each imported project file, by path."""
        return _hashes(self._borrowed_by_code)

    @cached_property
    def drawing_hashes(self) -> dict[str, str]:
        """The same with what `plot` uses."""
        return _hashes(self.borrowed_by(self.imports))

    @cached_property
    def _borrowed_by_code(self) -> dict[str, list[Part]]:
        return self.borrowed_by(fingerprint.borrows(self.code, self.path))

    def borrowed_by(self, borrows: list[Borrow]) -> dict[str, list[Part]]:
        """Parts of other snippets that these imports need, directly or through another, by snippet."""
        self.refuse_circles()
        names: dict[str, set[str]] = {}
        todo = list(borrows)
        while todo:
            borrow = todo.pop()
            wanted = names.setdefault(borrow.snippet, set())
            if borrow.name not in wanted:
                wanted.add(borrow.name)
                for part in fingerprint.used(self.others[borrow.snippet].parts, wanted):
                    todo += part.borrows
        return {name: fingerprint.used(self.others[name].parts, wanted) for name, wanted in names.items()}

    def refuse_circles(self, way: tuple[str, ...] = (), done: set[str] | None = None) -> None:
        """An import of itself, directly or through another, is an error; so is one of what cannot be read."""
        way = (*way, self.name)
        done = set() if done is None else done
        for name, _, line in self.imports:
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
                self.others[name] = Snippet.read(self.root, name, self.others)
            except OverlapError as error:
                raise OverlapError(f"{self.path}:{line}: imports what cannot be read: {error}") from None
        return self.others[name]

    def show(self, names: list[str]) -> str:
        """Source of the named functions, or of the file without header and main guard."""
        if not names:
            return _GUARD.sub("\n", _HEADER.sub("", self.text)).strip()
        unknown = [name for name in names if name not in self.functions]
        if unknown:
            known = ", ".join(self.functions)
            raise OverlapError(f"{self.path}: no function {', '.join(unknown)}; it has {known}")
        lines = self.text.split("\n")
        spans = [self.functions[name] for name in names]
        return "\n\n\n".join("\n".join(lines[first - 1 : last]) for first, last in spans)

    @property
    def header(self) -> str:
        """The PEP 723 header as it is written."""
        return _HEADER.search(self.text)[0]


def discover(root: Path) -> dict[str, Snippet]:
    """All snippets by name, in order."""
    snippets: dict[str, Snippet] = {}
    problems = []
    for path in sorted((root / "snippets").glob("*/*.py")):
        name = f"{path.parent.name}/{path.stem}"
        if path.stem == "__init__":
            continue
        try:
            if name not in snippets:  # it may have been read where another imports it
                snippets[name] = Snippet.read(root, name, snippets)
            snippets[name].refuse_circles()
        except OverlapError as error:
            problems.append(str(error))
    if problems:
        raise OverlapError("\n".join(problems))
    return dict(sorted(snippets.items()))


def _hashes(borrowed: dict[str, list[Part]]) -> dict[str, str]:
    return {f"snippets/{name}.py": fingerprint.of_parts(parts) for name, parts in sorted(borrowed.items())}


def _text(root: Path, name: str) -> str:
    file = f"snippets/{name}.py"
    if not re.fullmatch(NAME, name):
        rule = "a snippet is named <chapter>/<snippet>, lower case, inside snippets/"
        raise OverlapError(f"{name!r}: {rule}; see `overlap list`")
    try:
        if not (root / file).resolve().is_relative_to((root / "snippets").resolve()):
            raise OverlapError(f"{file}: is a link that leads away; a snippet is a file inside snippets/")
        return (root / file).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise OverlapError(f"{file}: there is no such file; see `overlap list`") from None
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        remedy = "make it a UTF-8 file that you may read"
        raise OverlapError(f"{file}: cannot be read ({error}); {remedy}") from None


def _metadata(text: str, origin: str) -> dict:
    starts = [number for number, line in enumerate(text.split("\n"), 1) if line.rstrip() == "# /// script"]
    if len(starts) > 1:
        raise OverlapError(f"{origin}:{starts[1]}: a second `# /// script` header; keep one")
    header = _HEADER.search(text)
    if not header:
        raise OverlapError(f"{origin}: no `# /// script` header; {_REMEDY}")
    lines = [line.removeprefix("#").removeprefix(" ") for line in header[1].splitlines()]
    try:
        return tomllib.loads("\n".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        remedy = "mend the lines after `# /// script`"
        raise OverlapError(f"{origin}: the header is not TOML ({error}); {remedy}") from None


def _problems(metadata: dict) -> list[str]:
    """What is wrong with a header."""
    tool = metadata.get("tool")
    options = tool.get("overlap") if isinstance(tool, dict) else None
    if not isinstance(options, dict):
        return ["tool.overlap is missing (write [tool.overlap])"]
    problems = _unknown(metadata, ["requires-python", "dependencies", "tool"], "")
    problems += _unknown(options, ["gpus", *_DEFAULTS], "tool.overlap.")
    dependencies = metadata.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(isinstance(name, str) for name in dependencies):
        problems.append("dependencies must be a list of texts")

    counts = options.get("gpus")
    if (
        not isinstance(counts, list)
        or not counts
        or not all(type(count) is int and count >= 0 for count in counts)
    ):
        problems.append(f"gpus must be a list of GPU counts such as [0, 1], not {counts!r:.60}")
        return problems
    if len(set(counts)) < len(counts):
        problems.append(f"gpus has a count twice: {counts}")
    timeout = options.get("timeout", 60)
    if type(timeout) not in (int, float) or not 0 < timeout <= 3600:
        problems.append(f"timeout must be seconds up to 3600, not {timeout!r:.60}")
    if not isinstance(options.get("exclusive", True), bool):
        problems.append(f"exclusive must be true or false, not {options['exclusive']!r:.60}")
    missing = options.get("missing", {})
    if not isinstance(missing, dict) or not all(
        isinstance(why, str) and why.strip() for why in missing.values()
    ):
        problems.append("missing must say why, as in missing = { 8 = 'no such machine' }")
    elif set(missing) - set(map(str, counts)):
        problems.append(f"missing excuses {', '.join(missing)} GPUs, but gpus is {counts}")
    launcher, ranks = options.get("launcher", "python"), options.get("ranks")
    if launcher not in ("python", "torchrun"):
        problems.append(f"launcher must be 'python' or 'torchrun', not {launcher!r:.60}")
    if ranks is not None and (type(ranks) is not int or not 1 <= ranks <= 1024):
        problems.append(f"ranks must be a number of processes, not {ranks!r:.60}")
    if launcher == "torchrun" and 0 in counts and not ranks:
        problems.append("torchrun on the CPU needs to know how many processes: add ranks = 2")
    if launcher == "python" and ranks:
        problems.append("ranks are processes of torchrun: add launcher = 'torchrun', or drop ranks")
    return problems


def _unknown(table: dict, known: list[str], prefix: str) -> list[str]:
    problems = []
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            problems.append(f"{prefix}{key[:60]} is unknown, {hint}")
    return problems


def _tree(text: str, origin: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise OverlapError(f"{origin}:{error.lineno}: {error.msg}; mend this line") from None
    except ValueError as error:
        raise OverlapError(f"{origin}: {error}; write plain text") from None
    except (RecursionError, MemoryError):
        raise OverlapError(f"{origin}: is nested too deeply; write it in shorter expressions") from None


def _is_callable(main: ast.AST) -> bool:
    """Whether this is a plain function that can be called without arguments."""
    if not isinstance(main, ast.FunctionDef):
        return False
    given = main.args
    needed = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    return not needed and None not in given.kw_defaults
