"""Pictures of runs: drawn once from recorded data, kept as files, drawn again when data, snippet or style change."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from overlap.book.book import Book, Run
from overlap.book.ceiling import ceilings
from overlap.book.statistic import is_number, middle
from overlap.run import recording
from overlap.run.runner import Runner

VARIANTS = ("wide", "narrow")
_DRAW = "overlap.site.figure:draw"


class Pictures:
    """The pictures of a book, under `.cache/overlap/plots/`: a folder for each with its sizes and numbers and one SVG per variant."""

    def __init__(self, book: Book):
        self.book, self._read, self._folders, self._style = book, {}, {}, style()

    def folder(self, name: str, run: Run) -> Path:
        """Where a picture is kept: named by snippet, data, ceilings and style."""
        if (place := (name, run.path, run.data["digest"])) not in self._folders:
            snippet = self.book.snippets[name]
            source = [snippet.text, snippet.drawing_hashes]
            key = [*source, run.data["digest"], ceilings(run.data["machine"]), self._style]
            digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]
            self._folders[place] = self.book.cache / "plots" / f"{_salt(name, run)}-{digest}"
        return self._folders[place]

    def has(self, name: str) -> bool:
        """Whether a snippet draws one."""
        return "plot" in self.book.snippets[name].functions

    def of(self, name: str, run: Run) -> dict:
        """`sizes` of the variants and `table` of the series; empty where the snippet draws none."""
        if not self.has(name):
            return {}
        if not (picture := self._kept(name, run)):
            with Runner(self.book.root) as runner:
                picture = self._draw(runner, name, run)
        return picture

    def _kept(self, name: str, run: Run) -> dict | None:
        folder = self.folder(name, run)
        if not self._read.get(folder):
            self._read[folder] = _load(folder)
        return self._read[folder]

    def file(self, name: str, run: Run, variant: str) -> Path:
        """The SVG of a variant."""
        return self.folder(name, run) / f"{variant}.svg"

    def data_uri(self, name: str, run: Run, variant: str) -> str:
        """The SVG as an address that holds it."""
        from overlap.site import svg

        return svg.data_uri(self.file(name, run, variant).read_text(encoding="utf-8"))

    def missing(self) -> list[tuple[str, Run]]:
        """What is not drawn yet."""
        runs = [(name, run) for name in self.book.snippets if self.has(name) for run in self.book.runs(name).values()]
        return [(name, run) for name, run in runs if not self._kept(name, run)]

    def draw(self, runner: Runner) -> int:
        """Draw what is missing, two at a time; return how many."""
        wanted = self.missing()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda item: self._draw(runner, *item), wanted))
        return len(wanted)

    def _draw(self, runner: Runner, name: str, run: Run) -> dict:
        from overlap.site import svg  # a build that draws nothing does without

        snippet, folder = self.book.snippets[name], self.folder(name, run)
        arguments = {
            "results": typical([each["result"] for each in run.all]),
            "ceilings": ceilings(run.data["machine"]),
            "salt": _salt(name, run),
        }
        drawn = runner.call(_DRAW, snippet, **arguments)
        sizes = {variant: svg.size(drawn[variant]) for variant in VARIANTS}
        texts = {f"{variant}.svg": svg.in_file(drawn[variant]) for variant in VARIANTS}
        texts["paper.svg"] = svg.on_paper(drawn["wide"])
        lengths = {file: len(text.encode()) for file, text in texts.items()}
        picture = {"sizes": sizes, "table": drawn["table"], "bytes": lengths}
        for file, text in (
            texts | {"picture.json": json.dumps(picture)}
        ).items():  # what says that all is there is the last
            recording.write(folder / file, text)
        return picture


def typical(results: list):
    """What the first of these runs gave, each number the median of all that have one in the same place: pictures show what sentences say."""
    first, *others = results
    if isinstance(first, dict):
        found = [other for other in others if isinstance(other, dict)]
        return {key: typical([value, *(other[key] for other in found if key in other)]) for key, value in first.items()}
    if isinstance(first, list):
        found = [other for other in others if isinstance(other, list) and len(other) == len(first)]
        return [typical([value, *(other[i] for other in found)]) for i, value in enumerate(first)]
    return middle([first, *filter(is_number, others)]) if is_number(first) else first


def style() -> str:
    """Hash of what makes a picture: a change of style redraws every one."""
    names = ("figure.py", "layout.py", "pictures.py", "plotted.py", "svg.py")
    sources = (Path(__file__).with_name(name).read_bytes() for name in names)
    return hashlib.sha256(b"".join(sources)).hexdigest()[:12]


def _load(folder: Path) -> dict | None:
    """What is kept of a picture; None, so that it is drawn again, where it is not there or damaged."""
    try:
        picture = json.loads((folder / "picture.json").read_bytes())
        whole = all((folder / file).stat().st_size == length for file, length in picture["bytes"].items())
        return picture if whole else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def tables(series: list[dict], limit: int = 100) -> tuple[list[dict], int]:
    """The numbers of a picture: a table for each pair of headings, a block of rows for each series; and how many are left out."""
    found, left = [], limit
    for headings, items in groupby(series, key=lambda item: (item["x"], item["y"])):
        shown = []
        for item in items:
            points = item["points"][: max(left, 0)]
            left -= len(item["points"])
            if points:
                shown.append({"name": " · ".join(filter(None, (item["title"], item["label"]))), "points": points})
        if shown:
            found.append({"headings": headings, "series": shown})
    return found, max(-left, 0)


def _salt(name: str, run: Run) -> str:
    return f"{name.replace('/', '-')}-{run.profile}"
