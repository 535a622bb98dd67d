"""Pages as they were rendered, for builds in which nothing has changed that they are made from."""

import logging
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.utils import CountHandler

from overlap.book.blocks.block import Text
from overlap.cache import Cache, digest, write
from overlap.site.build import digest_of_files, facts
from overlap.site.view import Site

log = logging.getLogger("mkdocs")
_CONFIG = ("markdown_extensions", "nav", "use_directory_urls", "validation")
#: Pages that others quote: the legend of marks is on the first, the terms are in the glossary.
_QUOTED = ("index.md", "glossary.md")


class RenderedPages:
    """The pages of one build; `files_before` is the digest of all files but pages, before the book was read.

    A page is made from its text, from the blocks of all pages, and from the files.
    """

    def __init__(self, site: Site, config: MkDocsConfig, files: Files, files_before: str):
        book = site.book
        extensions = {name: options for name, options in config.mdx_configs.items() if "site" not in options}
        self._site = site
        self._files_before = files_before
        self._new: dict[Path, bytes] = {}
        inputs = [
            files_before,
            facts(book),
            [site.notebook_page, str(extensions), *(str(config[name]) for name in _CONFIG)],
            sorted(path.name for path in Path(markdown.__file__).parents[1].glob("*.dist-info")),
            sorted([file.src_uri, file.url] for file in files),
            # without their lines: text that is written above a block changes no other page
            [repr(replace(block, line=0)) for block in book.blocks if not isinstance(block, Text)],
            [book.pages[name].text for name in _QUOTED if name in book.pages],
        ]
        self._inputs = digest(inputs)

    def use(self, page: Page) -> None:
        """Let a page of the book render once; not while it shows less than it will."""
        source = self._site.book.pages.get(page.file.src_uri)
        if source and not self._site.status and log.getEffectiveLevel() == logging.INFO:
            page.render = partial(self._render, page, page.render, source.text)

    def keep(self) -> None:
        """Write what was rendered, unless a file was saved meanwhile: the book may have been read before."""
        if digest_of_files(self._site.book.root) != self._files_before:
            return
        for path, content in self._new.items():
            for old in path.parent.glob(f"{path.name.rpartition('-')[0]}-{'?' * 20}.page"):
                old.unlink(missing_ok=True)
            write(path, content)

    def _render(self, page: Page, render, text: str, config: MkDocsConfig, files: Files) -> None:
        uri = page.file.src_uri
        inputs = [self._inputs, page.markdown, str(page.meta)]
        path = Cache(self._site.book.cache).path("pages", uri, inputs, ".page")
        if path.exists():
            page.content, page.toc, page.title, anchors, links = pickle.loads(path.read_bytes())
            page.present_anchor_ids = anchors
            page.links_to_anchors = {files.src_uris[target]: links[target] for target in links}
            return
        messages = CountHandler()
        log.addHandler(messages)
        try:
            render(config, files)
        finally:
            log.removeHandler(messages)
        anchors = page.present_anchor_ids | self._site.anchors[uri]
        links = {file.src_uri: link for file, link in page.links_to_anchors.items()}
        if not messages.get_counts() and page.markdown.strip() == text.strip():
            self._new[path] = pickle.dumps((page.content, page.toc, page.title, anchors, links))
