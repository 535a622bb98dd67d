"""What is made before a page is built: the files that it leads to, as plain files below docs/generated/.

MkDocs publishes them as it does all that lies in docs/; for another builder `overlap build` copies them. Git
ignores the folder; it may be deleted at any time.
"""

import gc
import hashlib
from collections.abc import Iterable
from pathlib import Path

import overlap
from overlap import OverlapError
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.cache import digest, write
from overlap.commands.check import check
from overlap.run import hardware
from overlap.site import FOLDER, svg
from overlap.site.files import Files
from overlap.site.insert import insert
from overlap.site.pictures import Pictures
from overlap.site.view import Site

#: In the folder of generated files: the digest of what the files there were made from.
_DIGEST = ".digest"
#: The picture of the README, on a machine, and its file: a README shows only what is committed.
_README = "clinic/six_faults", "h200", "steps"
_README_FILE = "assets/first-page.svg"


def read(root: Path, execute: str, notebook_page: str, titles: dict[str, str], before: Site | None) -> Site:
    """The book as it is on disk now; where only pages have changed, with what was read `before`.

    A book is many small objects that stay: to look through them for circles as often as Python does by itself
    takes a quarter of a build; every hundred thousand objects, a tenth.
    """
    gc.set_threshold(1_000_000)
    files = digest_of_files(root)
    library = before.book.library if before and before.files == files else None
    book = Book(root, execute, library=library)
    pages = Pages(book)
    pictures = Pictures(book, pages.pictures_in_chinese)
    return Site(pages, pictures, notebook_page, titles, files=files)


def prepare(site: Site) -> int:
    """All that a builder needs: check, run what this machine can, generate; how many runs that were.

    Where no input has changed nothing is done. A claim that holds too narrowly stops an author, not a reader
    who builds.
    """
    ran = site.book.run()
    last = site.book.docs / FOLDER / _DIGEST
    inputs = _inputs(site, site.files or digest_of_files(site.book.root))
    if last.exists() and last.read_text() == inputs:
        return ran
    if problems := [*check(site.pages, remarks=False), *site.pictures.problems()]:
        raise OverlapError("the book is not in order:\n" + "\n".join(problems))
    generate(site, Files(site).all())
    if show_in_readme(site):  # it lies among the files that all is made from
        inputs = _inputs(site, digest_of_files(site.book.root))
    write(last, inputs)
    return ran


def show_in_readme(site: Site) -> bool:
    """Write the picture that the README shows, which is that of the first page; whether it was another."""
    snippet, machine, part = _README
    recording = (
        site.book.as_committed.recordings(snippet).get(machine) if snippet in site.book.snippets else None
    )
    parts = site.pictures.of(recording).get("parts", {}) if recording else {}
    if part not in parts:
        return False
    picture = svg.in_file(site.pictures.svg(recording, part, "wide")).encode()
    file = site.book.docs / _README_FILE
    is_other = not file.exists() or file.read_bytes() != picture
    if is_other:
        write(file, picture)
    return is_other


def inserted(site: Site, path: str, text: str) -> str:
    """A page with everything inserted; a generated page is whole already."""
    if path.startswith(f"{FOLDER}/"):
        return text
    if path not in site.pages.by_path and site.pages.unreadable:
        raise OverlapError("\n".join(site.pages.unreadable))
    return insert(site, path, text)


def generate(site: Site, files: Iterable[tuple[str, bytes]]) -> None:
    """Write these files; what is no longer made goes, and first their digest."""
    folder = site.book.docs / FOLDER
    (folder / _DIGEST).unlink(missing_ok=True)
    made = set()
    for path, content in files:
        file = folder / path
        made.add(file)
        if not file.exists() or file.read_bytes() != content:
            write(file, content)
    for file in folder.rglob("*"):
        if file.is_file() and file not in made:
            file.unlink()


def _inputs(site: Site, files: str) -> str:
    """A digest of all that pages and generated files are made from, the code that makes them included."""
    book = site.book
    texts = {page.path: page.text for page in site.pages.by_path.values()}
    lost = [*site.pages.unreadable, *book.library.unreadable_recordings]
    names = [site.notebook_page, list(site.titles.items())]
    return digest([names, facts(book), files, texts, lost])


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
