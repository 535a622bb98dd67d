"""A guess before the answer: a question, a few choices, and data that say which one is right."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.blocks.block import Block, Notebook, Pages, Source, Text, View, read_template
from overlap.blocks.inline import values
from overlap.book.book import Book
from overlap.book.condition import speaks_of
from overlap.book.expression import Undecided, over_some
from overlap.book.limits import most

_FORM = (
    "write the question, then rows of `- choice | expression`, or `1. choice | expression` "
    "where the choices have an order, then `answer: …`; "
    "where no snippet is named, `- choice`, and `- [x] choice` for the right one"
)
_RIGHT = "[x] "
_LETTERS = "ABCDE"
_CHOICE = re.compile(r"(-|\d\.) ")


class Choice(NamedTuple):
    """What a reader can choose; an expression that is true if it is right, or whether it is marked so."""

    text: str
    expression: str
    is_right: bool


@dataclass(frozen=True)
class Guess(Block):
    """```` ```guess chapter/snippet ````, perhaps `for` a condition: a question, choices, `answer: …`.

    A choice is `- text | expression`. On each reference machine just one expression is true.
    Where no snippet is named, the right choice is written `- [x] text`. Choices that have an order, as none,
    some and all, are written `1. text`, `2. text`: the page does not shuffle them.
    """

    snippet: str
    condition: str
    question: str
    choices: tuple[Choice, ...]
    answer: str
    is_ordered: bool

    kind: ClassVar[str] = "guess"

    @classmethod
    def read(cls, source: Source) -> "Guess":
        """Read question, choices and answer."""
        snippet, condition = source.conditioned
        question = []
        choices = []
        answer = []
        marks = []
        for row in source.rows():
            if answer or row.startswith("answer:"):
                answer.append(row.removeprefix("answer:").strip())
            elif mark := _CHOICE.match(row):
                marks.append(mark[1])
                text, _, expression = row[mark.end() :].partition(" | ")
                if bool(expression) != bool(snippet):
                    raise source.refuse(f"`{row}` is no choice", _FORM)
                text = text.strip()
                choices.append(Choice(text.removeprefix(_RIGHT), expression, text.startswith(_RIGHT)))
            elif choices:
                raise source.refuse(f"`{row}` is no choice", _FORM)
            else:
                question.append(row)
        numbers = [f"{number}." for number in range(1, len(marks) + 1)]
        if set(marks) != {"-"} and marks != numbers:
            raise source.refuse("choices are all `-`, or numbered from 1 on", _FORM)
        if not question or not answer or not 3 <= len(choices) <= len(_LETTERS):
            raise source.refuse("a guess has a question, three to five choices and an answer", _FORM)
        place = source.page, source.line, snippet, condition
        return cls(*place, " ".join(question), tuple(choices), " ".join(answer), marks == numbers)

    @property
    def prose(self) -> Text:
        """Question and answer, which are text like any other of the page."""
        return Text(self.page, self.line + 1, f"{self.question}\n\n{self.answer}")

    def check(self, pages: Pages) -> Iterator[str]:
        """Whether the same choice is right on all reference machines; what question and answer say."""
        votes = self.votes(pages.book)
        for machine, right in votes.items():
            if len(right) != 1:
                texts = ", ".join(f"`{choice.text}`" for choice in right) or "none"
                reason = f"on {machine} not just one choice is right: {texts}"
                yield f"{self.where}: {reason}; mend the expressions, or add `for` a condition"
        if not votes:
            reason = "none of the book's own machines decides which choice is right"
            yield f"{self.where}: {reason}; mend the condition, or record it"
        if len({tuple(right) for right in votes.values()}) > 1:
            reason = f"one choice is right on {' and another on '.join(votes)}"
            yield f"{self.where}: {reason}; add `for` a condition"
        if values(" ".join([self.question, *(choice.text for choice in self.choices)])):
            yield f"{self.where}: a value in a question or a choice is not shown; move it to the answer"
        yield from super().check(pages)

    def votes(self, book: Book) -> dict[str, list[Choice]]:
        """Which choices are right, by reference machine that has data: true in most of its runs."""
        if not self.snippet:
            return {"any machine": [choice for choice in self.choices if choice.is_right]}
        votes = {}
        for machine, recording in book.recordings(self.snippet).items():
            if not book.is_reference(machine) or not speaks_of(self.condition, recording):
                continue
            scopes = book.scopes(recording)
            try:
                votes[machine] = [
                    choice for choice in self.choices if most(over_some(choice.expression, scopes))
                ]
            except Undecided as error:
                remedy = "mend the expressions, or add `for` a condition"
                raise OverlapError(f"{self.where}: undecided on {machine}: {error}; {remedy}") from None
        return votes

    def right(self, book: Book) -> Choice:
        """The right choice; no run of another machine changes it."""
        rights = next(iter(self.votes(book.as_committed).values()), [])
        if len(rights) != 1:
            raise OverlapError(f"{self.where}: not just one choice is right; run `overlap check`")
        return rights[0]

    def markdown(self, view: View) -> str:
        """Choices as radio buttons; the answer is a fold, which a choice opens."""
        right = self.right(view.book)
        choices = view.render(read_template("guess"), view=view, guess=self, right=right, letters=_LETTERS)
        chosen = f"{right.text}{view.say('.')}"  # without its letter: the page's script may shuffle them
        answer = f"**{chosen}** {self.answer}"
        how = view.how(self.snippet) if self.snippet else ""
        if how:
            link = view.put(f'<a href="{how}">{view.say("See what was measured")}</a>')
            answer += f" {link}"
        title = view.say("Answer")
        return (
            f'\n<div class="ov-guess" markdown>\n{view.stash(choices)}\n\n'
            f'??? question "{title}"\n\n    {answer}\n\n</div>\n'
        )

    def _named(self, choice: Choice) -> str:
        return f"{_LETTERS[self.choices.index(choice)]}: {choice.text}"

    def cells(self, notebook: Notebook) -> list[dict]:
        """Question, choices and answer."""
        choices = "\n".join(f"- {self._named(choice)}" for choice in self.choices)
        answer = f"**{self._named(self.right(notebook.book))}.** {self.answer}"
        return [notebook.prose(f"**Guess first.** {self.question}\n\n{choices}"), notebook.prose(answer)]
