"""Pictures of recordings: what `plot` of a snippet declares of their numbers, drawn when a page asks."""

import contextlib
from collections.abc import Iterable

from overlap import OverlapError
from overlap.book.book import Book
from overlap.book.ceiling import ceilings
from overlap.book.recording import Recording
from overlap.book.statistic import is_number, middle
from overlap.run import hardware
from overlap.run.pure import function, raised_at
from overlap.run.snippet import twin_of
from overlap.run.text import plain
from overlap.site import chinese, numbers, ranges, trace
from overlap.site.draw import WIDTHS, placed
from overlap.site.timeline import can_explore, explored


class Pictures:
    """The pictures of a book. Each is drawn when somebody asks for its text, and once.

    `shown_in_chinese` are snippet and part of those that pages in Chinese show.
    """

    def __init__(self, book: Book, shown_in_chinese: Iterable[tuple[str, str]] = ()):
        self.book = book
        self._shown_in_chinese = sorted(shown_in_chinese)
        self._declared: dict[int, object] = {}
        self._placed: dict[int, dict] = {}
        self._chinese: dict[int, dict] = {}
        self._missing: dict[str, None] = {}

    def of(self, recording: Recording) -> dict:
        """`sizes` of both widths, ends of `axes`, `words`, `tables` of numbers and how many `more` there are.

        `wide` and `narrow` stand alone: their axes are as long as their own values need. Beside that of
        another machine stand `wide-compared` and `narrow-compared`, where these have other `axes`.
        The same by name of its `parts`, which `plot` returns beside it. `explored` names the parts that are
        timelines to explore, "" for the whole; such a part is not drawn. Empty where the snippet draws none.
        """
        if not self.book.snippets[recording.snippet].draws:
            return {}
        if id(recording) not in self._placed:
            self._placed[id(recording)] = self._picture(recording)
        return self._placed[id(recording)]

    def in_chinese(self, recording: Recording) -> dict[str, dict]:
        """The same by part, "" for the whole, that a page in Chinese shows; `picture` is what is drawn."""
        wanted = [part for name, part in self._shown_in_chinese if name == recording.snippet]
        if not wanted or not self.of(recording):
            return {}
        if id(recording) not in self._chinese:
            self._chinese[id(recording)] = self._translated(recording, wanted)
        return self._chinese[id(recording)]

    def svg(self, recording: Recording, part: str, variant: str, in_chinese=False) -> str:
        """The SVG text of a part, "" for the whole, in one of the widths."""
        picture = self.of(recording)
        drawn = picture["parts"][part] if part else picture
        if in_chinese:
            drawn = self.in_chinese(recording)[part]
        try:
            return drawn["drawings"][variant].svg
        except Exception as error:
            raise self._problem(recording, error) from None

    def timelines(self, recording: Recording) -> dict[str, list]:
        """What can be explored, by part and "" for the whole."""
        names = self.of(recording).get("explored", ())
        if not names:
            return {}
        declared, parts = self.declared(recording)
        recorded = trace.timelines(recording.result)
        try:
            return {name: explored(parts[name] if name else declared, recorded) for name in names}
        except Exception as error:
            raise self._problem(recording, error) from None

    def timelines_in_chinese(self, recording: Recording) -> dict[str, list]:
        """The same of the whole, if a page in Chinese shows it."""
        if "" not in self.of(recording).get("explored", ()) or "" not in self.in_chinese(recording):
            return {}
        return {"": explored(self.in_chinese(recording)[""]["picture"], trace.timelines(recording.result))}

    def problems(self) -> list[str]:
        """What cannot be drawn, and labels that lack Chinese; of unreadable recordings `Book.check` tells."""
        problems: dict[str, None] = {}
        for name in self.book.snippets:
            recordings: dict[str, Recording] = {}
            with contextlib.suppress(OverlapError):
                recordings = self.book.recordings(name) if self.book.snippets[name].draws else {}
            for recording in recordings.values():
                try:
                    for part in ("", *self.of(recording)["parts"]):
                        for variant in WIDTHS:
                            self.svg(recording, part, variant)
                    self.timelines(recording)
                    for part in self.in_chinese(recording):
                        for variant in WIDTHS:
                            self.svg(recording, part, variant, in_chinese=True)
                except OverlapError as error:
                    problems[str(error)] = None
        return [*problems, *self._missing]

    def _picture(self, recording: Recording) -> dict:
        declared, parts = self.declared(recording)
        beside = [[self.declared(each) for each in group] for group in self._beside(recording)]
        try:
            picture = _placed(declared, *([whole for whole, _ in group] for group in beside))
            timed = {"": declared, **parts} if trace.timelines(recording.result) else {}
            picture["explored"] = [name for name, each in timed.items() if can_explore(each)]
            picture["parts"] = {
                name: _placed(
                    part, *([parts[name] for _, parts in group if name in parts] for group in beside)
                )
                for name, part in parts.items()
                if name not in picture["explored"]
            }
        except Exception as error:
            raise self._problem(recording, error) from None
        return picture

    def _translated(self, recording: Recording, wanted: list[str]) -> dict[str, dict]:
        """These parts of it in Chinese. A label that has none stays as it is, and is a problem."""
        translator = chinese.Translator(chinese.labels(self.book.root))
        groups = [
            [self.declared(each) for each in group] for group in ([recording], *self._beside(recording))
        ]
        drawn = {}
        for part in wanted:
            of_part = [[parts.get(part) if part else whole for whole, parts in group] for group in groups]
            own, *beside = ([*map(translator.picture, filter(None, group))] for group in of_part)
            if own:
                drawn[part] = {**_placed(own[0], *beside), "picture": own[0]}
        where = self.book.snippets[recording.snippet].path
        for label in translator.missing:
            reason = f"plot() has the label {label!r}, and a page in Chinese shows it"
            self._missing[f"{where}: {reason}; add its Chinese to {chinese.FILE}"] = None
        return drawn

    def _beside(self, recording: Recording) -> tuple[list[Recording], list[Recording]]:
        """What stands beside it on the same scale: its twin, always; other machines where a reader compares.

        A twin is the fixed program of a broken one, or the other way round. Other machines have as many GPUs.
        """
        names = recording.snippet, twin_of(recording.snippet)
        drawn = [name for name in names if name in self.book.snippets and self.book.snippets[name].draws]
        there = [other for name in drawn for other in self.book.recordings(name).values()]
        others = [other for other in there if other.gpus == recording.gpus and other is not recording]
        twins = [other for other in others if other.machine == recording.machine]
        return twins, [other for other in others if other.machine != recording.machine]

    def declared(self, recording: Recording) -> tuple:
        """What `plot(results, ceilings)` returns for a recording: a picture, and {name: other}."""
        if id(recording) not in self._declared:
            try:
                plot = function(self.book.snippets[recording.snippet], "plot")
                results = typical([run["result"] for run in recording.runs])
                limits = ceilings(recording.data["machine"])

                def by_part(results) -> dict:
                    declared = plot(results, limits)
                    whole, parts = declared if isinstance(declared, tuple) else (declared, {})
                    return {"": whole, **parts}

                pictures = by_part(results)
                ranges.add(pictures, by_part, results, [run["result"] for run in recording.runs])
                _name_machine(pictures.values(), hardware.label(recording.machine))
                self._declared[id(recording)] = pictures.pop(""), pictures
            except (Exception, SystemExit) as error:
                raise self._problem(recording, error) from None
        return self._declared[id(recording)]

    def _problem(self, recording: Recording, error: BaseException) -> OverlapError:
        snippet = self.book.snippets[recording.snippet]
        where = f"(with the numbers of {recording.machine})"
        if isinstance(error, OverlapError):
            return OverlapError(f"{snippet.path}: plot() {error} {where}")
        why = f"plot() cannot be drawn: {type(error).__name__}: {error}"
        remedy = f"mend it, or what main() returned {where}"
        return OverlapError(f"{raised_at(error, snippet)}: {why}; {remedy}")


def _placed(declared, beside: list, compared: list) -> dict:
    picture: dict = {"drawings": {}}
    for variant, width in WIDTHS.items():
        alone = placed(declared, width, beside)
        picture["drawings"][variant] = alone
        together = placed(declared, width, [*beside, *compared]) if compared else alone
        if together.axes != alone.axes:
            picture["drawings"][f"{variant}-compared"] = together
    sizes = {name: [drawing.width, drawing.height] for name, drawing in picture["drawings"].items()}
    picture["sizes"] = sizes
    picture["axes"] = together.axes
    series = numbers.read(declared)
    picture["tables"], picture["more"] = numbers.tables(series)
    picture["words"] = numbers.in_words(series)
    return picture


def _name_machine(pictures: Iterable, label: str) -> None:
    """Write where it was measured into each title that has a place for it."""
    for picture in pictures:
        for panel in picture.panels:
            panel.title = panel.title.replace("{machine}", label)


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
        if not lists:  # as for timelines, which only the shown run has
            return [item if is_number(item) else typical([item]) for item in first]
        return [typical([value, *(other[i] for other in lists)]) for i, value in enumerate(first)]
    if isinstance(first, str):
        return plain(first)
    return middle([first, *filter(is_number, others)]) if is_number(first) else first
