"""Pictures of recordings, drawn once from recorded data, in processes that have imported matplotlib."""

import contextlib
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import threading
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

VARIANTS = ("wide", "narrow")

#: After so many pictures it is said how many are drawn.
_TOLD = 20


class Pictures:
    """The pictures of a book, in its cache under all they were made from."""

    def __init__(self, book: Book, lazy: bool = False):
        self.book = book
        #: Whether pages do without what is not drawn yet.
        self.lazy = lazy
        self._cache = Cache(book.cache)
        self._style = _style()
        self._read: dict[Path, dict] = {}

    def has(self, name: str) -> bool:
        """Whether a snippet draws one."""
        return "plot" in self.book.snippets[name].functions

    def path(self, name: str, recording: Recording) -> Path:
        """Where a picture is kept."""
        snippet = self.book.snippets[name]
        source = [snippet.text, snippet.drawing_hashes]
        inputs = [source, recording.data["digest"], ceilings(recording.data["machine"]), self._style]
        inputs += [
            [other.data["digest"], ceilings(other.data["machine"])] for other in self.others(name, recording)
        ]
        twin = self._twin(name, recording)
        if twin:
            other = self.book.snippets[twin.data["snippet"]]
            inputs.append([other.text, other.drawing_hashes, twin.data["digest"]])
        return self._cache.path("pictures", f"{name}-{recording.profile}", inputs, ".json")

    def others(self, name: str, recording: Recording) -> list[Recording]:
        """The recordings of other GPU machines, whose axes a picture can share."""
        if not recording.gpus:
            return []
        others = self.book.recordings(name).values()
        return [other for other in others if other.gpus and other.profile != recording.profile]

    def _twin(self, name: str, recording: Recording) -> Recording | None:
        """The recording of a snippet's twin on the same machine: both are drawn on one scale."""
        other = twin_of(name)
        if other not in self.book.snippets or not self.has(other):
            return None
        return self.book.recordings(other).get(recording.profile)

    def of(self, name: str, recording: Recording) -> dict:
        """SVG texts and `sizes` of the variants, `tables` of numbers, panels of a `chart`.

        Empty where the snippet draws none.
        """
        if not self.has(name):
            return {}
        path = self.path(name, recording)
        if path not in self._read:
            if not path.exists() and self.lazy:
                return {}
            if not path.exists():
                reason = f"its picture on {recording.profile} is not drawn"
                raise OverlapError(f"snippets/{name}.py: {reason}; run `overlap build`")
            self._read[path] = json.loads(path.read_text(encoding="utf-8"))
        return self._read[path]

    def missing(self) -> list[tuple[str, Recording]]:
        """What is not drawn yet."""
        drawing = [name for name in self.book.snippets if self.has(name)]
        items = [(name, recording) for name in drawing for recording in self.book.recordings(name).values()]
        return [(name, recording) for name, recording in items if not self.path(name, recording).exists()]

    def _file(self, name: str) -> str:
        return str(self.book.root / self.book.snippets[name].path)

    def draw(self, pool: Executor, items: list[tuple[str, Recording]] | None = None) -> int:
        """Draw these items, or what is missing, and say how far it is; return how many."""
        items = self.missing() if items is None else items
        futures = {}
        for name, recording in items:
            path = self._file(name)
            place = f"{name}-{recording.profile}"
            others = [_drawn_from(other) for other in self.others(name, recording)]
            twin = self._twin(name, recording)
            beside = (self._file(twin.data["snippet"]), *_drawn_from(twin)) if twin else None
            work = pool.submit(_draw, path, *_drawn_from(recording), place, VARIANTS, others, beside)
            futures[work] = name, recording
        problems = []
        for count, future in enumerate(as_completed(futures), 1):
            name, recording = futures[future]
            try:
                write(self.path(name, recording), json.dumps(future.result()))
            except OverlapError as error:
                problems.append(f"{error} (with the numbers of {recording.profile})")
            if count % _TOLD == 0:
                print(f"{count}/{len(futures)} pictures drawn", file=sys.stderr, flush=True)
        if problems:
            raise OverlapError("\n".join(problems))
        return len(items)


def _drawn_from(recording: Recording) -> tuple[dict, dict]:
    """What `plot` gets: results and ceilings."""
    return typical([run["result"] for run in recording.runs]), ceilings(recording.data["machine"])


def numbers(root: Path, recordings: list[tuple[str, Recording]]) -> dict[tuple[str, str], dict]:
    """`tables`, `more` and `chart` of the pictures that these recordings give, by snippet and profile.

    A picture that cannot be drawn has none.
    """
    read = {}
    with drawing_pool(root) as pool:
        futures = {}
        for name, recording in recordings:
            path = root / f"snippets/{name}.py"
            if "\ndef plot(" in path.read_text(encoding="utf-8"):
                drawing = pool.submit(_draw, str(path), *_drawn_from(recording), name, ())
                futures[drawing] = name, recording.profile
        for future in as_completed(futures):
            with contextlib.suppress(OverlapError, BrokenExecutor):
                picture = future.result()
                read[futures[future]] = {key: picture[key] for key in ("tables", "more", "chart")}
    return read


def drawing_pool(root: Path) -> Executor:
    """Processes that draw, forked from one that has imported what snippets import; they end with this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "overlap.site.picture"])
    workers = min(os.cpu_count() or 2, 8)
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(str(root),))


def _begin(root: str) -> None:
    sys.path.insert(0, root)
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asked
    threading.Thread(target=_end_with_parent, daemon=True).start()


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
        alike = [other for other in others if isinstance(other, dict)]
        whole = {}
        for key, value in first.items():
            whole[plain(key)] = typical([value, *(other[key] for other in alike if key in other)])
        return whole
    if isinstance(first, list):
        alike = [other for other in others if isinstance(other, list) and len(other) == len(first)]
        return [typical([value, *(other[i] for other in alike)]) for i, value in enumerate(first)]
    if isinstance(first, str):
        return plain(first)
    return middle([first, *filter(is_number, others)]) if is_number(first) else first


def _style() -> str:
    """Hash of what makes a picture: a change of style draws all of them again."""
    names = ("chart.py", "layout.py", "picture.py", "series.py", "shared.py", "svg.py")
    sources = [Path(__file__).with_name(name).read_bytes() for name in names]
    return hashlib.sha256(b"".join([*sources, version("matplotlib").encode()])).hexdigest()[:12]
