"""MkDocs plugin: makes what pages need before they are built, and keeps a served book up to date.

What stands in pages is inserted by the Markdown extension; this is all that needs MkDocs.
"""

import re
import socket
import threading
from pathlib import Path

from mkdocs.config import base
from mkdocs.config import config_options as option
from mkdocs.exceptions import Abort, PluginError
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority, get_plugin_logger
from mkdocs.structure.files import Files
from mkdocs.structure.toc import AnchorLink

from overlap import OverlapError
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.book.verdict import State
from overlap.commands.check import check
from overlap.site import FOLDER, search
from overlap.site.background import Background
from overlap.site.build import digest_of_files, prepare
from overlap.site.layers import EVIDENCE, OPEN
from overlap.site.navigation import titles
from overlap.site.pictures import Pictures
from overlap.site.view import Site

log = get_plugin_logger("overlap")
_EXTENSION = "overlap.site.markdown"
_SCRIPT = re.compile(r"<script\b[^>]*>.*?</script>", re.S)
#: What only search reads, and blank space between tags; code keeps its own.
_FOR_SEARCH = re.compile(r"(?<=[\w\"]) data-search-exclude(?=[^<>]*>)")
_INDENTED = re.compile(r"(?P<code><pre\b.*?</pre>)|\s*\n\s*(?=<)", re.S)


class OverlapConfig(base.Config):
    """Options in mkdocs.yml.

    `execute`: auto or never; left empty it is auto, and never where a site is built to be published.
    `notebook_page`: the chapter whose notebook is a page of the site; the others are files.
    """

    execute = option.Choice(("auto", "never", ""), default="")
    notebook_page = option.Type(str, default="")


class OverlapPlugin(BasePlugin[OverlapConfig]):
    """MkDocs keeps one while it serves, and calls its hooks at every build."""

    def __init__(self):
        self.serving = False
        self.background: Background | None = None
        self.site: Site | None = None
        #: The ids of symptoms and terms, by the address of their page.
        self.entries: dict[str, set[str]] = {}
        #: A digest of all files but pages, before the book was read.
        self.files_before = ""
        #: Claims that this machine's own runs contradict and that were listed: a served book lists each once.
        self.listed: set[tuple[str, str, str]] = set()

    def on_startup(self, command: str, dirty: bool) -> None:
        """Know whether pages are served."""
        self.serving = command == "serve"

    def on_shutdown(self) -> None:
        """End what runs behind a served book."""
        if self.background:
            self.background.close()

    def on_config(self, config):
        """Open the book, and hand it to the Markdown extension."""
        if _EXTENSION not in config.markdown_extensions:
            raise PluginError(f"mkdocs.yml: add {_EXTENSION} to markdown_extensions; it inserts the outputs")
        if self.serving and self.background is None:
            _refuse_taken_port(*config.dev_addr)
        published = config.site_url and not self.serving
        execute = self.config.execute or ("never" if published else "auto")
        root = Path(config.config_file_path).resolve().parent
        files = digest_of_files(root)
        library = None
        if self.site and files == self.files_before:
            library = self.site.book.library
        book = Book(root, execute, library=library)
        self.files_before = files
        self.site = Site(Pages(book), Pictures(book), self.config.notebook_page, titles(config.nav))
        config.mdx_configs[_EXTENSION] = {"site": self.site}
        config.theme.dirs.insert(0, str(Path(__file__).with_name("theme")))
        return config

    def on_pre_build(self, config) -> None:
        """Check, run, and write the files that pages lead to; an author sees the page first."""
        book = self.site.book
        if not self.serving:
            ran = prepare(self.site.pages, self.site.pictures, self.config.notebook_page)
            log.info(f"{ran} runs made; {len(book.snippets)} snippets")
            return
        if self.background is None:
            self.background = Background(book.root, book.execute, self.config.notebook_page)
        self.background.prepare(self.site)

    @event_priority(100)
    def _page_context(self, context, page, config, nav) -> None:
        """Give search what it reads. It leaves out the notebook, which is what its chapter is."""
        if _is_notebook(page):
            page.meta["search"] = {"exclude": True}
            for chapter in nav.pages:
                if chapter.file.src_uri == f"{page.file.name}.md":
                    page.meta["title"] = f"{chapter.title}: the notebook"
                    page.meta["description"] = chapter.meta.get("description")
        self.content = page.content
        self.entries[page.url] = search.entries(page.content)
        page.content = search.readable(page.content)

    @event_priority(-100)
    def _page_content_again(self, context, page, config, nav) -> None:
        page.content = self.content

    on_page_context = CombinedEvent(_page_context, _page_content_again)

    def on_page_content(self, html: str, page, config, files: Files) -> str:
        """Tell MkDocs the ids in what was inserted; entries are not in the contents, only their groups are.

        A notebook loads no scripts from other hosts.
        """
        if 'class="ov-symptom"' in html:
            for heading in page.toc:
                for group in heading.children:
                    group.children.clear()
        for heading in page.toc:
            _layered(heading)
        anchors = self.site.anchors
        unknown = anchors.pop("", set())  # of a page that was saved after the book was read
        inserted = anchors.get(page.file.src_uri, set()) | unknown
        page.present_anchor_ids = (page.present_anchor_ids or set()) | inserted
        if not _is_notebook(page):
            return html
        up = "../" * page.url.count("/")
        back = f'<p class="ov-back"><a href="{up}{page.file.name}/">Back to the chapter</a></p>'
        return f"{back}\n{_SCRIPT.sub('', html)}"

    def on_post_page(self, output: str, page, config) -> str:
        """A page without indentation, and without what only search reads: a twelfth of its bytes."""
        output = _FOR_SEARCH.sub("", output)
        return _INDENTED.sub(lambda found: found["code"] or "\n", output)

    def on_serve(self, server, config, builder):
        """Watch what is written by hand, not what this plugin writes; and what tells that runs are done."""
        server.unwatch(config.docs_dir)
        server.watch(config.docs_dir, recursive=False)
        for folder in Path(config.docs_dir).iterdir():
            if folder.is_dir() and folder.name != FOLDER:
                server.watch(str(folder))
        server.watch(str(self.site.book.root / "snippets"))
        server.watch(str(self.background.signal_file))
        self.background.start()
        return server

    def on_build_error(self, error: Exception) -> None:
        """What a person must mend ends with its message and no traceback."""
        if isinstance(error, (OverlapError, PluginError)):
            raise Abort(str(error)) from None
        if isinstance(error, OSError) and error.filename:
            raise Abort(f"{error.filename}: {error.strerror}; mend this and build again") from None

    def on_post_build(self, config) -> None:
        """Mend the search; list claims that runs of this machine contradict.

        An author is told what is not in order.
        """
        search.mend(Path(config.site_dir), self.entries)
        book = self.site.book
        for claim in self.site.pages.claims:
            if not any(recording.is_local for recording in book.recordings(claim.snippet).values()):
                continue
            for verdict in book.verdicts(claim):
                key = (claim.page, claim.anchor, verdict.recording.path)
                if verdict.recording.is_local and verdict.state is State.FALSE and key not in self.listed:
                    self.listed.add(key)
                    log.info(claim.falsehood(verdict))
        if self.serving:  # behind the page, which need not wait for it
            threading.Thread(target=_tell_problems, args=[self.site.pages], daemon=True).start()


def _layered(title: AnchorLink) -> None:
    """The contents of a chapter of two layers: one level, and below *Evidence* its sections."""
    sections = {section.id: section for section in title.children}
    if EVIDENCE not in sections:
        return
    evidence = sections[EVIDENCE]
    at = title.children.index(evidence) + 1
    behind = title.children[at:]
    for section in sections.values():
        section.children.clear()
    evidence.children.extend(section for section in behind if section.id != OPEN)
    title.children[at:] = [section for section in behind if section.id == OPEN]


def _is_notebook(page) -> bool:
    return page.file.src_uri.startswith(f"{FOLDER}/notebooks/")


def _tell_problems(pages: Pages) -> None:
    for problem in check(pages, remarks=False):
        log.warning(problem)


def _refuse_taken_port(host: str, port: int) -> None:
    """Say so before the build that a port is taken; MkDocs says it after, in a traceback."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((host, port))
        except OSError as error:
            reason = f"cannot serve on {host}:{port} ({error.strerror})"
            raise Abort(f"{reason}; name another port, as `mkdocs serve -a 127.0.0.1:8001`") from None
