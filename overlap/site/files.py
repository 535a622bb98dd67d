"""Files that pages lead to, below docs/generated/: each is made when it is asked for.

A build asks for all of them. A served book asks for those that a builder reads, and then for what a reader
opens: most are about other machines than the one that a page shows.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial

from overlap.blocks.headlines import NO_RATE
from overlap.blocks.page import Page
from overlap.blocks.pages import Pages
from overlap.blocks.paste import Paste
from overlap.blocks.snippet import FOR_TOOLS
from overlap.book.book import Book
from overlap.book.recording import Recording
from overlap.book.verdict import DECISIVE, MARKS
from overlap.commands.mine import digest_of_book
from overlap.run import download
from overlap.run.text import plural
from overlap.site import app, colors, machines, svg, trace
from overlap.site.draw import NARROW, SMALL
from overlap.site.notebook import Notebook
from overlap.site.pictures import Pictures
from overlap.site.view import Site, View

#: The machine and the snippet in the path of a file about one recording.
_OF_RUN = re.compile(r"(?:local|traces|timelines|pictures)/([^/]+/\w+/\w+)[-.]")


class Files:
    """The files of a site, by their paths below the folder."""

    def __init__(self, site: Site):
        self._site = site
        self._make = dict(_of_book(site))
        self._recordings: dict[str, Recording] = {}
        for name in site.book.snippets:
            for machine, recording in site.book.recordings(name).items():
                self._recordings[f"{machine}/{name}"] = recording

    def __contains__(self, path: str) -> bool:
        """Whether there is such a file; nobody asks for a picture or timeline that a recording has not."""
        return path in self._make or self._recording(path) is not None

    def make(self, path: str) -> bytes:
        """The content of a file; empty where there is none."""
        if path in self._make:
            return _bytes(self._make[path]())
        recording = self._recording(path)
        return _bytes(dict(_of_run(self._site.pictures, recording)).get(path, "")) if recording else b""

    def all(self) -> Iterator[tuple[str, bytes]]:
        """Every file with its path; what has links to others comes after them."""
        for recording in self._recordings.values():
            for path, content in _of_run(self._site.pictures, recording):
                yield path, _bytes(content)
        for path, make in self._make.items():
            if content := make():
                yield path, _bytes(content)

    def for_builder(self) -> Iterator[tuple[str, bytes]]:
        """Those that a builder looks for: its configuration or the Markdown of pages names them."""
        for path in self._make:
            if path.startswith("notebooks/") or path.endswith((".js", ".css", ".zip", ".pyz", ".py")):
                yield path, self.make(path)

    def _recording(self, path: str) -> Recording | None:
        match = _OF_RUN.match(path)
        return self._recordings.get(match[1]) if match else None


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _of_book(site: Site) -> Iterator[tuple[str, Callable[[], str | bytes]]]:
    """What makes each file that is about no recording alone."""
    pages, pictures, book = site.pages, site.pictures, site.book
    downloads = cache(partial(_downloads, book))
    yield "downloads/overlap.zip", lambda: _archive(book, downloads())
    yield "downloads/overlap.pyz", partial(app.build, pages)
    for name, snippet in book.snippets.items():
        for part in (name, *(f"{name}/{function}" for function in snippet.options["take"])):
            yield f"downloads/{part}.py", lambda part=part: downloads()[part]
    yield "colors.css", colors.stylesheet
    yield "machines.js", partial(_script, pages)
    for item in book.machines():
        yield f"machines/{item['name']}.json", partial(_machine, pages, pictures, item["name"])
    for page in pages.by_path.values():
        yield f"folds/{page.name}.html", partial(_folds, site, page)
        if any(block.snippets for block in page.blocks):
            if any(isinstance(block, Paste) for block in page.blocks):
                yield f"downloads/{page.name}_boxes.py", partial(_boxes, book, page)
            notebook = partial(Notebook(pages, pictures).build, page)
            yield f"downloads/{page.name}.ipynb", notebook
            if page.name == site.notebook_page:
                yield f"notebooks/{page.name}.ipynb", notebook


def _downloads(book: Book) -> dict[str, str]:
    """Programs by name, and functions to take home by the name of their program and their own."""
    texts = {name: download.program(snippet) for name, snippet in book.snippets.items()}
    for name, snippet in book.snippets.items():
        for function in snippet.options["take"]:
            texts[f"{name}/{function}"] = download.piece(snippet, function)
    return texts


def _boxes(book: Book, page: Page) -> str:
    """The lines to paste of a page, in order, as one module."""
    boxes = [block.code(book.root) for block in page.blocks if isinstance(block, Paste)]
    head = download.ORIGIN.format(f"docs/{page.path}")
    return "\n\n\n".join([f'{head}\n"""The lines to paste of a chapter, in its order."""', *boxes]) + "\n"


def _script(pages: Pages) -> str:
    """What scripts of pages know of the book."""
    names = {"overlapMachines": pages.book.machines(), "overlapDigest": digest_of_book(pages)}
    names |= {"overlapParts": machines.PARTS, "overlapNarrow": NARROW, "overlapSmall": SMALL}
    names |= {"overlapMarks": MARKS, "overlapDecisive": [state.word for state in DECISIVE]}
    names |= {"overlapNoRate": NO_RATE.for_scripts, "overlapForTools": FOR_TOOLS.pattern}
    return "".join(f"var {name} = {json.dumps(content)}\n" for name, content in names.items())


def _machine(pages: Pages, pictures: Pictures, machine: str) -> str:
    """All that pages show of a machine."""
    return json.dumps(machines.shown(pages, pictures, machine), ensure_ascii=False) + "\n"


def _folds(site: Site, page: Page) -> str:
    """All that a page opens."""
    return View(site, page.path).folds(page.blocks)


def _of_run(pictures: Pictures, recording: Recording) -> Iterator[tuple[str, str]]:
    """The recording, if it is this machine's; its timelines and pictures."""
    place = f"{recording.machine}/{recording.snippet}"
    if recording.is_local:
        yield f"local/{place}.json", (pictures.book.root / recording.path).read_text(encoding="utf-8")
    if trace.timelines(recording.result):
        yield f"traces/{place}.json", trace.chrome_trace(recording.result)
    picture = pictures.of(recording)
    if lines := pictures.timelines(recording):
        yield f"timelines/{place}.json", json.dumps(lines, ensure_ascii=False, separators=(",", ":"))
    if lines := pictures.timelines_in_chinese(recording):
        yield f"timelines/{place}.zh.json", json.dumps(lines, ensure_ascii=False, separators=(",", ":"))
    for part, drawn in pictures.in_chinese(recording).items():
        for variant in drawn["sizes"]:
            drawing = svg.in_file(pictures.svg(recording, part, variant, in_chinese=True))
            yield f"pictures/{place}-{f'{part}-' if part else ''}{variant}.zh.svg", drawing
    for variant in picture.get("sizes", {}):
        yield f"pictures/{place}-{variant}.svg", svg.in_file(pictures.svg(recording, "", variant))
    for part, drawn in picture.get("parts", {}).items():
        for variant in drawn["sizes"]:
            yield (
                f"pictures/{place}-{part}-{variant}.svg",
                svg.in_file(pictures.svg(recording, part, variant)),
            )


_README = """\
# Code of the book Overlap: how PyTorch really runs on GPUs

`programs/` has {programs}, each of which runs alone: `python programs/timing/take_turns.py`.
`functions/` has {functions} for your own code. Each is a file with what it needs, and nothing else:

{list}

The licence of the code is MIT, see LICENSE. Some of it follows code of others, see NOTICE.
"""


def _archive(book: Book, downloads: dict[str, str]) -> bytes:
    """All downloads in one file with the licences, the same bytes each time."""
    programs = {name: text for name, text in downloads.items() if name in book.snippets}
    pieces = {name: text for name, text in downloads.items() if name not in book.snippets}
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
