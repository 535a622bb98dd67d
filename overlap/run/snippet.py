"""A snippet: one file under snippets/, read but never imported."""

import ast
import difflib
import importlib.metadata
import re
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from overlap import OverlapError
from overlap.run import meaning
from overlap.run.meaning import Borrow, Part

NAME = r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*"
#: How the names of twins end.
BROKEN, FIXED = "_broken", "_fixed"
#: The folder of lines to paste, which are no snippets: they have no `main`, and are not recorded.
PASTES = "pastes"
_HEADER = re.compile(r"^# /// script\n((?:#(?: .*)?\n)+?)# ///\n", re.M)
_GUARD = re.compile(r'\n*^if __name__ == "__main__":\n(?:    .*\n?)+', re.M)
#: `[tool.overlap]` of a header: what each option is where it is left out, what it may be, and that in words.
_OPTIONS = {
    "gpus": (None, lambda counts: _are_counts(counts), "a list of GPU counts such as [0, 1]"),
    "timeout": (60, lambda limit: type(limit) in (int, float) and 0 < limit <= 3600, "seconds up to 3600"),
    "exclusive": (True, lambda alone: type(alone) is bool, "true or false"),
    "launcher": ("python", lambda name: name in ("python", "torchrun"), "'python' or 'torchrun'"),
    "ranks": (None, lambda count: count is None or _are_counts([count]), "a number of processes"),
    "missing": ({}, lambda why: isinstance(why, dict), "a reason by GPU count, as { 8 = 'no such machine' }"),
    "few": ({}, lambda why: isinstance(why, dict), "a reason by machine, as { h200 = 'one run so far' }"),
    "take": ([], lambda names: isinstance(names, list), "a list of functions to take home"),
    "gpu_gib": (0, lambda size: type(size) in (int, float) and size >= 0, "GiB that must be free on a GPU"),
    "small": ("", lambda name: isinstance(name, str), "a snippet that measures the same with less memory"),
    "take_on_cpu": ([], lambda names: isinstance(names, list), "a list of those of `take` that need no GPU"),
}
_REMEDY = "see docs/contributing.md, 'A snippet'"


def _unknown(name: str) -> str:
    """What to say of an option that there is not."""
    near = difflib.get_close_matches(name, _OPTIONS, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_OPTIONS)}"
    return f"{name} is unknown ({hint})"


@dataclass(frozen=True)
class Snippet:
    """One runnable file of the book, named `<chapter>/<snippet>`; `known` are those that were read.

    `kept` is what `pure` keeps with it.
    """

    root: Path
    name: str
    text: str = field(repr=False)
    known: "dict[str, Snippet]" = field(default_factory=dict, repr=False, compare=False)
    kept: dict = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, root: Path, name: str, known: "dict[str, Snippet] | None" = None) -> "Snippet":
        """Read snippets/<name>.py; a bad header or syntax is an error."""
        if known is None:
            known = {}
        snippet = cls(root, name, _text(root, name), known)
        if "main" not in snippet.functions:
            raise OverlapError(f"{snippet.path}: has no main() to run; write `def main() -> dict`, {_REMEDY}")
        snippet.show(snippet.options["take"])
        _ = snippet.parts, snippet.imports  # both can be read
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
        """What the PEP 723 header says."""
        header = _HEADER.search(self.text)
        if not header:
            raise OverlapError(f"{self.path}: no `# /// script` header; {_REMEDY}")
        try:
            return tomllib.loads(re.sub("^# ?", "", header[1], flags=re.M))
        except tomllib.TOMLDecodeError as error:
            raise OverlapError(f"{self.path}: the header is not TOML ({error}); {_REMEDY}") from None

    @cached_property
    def options(self) -> dict:
        """`[tool.overlap]` of the header, with defaults filled in."""
        given = self.metadata.get("tool", {}).get("overlap", {})
        problems = [_unknown(name) for name in given if name not in _OPTIONS]
        options = {}
        for name, (default, is_right, rule) in _OPTIONS.items():
            options[name] = given.get(name, default)
            if not is_right(options[name]):
                problems.append(f"{name} must be {rule}")
        runs_on_cpu = not problems and 0 in options["gpus"]
        if runs_on_cpu and options["launcher"] == "torchrun" and not options["ranks"]:
            problems.append("torchrun on the CPU needs to know how many processes: add ranks = 2")
        elsewhere = [name for name in options["take_on_cpu"] if name not in options["take"]]
        if elsewhere:
            problems.append(f"take_on_cpu: {', '.join(elsewhere)} is not in take")
        if problems:
            raise OverlapError(f"{self.path}: header: {'; '.join(problems)}; {_REMEDY}")
        return options

    @property
    def requirement(self) -> str:
        """`needs 1 GPU`, `needs 2, 4 or 8 GPUs`: the counts it is worth recording at."""
        *others, last = map(str, self.options["gpus"])
        counts = f"{', '.join(others)} or {last}" if others else last
        return "needs 1 GPU" if counts == "1" else f"needs {counts} GPUs"

    @property
    def not_installed(self) -> list[str]:
        """Packages of its header that this Python does not have."""
        lacking = []
        for requirement in self.metadata.get("dependencies", []):
            name = re.match(r"[\w.-]+", requirement)[0]
            try:
                importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                lacking.append(name)
        return lacking

    @cached_property
    def tree(self) -> ast.Module:
        """Syntax tree of the file."""
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            raise OverlapError(f"{self.path}:{error.lineno}: {error.msg}; mend this line") from None

    @cached_property
    def summary(self) -> str:
        """First line of the module docstring."""
        return (ast.get_docstring(self.tree) or "").partition("\n")[0]

    @property
    def credits(self) -> list[str]:
        """The lines of the module docstring that begin with "After": whose code this follows."""
        lines = (ast.get_docstring(self.tree) or "").split("\n")
        return [line for line in lines if line.startswith("After ")]

    @cached_property
    def functions(self) -> dict[str, tuple[int, int]]:
        """Top-level functions and classes by name, with their first and last line."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        nodes = [node for node in self.tree.body if isinstance(node, kinds)]
        return {node.name: (meaning.first_line(node), node.end_lineno) for node in nodes}

    @property
    def draws(self) -> bool:
        """Whether it has a `plot`."""
        return meaning.PLOT in self.functions

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the code means: no comments, docstrings, annotations, layout, `plot`, `derive`."""
        return meaning.of_file(self.parts, self.options["launcher"])

    @cached_property
    def parts(self) -> list[Part]:
        """The statements of this file."""
        try:
            return meaning.parts_of(self.text, self.tree, self.path)
        except SyntaxError as error:  # what is wrong though it can be parsed
            raise OverlapError(f"{self.path}: {error.msg}; mend it") from None

    @cached_property
    def imports(self) -> list[Borrow]:
        """What this file imports of other snippets, `plot` and `derive` included."""
        return [borrow for part in self.parts for borrow in part.borrows]

    @cached_property
    def input_digests(self) -> dict[str, str]:
        """Digest of what is used of each imported project file, by path."""
        borrows = []
        for part in meaning.code_parts(self.parts):
            borrows += part.borrows
        borrowed = sorted(self.borrowed_by(borrows).items())
        return {f"snippets/{name}.py": meaning.of_parts(parts) for name, parts in borrowed}

    @cached_property
    def derive_digest(self) -> str:
        """SHA-256 of `derive` and what it uses, also of other files; empty where there is none."""
        if meaning.DERIVE not in self.functions:
            return ""
        parts = list(meaning.used(self.parts, {meaning.DERIVE}))
        borrows = [borrow for part in parts for borrow in part.borrows]
        for borrowed in self.borrowed_by(borrows).values():
            parts += borrowed
        return meaning.of_parts(parts)

    @cached_property
    def imported(self) -> dict[str, list[Part]]:
        """What is used of each imported snippet, by `plot` and `derive` too; a missing one is an error."""
        return self.borrowed_by(self.imports)

    def borrowed_by(self, borrows: list[Borrow], annotations: bool = False) -> dict[str, list[Part]]:
        """Parts of other snippets that these imports need, directly or through another, by snippet.

        With `annotations` also what these need.
        """
        names: dict[str, set[str]] = {}
        todo = list(borrows)
        while todo:
            borrow = todo.pop()
            wanted = names.setdefault(borrow.snippet, set())
            if borrow.name not in wanted:
                wanted.add(borrow.name)
                for part in meaning.used(self._other(borrow).parts, wanted, annotations):
                    todo += part.borrows
        return {name: meaning.used(self.known[name].parts, names[name], annotations) for name in names}

    def _other(self, borrow: Borrow) -> "Snippet":
        name = borrow.snippet
        if name not in self.known:
            try:
                self.known[name] = Snippet.read(self.root, name, self.known)
            except OverlapError as error:
                where = f"{self.path}:{borrow.line}"
                raise OverlapError(f"{where}: imports what cannot be read: {error}") from None
        return self.known[name]

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


def twin_of(name: str) -> str:
    """`timing/unwaited_fixed` for `timing/unwaited_broken`, and the reverse; empty for other names."""
    for ending, other in ((BROKEN, FIXED), (FIXED, BROKEN)):
        if name.endswith(ending):
            return name.removesuffix(ending) + other
    return ""


def discover(root: Path) -> dict[str, Snippet]:
    """All snippets by name, in order."""
    snippets: dict[str, Snippet] = {}
    problems = []
    for path in sorted((root / "snippets").glob("*/*.py")):
        name = f"{path.parent.name}/{path.stem}"
        if path.stem == "__init__" or path.parent.name == PASTES:
            continue
        try:
            if name not in snippets:  # it may have been read where another imports it
                snippets[name] = Snippet.read(root, name, snippets)
            _ = snippets[name].imported  # all that it imports can be read
        except OverlapError as error:
            problems.append(str(error))
    if problems:
        raise OverlapError("\n".join(problems))
    return dict(sorted(snippets.items()))


def _text(root: Path, name: str) -> str:
    file = f"snippets/{name}.py"
    if not re.fullmatch(NAME, name):
        rule = "a snippet is named <chapter>/<snippet>, lower case, inside snippets/"
        raise OverlapError(f"{name!r}: {rule}; see `overlap list`")
    try:
        return (root / file).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        there = sorted(
            path.relative_to(root / "snippets").with_suffix("").as_posix()
            for path in (root / "snippets").glob("*/*.py")
        )
        near = difflib.get_close_matches(name, there, 1)
        remedy = f"did you mean {near[0]}?" if near else "see `overlap list`"
        raise OverlapError(f"{file}: there is no such file; {remedy}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise OverlapError(f"{file}: cannot be read ({error}); make it a UTF-8 file") from None


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int and item >= 0 for item in value)
