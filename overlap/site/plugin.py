"""MkDocs plugin: hands the book to MkDocs, page by page, and keeps a served book up to date.

What it does is done by the other modules; this is all that needs MkDocs.
"""

import gc
import threading
from pathlib import Path

from mkdocs.config import base
from mkdocs.config import config_options as option
from mkdocs.exceptions import Abort, PluginError
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority, get_plugin_logger

from overlap import OverlapError
from overlap.blocks.pages import Pages
from overlap.commands.check import check, contradicted
from overlap.site import FOLDER, contents, notebook_page
from overlap.site.background import Background, refuse_taken_port
from overlap.site.build import inserted, prepare, read
from overlap.site.languages import languages
from overlap.site.navigation import titles
from overlap.site.search import Search
from overlap.site.squeeze import squeezed
from overlap.site.view import Site

log = get_plugin_logger("overlap")
_EXTENSION = "overlap.site.markdown"


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
        self.search = Search()
        #: Claims that were listed: a served book lists each once.
        self.listed: set[tuple[str, str, str]] = set()

    def on_startup(self, command: str, dirty: bool) -> None:
        """Know whether pages are served.

        A book is many small objects that stay: to look through them for circles as often as Python does by
        itself takes a quarter of a build.
        """
        self.serving = command == "serve"
        gc.set_threshold(100_000)

    def on_shutdown(self) -> None:
        """End what runs behind a served book."""
        if self.background:
            self.background.close()

    def on_config(self, config):
        """Open the book."""
        if _EXTENSION not in config.markdown_extensions:
            raise PluginError(f"mkdocs.yml: add {_EXTENSION} to markdown_extensions; it closes the evidence")
        if self.serving and self.background is None:
            refuse_taken_port(*config.dev_addr)
        published = config.site_url and not self.serving
        execute = self.config.execute or ("never" if published else "auto")
        root = Path(config.config_file_path).resolve().parent
        self.site = read(root, execute, self.config.notebook_page, titles(config.nav), self.site)
        config.extra["alternate"] = True  # the theme has a language menu; its entries are of each page
        config.theme.dirs.insert(0, str(Path(__file__).with_name("theme")))
        return config

    def on_pre_build(self, config) -> None:
        """Check, run, and write the files that pages lead to; an author sees the page first."""
        book = self.site.book
        if not self.serving:
            ran = prepare(self.site)
            log.info(f"{ran} runs made; {len(book.snippets)} snippets")
            return
        if self.background is None:
            self.background = Background(book.root, book.execute)
        self.background.prepare(self.site)

    def on_page_markdown(self, markdown: str, page, config, files) -> str | None:
        """A page with everything inserted."""
        path = page.file.src_uri
        if path.startswith(f"{FOLDER}/"):
            return None
        if path not in self.site.pages.by_path and self.site.pages.unreadable:
            raise OverlapError("\n".join(self.site.pages.unreadable))
        return inserted(self.site, path, markdown)

    def on_page_content(self, html: str, page, config, files) -> str:
        """Shorten the contents; a notebook has a way back to its chapter."""
        contents.shorten(page.toc, html)
        return notebook_page.with_way_back(html, page) if notebook_page.is_one(page) else html

    @event_priority(100)
    def _before_search(self, context, page, config, nav) -> None:
        if notebook_page.is_one(page):
            notebook_page.describe(page, nav)
        if following := page.meta.get("next"):
            page.next_page = next(other for other in nav.pages if other.file.src_uri == following)
        urls = {other.file.src_uri: other.url for other in nav.pages}
        context["languages"] = languages(page.file.src_uri, urls)
        self.search.give(page)

    @event_priority(-100)
    def _behind_search(self, context, page, config, nav) -> None:
        self.search.take_back(page)

    on_page_context = CombinedEvent(_before_search, _behind_search)

    def on_post_page(self, output: str, page, config) -> str:
        """A page in fewer bytes."""
        return squeezed(output)

    def on_post_build(self, config) -> None:
        """Mend the search; list claims that runs of this machine contradict.

        An author is told what is not in order.
        """
        self.search.mend(Path(config.site_dir))
        for key, text in contradicted(self.site.pages):
            if key not in self.listed:
                self.listed.add(key)
                log.info(text)
        if self.serving:  # behind the page, which need not wait for it
            threading.Thread(target=_tell_problems, args=[self.site.pages], daemon=True).start()

    def on_serve(self, server, config, builder):
        """Watch what is written by hand, not what this plugin writes; and what tells that runs are done."""
        server.unwatch(config.docs_dir)
        server.watch(config.docs_dir, recursive=False)
        for path in self.background.watched(Path(config.docs_dir)):
            server.watch(str(path))
        self.background.start()
        return server

    def on_build_error(self, error: Exception) -> None:
        """What a person must mend ends with its message and no traceback."""
        if isinstance(error, (OverlapError, PluginError)):
            raise Abort(str(error)) from None
        if isinstance(error, OSError) and error.filename:
            raise Abort(f"{error.filename}: {error.strerror}; mend this and build again") from None


def _tell_problems(pages: Pages) -> None:
    for problem in check(pages, remarks=False):
        log.warning(problem)
