"""Entries, each a heading to link to and to find: symptoms, terms of the glossary, statements of the sources.

Symptoms and terms have a file each, docs/symptoms.toml and docs/glossary.toml. From it come the page, the
documents of the search, and what a pointer shows of a term.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.blocks import inline
from overlap.blocks.block import Block, Notebook, Pages, Source, Text, View
from overlap.blocks.language import is_chinese
from overlap.book.book import Book
from overlap.book.value import Value

SYMPTOMS = "symptoms.toml"
GLOSSARY = "glossary.toml"
#: Where a link in Markdown leads.
_LINK = re.compile(r"\]\(([^)\s]+)\)")


class Symptom(NamedTuple):
    """What a reader sees, in other words, too; its cause, with a link to what shows it; what to do."""

    symptom: str
    why: str
    do: str | tuple[str, ...]
    also: tuple[str, ...] = ()
    zh: str = ""


class Term(NamedTuple):
    """A term with its meaning; its name in Chinese; other names, and where the book measures it.

    `zh_meaning` is the meaning on pages in Chinese.
    """

    term: str
    meaning: str
    zh: str = ""
    also: str = ""
    zh_meaning: str = ""


def symptoms(docs: Path) -> dict[str, dict[str, Symptom]]:
    """All symptoms by section and id, which is one place of the page; a book without the file has none."""
    sections = {}
    known: set[str] = set()
    for section, entries in _read(docs / SYMPTOMS).items():
        sections[section] = {name: _entry(Symptom, SYMPTOMS, name, entry) for name, entry in entries.items()}
        for name in sections[section]:
            if name in known:
                raise OverlapError(f"docs/{SYMPTOMS}: two symptoms have the id {name!r}; change one")
            if not _LINK.search(sections[section][name].why):
                remedy = "write one to the section that shows it"
                raise OverlapError(f"docs/{SYMPTOMS}: `why` of {name} has no link; {remedy}")
            known.add(name)
    return sections


def glossary(docs: Path) -> dict[str, Term]:
    """All terms by id; a book without the file has none."""
    return {name: _entry(Term, GLOSSARY, name, entry) for name, entry in _read(docs / GLOSSARY).items()}


def _read(path: Path) -> dict:
    return _parsed(path, path.stat().st_mtime_ns) if path.exists() else {}


@lru_cache(maxsize=8)
def _parsed(path: Path, saved: int) -> dict:
    """The file as it was saved at that time."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of the form, or of the letters
        raise OverlapError(f"docs/{path.name}: no TOML ({error}); mend it") from None


def _entry(kind: type, file: str, name: str, entry: dict):
    """One entry: text in each field, a list of texts where there may be several."""
    fields = kind._fields
    wrong = set(entry) - set(fields) or set(fields) - set(entry) - set(kind._field_defaults)
    if wrong:
        reason = f"{name} lacks, or has besides, {', '.join(sorted(wrong))}"
        raise OverlapError(f"docs/{file}: {reason}; an entry has {', '.join(fields)}")
    lists = {key for key, text in entry.items() if isinstance(text, list)} - {"also", "do"}
    if lists:
        raise OverlapError(f"docs/{file}: {name} has a list in {', '.join(sorted(lists))}; write one text")
    return kind(**{key: tuple(text) if isinstance(text, list) else text for key, text in entry.items()})


@dataclass(frozen=True)
class Symptoms(Block):
    """```` ```symptoms section ````: those of a section of docs/symptoms.toml."""

    section: str

    kind: ClassVar[str] = "symptoms"

    @classmethod
    def read(cls, source: Source) -> "Symptoms":
        """Read the section's name."""
        if not source.argument or source.rows():
            raise source.refuse(f"symptoms are in docs/{SYMPTOMS}", "write ```symptoms section, and no body")
        return cls(source.page, source.line, source.argument)

    @property
    def written(self) -> str:
        """Its fence."""
        return f"```{self.kind} {self.section}\n```"

    def values_in(self, book: Book) -> list[Value]:
        """The values in its entries."""
        return _values(symptoms(book.docs).get(self.section, {}).values())

    def check(self, pages: Pages) -> Iterator[str]:
        """A section that the file lacks, or the page; what its entries say."""
        if self.section not in pages.symptoms:
            known = ", ".join(pages.symptoms) or "none yet"
            yield f"{self.where}: docs/{SYMPTOMS} has no section {self.section!r}; there are {known}"
            return
        for name, entry in pages.symptoms[self.section].items():
            yield from _amiss(pages, SYMPTOMS, f"[{self.section}.{name}]", entry)
        blocks = pages.of_kind(Symptoms)
        left = pages.symptoms.keys() - {block.section for block in blocks}
        if left and self == blocks[0]:
            yield f"docs/{SYMPTOMS}: no page shows {', '.join(sorted(left))}; add a symptoms block"

    def entries(self, pages: Pages) -> list[str]:
        """The ids of its symptoms."""
        return list(pages.symptoms.get(self.section, ()))

    def markdown(self, view: View) -> str:
        """A list in which each entry is headed by its symptom, which leads where the cause is shown."""
        parts = []
        for anchor, entry in view.pages.symptoms.get(self.section, {}).items():
            words = "".join(f'<span class="ov-words"> · {words}</span>' for words in entry.also)
            if entry.zh:
                words += f'<span class="ov-words" lang="zh"> · {entry.zh}</span>'
            target = _LINK.search(entry.why)[1]  # where the cause leads, too; there the Tab key stops
            heading = f'[{entry.symptom}{words}]({target}){{ tabindex="-1" }}'
            parts.append(_in_list(anchor, "symptom", heading, {"why": entry.why, "do this": entry.do}))
        return _listed("ov-symptoms", parts)


@dataclass(frozen=True)
class Glossary(Block):
    """```` ```glossary ````: all terms of docs/glossary.toml."""

    kind: ClassVar[str] = "glossary"

    @property
    def written(self) -> str:
        """Its fence."""
        return f"```{self.kind}\n```"

    def values_in(self, book: Book) -> list[Value]:
        """The values in its entries."""
        return _values(glossary(book.docs).values())

    def check(self, pages: Pages) -> Iterator[str]:
        """What its entries say."""
        for name, entry in pages.glossary.items():
            yield from _amiss(pages, GLOSSARY, f"[{name}]", entry)

    def entries(self, pages: Pages) -> list[str]:
        """The ids of its terms."""
        return list(pages.glossary)

    def markdown(self, view: View) -> str:
        """A section for each; in its heading a browser that translates leaves the term alone."""
        parts = []
        for anchor, entry in view.pages.glossary.items():
            chinese = f' · <span lang="zh">{entry.zh}</span>' if entry.zh else ""
            label = f' data-toc-label="{entry.term.replace("`", "")}"' if entry.zh else ""
            also = f"\n\n{entry.also}\n{{: .ov-also }}" if entry.also else ""
            heading = f"## {entry.term}{chinese} {{ #{anchor}{label} translate=no }}"
            parts.append(f"{heading}\n{entry.meaning}{also}")
        return "\n" + "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class Statements(Block):
    """```` ```statements ````: a table; each row is headed by an id and what an article says."""

    table: tuple[str, ...]

    kind: ClassVar[str] = "statements"

    @classmethod
    def read(cls, source: Source) -> "Statements":
        """Read a table with a row of headings, and as many cells in each row."""
        widths = {len(cells) for _, cells in source.numbered_rows()}
        if len(widths) != 1 or len(source.rows()) < 3:
            raise source.refuse("statements are a table", "give its rows as many cells as it has headings")
        return cls(source.page, source.line, tuple(source.body))

    @property
    def written(self) -> str:
        """Its fence."""
        return "\n".join([f"```{self.kind}", *self.table, "```"])

    @property
    def prose(self) -> Text:
        """What its cells say."""
        return Text(self.page, self.line + 1, "\n".join(self.table))

    def markdown(self, view: View) -> str:
        """A list; on a page in Chinese the statement is marked as such."""
        headings, _, *rows = [
            [cell.strip() for cell in row.strip("| ").split("|")] for row in self.table if row
        ]
        parts = []
        for name, statement, *cells in rows:
            title, attributes = f"{name} · {statement}", ""
            if is_chinese(self.page):
                title, attributes = f'{name} · <span lang="zh">{statement}</span>', f'data-toc-label="{name}"'
            fields = dict(zip(headings[2:], cells, strict=True))
            parts.append(_in_list(name.lower(), headings[1], title, fields, attributes))
        return _listed("ov-symptoms ov-statements", parts)

    def cells(self, notebook: Notebook) -> list[dict]:
        """The table."""
        return self.prose.cells(notebook)


def _in_list(
    anchor: str, label: str, title: str, fields: dict[str, str | tuple[str, ...]], attributes: str = ""
) -> str:
    """An entry of a list: its heading, and a paragraph for each field, or a list of its texts."""
    # As HTML: in Markdown two underscores of a name would begin strong words.
    heading = f'<h3 id="{anchor}" data-label="{label}" {attributes} markdown="span">{title}</h3>'
    told = [_field(column, text) for column, text in fields.items()]
    text = "\n\n".join([heading, *told])
    return f'<div class="ov-symptom" markdown="1">\n\n{text}\n\n</div>'


def _field(label: str, text: str | tuple[str, ...]) -> str:
    if isinstance(text, str):
        return f'{text}\n{{: data-label="{label}" }}'
    items = "\n".join(f"- {item}" for item in text)
    return f'<div data-label="{label}" markdown="1">\n\n{items}\n\n</div>'


def _listed(names: str, parts: list[str]) -> str:
    text = "\n\n".join(parts)
    return f'\n<div class="{names}" markdown="1">\n\n{text}\n\n</div>\n'


def _values(entries: Iterable[tuple]) -> list[Value]:
    texts = chain.from_iterable(map(_texts, entries))
    return [value for text in texts for _, value in inline.values(text)]


def _texts(entry: tuple) -> list[str]:
    """The texts of its fields."""
    return [text for field in entry for text in (field if isinstance(field, tuple) else (field,))]


def _amiss(pages: Pages, file: str, header: str, entry: tuple) -> Iterator[str]:
    """What is wrong with the texts of an entry, by the line that begins it."""
    lines = (pages.book.docs / file).read_text(encoding="utf-8").splitlines()
    line = lines.index(header) + 1 if header in lines else 1
    for text in _texts(entry):
        yield from Text(file, line, text).check(pages)
