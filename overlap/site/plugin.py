"""MkDocs plugin: runs snippets before pages are rendered, watches them, and adds downloads, pictures, notebooks and this machine's own runs."""

import contextlib
import hashlib
import io
import mimetypes
import signal
import sys
import tempfile
import threading
import zipfile
from functools import partial
from pathlib import Path

from jinja2.bccache import Bucket, BytecodeCache
from mkdocs.config import base
from mkdocs.config import config_options as option
from mkdocs.exceptions import Abort, PluginError
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority, get_plugin_logger
from mkdocs.structure.files import File, Files

from overlap import OverlapError
from overlap.book.blocks import SnippetBlock
from overlap.book.book import CACHE, Book
from overlap.book.page import Page
from overlap.book.verdict import State
from overlap.run.runner import Runner
from overlap.site import trace
from overlap.site.kept import Kept
from overlap.site.late import late
from overlap.site.pictures import VARIANTS, Pictures, drawing_pool
from overlap.site.policy import policy
from overlap.site.searchable import Found
from overlap.site.svg import in_file
from overlap.site.view import Site, View, highlighted

log = get_plugin_logger("overlap")
_EXTENSION = "overlap.site.markdown"
for name in ("jupytext", "mkdocs_jupyter.convert"):  # a second to import, for notebooks that have changed
    late(name)


class OverlapConfig(base.Config):
    """`execute`: auto, never or always; `claims`: `listed` or `fatal` for claims false on this build's own runs;
    `colab`: where GitHub has the files of the published site, as `owner/repository/blob/branch`.
    """

    execute = option.Choice(("auto", "never", "always"), default="auto")
    claims = option.Choice(("listed", "fatal"), default="listed")
    colab = option.Type(str, default="")


class OverlapPlugin(BasePlugin[OverlapConfig]):
    """See `docs/contributing.md`. MkDocs keeps one plugin while it serves, and with it the process that has imported torch."""

    def __init__(self):
        self._lock = None
        self.serving, self.runner, self.compiled, self.found = False, None, _Compiled(), Found()
        self.templates, self.traces, self.site = [], {}, None
        self.uncopied: dict[str, File] | None = None

    def on_startup(self, command: str, dirty: bool) -> None:
        """Remember whether an author is at work, who is told what is wrong instead of being stopped by it. What Ctrl-C tidies up, SIGTERM does, too."""
        self.serving = command == "serve"
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _stop)

    def on_shutdown(self) -> None:
        """End what runs snippets."""
        if self.runner:
            self.runner.close()
            self.runner = None
        if self._lock:
            self._lock.close()
            self._lock = None

    def on_config(self, config):
        """Open the book; where something has to run, let torch be imported meanwhile."""
        if _EXTENSION not in config.markdown_extensions:
            raise PluginError(f"mkdocs.yml: add {_EXTENSION} to markdown_extensions; it inserts the outputs")
        root, self.site = Path(config.config_file_path).resolve().parent, None
        self.runner = self.runner or Runner(root, temporary=self._temporary(config))
        if self.serving or (self.config.execute != "never" and not (root / CACHE).exists()):
            self.runner.start()  # an author will need it; or nothing ran here yet
        book = Book(root, self.config.execute, self.runner)
        self.site = Site(book, Pictures(book), colab=self.config.colab)
        if not self.serving and (book.wanted()):
            self.runner.start()
        config.mdx_configs[_EXTENSION] = {"site": self.site}
        config.theme.dirs.insert(0, str(Path(__file__).with_name("theme")))
        if self.serving:
            config.theme.get_env = partial(self._environment, config.theme.get_env)
        return config

    def _temporary(self, config) -> tuple[str, ...]:
        """The folder that MkDocs makes to serve from, and leaves where it is killed."""
        folder = Path(config.site_dir)
        own = self.serving and folder.parent == Path(tempfile.gettempdir()) and folder.name.startswith("mkdocs_")
        return (str(folder),) if own else ()

    def _environment(self, make):
        """The theme's templates, whose fifteen thousand files are looked through once and not at every save."""
        env = make()
        look = env.list_templates

        def list_templates(*arguments, **options) -> list[str]:
            self.templates = self.templates or look(*arguments, **options)
            return self.templates

        env.list_templates = list_templates
        return env

    def on_pre_build(self, config) -> None:
        """Wait until no other build writes this site, and check the committed book; an author sees the page first."""
        if not self.serving:
            self._wait_for_others(Path(config.site_dir).resolve())
            if problems := self._problems():
                raise OverlapError(problems)

    def _tell_author(self) -> None:
        with contextlib.suppress(OverlapError, OSError):  # why it cannot be told, the build says
            if self.serving and self.site and (problems := self._problems()):
                _tell(problems)

    def _problems(self) -> str:
        problems = self.site.book.check(margins=False)  # a thin margin stops an author, not a reader who builds
        return "the book is not in order:\n" + "\n".join(problems) if problems else ""

    @event_priority(100)
    def on_files(self, files: Files, config) -> Files:
        """Run what this machine can run and has not run yet, draw what is not drawn, and add what borrowers take home: self-contained
        files, notebooks, pictures, this machine's own runs.
        """
        book, pictures = self.site.book, self.site.pictures
        known, self.traces = self.traces, {}
        self.site.pages = {file.src_uri: file.url for file in files.documentation_pages()}
        self.kept = Kept(book, config, files, self.config.colab)
        texts = {name: snippet.download for name, snippet in book.snippets.items()}
        if book.wanted():
            _bring_in()
        ran, missing, drawn = book.run(), pictures.missing(), 0
        if missing:
            with drawing_pool(book.root) as pool:
                drawn = pictures.draw(pool, items=missing)
        config.extra["overlap_machines"] = book.machines()
        log.info(f"{ran} runs, {drawn} pictures made; {len(book.snippets)} snippets")
        for name, text in texts.items():
            self._add(files, config, f"downloads/{name}.py", content=text)
            for run in book.runs(name).values():
                if run.live:
                    self._add(files, config, f"live/{run.profile}/{name}.json", abs_src_path=str(book.root / run.path))
                for variant in VARIANTS if pictures.has(name) else ():
                    uri = f"pictures/{run.profile}/{name}-{variant}.svg"
                    self._add(files, config, uri, content=in_file(pictures.of(name, run)[variant]))
                if text := self._trace(run, known):
                    self._add(files, config, f"traces/{run.profile}/{name}.json", content=text)
        self._add(files, config, "downloads/overlap.zip", content=_archive(texts))
        for path, page in book.pages.items():
            if any(isinstance(block, SnippetBlock) for block in page.blocks):
                key = self.kept.key(path, page.text)
                made = self.kept.notebook(page.name, key, partial(_notebook, book, pictures, page), self.serving)
                uri = f"notebooks/{page.name}.ipynb"
                files.append(File(uri, str(book.cache), config.site_dir, config.use_directory_urls))
                self._add(files, config, f"downloads/{page.name}.ipynb", content=made.read_bytes())
        if self.uncopied is not None:
            self.uncopied = {file.dest_uri: file for file in files if not file.is_documentation_page()}
            for file in self.uncopied.values():
                file.copy_file = lambda dirty=False: None
        return files

    def _trace(self, run, known: dict[str, str]) -> str:
        """Its timelines as a trace file, or nothing; an author, who builds again and again, has most of them `known` by digest."""
        digest = run.data["digest"]
        if digest not in known:
            known[digest] = trace.chrome_trace(run.result) if trace.timelines(run.result) else ""
        self.traces[digest] = known[digest]
        return known[digest]

    def _add(self, files: Files, config, uri: str, **content) -> None:
        files.append(File.generated(config, uri, **content))
        self.site.published.add(uri)

    def on_page_markdown(self, markdown: str, page, config, files) -> None:
        """Turn to the page. Search leaves out notebooks: they say what a chapter says."""
        path, book = page.file.src_uri, self.site.book
        view = View(self.site, path, "../" * page.url.count("/"))
        self.site.turned_to = view
        if path.startswith("notebooks/"):
            page.meta["search"] = {"exclude": True}
        if path.startswith("notebooks/") or path in book.pages:
            self.kept.render(page, view)

    def on_page_content(self, html: str, page, config, files: Files) -> str:
        """Let notebook pages, which have one style, share its file."""
        if not (style := getattr(page, "style", "")):
            return html
        uri = f"assets/notebook-{hashlib.sha256(style.encode()).hexdigest()[:8]}.css"
        if uri not in self.site.published:
            self._add(files, config, uri, content=style)
        return f'<link rel="stylesheet" href="{self.site.turned_to.up}{uri}">\n{html}'

    def on_env(self, env, config, files) -> None:
        """Say what pages may run; for an author, whose pages have a script of the server's, only keep compiled templates."""
        env.bytecode_cache = self.compiled
        config.extra["overlap_policy"] = "" if self.serving else policy(env, files, config)

    @event_priority(100)
    def _turn_to_search(self, context, page, config, nav) -> None:
        self._whole, page.content = page.content, getattr(page, "searchable", page.content)
        self.found.begin(page, config)

    @event_priority(-100)
    def _turn_to_readers(self, context, page, config, nav) -> None:
        self.found.end(page)
        page.content = self._whole

    #: Search, which reads pages between the two, reads what is worth finding.
    on_page_context = CombinedEvent(_turn_to_search, _turn_to_readers)

    def on_serve(self, server, config, builder):
        """Watch the snippets: saving one reruns that one, because only its hash is new. And look more often than twice a second. A thousand
        files that builds only copy, most of a save's time, are from now on served from where they are.
        """
        from watchdog.observers.polling import PollingObserver  # a build does without

        watched = [config.docs_dir, config.config_file_path]
        for path in watched:
            server.unwatch(path)
        server.observer = PollingObserver(timeout=0.1)
        for path in [*watched, str(self.site.book.root / "snippets")]:
            server.watch(path)
        self.uncopied = {}
        server.set_app(partial(self._serve, server.get_app(), server.mount_path))
        return server

    def _serve(self, app, mount_path: str, environ: dict, start_response):
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "ignore")
        file = self.uncopied.get(path.removeprefix(mount_path))
        try:
            body, kind = file.content_bytes, mimetypes.guess_type(path)[0]
        except (AttributeError, OSError):  # nobody has it, or not any more
            return app(environ, start_response)
        start_response("200 OK", [("Content-Type", kind or "text/plain"), ("Content-Length", str(len(body)))])
        return [body]

    def on_build_error(self, error: Exception) -> None:
        """What a person must mend ends with its message and no traceback, each time it happens."""
        self._close()
        self._tell_author()
        if isinstance(error, (OverlapError, PluginError)):
            where = getattr(self.site, "turned_to", None)
            said = str(error)
            known = (
                where is None
                or said.startswith(("docs/", "snippets/", "the book", "mkdocs.yml", "pyproject.toml"))
                or not where.path
            )
            raise Abort(said if known else f"docs/{where.path}: {said}") from None
        if isinstance(error, OSError) and error.filename:
            raise Abort(f"{error.filename}: {error.strerror}; mend this and build again") from None

    def on_post_build(self, config) -> None:
        """List the claims that this machine's own runs contradict; for an author check the book."""
        self._close()
        self._tell_author()
        book, false, self.site.turned_to = self.site.book, [], None
        for claim in book.claims:
            false += [claim.falsehood(v) for v in book.verdicts(claim) if v.live and v.state is State.FALSE]
        for message in false:
            log.warning(message) if self.config.claims == "fatal" else log.info(message)
        if false and self.config.claims == "fatal":
            raise PluginError(f"{len(false)} claims are false on what this build ran; see above")

    def _wait_for_others(self, site: Path) -> None:
        """Two builds in one folder would empty it under each other's hands. Where the cache may not be written to there is no lock."""
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            cache = self.site.book.cache
            cache.mkdir(parents=True, exist_ok=True)
            self._lock = open(cache / f"site-{hashlib.sha256(bytes(site)).hexdigest()[:8]}.lock", "w")  # noqa: SIM115
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info(f"waiting: another build writes {site}")
                fcntl.flock(self._lock, fcntl.LOCK_EX)

    def _close(self) -> None:
        if not self.serving:
            self.on_shutdown()


def _stop(number: int, frame) -> None:
    signal.signal(number, signal.SIG_IGN)  # let the first one tidy up
    raise KeyboardInterrupt


def _bring_in() -> None:
    """Import what pages and notebooks are made with, while the other process imports torch."""
    import overlap.site.notebook  # noqa: F401

    highlighted("")


def _notebook(book: Book, pictures: Pictures, page: Page) -> str:
    from overlap.site.notebook import Notebook  # a build in which no page changed does without

    return Notebook(book, pictures).build(page)


class _Compiled(BytecodeCache):
    """Compiled templates in memory: on disk they would be code that anybody could leave there."""

    def __init__(self):
        self._code: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._code:
            bucket.bytecode_from_string(self._code[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._code[bucket.key] = bucket.bytecode_to_string()


def _archive(texts: dict[str, str]) -> bytes:
    """All downloads in one file; the same bytes every time."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as everything:
        for name, text in texts.items():
            everything.writestr(zipfile.ZipInfo(f"overlap/{name}.py"), text)
    return archive.getvalue()


def _tell(message: str) -> None:
    """Warn an author at every save: MkDocs says a message only once."""
    print(f"WARNING -  {message}", file=sys.stderr, flush=True)
