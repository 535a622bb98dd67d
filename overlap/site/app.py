"""The book's measuring part as one file, `overlap.pyz`: `python overlap.pyz` checks a GPU without a checkout.

It is a standard zip application. What runs needs its files as files, since snippets are read and run by path:
so the application unpacks itself once into the user's cache, under a name made of its content, and goes on
from there.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator

from overlap.blocks.block import Text
from overlap.blocks.entries import Glossary, Statements, Symptoms
from overlap.blocks.headlines import Headlines
from overlap.blocks.inline import VALUE, values
from overlap.blocks.page import Page
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.book.library import SECONDS
from overlap.run.snippet import PASTES

#: What runs first. It must be read by any Python 3, and say what is missing in one sentence.
START = '''"""{about}"""

import os
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

DIGEST = "{digest}"


def unpacked() -> Path:
    """The folder of this book in the user's cache; made whole or not at all."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / f"overlap-{{DIGEST}}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="overlap-") as beside:
            whole = Path(beside) / "whole"
            with zipfile.ZipFile(sys.argv[0]) as archive:
                archive.extractall(whole)
            try:
                whole.rename(folder)
            except OSError:  # another process was quicker
                if not folder.exists():
                    raise
    return folder


def main():
    if sys.version_info < (3, 11):
        sys.exit("overlap.pyz needs Python 3.11 or newer; this is " + sys.version.split()[0])
    if not find_spec("torch"):
        sys.exit("overlap.pyz measures PyTorch, and this Python has none: " + sys.executable + "; "
                 "https://pytorch.org/get-started/locally/ says how to install it")
    arguments = sys.argv[1:] or ["--quick"]
    if arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version"):
        arguments = ["verify", *arguments]
        if not {{"--all", "--quick"}} & set(arguments):
            arguments.append("--quick")
    folder = str(unpacked())
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    from overlap.cli import main

    sys.exit(main(arguments, Path(folder)))


if __name__ == "__main__":
    main()
'''
ABOUT = "Overlap: what this GPU reaches, beside its ceilings and what others reach. Made from the book."


def build(pages: Pages) -> bytes:
    """The application; the same book gives the same bytes."""
    files = dict(sorted(_files(pages)))
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    files["__main__.py"] = START.format(about=ABOUT, digest=digest.hexdigest()[:16]).encode()
    made = io.BytesIO()
    made.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return made.getvalue()


def _files(pages: Pages) -> Iterator[tuple[str, bytes]]:
    """What measuring and comparing needs: code, snippets, pages, and recordings of the headline rates."""
    book = pages.book
    root = book.root
    for name in ("pyproject.toml", "LICENSE", "NOTICE"):
        if (root / name).exists():
            yield name, (root / name).read_bytes()
    # what MkDocs alone runs
    site = {root / "overlap/site" / name for name in ("plugin.py", "search.py", "quiet.py")}
    for folder in ("overlap", "snippets"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".py", ".toml", ".html") and file.parent.name != PASTES and file not in site:
                yield file.relative_to(root).as_posix(), file.read_bytes()
    for file in sorted((book.docs / "assets/diagrams").glob("*.svg")):  # the values, not the shapes
        asked = " ".join(match[0] for match in VALUE.finditer(file.read_text(encoding="utf-8")))
        yield file.relative_to(root).as_posix(), asked.encode()
    for path, page in pages.by_path.items():
        yield f"docs/{path}", _needed(page, book).encode()
    behind = set()
    for block in pages.of_kind(Headlines):
        behind |= {row.snippet for row in block.rows}
    for name in sorted(behind):
        for file in sorted((book.docs / "recordings").glob(f"*/{name}.json")):
            recording = json.loads(file.read_bytes())
            yield file.relative_to(root).as_posix(), json.dumps(recording).encode()
    yield SECONDS, json.dumps(_seconds(book)).encode()


def _needed(page: Page, book: Book) -> str:
    """What measuring needs of a page: its blocks as they are, and the values in its sentences and entries."""
    first, *others = page.blocks
    if isinstance(first, Text) and not others:  # its text lacks the code of the page, and is not in it
        return " ".join(f"{{{value}}}" for _, value in values(first.text))
    needed = page.text
    for block in page.blocks:
        if isinstance(block, Text):
            asked = " ".join(f"{{{value}}}" for _, value in values(block.text))
            lines = block.text.count("\n")  # a claim keeps its line
            needed = needed.replace(block.text, asked + "\n" * lines, 1)
        elif isinstance(block, (Symptoms, Glossary, Statements)):
            asked = " ".join(f"{{{value}}}" for value in block.values_in(book))
            needed = needed.replace(block.written, asked + "\n" * block.written.count("\n"), 1)
    return needed


def _seconds(book: Book) -> dict[str, dict[int, float]]:
    """How long each snippet takes at most, by the number of GPUs."""
    seconds: dict[str, dict[int, float]] = {}
    for name, recordings in book.library.recordings.items():
        for recording in recordings.values():
            longest = seconds.setdefault(name, {})
            longest[recording.gpus] = max(recording.seconds, longest.get(recording.gpus, 0))
    return seconds
