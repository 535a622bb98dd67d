"""Pictures of recordings, drawn once from recorded data, in processes that have imported matplotlib."""

import contextlib
import gc
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path

from overlap import OverlapError
from overlap.book.book import Book
from overlap.book.ceiling import ceilings
from overlap.book.recording import Recording
from overlap.book.statistic import is_number, middle
from overlap.cache import Cache, write
from overlap.run.snippet import twin_of
from overlap.run.text import plain

#: Progress is printed after so many pictures.
_PROGRESS_EVERY = 20


class Pictures:
    """The pictures of a book, in its cache under all they were made from."""

    def __init__(self, book: Book, lazy: bool = False):
        self.book = book
        #: Whether pages do without what is not drawn yet.
        self.lazy = lazy
        self._cache = Cache(book.cache)
        self._style = _style(book.root)
        self._read: dict[Path, dict] = {}

    def path(self, recording: Recording) -> Path:
        """Where a picture is kept."""
        name = recording.snippet
        inputs = [self._style, recording.profile]
        for other in filter(None, (name, self._twin(name))):
            snippet = self.book.snippets[other]
            inputs.append([snippet.text, snippet.drawing_hashes])
            drawn = self.book.recordings(other).get(recording.profile)
            if drawn:
                inputs.append([drawn.data["digest"], ceilings(drawn.data["machine"])])
        return self._cache.path("pictures", f"{name}-{recording.profile}", inputs, ".json")

    def _twin(self, name: str) -> str:
        """The snippet that is drawn on the same scale on each machine; empty where there is none."""
        twin = twin_of(name)
        return twin if twin in self.book.snippets and self.book.snippets[twin].draws else ""

    def of(self, recording: Recording) -> dict:
        """SVG texts and `sizes` of the variants, `tables` of numbers; the same by name of its `parts`.

        Empty where the snippet draws none.
        """
        if not self.book.snippets[recording.snippet].draws:
            return {}
        path = self.path(recording)
        if path not in self._read:
            if not path.exists() and self.lazy:
                return {}
            if not path.exists():
                reason = f"its picture on {recording.profile} is not drawn"
                raise OverlapError(f"snippets/{recording.snippet}.py: {reason}; run `overlap build`")
            self._read[path] = json.loads(path.read_text(encoding="utf-8"))
        return self._read[path]

    def missing(self) -> list[Recording]:
        """Those whose picture is not drawn yet."""
        missing = []
        for name, snippet in self.book.snippets.items():
            if snippet.draws:
                recordings = self.book.recordings(name).values()
                missing += [recording for recording in recordings if not self.path(recording).exists()]
        return missing

    def _file(self, name: str) -> str:
        return str(self.book.root / self.book.snippets[name].path)

    def draw(self, pool: Executor, wanted: list[Recording] | None = None) -> int:
        """Draw the pictures of these, or what is missing, and say how far it is; return how many.

        Those of one snippet are one task.
        """
        if wanted is None:
            wanted = self.missing()
        tasks: dict[str, list[Recording]] = {}
        for recording in wanted:
            tasks.setdefault(recording.snippet, []).append(recording)
        futures = {pool.submit(_draw, *self._task(name, of_task)): name for name, of_task in tasks.items()}
        problems = []
        count = 0
        for future in as_completed(futures):
            name = futures[future]
            try:
                pictures = future.result()
            except OverlapError as error:
                problems.append(str(error))
                continue
            for profile, picture in pictures.items():
                write(self.path(self.book.recordings(name)[profile]), json.dumps(picture))
                count += 1
                if count % _PROGRESS_EVERY == 0:
                    print(f"{count}/{len(wanted)} pictures drawn", file=sys.stderr, flush=True)
        if problems:
            raise OverlapError("\n".join(problems))
        return len(wanted)

    def _task(self, name: str, wanted: list[Recording]) -> tuple:
        """What `picture.draw` needs."""
        twin = self._twin(name)
        beside = (self._file(twin), _numbers(self.book.recordings(twin).values())) if twin else None
        return self._file(name), name, _numbers(wanted), beside


def _numbers(recordings: Iterable[Recording]) -> dict[str, tuple[dict, dict]]:
    """What `plot` gets on each machine: results and ceilings."""
    by_profile = {}
    for recording in recordings:
        results = typical([run["result"] for run in recording.runs])
        by_profile[recording.profile] = results, ceilings(recording.data["machine"])
    return by_profile


def numbers(book: Book, recordings: list[Recording]) -> dict[tuple[str, str], dict]:
    """`tables` and `more` of the pictures that these recordings give, by snippet and profile.

    A picture that cannot be drawn has none.
    """
    read = {}
    with drawing_pool(book.root) as pool:
        futures = {}
        for recording in recordings:
            snippet = book.snippets[recording.snippet]
            if snippet.draws:
                path = str(book.root / snippet.path)
                drawing = pool.submit(_draw, path, snippet.name, _numbers([recording]), None, ())
                futures[drawing] = snippet.name
        for future in as_completed(futures):
            with contextlib.suppress(OverlapError, BrokenExecutor):
                for profile, picture in future.result().items():
                    tables = [table for part in picture["parts"].values() for table in part["tables"]]
                    kept = {"tables": tables + picture["tables"], "more": picture["more"]}
                    read[futures[future], profile] = kept
    return read


def drawing_pool(root: Path) -> Executor:
    """Processes that draw, forked from one that imports what snippets import; they end with this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "overlap.site.picture"])
    workers = min(os.cpu_count() or 2, 8)
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(str(root),))


def _begin(root: str) -> None:
    sys.path.insert(0, root)
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()  # what is imported stays, and need not be looked through for garbage
    gc.set_threshold(20_000)  # nor figures, which are made of so many objects, while they are drawn


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _draw(*arguments) -> dict:
    from overlap.site.picture import draw  # here, as only what draws needs matplotlib

    return draw(*arguments)


def typical(results: list):
    """What the first of these runs gave, each number the median of all runs that have one in the same place.

    So pictures show what sentences say. Texts are without what an SVG may not have.
    """
    first, *others = results
    if isinstance(first, dict):
        dicts = [other for other in others if isinstance(other, dict)]
        medians = {}
        for key, value in first.items():
            medians[plain(key)] = typical([value, *(other[key] for other in dicts if key in other)])
        return medians
    if isinstance(first, list):
        lists = [other for other in others if isinstance(other, list) and len(other) == len(first)]
        return [typical([value, *(other[i] for other in lists)]) for i, value in enumerate(first)]
    if isinstance(first, str):
        return plain(first)
    return middle([first, *filter(is_number, others)]) if is_number(first) else first


def _style(root: Path) -> str:
    """Hash of what makes a picture: a change of style draws all of them again."""
    names = (
        "draw.py",
        "layout.py",
        "numbers.py",
        "picture.py",
        "restyle.py",
        "series.py",
        "shared.py",
        "svg.py",
    )
    sources = [Path(__file__).with_name(name).read_bytes() for name in names]
    declared = root / "snippets/pictures.py"
    sources += [declared.read_bytes()] if declared.exists() else []
    return hashlib.sha256(b"".join([*sources, version("matplotlib").encode()])).hexdigest()[:12]
