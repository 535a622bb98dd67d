"""Chapters as notebooks: valid, always the same bytes, running in a fresh kernel where no GPU is needed."""

import re

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from conftest import ROOT, committed  # noqa: E402

from overlap.blocks.block import Text  # noqa: E402
from overlap.blocks.pages import Pages  # noqa: E402
from overlap.book.book import Book  # noqa: E402
from overlap.site.notebook import Notebook  # noqa: E402
from overlap.site.pictures import Pictures  # noqa: E402


@pytest.fixture(scope="module")
def notebook() -> Notebook:
    book = Book(ROOT, "never")
    return Notebook(Pages(book), Pictures(book))


def test_each_chapter_is_a_valid_notebook_with_its_outputs(notebook):
    chapters = {
        path: page
        for path, page in notebook.pages.by_path.items()
        if any(block.snippets for block in page.blocks)
    }
    assert len(chapters) >= 10
    for path, page in chapters.items():
        text = notebook.build(page)
        assert text == notebook.build(page), f"{path}: not the same bytes twice"
        made = nbformat.reads(text, as_version=4)
        nbformat.validate(made)
        cells = made.cells
        runs = [cell for cell in cells if cell.cell_type == "code"]
        assert runs or path == "check.md", f"{path}: only this page shows no output"
        assert all(
            cell.get("outputs")
            for cell in cells
            if cell.cell_type == "code"
            and "writefile" not in cell.source
            and "paste" not in cell.metadata.get("tags", [])
        ), path
        prose = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
        assert (
            "{printed:" not in prose and "!!! " not in prose and not re.search(r"\]\([^:)]+\.md\)", prose)
        ), path


def test_a_fence_of_lines_that_run_is_a_cell_between_what_stands_around_it(notebook):
    runs = "```{.python .ov-wraps .ov-runs}\nx = 1\n\ny = 2\n```\n"
    text = f"Above.\n\n{runs}\nBelow.\n\n```python\nfor x in loader:\n```\n"
    above, code, below = Text("pycuda.md", 1, text).cells(notebook)
    assert (above["source"], code["cell_type"], code["source"]) == ("Above.", "code", "x = 1\n\ny = 2")
    assert below["cell_type"] == "markdown" and "for x in loader" in below["source"]
    assert [cell["cell_type"] for cell in Text("pycuda.md", 1, f"\n{runs}").cells(notebook)] == ["code"]
    assert [cell["source"] for cell in Text("pycuda.md", 1, "Text.\n").cells(notebook)] == ["Text."]


def test_what_is_written_of_sources_is_text_in_a_notebook():
    cell = Notebook(committed(), None).prose("{printed: 5 <ms>}: {verdict: dated} now less")
    assert cell["source"] == "5 &#60;ms&#62;: **dated** now less"


@pytest.mark.parametrize(
    "chapter",
    [
        "first_steps",
        pytest.param("graphs", marks=pytest.mark.slow),
        pytest.param("machine", marks=pytest.mark.slow),
        pytest.param("processes", marks=pytest.mark.slow),
    ],
)
def test_what_needs_no_gpu_runs_top_to_bottom_in_a_fresh_kernel(notebook, chapter, tmp_path, on_cpu):
    made = nbformat.reads(notebook.build(notebook.pages.by_path[f"{chapter}.md"]), as_version=4)
    made.cells = [cell for cell in made.cells if "gpu" not in cell.metadata.get("tags", [])]
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    client = nbclient.NotebookClient(
        made, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    printed = [
        o.text
        for cell in made.cells
        if cell.cell_type == "code"
        for o in cell.outputs
        if o.output_type == "stream"
    ]
    assert len("".join(printed)) > 200
