"""Pages and notebooks that have not changed are not made again: each is kept under a key of everything it was made from."""

import contextlib
import hashlib
import json
import logging
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path

from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink, get_toc

from overlap import OverlapError
from overlap.book.book import Book
from overlap.run import recording
from overlap.site.policy import without_inline
from overlap.site.searchable import searchable

_PACKAGE = Path(__file__).resolve().parents[1]
#: What makes pages of text. To import nbconvert only to ask it would take most of a second.
_VERSIONS = [
    version(name) for name in ("mkdocs", "mkdocs-jupyter", "markdown", "nbconvert", "pygments", "pymdown-extensions")
]


def hashed(*parts) -> str:
    """SHA-256 of anything that JSON can say; of a function its name, of a partial one its arguments, too."""

    def said(item):
        if isinstance(item, partial):
            return [said(item.func), item.args, item.keywords]
        return f"{getattr(item, '__module__', '')}.{getattr(item, '__qualname__', type(item).__qualname__)}"

    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=said).encode("utf-8", "surrogatepass")).hexdigest()


class Kept:
    """What was made of a page, by what it was made from: its text, the snippets it shows and what they gave, all pages' addresses, the
    configuration, this package.
    """

    def __init__(self, book: Book, config, files: Files, colab: str = ""):
        self.book, self.folder = book, book.cache / "pages"
        code = [path.read_bytes() for path in sorted(_PACKAGE.rglob("*")) if path.suffix in (".py", ".html", ".toml")]
        options = {name: value for name, value in config.mdx_configs.items() if name != "overlap.site.markdown"}
        places = sorted((file.src_uri, file.url) for file in files)
        glossary = book.docs / "glossary.md"
        terms = glossary.read_text(encoding="utf-8") if glossary.exists() else ""
        common = [_VERSIONS, hashlib.sha256(b"".join(code)).hexdigest(), config.markdown_extensions, options]
        self._common = hashed(*common, str(config.validation), config.use_directory_urls, places, terms, colab)
        self._snippets: dict[str, str] = {}

    def key(self, path: str, text: str) -> str:
        """Key of a page with this text; every page is made of the whole book."""
        return hashed(self._common, path, text, self._book)

    @cached_property
    def _book(self) -> str:
        """All that a page can show."""
        pages = {path: page.text for path, page in self.book.pages.items()}
        diagrams = [path.read_text("utf-8") for path in sorted(self.book.docs.glob("assets/diagrams/*.svg"))]
        return hashed(pages, diagrams, self.book.home, [self._snippet(name) for name in sorted(self.book.snippets)])

    def _snippet(self, name: str) -> str:
        """All that a page can show of a snippet."""
        if name not in self._snippets:
            snippet, runs = self.book.snippet(name), self.book.runs(name)
            said = [(profile, run.data["digest"], run.live, run.grade) for profile, run in runs.items()]
            folded = [other.text for other in snippet.inputs.values()]  # notebooks have all of their words
            self._snippets[name] = hashed(snippet.text, folded, snippet.drawing_hashes, said, self.book.default(name))
        return self._snippets[name]

    def render(self, page: Page, view) -> None:
        """Make `page.render` take what is kept, or keep what it makes; of a notebook without what it has inline, its style beside it."""
        path, original, chapter = self.folder / f"{view.path}.json", page.render, view.path in self.book.pages
        page.style = page.searchable = ""

        def render(config, files: Files) -> None:
            of = self.key(view.path, page.markdown) if chapter else [self._common, page.markdown]
            key = hashed(of, view.up)  # also of what other plugins made of the page
            if not _take(page, path, key, files):
                with _Complaints() as complaints:
                    original(config, files)
                page.present_anchor_ids = (page.present_anchor_ids or set()) | view.anchors
                if chapter:
                    page.searchable = searchable(page.content)
                else:
                    page.content, page.style = without_inline(page.content)
                if not complaints.seen:
                    _keep(page, path, key)

        page.render = render

    def notebook(self, name: str, key: str, make, serving: bool = False) -> Path:
        """The notebook of a page: the one that is kept under this key, else what `make()` returns; an author who is being served does not wait
        for notebooks that are there.
        """
        path, mark = self.book.cache / f"notebooks/{name}.ipynb", self.book.cache / f"notebooks/{name}.key"
        try:
            kept = mark.read_text(encoding="utf-8").split()
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            if kept == [key, sha256] or (serving and kept[1:] == [sha256]):
                return path
        except (OSError, ValueError):
            pass
        text = make()
        recording.write(path, text)
        recording.write(mark, f"{key} {hashlib.sha256(text.encode()).hexdigest()}\n")
        return path


class _Complaints(logging.Handler):
    """Whether MkDocs warns of a page while it is rendered: such a page is not kept, so that it is warned of again."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen = False

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = True

    def __enter__(self) -> "_Complaints":
        logging.getLogger("mkdocs").addHandler(self)
        return self

    def __exit__(self, *exc_info) -> None:
        logging.getLogger("mkdocs").removeHandler(self)


def _keep(page: Page, path: Path, key: str) -> None:
    links = [(file.src_uri, anchors) for file, anchors in (page.links_to_anchors or {}).items()]
    made = {
        "content": page.content,
        "searchable": page.searchable,
        "style": page.style,
        "toc": list(map(_token, page.toc)),
        "title": page._title_from_render,
    }
    made |= {"anchors": sorted(page.present_anchor_ids), "links": links}
    with contextlib.suppress(OSError, OverlapError):  # a page that cannot be kept is made again
        recording.write(path, json.dumps({"key": key, "sha256": hashed(made), **made}))


def _take(page: Page, path: Path, key: str, files: Files) -> bool:
    """Restore what is kept; what is of another key, or damaged, is not taken."""
    try:
        made = json.loads(path.read_bytes())
        if made.pop("key") != key or made.pop("sha256") != hashed(made):
            return False
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False
    page.content, page.toc, page._title_from_render = made["content"], get_toc(made["toc"]), made["title"]
    page.searchable, page.style, page.present_anchor_ids = made["searchable"], made["style"], set(made["anchors"])
    page.links_to_anchors = {files.src_uris[uri]: anchors for uri, anchors in made["links"]}
    return True


def _token(link: AnchorLink) -> dict:
    return {"level": link.level, "id": link.id, "name": link.title, "children": list(map(_token, link.children))}
