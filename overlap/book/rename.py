"""Gives a snippet another name wherever it is mentioned, so that no recording becomes stale."""

import ast
import re
from pathlib import Path

from overlap import OverlapError
from overlap.cache import write
from overlap.run import machine, recording
from overlap.run.recording import Recording
from overlap.run.snippet import NAME, Snippet, discover


def rename(root: Path, old: str, new: str) -> list[str]:
    """Move snippet, imports, mentions in pages and tests, and recordings; returns the files that it changed.

    A file that was moved by hand already is taken as one that was not.
    """
    if not re.fullmatch(NAME, new):
        raise OverlapError(f"{new!r}: a snippet is named <chapter>/<snippet>, in lower case")
    before = root / f"snippets/{old}.py"
    after = root / f"snippets/{new}.py"
    if before.exists() and after.exists():
        raise OverlapError(f"snippets/{new}.py: exists already; choose another name")
    if not before.exists() and not (after.exists() and list(root.glob(f"docs/recordings/*/{old}.json"))):
        raise OverlapError(f"{old}: no such snippet; `overlap list` shows what there is")
    if after.exists():
        after.rename(before)
    recordings = _recordings(root)
    snippets = discover(root)
    fresh = {path for path, data in recordings.items() if _is_of(data, snippets[data["snippet"]])}

    changed = [f"snippets/{new}.py"]
    after.parent.mkdir(exist_ok=True)
    before.rename(after)
    paths = [
        root / "README.md",
        *root.glob("*/**/*.md"),
        *root.glob("snippets/*/*.py"),
        *root.glob("tests/**/*.py"),
    ]
    for path in paths:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        is_code = path.suffix == ".py"
        edited = _in_code(text, old, new) if is_code else _in_page(text, old, new)
        if edited != text:
            write(path, edited)
            changed.append(path.relative_to(root).as_posix())
    snippets = discover(root)
    for path, data in recordings.items():
        moved = _renamed(data, old, new)
        if path in fresh:
            snippet = snippets[moved["snippet"]]
            moved["source"] = {"path": snippet.path, "sha256": snippet.hash}
            moved["inputs"] = snippet.input_hashes
        if moved != data:
            if data.intact:
                moved = recording.sealed(moved)
            target = root / "docs/recordings" / data["profile"] / f"{moved['snippet']}.json"
            write(target, recording.dump(moved))
            if target != path:
                path.unlink()
            changed.append(target.relative_to(root).as_posix())
    return sorted(set(changed))


def _recordings(root: Path) -> dict[Path, Recording]:
    return {path: recording.read(path) for path in sorted(root.glob("docs/recordings/*/*/*.json"))}


def _is_of(data: Recording, snippet: Snippet) -> bool:
    return recording.grade(data, snippet, machine.here(), set()) != recording.CODE


def _in_page(text: str, old: str, new: str) -> str:
    """A page that names the snippet in fences, values, expressions, links, and imports."""
    old_dotted = re.escape(old.replace("/", "."))
    text = _in_paths(text, old, new)
    text = re.sub(rf"\bsnippet-{old.replace('/', '-')}(?!\w)", f"snippet-{new.replace('/', '-')}", text)
    return re.sub(rf"(?<![\w./-]){old_dotted}(?!\w)", new.replace("/", "."), text)


def _in_paths(text: str, old: str, new: str) -> str:
    text = re.sub(rf"(?<![\w.-]){re.escape(old)}(?!\w)", new, text)
    old_module, new_module = (f"snippets.{name.replace('/', '.')}" for name in (old, new))
    return re.sub(rf"\b{re.escape(old_module)}(?!\w)", new_module, text)


def _in_code(text: str, old: str, new: str) -> str:
    """A Python file; one that imports the snippet from its chapter goes on to call it by the old name."""
    text = _in_paths(text, old, new)
    chapter, name = old.split("/")
    new_chapter, new_name = new.split("/")
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == f"snippets.{chapter}":
            moved = [alias for alias in node.names if alias.name == name]
            others = [alias for alias in node.names if alias.name != name]
            if moved:
                known_as = moved[0].asname or name
                alias = ast.alias(new_name, known_as if known_as != new_name else None)
                statements = [ast.ImportFrom(f"snippets.{new_chapter}", [alias], 0)]
                if others:
                    statements.append(ast.ImportFrom(node.module, others, 0))
                indent = " " * node.col_offset
                code = "\n".join(indent + ast.unparse(statement) for statement in statements)
                lines[node.lineno - 1 : node.end_lineno] = [code] + [None] * (node.end_lineno - node.lineno)
    return "\n".join(line for line in lines if line is not None)


def _renamed(data: Recording, old: str, new: str) -> dict:
    """A recording that says the new name, with the fingerprints that it has."""
    old_path, new_path = f"snippets/{old}.py", f"snippets/{new}.py"
    moved = dict(data)
    moved["inputs"] = {
        new_path if path == old_path else path: value for path, value in data["inputs"].items()
    }
    if data["snippet"] == old:
        moved["snippet"] = new
        moved["source"] = data["source"] | {"path": new_path}
        moved["run"] = data["run"] | {"command": data["run"]["command"].replace(old_path, new_path)}
    return moved
