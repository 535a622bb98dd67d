"""What is made before a page is built: files to take home, as plain files below docs/generated/.

MkDocs publishes them as it does all that lies in docs/; for another builder `overlap build` copies them. Git
ignores the folder; it may be deleted at any time.
"""

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import overlap
from overlap import OverlapError
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.book.local_runs import CACHE
from overlap.book.verdict import MARKS
from overlap.cache import digest, write
from overlap.commands.check import check
from overlap.commands.mine import edition
from overlap.run import download, hardware
from overlap.run.text import plural
from overlap.site import FOLDER, app, colors, machines, svg, trace
from overlap.site.draw import NARROW
from overlap.site.insert import insert
from overlap.site.notebook import Notebook
from overlap.site.pictures import Pictures
from overlap.site.view import Site, View

#: In the folder of generated files: the digest of what the files there were made from.
_STAMP = ".inputs"
#: The pages of the last build, with everything inserted.
_PAGES = f"{CACHE}/pages"


def read(root: Path, execute: str, notebook_page: str, titles: dict[str, str], before: Site | None) -> Site:
    """The book as it is on disk now; where only pages have changed, with what was read `before`."""
    files = digest_of_files(root)
    library = before.book.library if before and before.files == files else None
    book = Book(root, execute, library=library)
    return Site(Pages(book), Pictures(book), notebook_page, titles, files=files)


def prepare(site: Site) -> int:
    """All that a builder needs: check, run what this machine can, generate; how many runs that were.

    Where no input has changed nothing is done. A claim that holds too narrowly stops an author, not a reader
    who builds.
    """
    ran = site.book.run()
    stamp = site.book.docs / FOLDER / _STAMP
    inputs = _inputs(site)
    site.unchanged = stamp.exists() and stamp.read_text() == inputs
    if site.unchanged:
        return ran
    if problems := [*check(site.pages, remarks=False), *site.pictures.problems()]:
        raise OverlapError("the book is not in order:\n" + "\n".join(problems))
    generate(site)
    write(stamp, inputs)
    return ran


def inserted(site: Site, path: str, text: str) -> str:
    """A page with everything inserted; where no input has changed, as the last build made it."""
    file = site.book.root / _PAGES / path
    page = site.pages.by_path.get(path)
    if not page or page.text.strip() != text.strip():  # saved since the book was read
        return insert(site, path, text)
    if not site.unchanged or not file.exists():
        write(file, insert(site, path, text))
    return file.read_text(encoding="utf-8")


def generate(site: Site) -> None:
    """Write what readers take home; what is no longer made goes, and first the stamp and inserted pages."""
    folder = site.book.docs / FOLDER
    (folder / _STAMP).unlink(missing_ok=True)
    shutil.rmtree(site.book.root / _PAGES, ignore_errors=True)
    made = set()
    for path, content in _files(site.pages, site.pictures, site.notebook_page):
        file = folder / path
        made.add(file)
        if not file.exists() or file.read_bytes() != content:
            write(file, content)
    for file in folder.rglob("*"):
        if file.is_file() and file not in made:
            file.unlink()


def _inputs(site: Site) -> str:
    """A digest of all that pages and generated files are made from, the code that makes them included."""
    book = site.book
    texts = {page.path: page.text for page in site.pages.by_path.values()}
    lost = [*site.pages.unreadable, *book.library.unreadable_recordings]
    names = [site.notebook_page, list(site.titles.items())]
    return digest([names, facts(book), digest_of_files(book.root), texts, lost])


def facts(book: Book) -> list:
    """What a book knows that is in no file of it: this machine, and its own runs."""
    local = []
    for name in book.snippets:
        for recording in book.recordings(name).values():
            if recording.is_local:
                local.append([recording.path, recording.data["digest"]])
    return [book.execute, book.references, hardware.here(), book.library.machines_here, local]


def digest_of_files(root: Path) -> str:
    """A digest of the files that a site is made from, but for its pages; the code that makes it included."""
    docs = root / "docs"
    files = [root / "pyproject.toml", root / "LICENSE", root / "NOTICE"]
    for folder in (Path(overlap.__file__).parent, root / "snippets", docs):
        files += sorted(folder.rglob("*.*"))
    content = hashlib.sha256()
    for file in files:
        made = "__pycache__" in file.parts or file.is_relative_to(docs / FOLDER)
        page = file.suffix == ".md" and file.is_relative_to(docs)
        if file.is_file() and not made and not page:
            content.update(f"{file}\n".encode() + file.read_bytes())
    return content.hexdigest()


def _files(pages: Pages, pictures: Pictures, notebook_page: str) -> Iterator[tuple[str, bytes]]:
    """Every file with its path below the folder."""
    book = pages.book
    programs = {name: download.program(snippet) for name, snippet in book.snippets.items()}
    pieces = {}
    for name, snippet in book.snippets.items():
        for function in snippet.options["take"]:
            pieces[f"{name}/{function}"] = download.piece(snippet, function)
    yield "downloads/overlap.zip", _archive(book, programs, pieces)
    for name, text in programs.items():
        yield f"downloads/{name}.py", text.encode()
    yield "downloads/overlap.pyz", app.build(pages)
    for name, text in pieces.items():
        yield f"downloads/{name}.py", text.encode()
    yield "colors.css", colors.stylesheet().encode()
    known = book.machines()
    names = {"overlapMachines": known, "overlapEdition": edition(pages)}
    names |= {"overlapMarks": MARKS, "overlapNarrow": NARROW}
    lines = [f"var {name} = {json.dumps(content)}\n" for name, content in names.items()]
    yield "machines.js", "".join(lines).encode()
    for item in known:
        shown = json.dumps(machines.shown(pages, pictures, item["name"]), ensure_ascii=False)
        yield f"machines/{item['name']}.json", f"{shown}\n".encode()
    for name in book.snippets:
        for path, text in _of_runs(book, pictures, name):
            yield path, text.encode()
    for page in pages.by_path.values():
        opened = View(Site(pages, pictures), page.path).folds(page.blocks)
        if opened:
            yield f"folds/{page.name}.html", opened.encode()
        if any(block.snippets for block in page.blocks):
            text = Notebook(pages, pictures).build(page).encode()
            yield f"downloads/{page.name}.ipynb", text
            if page.name == notebook_page:
                yield f"notebooks/{page.name}.ipynb", text


def _of_runs(book: Book, pictures: Pictures, name: str) -> Iterator[tuple[str, str]]:
    """Recordings of this machine, timelines and pictures of a snippet."""
    for recording in book.recordings(name).values():
        place = f"{recording.machine}/{name}"
        if recording.is_local:
            yield f"local/{place}.json", (book.root / recording.path).read_text(encoding="utf-8")
        if trace.timelines(recording.result):
            yield f"traces/{place}.json", trace.chrome_trace(recording.result)
        picture = pictures.of(recording)
        if lines := picture.get("timelines"):
            yield f"timelines/{place}.json", json.dumps(lines, ensure_ascii=False, separators=(",", ":"))
        for variant in picture.get("sizes", {}):
            yield f"pictures/{place}-{variant}.svg", svg.in_file(picture[variant])
        for part, drawn in picture.get("parts", {}).items():
            for variant in drawn["sizes"]:
                yield f"pictures/{place}-{part}-{variant}.svg", svg.in_file(drawn[variant])


_README = """\
# Code of the book Overlap: how PyTorch really runs on GPUs

`programs/` has {programs}, each of which runs alone: `python programs/timing/take_turns.py`.
`functions/` has {functions} for your own code. Each is a file with what it needs, and nothing else:

{list}

The licence of the code is MIT, see LICENSE. Some of it follows code of others, see NOTICE.
"""


def _archive(book: Book, programs: dict[str, str], pieces: dict[str, str]) -> bytes:
    """All downloads in one file with the licences, the same bytes each time."""
    rows = []
    for name in pieces:
        snippet, _, function = name.rpartition("/")
        summary = download.summary(book.snippets[snippet], function)
        rows.append(f"- `functions/{name}.py`: {summary}".removesuffix(": "))
    counts = {"programs": plural(len(programs), "program"), "functions": plural(len(pieces), "function")}
    files = {"README.md": _README.format(**counts, list="\n".join(rows))}
    for licence in ("LICENSE", "NOTICE"):
        if (book.root / licence).exists():
            files[licence] = (book.root / licence).read_text(encoding="utf-8")
    files |= {f"functions/{name}.py": text for name, text in pieces.items()}
    files |= {f"programs/{name}.py": text for name, text in programs.items()}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(f"overlap/{name}", (2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)
    return file.getvalue()
