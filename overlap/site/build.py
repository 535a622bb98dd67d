"""What is made before a page is built: files to take home, as plain files below docs/generated/.

Any builder that publishes what lies in docs/ publishes them, too: MkDocs, ProperDocs, Zensical. Git ignores
the folder; it may be deleted at any time.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import overlap
from overlap.book.blocks import SnippetBlock
from overlap.book.book import Book
from overlap.cache import write
from overlap.run import download
from overlap.site import app, trace
from overlap.site.notebook import Notebook
from overlap.site.pictures import VARIANTS, Pictures, drawing_pool
from overlap.site.svg import in_file

FOLDER = "generated"


def prepare(book: Book) -> tuple[int, int]:
    """All that a builder needs: run what this machine can, draw, generate. Returns how many runs and pictures were made."""
    pictures = Pictures(book)
    ran = book.run()
    with drawing_pool(book.root) as pool:
        drawn = pictures.draw(pool)
    generate(book, pictures)
    return ran, drawn


def generate(book: Book, pictures: Pictures, notebooks: bool = True) -> Path:
    """Write what readers take home; what is no longer made goes. Where no input has changed nothing is done.

    `notebooks`: without them those that are there stay as they are. Returns the folder.
    """
    folder = book.docs / FOLDER
    inputs = _inputs(book, notebooks)
    stamp = folder / ".inputs"
    if stamp.exists() and stamp.read_text() == inputs:
        return folder
    stamp.unlink(missing_ok=True)
    kept = set()
    for path, content in _files(book, pictures, notebooks):
        file = folder / path
        kept.add(file)
        if not file.exists() or file.read_bytes() != content:
            write(file, content)
    for file in folder.rglob("*"):
        spared = file.suffix == ".ipynb" and not notebooks
        if file.is_file() and file not in kept and not spared:
            file.unlink()
    write(stamp, inputs)
    return folder


def _inputs(book: Book, notebooks: bool) -> str:
    """A digest of all that the generated files are made from, the code that makes them included."""
    digest = hashlib.sha256(json.dumps([notebooks, book.machines()]).encode())
    for name, snippet in book.snippets.items():
        digest.update(snippet.text.encode())
        for run in book.runs(name).values():
            digest.update(f"{run.path} {run.data['digest']} {run.live}\n".encode())
    for page in book.pages.values():
        digest.update(page.text.encode())
    for file in sorted(Path(overlap.__file__).parent.rglob("*")):
        if file.suffix in (".py", ".toml", ".html"):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _files(book: Book, pictures: Pictures, notebooks: bool) -> Iterator[tuple[str, bytes]]:
    """Every file with its path below the folder."""
    programs = {name: download.program(snippet) for name, snippet in book.snippets.items()}
    yield "downloads/overlap.zip", _archive(programs)
    for name, text in programs.items():
        yield f"downloads/{name}.py", text.encode()
    yield "downloads/overlap.pyz", app.build(book)
    for name, snippet in book.snippets.items():
        for function in snippet.options["take"]:
            yield f"downloads/{name}/{function}.py", download.piece(snippet, function).encode()
    for path, text in _texts(book, pictures, notebooks):
        yield path, text.encode()


def _texts(book: Book, pictures: Pictures, notebooks: bool) -> Iterator[tuple[str, str]]:
    """Every file with its path below the folder, but for downloads of snippets."""
    yield "machines.js", f"var overlapMachines = {json.dumps(book.machines())}\n"
    for name in book.snippets:
        for run in book.runs(name).values():
            place = f"{run.profile}/{name}"
            if run.live:
                yield f"live/{place}.json", (book.root / run.path).read_text(encoding="utf-8")
            if trace.timelines(run.result):
                yield f"traces/{place}.json", trace.chrome_trace(run.result)
            picture = pictures.of(name, run)
            for variant in VARIANTS if picture else ():
                yield f"pictures/{place}-{variant}.svg", in_file(picture[variant])
    if notebooks:
        for page in book.pages.values():
            if any(isinstance(block, SnippetBlock) for block in page.blocks):
                text = Notebook(book, pictures).build(page)
                yield f"notebooks/{page.name}.ipynb", text
                yield f"downloads/{page.name}.ipynb", text


def _archive(programs: dict[str, str]) -> bytes:
    """All downloads in one file, the same bytes each time."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in programs.items():
            entry = zipfile.ZipInfo(f"overlap/{name}.py", (2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)
    return made.getvalue()


def own_runs(book: Book) -> tuple[int, int]:
    """How many of the runs that this machine can make are its own, and how many it can make."""
    runnable = list(book.runnable())
    own = sum(book.cache_path(*item).exists() for item in runnable)
    return own, len(runnable)
