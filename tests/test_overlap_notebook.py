"""Chapters as notebooks: valid, the same bytes every time, and running in a fresh kernel where no GPU is needed."""

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from conftest import ROOT  # noqa: E402

from overlap.book import page  # noqa: E402
from overlap.book.book import Book  # noqa: E402
from overlap.site import notebook  # noqa: E402


@pytest.fixture(scope="module")
def book():
    return Book(ROOT, "never")


def chapters(book: Book) -> dict[str, list]:
    return {path: parts for path, parts in book.pages.items() if any(isinstance(part, page.Block) for part in parts)}


def test_each_chapter_is_a_valid_notebook_with_its_outputs(book):
    for path, parts in chapters(book).items():
        text = notebook.build(book, path, parts)
        assert text == notebook.build(book, path, parts), f"{path}: not the same bytes twice"
        cells = nbformat.reads(text, as_version=4).cells
        assert sum(cell.cell_type == "code" for cell in cells) >= 1, path
        assert all(
            cell.get("outputs") for cell in cells if cell.cell_type == "code" and "writefile" not in cell.source
        ), path
        prose = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
        assert "{printed:" not in prose and "!!! " not in prose and ".md)" not in prose, path


@pytest.mark.parametrize("chapter", ["processes", "machine", "graphs"])
def test_what_needs_no_gpu_runs_top_to_bottom_in_a_fresh_kernel(book, chapter, tmp_path, on_cpu):
    path = f"{chapter}.md"
    made = nbformat.reads(notebook.build(book, path, book.pages[path]), as_version=4)
    made.cells = [cell for cell in made.cells if "gpu" not in cell.metadata.get("tags", [])]
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    client = nbclient.NotebookClient(
        made, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    printed = [
        o.text for cell in made.cells if cell.cell_type == "code" for o in cell.outputs if o.output_type == "stream"
    ]
    assert len("".join(printed)) > 200
