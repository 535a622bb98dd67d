"""Rendered pages are kept while nothing that they are made from has changed, and no longer."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

for name in ("mkdocs", "material", "mkdocs_jupyter"):
    pytest.importorskip(name)

from mkdocs.config import load_config  # noqa: E402
from mkdocs.structure.pages import Page  # noqa: E402
from test_overlap_site import build, contents, write_book  # noqa: E402

import overlap  # noqa: E402
from overlap import OverlapError  # noqa: E402
from overlap.site import build as site_build  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # MkDocs and its plugins warn of their own future
PAGES = {"a.md", "claims.md", "glossary.md", "index.md"}


@pytest.fixture(autouse=True)
def info():
    """MkDocs says what it says to whoever builds a book."""
    log = logging.getLogger("mkdocs")
    log.setLevel(logging.INFO)
    yield
    log.setLevel(logging.NOTSET)


@pytest.fixture
def rendered(monkeypatch) -> set:
    """The pages that were rendered."""
    names = set()
    render = Page.render

    def counted(self, config, files):
        names.add(self.file.src_uri)
        render(self, config, files)

    monkeypatch.setattr(Page, "render", counted)
    return names


@pytest.fixture(scope="module")
def kept(on_cpu, template, tmp_path_factory):
    """A book that was built once, with its pages in the cache."""
    book = write_book(tmp_path_factory.mktemp("kept"), template)
    (book.root / "pyproject.toml").write_text("")
    code = Path(overlap.__file__).parent
    shutil.copytree(code, book.root / "overlap", ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_build.overlap, "__file__", str(book.root / "overlap/__init__.py"))
        logging.getLogger("mkdocs").setLevel(logging.INFO)
        book.site = contents(build(book, "never"))
        yield book


def test_an_unchanged_book_renders_no_page_and_is_the_same(kept, rendered):
    assert contents(build(kept, "never")) == kept.site
    assert rendered == set()


@pytest.mark.parametrize(
    ("path", "old", "new", "again"),
    [
        ("docs/claims.md", "# Claims", "# All claims", {"claims.md"}),
        ("docs/a.md", "# A\n", "# A\n\nOne more sentence.\n", {"a.md"}),
        ("docs/a.md", "Two, at least.", "At least two.", PAGES),
        ("snippets/a/number.py", "return 2 * n", "return 2 * n  # twice", PAGES),
        ("overlap/book/blocks/templates/claim.html", "<", " <", PAGES),
        ("pyproject.toml", "", "[tool.overlap]\nhome = { h200 = 1 }\n", PAGES),
    ],
)
def test_what_was_changed_is_rendered_again(kept, rendered, path, old, new, again):
    file = kept.root / path
    before = file.read_text()
    file.write_text(before.replace(old, new, 1))
    try:
        site = contents(build(kept, "never"))
        assert rendered == again
        shutil.rmtree(kept.root / ".cache/overlap/pages")
        assert contents(build(kept, "never")) == site, "as it is without what was kept"
    finally:
        file.write_text(before)
    assert contents(build(kept, "never")) == kept.site


def test_a_recorded_value_a_machine_and_an_option_are_inputs(kept, rendered, template):
    path = kept.path("a/number", "h200")
    before = path.read_text()
    kept.commit("a/number", template, {"n": 41}, gpus=1)
    page = (build(kept, "never") / "a/index.html").read_text()
    path.write_text(before)
    assert ">41<" in page and rendered == PAGES
    rendered.clear()
    build(kept, "auto")
    assert rendered == PAGES, "this machine ran snippets itself"
    rendered.clear()
    extra = "markdown_extensions:\n" + "".join(
        f"  - {name}\n" for name in ("attr_list", "pymdownx.superfences", "overlap.site.markdown")
    )
    build(kept, "never", extra)
    assert rendered == PAGES
    rendered.clear()
    (kept.root / "docs/b.md").write_text("# B\n")
    build(kept, "never", "not_in_nav: b.md\n")
    (kept.root / "docs/b.md").unlink()
    assert rendered == PAGES | {"b.md"}, "a link may lead there"


def test_a_page_that_warns_is_rendered_each_time(kept, rendered, caplog):
    page = kept.root / "docs/a.md"
    before = page.read_text()
    page.write_text(f"{before}\n[Nothing](nothing.md)\n")
    for _ in range(2):
        rendered.clear()
        with pytest.raises(SystemExit):
            build(kept, "never")
        assert "a.md" in rendered and "nothing.md" in caplog.text
    page.write_text(before)


def test_a_book_that_is_read_again_reads_snippets_only_where_a_file_changed(kept, monkeypatch):
    monkeypatch.setenv("OVERLAP_EXECUTE", "never")
    monkeypatch.chdir(kept.root)
    config = load_config(str(kept.root / "mkdocs.yml"))
    served: Any = config.plugins["overlap"]
    page = kept.root / "docs/a.md"
    code = kept.root / "snippets/a/number.py"
    before = {file: file.read_text() for file in (page, code)}
    served.on_config(config)
    first = served.site.book
    page.write_text(f"{before[page]}\nMore.\n")
    served.on_config(config)
    second = served.site.book
    assert second.snippets is first.snippets and "More." in second.pages["a.md"].text
    code.write_text(f"{before[code]}\nBAD = (\n")
    for _ in range(2):
        with pytest.raises(OverlapError, match="never closed"):
            served.on_config(config)
    code.write_text(f"{before[code]}\n# More.\n")
    served.on_config(config)
    assert "# More." in served.site.book.snippets["a/number"].text
    for file, text in before.items():
        file.write_text(text)
