"""What a served book does: it asks for a free port, and behind its pages runs what this machine can run."""

import mimetypes
import socket
import sys
import threading
import time
from pathlib import Path

from overlap import OverlapError
from overlap.book.book import Book
from overlap.book.local_runs import CACHE
from overlap.cache import write
from overlap.run.runner import Runner
from overlap.site import FOLDER
from overlap.site.build import generate
from overlap.site.files import Files
from overlap.site.view import Site


class Background:
    """One for all builds of `mkdocs serve`.

    The first build shows the recordings. A thread then runs what this machine can run, and lets MkDocs
    build again by writing `signal_file`, which it watches. A snippet that is new, or was edited later, runs
    at once, before its page is built. One that failed in the thread does not run again until it is edited:
    its page shows the recording. What pages only lead to is made when a reader asks for it, and what is wrong
    with it is told then. All that is not in order tell `overlap check` and a build.
    """

    def __init__(self, root: Path, execute: str):
        self.signal_file = root / CACHE / "served"
        self._root = root
        self._execute = execute
        self._runner = Runner(root)
        self._thread = threading.Thread(target=self._work, daemon=True)
        #: Files of the runs left to the thread, for which no build waits; whether it has done its work.
        self._left: set[Path] = set()
        self._ran = False
        #: The files that the pages now served lead to; they are made one at a time.
        self._files: Files | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._build_again()  # MkDocs watches a file that exists

    def prepare(self, site: Site) -> None:
        """What a page needs before it is built: runs of what was edited, and the files that it leads to."""
        book = site.book
        lacking = {book.local.path(*item): item[0].name for item in book.local.lacking()}
        if self._thread.ident is None:
            self._left = {file for file, name in lacking.items() if book.recordings(name)}
        edited = [name for file, name in lacking.items() if file not in self._left]
        if edited:
            book.runner = self._runner
            book.run(edited)
        files = site.later = Files(site)
        generate(site, files.for_builder())
        if self._left and not self._ran:
            runnable = list(book.local.runnable())
            own = len(runnable) - len(book.local.lacking())
            runs = f"When this page was built, {own} of {len(runnable)} runs were this machine's own"
            site.status = f"{runs}. The others are recordings; it is built again when all have run."

    def show(self, site: Site) -> None:
        """Lead to what a finished build leads to."""
        self._files = site.later

    def join(self, server, docs: Path) -> None:
        """Let a server of MkDocs answer with what is made then.

        It watches what is written by hand, not what a build writes; and what tells that runs are done.
        """
        server.unwatch(str(docs))
        server.watch(str(docs), recursive=False)
        by_hand = [folder for folder in docs.iterdir() if folder.is_dir() and folder.name != FOLDER]
        for path in (*by_hand, self._root / "snippets", self.signal_file):
            server.watch(str(path))
        server.set_app(self._answering(server.get_app(), f"{server.mount_path}{FOLDER}/"))

    def start(self) -> None:
        """Begin to work behind the pages."""
        self._thread.start()

    def _answering(self, otherwise, up: str):
        """A WSGI application that makes files below the address `up`."""

        def answer(environ, start_response):
            path = environ["PATH_INFO"]
            content = self._made(path.removeprefix(up)) if path.startswith(up) else b""
            if not content:
                return otherwise(environ, start_response)
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
            start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(content)))])
            return [content]

        return answer

    def _made(self, path: str) -> bytes:
        """The content of a file, which is empty where MkDocs has it or nobody makes it."""
        if (self._root / "docs" / FOLDER / path).exists():
            return b""
        try:
            with self._lock:
                return self._files.make(path)
        except OverlapError as error:
            _tell(error)
            return b""

    def close(self) -> None:
        """End it all."""
        self._closed = True
        self._runner.close()

    def _work(self) -> None:
        try:
            Book(self._root, self._execute, self._runner).run()
        except Exception as error:
            if self._closed:
                return
            if not isinstance(error, OverlapError):
                raise
            _tell(error)
        self._ran = True
        if self._left:
            self._build_again()

    def _build_again(self) -> None:
        write(self.signal_file, f"{time.time()}\n")


def _tell(problem: object) -> None:
    """Say it at once: a warning of MkDocs would end the build that goes on meanwhile, if it is strict."""
    print(f"WARNING -  {problem}", file=sys.stderr, flush=True)


def refuse_taken_port(host: str, port: int) -> None:
    """Say so before the build that a port is taken; MkDocs says it after, in a traceback."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((host, port))
        except OSError as error:
            reason = f"cannot serve on {host}:{port} ({error.strerror})"
            remedy = "name another port, as `mkdocs serve -a 127.0.0.1:8001`"
            raise OverlapError(f"{reason}; {remedy}") from None
