"""MkDocs plugin: runs snippets before pages are rendered, watches them, and adds downloads, notebooks and live recordings."""

import io
import json
import re
import zipfile
from pathlib import Path

from mkdocs.config import base
from mkdocs.config import config_options as option
from mkdocs.exceptions import Abort, PluginError
from mkdocs.plugins import BasePlugin, event_priority, get_plugin_logger
from mkdocs.structure.files import File, Files

from overlap import OverlapError
from overlap.book.book import Book, page
from overlap.run import recording
from overlap.site import notebook, svg, trace

log = get_plugin_logger("overlap")

#: Names, spaces and punctuation as Pygments marks them: a third of the bytes of a page's code.
_COLOURLESS = re.compile(r'<span class="[nwp]">([^<]*)</span>')


class OverlapConfig(base.Config):
    """`execute`: auto, never or always; `claims`: `listed` or `fatal` for claims false on this build's own runs."""

    execute = option.Choice(("auto", "never", "always"), default="auto")
    claims = option.Choice(("listed", "fatal"), default="listed")


class OverlapPlugin(BasePlugin[OverlapConfig]):
    """See `docs/contributing.md`."""

    def on_startup(self, command: str, dirty: bool) -> None:
        """Remember whether an author is at work, who is told what is wrong instead of being stopped by it."""
        self.serving = command == "serve"

    def on_config(self, config):
        """Make the book of this build and hand it to the Markdown extension."""
        root = Path(config.config_file_path).resolve().parent
        self.book = _guarded(Book, root, self.config.execute)
        self.book.serving = getattr(self, "serving", False)
        if "overlap.site.markdown" not in config.markdown_extensions:
            raise PluginError("mkdocs.yml: add overlap.site.markdown to markdown_extensions; it inserts the outputs")
        config.mdx_configs["overlap.site.markdown"] = {"book": self.book}
        return config

    def on_pre_build(self, config) -> None:
        """Check the committed book, run what this machine can run and has not run yet, draw what is not drawn."""
        problems = _guarded(self.book.check, False)  # a thin margin stops an author, not a reader who builds
        if problems and self.book.serving:
            log.warning("the book is not in order:\n" + "\n".join(problems))
        elif problems:
            raise PluginError("the book is not in order:\n" + "\n".join(problems))
        ran = _guarded(self.book.run)
        drawn = _guarded(self.book.draw)
        self.machines = _guarded(self.book.machines)
        log.info(f"{ran} runs, {drawn} pictures made; {len(self.book.snippets)} snippets")

    @event_priority(100)
    def on_files(self, files: Files, config) -> Files:
        """Add what borrowers take home: self-contained files, notebooks, this build's own recordings."""
        folder, archive = self.book.cache / "notebooks", io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as everything:
            for name, snippet in self.book.snippets.items():
                text = _guarded(lambda snippet: snippet.download, snippet)
                self._add(files, config, f"downloads/{name}.py", text)
                everything.writestr(zipfile.ZipInfo(f"overlap/{name}.py"), text)
                for run in _guarded(self.book.runs, name).values():
                    if run.live:
                        self._add(files, config, f"live/{run.profile}/{name}.json", recording.dump(run.data))
                    pictures = _guarded(self.book.plot, name, run)
                    for variant in ("wide", "narrow") if pictures else ():
                        picture = svg.in_file(pictures[variant])
                        self._add(files, config, f"pictures/{run.profile}/{name}-{variant}.svg", picture)
                    if trace.timelines(run.result):
                        self._add(files, config, f"traces/{run.profile}/{name}.json", trace.chrome_trace(run.result))
        self._add(files, config, "downloads/overlap.zip", archive.getvalue())
        for path, parts in _guarded(lambda: self.book.pages).items():
            if any(isinstance(part, page.Block) for part in parts):
                uri = f"notebooks/{path.removesuffix('.md')}.ipynb"
                text = _guarded(notebook.build, self.book, path, parts)
                if not (folder / uri).exists() or (folder / uri).read_text() != text:
                    recording.write(folder / uri, text)
                files.append(File(uri, str(folder), config.site_dir, config.use_directory_urls))
                self._add(files, config, f"downloads/{path.removesuffix('.md')}.ipynb", text)
        return files

    def _add(self, files: Files, config, uri: str, text: str | bytes) -> None:
        files.append(File.generated(config, uri, content=text))
        self.book.published.add(uri)

    def on_page_markdown(self, markdown: str, page, config, files) -> None:
        """Remember which page is rendered. Search leaves out notebooks: they say what a chapter says."""
        self.book.page, self.book.up = page.file.src_uri, "../" * page.url.count("/")
        if self.book.page.startswith("notebooks/"):
            page.meta["search"] = {"exclude": True}

    def on_post_page(self, output: str, page, config) -> str:
        """Tell the picker which machines the book has; leave out marks in code that have no colour of their own."""
        data = json.dumps(self.machines, ensure_ascii=False).replace("<", "\\u003c")
        tag = f'<script id="overlap-machines" type="application/json">{data}</script>'
        return _COLOURLESS.sub(r"\1", output).replace("</head>", f"{tag}</head>", 1)

    def on_serve(self, server, config, builder):
        """Watch the snippets: saving one reruns that one, because only its hash is new."""
        server.watch(str(self.book.root / "snippets"))
        return server

    def on_build_error(self, error: Exception) -> None:
        """Errors a person must mend end with their message and no traceback."""
        if isinstance(error, OverlapError):
            where = "" if str(error).startswith("docs/") else f"docs/{self.book.page}: "
            raise Abort(where + str(error)) from None

    def on_post_build(self, config) -> None:
        """List the claims that this build's own runs contradict."""
        for message in self.book.false_live:
            log.warning(message) if self.config.claims == "fatal" else log.info(message)
        if self.book.false_live and self.config.claims == "fatal":
            raise PluginError(f"{len(self.book.false_live)} claims are false on what this build ran; see above")


def _guarded(call, *arguments):
    """Errors a person must mend stop the build with their message and no traceback."""
    try:
        return call(*arguments)
    except OverlapError as error:
        raise PluginError(str(error)) from None
