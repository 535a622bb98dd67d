"""A claim: a sentence, and the expression over one snippet's result that must be true for it to stand."""

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.blocks import strip
from overlap.blocks.block import Block, Notebook, Pages, Source, View, read_template
from overlap.blocks.comparison import compared, is_close, other_side, side, sides
from overlap.blocks.inline import cited, values
from overlap.book.book import Book
from overlap.book.ceiling import clocked, kinship
from overlap.book.condition import speaks_of
from overlap.book.expression import Undecided, evaluate, over, parse
from overlap.book.limits import ABOVE, SPREADS, most
from overlap.book.recording import Recording, busy
from overlap.book.statistic import is_number, middle
from overlap.book.value import key
from overlap.book.verdict import State, Tally, Verdict

_LIMIT = re.compile(r"limit:\s*(.+?)\s+of\s+(.+)")
_NAME = re.compile(r"name:\s*([a-z0-9]+(?:-[a-z0-9]+)*)")
_WEAKENED = re.compile(r"weakened:\s*(.+)")
#: What begins like an option, and so is no sentence.
_OPTION = re.compile(r"[a-z]+:\s")


class Limit(NamedTuple):
    """A value that must not be above a ceiling; both are expressions."""

    value: str
    ceiling: str

    def shares(self, scopes: list[dict]) -> list[float]:
        """How much of the ceiling the value reaches, in those runs where both are known."""
        shares = over(f"({self.value}) / ({self.ceiling})", scopes)
        if not all(map(is_number, shares)):
            raise OverlapError(f"`{self.value}` of `{self.ceiling}` is no number")
        return shares

    def is_beaten(self, scopes: list[dict]) -> bool:
        """Whether the value is above its ceiling, in most of the runs.

        Where a clock is in the ceiling, a true rate may be above it by as much as a clock passes its highest.
        """
        names = {getattr(node, "attr", "") for node in ast.walk(parse(self.ceiling))}
        highest = ABOVE if names & clocked() else 1
        return most(share > highest for share in self.shares(scopes))

    def figures(self, scopes: list[dict], told: str = "") -> str:
        """`blocks = 4: 3% of 132 (ceiling SMs)`; without the value where `told` begins with it."""
        value = side(self.value, scopes)
        shares = self.shares(scopes)
        if not shares:
            return f"{value} of a ceiling that is not known"
        subject = "" if f"{told} ".startswith(f"{value} ") else f"{value}: "
        text = f"{subject}{middle(shares):.0%} of {other_side(self.ceiling, scopes)}"
        return f"{text} — beats its ceiling" if self.is_beaten(scopes) else text


@dataclass(frozen=True)
class Claim(Block):
    """```` ```claim chapter/snippet ````: an expression, perhaps `for` a condition; then the sentence.

    Between them may stand `name: …`, by which `{claim: …}` in the prose sets its mark, and lines such as
    `limit: VALUE of CEILING`. `weakened: …` is a sentence on what it said first, and which data it did not
    stand. After an empty line comes the next claim about the snippet.
    """

    snippet: str
    expression: str
    condition: str
    limits: tuple[Limit, ...]
    text: str
    name: str = ""
    weakened: str = ""

    kind: ClassVar[str] = "claim"

    @classmethod
    def read_all(cls, source: Source) -> list[Block]:
        """One claim for each paragraph of the fence; the first begins where the fence does."""
        first, *others = list(source.paragraphs()) or [source]
        for other in others:
            try:
                parse(_conditioned(other.body[0].strip())[0])
            except OverlapError as error:
                remedy = "an empty line ends a claim: take it away, or write an expression after it"
                raise other.refuse(str(error), remedy) from None
        return [cls.read(paragraph) for paragraph in (first._replace(line=source.line), *others)]

    @classmethod
    def read(cls, source: Source) -> "Claim":
        """Read expression, options and sentence."""
        expression, *rows = source.rows() or [""]
        name = ""
        weakened = ""
        limits = []
        text = []
        for row in rows:
            limit = _LIMIT.fullmatch(row)
            named = _NAME.fullmatch(row)
            less = _WEAKENED.fullmatch(row)
            if limit:
                limits.append(Limit(*limit.groups()))
            elif named and not name:
                name = named[1]
            elif less and not weakened:
                weakened = less[1]
            elif _OPTION.match(row):
                remedy = "write one `name: no-gain-from-python`, and `limit: VALUE of CEILING`"
                raise source.refuse(f"`{row}` is no option of a claim", remedy)
            else:
                text.append(row)
        if not text:
            reason = f"claim {source.snippet} needs an expression and a sentence"
            raise source.refuse(reason, "write the one, then the other, with no empty line between")
        place = source.page, source.line, source.snippet
        return cls(*place, *_conditioned(expression), tuple(limits), " ".join(text), name, weakened)

    @property
    def anchor(self) -> str:
        """HTML id: it stays where the claim is moved or mended; with a name also where its words change."""
        if self.name:
            return f"claim-{self.name}"
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:6]
        return f"claim-{self.snippet.replace('/', '-')}-{digest}"

    @property
    def key(self) -> str:
        """Identifies its comparison among those of all claims."""
        return key(self.snippet, self.expression, self.condition, [tuple(limit) for limit in self.limits])

    @property
    def conditioned(self) -> str:
        """Its expression with the machines it speaks of."""
        return f"{self.expression} for {self.condition}" if self.condition else self.expression

    def verdict(self, scopes: list[dict], recording: Recording) -> Verdict | None:
        """Decide it on one machine by what its runs say; None where it does not speak of the machine."""
        try:
            return self._verdict(scopes, recording) if speaks_of(self.condition, recording) else None
        except Undecided as error:
            return Verdict.undecided(recording, str(error))

    def _verdict(self, scopes: list[dict], recording: Recording) -> Verdict:
        disturbed = next(filter(None, map(busy, recording.runs)), "")
        able = [scope for scope in scopes if over(self.expression, [scope])]
        if not able:
            evaluate(self.expression, scopes[0])  # says why it is undecided
        results = over(self.expression, able)
        true = sum(map(bool, results))
        is_false = not most(results) or any(limit.is_beaten(able) for limit in self.limits)
        state = State.FALSE if is_false else State.HOLDS
        return Verdict(recording, state, partial(self._figures, able, true), true, len(able), disturbed)

    def _figures(self, scopes: list[dict], true: int) -> str:
        """Its sides and those of its limits over these runs, of which it is true in so many."""
        told = sides(self.expression, scopes)
        of_it = told if isinstance(parse(self.expression).body, ast.Compare) else ""
        parts = [told, *(limit.figures(scopes, of_it) for limit in self.limits)]
        if 0 < true < len(scopes):
            parts.append(f"true in {true} of {len(scopes)} runs")
        return " · ".join(parts)

    def falsehood(self, verdict: Verdict) -> str:
        """What to say when it is false: where it stands, what it says, figures, recording and remedy.

        A false claim on a reader's machine is no reason to change the claim.
        """
        what = "claim is false here" if verdict.recording.is_local else "claim is false"
        what = f"{what}: {self.text} `{self.expression}`: {verdict.figures}, in {verdict.recording.path}"
        advice = verdict.advice
        if verdict.recording.is_local:
            again = f"`overlap run {self.snippet}` runs it again"
            advice = f"{advice}; {again}" if advice else f"this machine may differ; {again}"
        return f"{self.where}: {what}; {advice or 'claim what the data say, or record again'}"

    def check(self, pages: Pages) -> Iterator[str]:
        """Two claims of one name; false or open on a reference machine."""
        yield from self._check_names(pages.on(self.page))
        if values(self.text):
            yield f"{self.where}: a value in a claim's sentence is not shown; write what the expression says"
        for verdict in pages.book.verdicts(self):
            if pages.book.is_reference(verdict.machine):
                if verdict.state is State.FALSE:
                    yield self.falsehood(verdict)
                elif why := self._unknown(verdict):
                    reason = f"claim cannot be decided in {verdict.recording.path}: {why}"
                    yield f"{self.where}: {reason}; mend it, or add `for` a condition"

    @staticmethod
    def _unknown(verdict: Verdict) -> str:
        """Why its data do not decide it, or lack a part that the state did not need; else empty."""
        try:
            figures = verdict.tell()
        except OverlapError as error:
            return str(error)
        return figures if verdict.state is State.OPEN else ""

    def remarks(self, pages: Pages) -> Iterator[str]:
        """A limit that no machine knows; narrow on a reference machine."""
        decided = [verdict for verdict in pages.book.verdicts(self) if verdict.state is not State.OPEN]
        for limit in self.limits:
            if not any(limit.shares(pages.book.scopes(verdict.recording)) for verdict in decided):
                yield f"{self.where}: no machine knows the limit `{limit.ceiling}`; mend it, or take it away"
        for verdict in decided:
            if verdict.state is State.HOLDS and pages.book.is_reference(verdict.machine):
                for reason in self.narrow(pages.book, verdict):
                    remedy = verdict.advice or "measure longer or claim less"
                    yield f"{self.where}: claim {reason}, in {verdict.recording.path}; {remedy}"

    def _check_names(self, blocks: Sequence[Block]) -> Iterator[str]:
        claims = [block for block in blocks if isinstance(block, Claim)]
        twin = next(claim for claim in claims if claim.anchor == self.anchor)
        if twin.line < self.line:
            yield f"{self.where}: the claim of line {twin.line} has this name, or says the same; change one"
        marks = [name for block in blocks if block.prose for _, name in cited(block.prose.text)]
        if self.name and marks.count(self.name) > 1:
            yield f"{self.where}: {{claim: {self.name}}} stands on the page more than once; leave one"

    def narrow(self, book: Book, verdict: Verdict) -> Iterator[str]:
        """Why it holds too narrowly: not in all runs, or what it compares may turn by their spread."""
        if verdict.true < verdict.runs:
            yield f"is not true in all runs: `{self.expression}`: {verdict.figures}"
        for item in compared(self.expression, book.scopes(verdict.recording)):
            if is_close(item):
                what = f"`{item.source} {item.sign} {item.against}` over its runs"
                yield f"holds by less than {SPREADS} times the spread of {what}"

    def markdown(self, view: View) -> str:
        """Its sentence, where the prose does not set its mark."""
        view.claims.append(view.book.verdicts(self))
        if self.name in view.cited:
            return ""
        sentence = f"<p>{view.inline(self.text)} {self.mark(view)}</p>"
        return f"\n{view.stash(sentence)}\n"

    def fold(self, view: View) -> str:
        """Its evidence, which the mark opens."""
        verdicts = view.book.verdicts(self)
        by_machine = {verdict.machine: verdict for verdict in verdicts}
        machine = view.first(by_machine, self.snippet)
        return view.render(
            read_template("claim"),
            claim=self,
            how=view.how(self.snippet),
            view=view,
            machine=machine,
            verdict=view.verdict(by_machine[machine]),
            tally=Tally.of(verdicts),
            kinship=kinship(
                [each.recording.data["machine"] for each in verdicts if each.state is not State.OPEN]
            ),
            sentence=view.inline(self.text),
            strips=self.strips(view.book),
            size=strip,
        )

    def strips(self, book: Book) -> list[strip.Strip]:
        """What it compares, on the machines that decide it."""
        decided = [verdict.recording for verdict in book.verdicts(self) if verdict.state is not State.OPEN]
        by_machine = {recording.machine: book.scopes(recording) for recording in decided}
        return strip.strips(self.expression, by_machine)

    def mark(self, view: View) -> str:
        """What stands in the sentence: on how many machines it holds. It opens the evidence."""
        tally = Tally.of(view.book.verdicts(self))
        evidence = view.fold(self.key)
        return view.render(read_template("claim_mark"), claim=self, tally=tally, evidence=evidence).strip()

    def cells(self, notebook: Notebook) -> list[dict]:
        """The claim as a quotation, with its expression and its verdicts."""
        rows = [f"> **Claim.** {self.text}", ">", f"> `{self.expression}`"]
        for verdict in notebook.book.verdicts(self):
            text = f"{notebook.label(verdict.machine)}: {verdict.state.word}: {verdict.figures}"
            rows.append(f"> - {notebook.text(text)}")
        return [notebook.markdown("\n".join(rows))]


def _conditioned(row: str) -> tuple[str, str]:
    """Expression and condition of `EXPRESSION for CONDITION`; the `for` of a loop splits no expression."""
    for match in re.finditer(r"\s+for\s+", row):
        try:
            ast.parse(row[: match.start()], mode="eval")
        except SyntaxError:
            continue
        return row[: match.start()], row[match.end() :]
    return row, ""
