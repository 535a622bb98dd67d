"""What is made once and kept: pages, notebooks, pictures. It is taken again only where nothing has changed, and made again where it is damaged."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("mkdocs")

from conftest import ROOT, SmallBook
from mkdocs.exceptions import Abort
from test_overlap_site import CONFIG, PAGE, build, contents, write_book

from overlap.site.searchable import searchable
from overlap.site.view import View

pytestmark = [pytest.mark.usefixtures("on_cpu"), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def kept(on_cpu, template, tmp_path_factory):
    """A book that was built once, from its recordings."""
    book = write_book(tmp_path_factory.mktemp("kept"), template)
    book.first = contents(build(book, "never"))
    return book


@pytest.fixture
def rendered(monkeypatch):
    """Pages of which anything was rendered."""
    seen, inline, outputs = set(), View.inline, View.outputs
    monkeypatch.setattr(View, "inline", lambda view, text: (seen.add(view.path), inline(view, text))[1])
    monkeypatch.setattr(View, "outputs", lambda view, run: (seen.add(view.path), outputs(view, run))[1])
    return seen


def test_nothing_changed_and_nothing_is_rendered(kept, rendered):
    assert contents(build(kept, "never")) == kept.first
    assert rendered == set()


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("path", ["pages/a.md.json", "notebooks/a.ipynb", "notebooks/a.key", "memo.json"])
@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"[]", b'{"key": 1}', None])
def test_what_is_damaged_is_made_again(kept, path, damage):
    found = kept.root / ".cache/overlap" / path
    for file in sorted(found.glob("*/*")) if False else [found]:
        if damage is None:
            file.unlink()
        else:
            file.write_bytes(damage)
    assert contents(build(kept, "never")) == kept.first


def test_a_page_is_rendered_again_when_what_it_shows_changes(kept, rendered, template):
    page = kept.root / "docs/a.md"
    page.write_text(PAGE + "\nOne more line.\n")
    assert b"One more line." in contents(build(kept, "never"))["a/index.html"]
    assert rendered == {"a.md"}, "the index of claims says what it said"
    rendered.clear()
    page.write_text(PAGE.replace("Three, *at least*.", "Three or more."))
    assert b"Three or more." in contents(build(kept, "never"))["claims/index.html"]
    assert rendered == {"a.md", "claims.md"}
    rendered.clear()
    kept.commit("a/number", template, {"n": 7}, gpus=1)
    assert b"n = 7" in contents(build(kept, "never"))["a/index.html"]
    assert rendered == {"a.md", "claims.md", "index.md"}, "the first page has the picture of the scoreboard"
    page.write_text(PAGE)
    kept.commit("a/number", template, {"n": 4}, gpus=1)
    assert contents(build(kept, "never")) == kept.first


def test_a_page_is_rendered_again_when_a_helper_of_its_picture_changes(template, tmp_path, rendered):
    book = SmallBook(tmp_path)
    helper = "def drawn():\n    import matplotlib.pyplot as plt\n\n    figure, ax = plt.subplots()\n    ax.plot([1, 2], [3, {end}])\n    return figure\n\n\ndef main():\n    return {{}}\n"
    plot = "\n\ndef plot(results, ceilings):\n    return drawn()\n"
    book.snippet("a/helper", helper.format(end=41))
    book.snippet("a/number", f"from snippets.a.helper import drawn\n\n\n{SmallBook.MAIN}{plot}")
    for name in ("a/helper", "a/number"):
        book.commit(name, template)
    for page, snippet in {"index": "a/helper", "a": "a/number"}.items():
        book.page(page, f"# {page}\n\n```snippet {snippet}\n```\n")
    for page in ("glossary", "claims"):
        book.page(page, f"# {page}\n")
    assert "<td>41</td>" in (build(book, "never") / "a/index.html").read_text()
    book.snippet("a/helper", helper.format(end=57))
    book.commit("a/helper", template)
    rendered.clear()
    page = (build(book, "never") / "a/index.html").read_text()
    assert "<td>57</td>" in page and "<td>41</td>" not in page


def test_a_page_that_is_warned_of_is_warned_of_again(kept, caplog):
    page = kept.root / "docs/a.md"
    page.write_text(PAGE + "\n[lost](lost.md)\n")
    for _ in range(2):
        caplog.clear()
        with pytest.raises(Abort, match="warnings in strict mode"):
            build(kept, "never")
        assert "'lost.md'" in caplog.text
    page.write_text(PAGE)


def test_a_page_is_rendered_again_when_what_is_around_it_changes(template, tmp_path):
    book = write_book(tmp_path, template)
    docs, hook = book.root / "docs", book.root / "hook.py"
    diagram = docs / "assets/diagrams/lanes.svg"
    said = book.root / "said"
    hook.write_text(
        f"def on_page_markdown(markdown, **_):\n    return markdown + __import__('pathlib').Path({str(said)!r}).read_text()\n"
    )
    said.write_text("\n\nHOOK-ONE\n")
    (docs / "assets/p.txt").write_text("there")
    index = docs / "index.md"
    index.write_text(index.read_text() + "\n[linked](assets/p.txt)\n")
    first = contents(build(book, "never", "hooks: [hook.py]\n"))["index.html"].decode()
    assert "<svg>lanes</svg>" in first and "HOOK-ONE" in first
    diagram.write_text("<svg>others</svg>")
    said.write_text("\n\nHOOK-TWO\n")
    second = contents(build(book, "never", "hooks: [hook.py]\n"))["index.html"].decode()
    assert "<svg>others</svg>" in second and "HOOK-TWO" in second
    (docs / "assets/p.txt").unlink()
    with pytest.raises(Abort, match="warnings in strict mode"):
        build(book, "never")
    lenient = "validation: {links: {not_found: info}}\n"
    build(book, "never", lenient)
    with pytest.raises(Abort, match="warnings in strict mode"):
        build(book, "never")


def test_a_page_is_rendered_again_when_the_table_of_gpus_changes(template, tmp_path):
    book = write_book(tmp_path / "book", template)
    book.page("a", PAGE.replace("# A", "# A\n\nIt has {a/number@h200: ceiling.bf16_tflop_s:.0f} of it."))
    (book.root / "mkdocs.yml").write_text(CONFIG)
    shutil.copytree(ROOT / "overlap", tmp_path / "overlap")
    table = tmp_path / "overlap/book/gpus.toml"
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OVERLAP_EXECUTE": "never"}

    def shown() -> int:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
        subprocess.run(command, cwd=book.root, env=environment, check=True)
        return int(re.search(r"It has .*?([\d,]+)\D* of it", (book.root / "site/a/index.html").read_text())[1])

    before = shown()
    text = table.read_text()
    assert "bf16 = 4096" in text
    table.write_text(text.replace("bf16 = 4096", "bf16 = 8192"))
    assert shown() == pytest.approx(2 * before, abs=1)


def test_a_page_is_rendered_again_when_colab_is_named_and_when_it_is_not(kept, monkeypatch):
    monkeypatch.setenv("OVERLAP_COLAB", "owner/repository/blob/branch")
    assert b"colab.research.google.com/github/owner/repository" in contents(build(kept, "never"))["a/index.html"]
    monkeypatch.delenv("OVERLAP_COLAB")
    assert contents(build(kept, "never")) == kept.first


def test_a_notebook_is_made_again_when_the_words_of_a_helper_change(template, tmp_path):
    book = SmallBook(tmp_path)
    helper = 'def three():\n    """Give {}."""\n    return 3\n\n\ndef main():\n    return {{}}\n'
    book.snippet("a/helper", helper.format("three"))
    book.snippet("a/number", 'from snippets.a.helper import three\n\n\ndef main():\n    return {"n": three()}\n')
    for page, snippet in {"index": "a/helper", "a": "a/number"}.items():
        book.commit(snippet, template)
        book.page(page, f"# {page}\n\n```snippet {snippet}\n```\n")
    for page in ("glossary", "claims"):
        book.page(page, f"# {page}\n")
    assert b"Give three." in contents(build(book, "never"))["downloads/a.ipynb"]
    book.snippet("a/helper", helper.format("a few"))
    assert b"Give a few." in contents(build(book, "never"))["downloads/a.ipynb"]


SEARCHED = {
    "<p>One <code>two</code> &amp; <em>three</em></p>": "<p>One <code>two</code> &amp; <em>three</em></p>",
    '<h2 id="a" title="x">A<a class="headerlink" href="#a">¶</a></h2>': '<h2 id="a">A</h2>',
    '<pre class="ov-text" tabindex="0">an error</pre>': '<pre class="ov-text">an error</pre>',
    '<p class="ov-borrow">lost <code>lost</code></p><p>kept</p>': "<p>kept</p>",
    '<figure class="ov-figure"><img alt="lost"><p>lost</p></figure><p>kept</p>': "<p>kept</p>",
    '<span class="ov-value"><span data-machine="a" class="ov-on">1</span><span data-machine="b">2</span></span>': '<span class="ov-value">1</span>',
    '<pre><code><span class="k">def</span> f</code></pre>': "<pre><code>def f</code></pre>",
    '<div class="a highlight"><pre><code>lost <span class="nf">f</span>(x) <span class="k">lost</span></code></pre></div>kept': " fkept",
    "<p>a<br>b<p>c": "<p>a<br>b<p>c",
    "<p>&#60;b&#62; &lt;i&gt;</p>": "<p>&#60;b&#62; &lt;i&gt;</p>",
}


@pytest.mark.parametrize("html", SEARCHED)
def test_what_search_reads(html):
    assert searchable(html) == SEARCHED[html]


def test_what_converts_notebooks_is_imported_when_it_is_used():
    code = "import sys, overlap.site.plugin, mkdocs_jupyter.plugin as it\n"
    code += "before = 'nbconvert' in sys.modules\nit.convert.nb2html\nprint(before, 'nbconvert' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.fixture
def served(template, tmp_path):
    """`mkdocs serve` on a small book; what it says is in `log`."""
    book = write_book(tmp_path, template)
    (book.root / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT}/mkdocs.yml\nsite_name: Small\nextra_css: []\nextra_javascript: []\nnav: [index.md, a.md, claims.md, glossary.md]\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mkdocs", "serve", "--dev-addr", f"127.0.0.1:{port}"]
    book.site = tmp_path / "temporary"
    book.site.mkdir()
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "NO_MKDOCS_2_WARNING": "1", "TMPDIR": str(book.site)}
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(command, cwd=book.root, env=environment, stdout=log, stderr=log)
    book.log, book.address = tmp_path / "log", f"http://127.0.0.1:{port}/a/"
    yield book
    server.terminate()
    server.wait(20)


def until(found, limit: float = 60):
    """Wait until something is so."""
    started = time.monotonic()
    while not found():
        assert time.monotonic() - started < limit
        time.sleep(0.05)


def test_an_author_is_told_every_time_why_a_save_failed_and_sees_every_good_one(served: SmallBook):
    def shows(text: str) -> bool:
        try:
            return text in urllib.request.urlopen(served.address, timeout=5).read().decode()
        except OSError:
            return False

    until(lambda: shows("Three, <em>at least</em>"))
    time.sleep(1)
    page, broken = served.root / "docs/a.md", "docs/a.md:3: unknown option `shoe: times`; known are"
    for turn in range(1, 4):
        page.write_text(PAGE.replace("show: times", f"shoe: times{' ' * turn}"))
        until(lambda turn=turn: served.log.read_text().count(broken) >= turn)
    page.write_text(PAGE + "\nGood again.\n")
    until(lambda: shows("Good again."))
    snippet = served.root / "snippets/a/number.py"
    snippet.write_text(snippet.read_text().replace('print("three")', 'print("run anew")'))
    until(lambda: shows("run anew"))
    for uri, found in {"downloads/a/number.py": "run anew", "stylesheets": "", "assets/none.css": ""}.items():
        try:
            said = urllib.request.urlopen(served.address.replace("a/", uri), timeout=5)
            assert found and found in said.read().decode() and said.headers["Content-Type"].startswith("text/")
        except urllib.error.HTTPError as error:
            assert not found and error.code == 404
    assert not list(served.site.rglob("downloads")), "what is only copied is served from where it is"
    assert "Traceback" not in served.log.read_text()
