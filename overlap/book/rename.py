"""Gives a snippet another name wherever it is mentioned, so that no recording becomes stale."""

import ast
import re
from pathlib import Path

from overlap import OverlapError
from overlap.cache import write
from overlap.run import machine, recording
from overlap.run.snippet import NAME, Snippet, discover

#: Its first snippet keeps the name that a reader is told to type.
_TUTORIAL = "docs/contributing.md"


def rename(root: Path, old: str, new: str) -> list[str]:
    """Move a snippet, its imports, mentions in pages and tests, and recordings; returns the files changed."""
    source = _source(root, old, new)
    recordings = {path: recording.read(path) for path in sorted(root.glob("docs/recordings/*/*/*.json"))}
    snippets = discover(root)
    fresh = {path for path, data in recordings.items() if _is_fresh(data, snippets)}

    target = root / f"snippets/{new}.py"
    target.parent.mkdir(exist_ok=True)
    source.rename(target)
    files = [target]
    for pattern, edit in (
        ("README.md", _in_page),
        ("docs/**/*.md", _in_page),
        ("snippets/*/*.py", _in_code),
        ("tests/**/*.py", _in_code),
    ):
        for path in root.glob(pattern):
            if path == root / _TUTORIAL:
                continue
            text = path.read_text(encoding="utf-8")
            edited = edit(text, old, new)
            if edited != text:
                write(path, edited)
                files.append(path)
    snippets = discover(root)
    for path, old_data in recordings.items():
        data = _renamed(old_data, old, new)
        if path in fresh:
            snippet = snippets[data["snippet"]]
            data["source"] = {"path": snippet.path, "sha256": snippet.hash}
            data["inputs"] = snippet.input_hashes
        if data != old_data:
            if recording.is_intact(old_data):
                data = recording.sealed(data)
            moved = root / "docs/recordings" / data["profile"] / f"{data['snippet']}.json"
            write(moved, recording.dump(data))
            if moved != path:
                path.unlink()
            files.append(moved)
    return sorted({path.relative_to(root).as_posix() for path in files})


def _source(root: Path, old: str, new: str) -> Path:
    """The snippet's file under its old name; one that was moved by hand is moved back first."""
    if not re.fullmatch(NAME, new):
        raise OverlapError(f"{new!r}: a snippet is named <chapter>/<snippet>, in lower case")
    source = root / f"snippets/{old}.py"
    target = root / f"snippets/{new}.py"
    has_recordings = any(root.glob(f"docs/recordings/*/{old}.json"))
    if target.exists() and not source.exists() and has_recordings:
        target.rename(source)
    if not source.exists():
        raise OverlapError(f"{old}: no such snippet; `overlap list` shows what there is")
    if target.exists():
        raise OverlapError(f"snippets/{new}.py: exists already; choose another name")
    return source


def _is_fresh(data: dict, snippets: dict[str, Snippet]) -> bool:
    snippet = snippets.get(data["snippet"])
    return snippet is not None and recording.grade(data, snippet, machine.here(), []) != recording.CODE


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
    code = text = _in_paths(text, old, new)
    chapter, name = old.split("/")
    new_chapter, new_name = new.split("/")
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module == f"snippets.{chapter}":
            others = [ast.unparse(alias) for alias in node.names if alias.name != name]
            for alias in node.names:
                if alias.name == name:
                    known_as = alias.asname or name
                    moved = new_name if known_as == new_name else f"{new_name} as {known_as}"
                    lines = [f"from snippets.{new_chapter} import {moved}"]
                    if others:
                        lines.append(f"from snippets.{chapter} import {', '.join(others)}")
                    indent = "\n" + " " * node.col_offset
                    text = text.replace(ast.get_source_segment(code, node), indent.join(lines))
    return text


def _renamed(data: dict, old: str, new: str) -> dict:
    """A recording with the new name, and the fingerprints that it had."""
    old_path, new_path = f"snippets/{old}.py", f"snippets/{new}.py"
    inputs = {path if path != old_path else new_path: digest for path, digest in data["inputs"].items()}
    if data["snippet"] != old:
        return data | {"inputs": inputs}
    source = data["source"] | {"path": new_path}
    run = data["run"] | {"command": data["run"]["command"].replace(old_path, new_path)}
    return data | {"snippet": new, "source": source, "inputs": inputs, "run": run}
