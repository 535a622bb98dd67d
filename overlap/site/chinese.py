"""Declared pictures in Chinese, for pages in Chinese: labels by their English text, from one table.

What `plot` of a snippet declares is translated field by field before it is drawn and told. So a page in
Chinese has its own pictures, with its own alternative texts.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from overlap import OverlapError
from overlap.blocks.language import in_chinese
from overlap.site.numbers import UNIT

#: The table, below the root.
FILE = "snippets/labels.zh.toml"
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
#: A machine, as `hardware.label` writes it.
_MACHINE = re.compile(r"\d+ × [A-Z][A-Z0-9 ]*\b")
#: What has no words: numbers and a unit.
_WORDLESS = re.compile(rf"[^A-Za-z]*(?:{UNIT})?[^A-Za-z]*")
#: Fields of a picture whose texts no reader sees, or that were recorded.
_NO_LABELS = {"color", "dash", "align", "axis", "names"}


class Labels(NamedTuple):
    """The table: names that stay, and labels in Chinese by their English.

    In both {} stands for a number, and {machine} for any machine.
    """

    names: frozenset[str]
    by_english: Mapping[str, str]


def labels(root: Path) -> Labels:
    """The table of a book; one without it has no labels."""
    path = root / FILE
    return _labels(path, path.stat().st_mtime_ns) if path.exists() else Labels(frozenset(), {})


@lru_cache(maxsize=8)
def _labels(path: Path, saved: int) -> Labels:
    """The table as it was saved at that time."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise OverlapError(f'{FILE}: {error}; write each label as "English" = "Chinese"') from None
    return Labels(frozenset(table.get("names", ())), table.get("labels", {}))


class Translator:
    """Translates pictures; `missing` are the labels that the table lacks, which stay in English."""

    def __init__(self, known: Labels):
        self._known = known
        self.missing: dict[str, None] = {}

    def picture(self, declared):
        """A `snippets.pictures.Picture` in Chinese. Its `say` gives sentences of the book in Chinese.

        Each mark knows, as `declared`, the one that it translates: colours follow names in English.
        """
        translated = self._object(declared)
        translated.say = in_chinese
        return translated

    def _object(self, declared) -> Any:
        changed = {}
        for field in fields(declared):
            if field.name not in _NO_LABELS:
                changed[field.name] = self._value(getattr(declared, field.name), field.name != "colors")
        translated = replace(declared, **changed)
        translated.declared = declared
        return translated

    def _value(self, value, is_text: bool) -> Any:
        """A field, or a part of it; of colours by row, the rows."""
        if isinstance(value, str):
            return self.label(value) if is_text else value
        if isinstance(value, Mapping):
            return {self._value(key, True): self._value(each, is_text) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._value(each, is_text) for each in value]
        return self._object(value) if is_dataclass(value) else value

    def label(self, english: str) -> str:
        """A label in Chinese, with its numbers and its machine."""
        machine = _MACHINE.search(english)
        text = english.replace(machine[0], "{machine}") if machine else english
        shape = _NUMBER.sub("{}", text)
        chinese = self._known.by_english.get(english) or self._known.by_english.get(shape)
        if chinese:
            numbers = iter(_NUMBER.findall(text))
            chinese = re.sub(r"\{\}", lambda _: next(numbers), chinese)
            return chinese.replace("{machine}", machine[0]) if machine else chinese
        if shape not in self._known.names and not _WORDLESS.fullmatch(english):
            self.missing[shape] = None
        return english
