"""MkDocs plugin: hands the book to MkDocs, page by page, and keeps a served book up to date.

What it does is done by the other modules; this is all that needs MkDocs.
"""

import gc
from pathlib import Path

from mkdocs.config import base
from mkdocs.config import config_options as option
from mkdocs.exceptions import Abort, PluginError
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority, get_plugin_logger

from overlap import OverlapError
from overlap.blocks.language import is_chinese
from overlap.commands.check import contradicted
from overlap.site import contents, navigation, notebook_page
from overlap.site.background import Background, refuse_taken_port
from overlap.site.build import inserted, prepare, read
from overlap.site.languages import languages
from overlap.site.search import Search
from overlap.site.squeeze import squeezed
from overlap.site.unbroken import unbroken
from overlap.site.view import Site

log = get_plugin_logger("overlap")
#: Markdown's own, by which what is inserted has Markdown in it.
_EXTENSIONS = ("attr_list", "md_in_html")


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
        #: MkDocs' files: pages that are not in the navigation, too.
        self.files = None
        #: Claims that were listed: a served book lists each once.
        self.listed: set[tuple[str, str, str]] = set()

    def on_startup(self, command: str, dirty: bool) -> None:
        """Know whether pages are served."""
        self.serving = command == "serve"

    def on_shutdown(self) -> None:
        """End what runs behind a served book; the process ends, too."""
        if self.background:
            self.background.close()
        gc.freeze()  # else Python looks through all that was read once more, to free what goes anyway

    def on_config(self, config):
        """Open the book."""
        for name in _EXTENSIONS:
            if name not in config.markdown_extensions:
                raise PluginError(f"mkdocs.yml: add {name} to markdown_extensions; closed evidence needs it")
        published = config.site_url and not self.serving
        execute = self.config.execute or ("never" if published else "auto")
        root = Path(config.config_file_path).resolve().parent
        if self.serving and self.background is None:
            refuse_taken_port(*config.dev_addr)
            self.background = Background(root, execute)
        titles = navigation.titles(config.nav)
        self.site = read(root, execute, self.config.notebook_page, titles, self.site)
        config.extra["alternate"] = True  # the theme has a language menu; its entries are of each page
        config.theme.dirs.insert(0, str(Path(__file__).with_name("theme")))
        return config

    def on_pre_build(self, config) -> None:
        """Check, run, and write the files that pages lead to; an author sees the page first."""
        if self.background:
            self.background.prepare(self.site)
        else:
            ran = prepare(self.site)
            log.info(f"{ran} runs made; {len(self.site.book.snippets)} snippets")

    def on_nav(self, nav, config, files) -> None:
        """Keep what the language menu and the way to the next page lead to."""
        self.files = files

    def on_page_markdown(self, markdown: str, page, config, files) -> str:
        """A page with everything inserted."""
        return inserted(self.site, page.file.src_uri, markdown)

    def on_page_content(self, html: str, page, config, files) -> str:
        """Shorten the contents; short code stays whole; a notebook has a way back to its chapter."""
        contents.shorten(page.toc, html)
        return notebook_page.with_way_back(unbroken(html), page)

    @event_priority(100)
    def _before_search(self, context, page, config, nav) -> None:
        notebook_page.describe(page, nav)
        navigation.lead_on(page, self.files)
        context["languages"] = languages(page.file.src_uri, navigation.urls(self.files))
        context["is_chinese"] = is_chinese(page.file.src_uri)
        self.search.give(page, self.site.pages.entries(page.file.src_uri))

    @event_priority(-100)
    def _behind_search(self, context, page, config, nav) -> None:
        self.search.take_back(page)

    on_page_context = CombinedEvent(_before_search, _behind_search)

    def on_post_page(self, output: str, page, config) -> str:
        """A page in fewer bytes."""
        return squeezed(output)

    def on_post_build(self, config) -> None:
        """Mend the search; list claims that runs of this machine contradict."""
        self.search.mend(Path(config.site_dir))
        for text in contradicted(self.site.pages, self.listed):
            log.info(text)
        if self.background:
            self.background.show(self.site)

    def on_serve(self, server, config, builder):
        """Work behind the pages; `mkdocs serve --clean` serves what a build makes, and no more."""
        if self.background:
            self.background.join(server, Path(config.docs_dir))
            self.background.start()
        return server

    def on_build_error(self, error: Exception) -> None:
        """What a person must mend ends with its message and no traceback."""
        if isinstance(error, (OverlapError, PluginError)):
            raise Abort(str(error)) from None
        if isinstance(error, OSError) and error.filename:
            raise Abort(f"{error.filename}: {error.strerror}; mend this and build again") from None
