"""What a served book does behind its pages: draw what is not shown first, run what this machine can run."""

import sys
import threading
import time
from pathlib import Path

from overlap import OverlapError
from overlap.book import select
from overlap.book.book import Book
from overlap.book.local_runs import CACHE
from overlap.cache import write
from overlap.run.runner import Runner
from overlap.site.build import generate
from overlap.site.pictures import Pictures, drawing_pool
from overlap.site.view import Site


class Background:
    """One for all builds of `mkdocs serve`.

    The first build shows the recordings, with the pictures that each page shows first. A thread then draws
    the others and runs what this machine can run, and lets MkDocs build again by writing `signal_file`, which
    it watches. A snippet that is new, or was edited later, runs at once, before its page is built. One that
    failed in the thread does not run again until it is edited: its page shows the recording.
    """

    def __init__(self, root: Path, execute: str, notebook_page: str):
        self.signal_file = root / CACHE / "served"
        self._root = root
        self._execute = execute
        self._notebook_page = notebook_page
        self._runner = Runner(root)
        self._pool = drawing_pool(root)
        self._thread = threading.Thread(target=self._work, daemon=True)
        #: Files of the runs left to the thread, for which no build waits; what it has done of its work.
        self._left: set[Path] = set()
        self._drawn = False
        self._ran = False
        self._closed = False
        self._build_again()  # MkDocs watches a file that exists

    def prepare(self, site: Site) -> None:
        """What a page needs before it is built: pictures of what is shown first, runs of what was edited."""
        book = site.book
        lacking = {book.local.path(*item): item[0].name for item in book.local.lacking()}
        if self._thread.ident is None:
            self._left = {file for file, name in lacking.items() if book.recordings(name)}
        edited = [name for file, name in lacking.items() if file not in self._left]
        if edited:
            book.runner = self._runner
            book.run(edited)
        missing = site.pictures.missing()
        if missing and not self._drawn:
            site.pictures.lazy = True
            missing = [item for item in missing if item.profile == select.of_snippet(book, item.snippet)]
        site.pictures.draw(self._pool, missing)
        generate(book, site.pictures, self._notebook_page)
        if self._left and not self._ran:
            runnable = list(book.local.runnable())
            own = len(runnable) - len(book.local.lacking())
            runs = f"When this page was built, {own} of {len(runnable)} runs were this machine's own"
            site.status = f"{runs}. The others are recordings; it is built again when all have run."

    def start(self) -> None:
        """Begin to work behind the pages."""
        self._thread.start()

    def close(self) -> None:
        """End it all."""
        self._closed = True
        self._runner.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        try:
            if self._draw():
                self._build_again()
            self._run()
            self._draw()
            self._build_again()
        except Exception as error:
            if not self._closed:
                self._tell(error)

    def _run(self) -> None:
        try:
            Book(self._root, self._execute, self._runner).run()
        except OverlapError as error:
            if self._closed:
                raise
            self._tell(error)
        self._ran = True

    @staticmethod
    def _tell(error: Exception) -> None:
        """Say what went wrong; what is no error of the book ends with a traceback."""
        if not isinstance(error, OverlapError):
            raise error
        print(f"WARNING -  {error}", file=sys.stderr, flush=True)

    def _draw(self) -> int:
        """Draw what is missing; return how many pictures that was."""
        count = Pictures(Book(self._root, self._execute)).draw(self._pool)
        self._drawn = True
        return count

    def _build_again(self) -> None:
        write(self.signal_file, f"{time.time()}\n")
