"""A claim: a sentence, and the expression over one snippet's result that must be true for it to stand."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book import margin
from overlap.book.blocks.block import Block, Source, read_template
from overlap.book.blocks.index import titled
from overlap.book.comparison import close, compared, distance, evaluated, sides
from overlap.book.expression import Undecided, evaluate, names
from overlap.book.runs import machine_scope
from overlap.book.statistic import is_number, middle, show
from overlap.book.value import cited
from overlap.book.verdict import Counts, State, Tally, Verdict

_LIMIT = re.compile(r"limit:\s*(.+?)\s+of\s+(.+)")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
#: What looks like an option and is none, and so no sentence.
_MISSPELT = re.compile(r"(limits?|names?|for|claims?)\s*:", re.I)


class Limit(NamedTuple):
    """A value that must not be above a ceiling; both are expressions."""

    value: str
    ceiling: str

    @property
    def is_physical(self) -> bool:
        """Whether the ceiling is what the machine can do at best, and not made of measured numbers."""
        return "ceiling" in names(self.ceiling)

    def share(self, scope: dict) -> float | None:
        """How much of the ceiling the value reaches; None where one of them is not known."""
        try:
            share = evaluate(f"({self.value}) / ({self.ceiling})", scope)
        except Undecided:
            return None
        if not is_number(share):
            raise OverlapError(f"`{self.value}` of `{self.ceiling}` is no number")
        return share

    def shares(self, scopes: list[dict]) -> list[float]:
        """The shares in those runs where they are known."""
        shares = [self.share(scope) for scope in scopes]
        return [share for share in shares if share is not None]


@dataclass(frozen=True)
class Claim(Block):
    """```` ```claim chapter/snippet ````: an expression, perhaps `for` a condition; then the sentence.

    Between them may stand `name: …`, by which `{claim: …}` in the prose sets its mark, and lines such as
    `limit: VALUE of CEILING`.
    """

    snippet: str
    expression: str
    condition: str
    limits: tuple[Limit, ...]
    text: str
    name: str = ""

    kind: ClassVar[str] = "claim"
    columns: ClassVar[tuple[str, ...]] = ("claim",)
    cards: ClassVar[bool] = False
    template: ClassVar[str] = read_template("claim")
    #: What stands in a sentence; it opens the evidence, without a script, too.
    mark_template: ClassVar[str] = read_template("claim_mark")
    cell_template: ClassVar[str] = read_template("claim_cell")
    counts_template: ClassVar[str] = read_template("claim_counts")

    @classmethod
    def read(cls, source: Source) -> "Claim":
        """Read expression, options and sentence."""
        claim = f"claim {source.snippet}"
        rows = source.rows()
        if len(rows) < 2:
            reason = f"{claim} needs an expression on its first line and a sentence"
            raise source.refuse(reason, "write the one, then the other")
        expression, condition = _conditioned(rows[0])
        limits = []
        text = []
        name = ""
        for row in rows[1:]:
            if row.startswith("name:"):
                if name:
                    raise source.refuse(f"{claim}: `{row}` is a second name", "keep one")
                name = row.removeprefix("name:").strip()
                if not _NAME.fullmatch(name):
                    raise source.refuse(f"{claim}: `{row}` is no name", "write it like no-gain-from-python")
            elif limit := _LIMIT.fullmatch(row):
                limits.append(Limit(*limit.groups()))
            elif _MISSPELT.match(row):
                reason = f"{claim}: `{row}` is no option of a claim"
                raise source.refuse(reason, "write `limit: VALUE of CEILING`")
            else:
                text.append(row)
        if not text:
            raise source.refuse(f"{claim} has no sentence", "say what the data must support")
        sentence = " ".join(text)
        place = (source.page, source.line)
        return cls(*place, source.snippet, expression, condition, tuple(limits), sentence, name)

    @property
    def anchor(self) -> str:
        """HTML id: it stays where the claim is moved or mended; with a name also where its words change."""
        if self.name:
            return f"claim-{self.name}"
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:6]
        return f"claim-{self.snippet.replace('/', '-')}-{digest}"

    @property
    def conditioned(self) -> str:
        """Its expression with the machines it speaks of."""
        return f"{self.expression} for {self.condition}" if self.condition else self.expression

    def applies(self, run) -> bool:
        """Whether it speaks of the machine of a run."""
        if not self.condition:
            return True
        return bool(evaluate(self.condition, machine_scope(run.profile, run.data["machine"])))

    def verdict(self, scopes: list[dict], run) -> Verdict | None:
        """Decide it on one machine by what its runs say; None where it does not speak of the machine."""
        try:
            return self._verdict(scopes, run) if self.applies(run) else None
        except Undecided as error:
            return Verdict(run.profile, State.OPEN, str(error), run.live, run.path)

    def _verdict(self, scopes: list[dict], run) -> Verdict:
        able = []
        true = 0
        for scope in scopes:
            try:
                true += self._holds(scope)
                able.append(scope)
            except Undecided as error:
                undecided = error
        if not able:
            raise undecided
        beaten = [limit for limit in self.limits if self._is_beaten(limit, able)]
        figures = self._figures(able, beaten)
        if 0 < true < len(able):
            figures += f" · true in {true} of {len(able)} runs"
        state = State.FALSE
        apart = ""
        if 2 * true > len(able) and not beaten:
            state = State.HOLDS
            apart = distance(compared(self.expression, able))
        return Verdict(run.profile, state, figures, run.live, run.path, true, len(able), apart)

    def _holds(self, scope: dict) -> bool:
        """Whether it is true in one run: its expression is, and nothing beats a ceiling of the machine."""
        if not evaluate(self.expression, scope):
            return False
        shares = [limit.share(scope) for limit in self.limits if limit.is_physical]
        return all(share is None or share <= 1 for share in shares)

    def _is_beaten(self, limit: Limit, scopes: list[dict]) -> bool:
        """Whether a value is above its limit; where that was measured, too, by more than three spreads."""
        shares = limit.shares(scopes)
        if not shares or middle(shares) <= 1:
            return False
        return limit.is_physical or len(shares) == 1 or margin.beaten(shares)

    def _figures(self, scopes: list[dict], beaten: list[Limit]) -> str:
        figures = [sides(self.expression, scopes)]
        for limit in self.limits:
            value = show(middle(evaluated(limit.value, scopes)))
            shares = limit.shares(scopes)
            if not shares:
                figures.append(f"{value} of a ceiling that is not known")
                continue
            ceiling = show(middle(evaluated(limit.ceiling, scopes)))
            sign = " — beats its ceiling" if limit in beaten else ""
            figures.append(f"{value} of {ceiling}: {middle(shares):.0%}{sign}")
        return " · ".join(figures)

    def falsehood(self, verdict: Verdict) -> str:
        """What to say when it is false: where it stands, what it says, the figures, the recording."""
        what = f"claim is false: {self.text} `{self.expression}`: {verdict.figures}, in {verdict.path}"
        return f"{self.where}: {what}; claim what the data say, or record again"

    def check(self, book, margins: bool) -> Iterator[str]:
        """Said twice; false, open or thin on a machine of the book's own; what others say is a finding."""
        yield from self._check_page(book.pages[self.page])
        if margins:
            for limit in self._unknown(book):
                yield f"{self.where}: no machine knows the limit `{limit.ceiling}`; mend it, or take it away"
        for verdict in book.verdicts(self):
            if not book.at_home(verdict.profile):
                continue
            where = f"in {verdict.path}"
            if verdict.state is State.FALSE:
                yield self.falsehood(verdict)
            elif verdict.state is State.OPEN:
                reason = f"claim cannot be decided {where}: {verdict.figures}"
                yield f"{self.where}: {reason}; mend it, or add `for` a condition"
            elif margins:
                if verdict.true < verdict.runs:
                    reason = f"claim is not true in all runs: `{self.expression}`: {verdict.figures}, {where}"
                    yield f"{self.where}: {reason}; claim less, or measure longer"
                yield from self._thin(book, book.runs(self.snippet)[verdict.profile])

    def _check_page(self, page) -> Iterator[str]:
        for twin in page.blocks:
            if isinstance(twin, Claim) and twin.line < self.line and twin.anchor == self.anchor:
                same = f"is named {self.name}, too" if self.name else "says the same"
                yield f"{self.where}: the claim of line {twin.line} {same}; change one, so that links differ"
        marks = [name for block in page.blocks if block.prose for _, name in cited(block.prose.text)]
        if self.name and marks.count(self.name) > 1:
            reason = f"the mark {{claim: {self.name}}} stands on the page more than once"
            yield f"{self.where}: {reason}; leave one"

    def _unknown(self, book) -> Iterator[Limit]:
        """Limits that no machine knows on which the claim is decided: they guard nothing."""
        if self.limits:
            runs = book.runs(self.snippet)
            decided = [verdict for verdict in book.verdicts(self) if verdict.state is not State.OPEN]
            scopes = [
                scope for verdict in decided for scope in book.scopes(self.snippet, runs[verdict.profile])
            ]
            yield from (limit for limit in self.limits if not limit.shares(scopes))

    def _thin(self, book, run) -> Iterator[str]:
        """Comparisons that would turn if what they compare moved by three of its spreads over the runs."""
        for item in close(compared(self.expression, book.scopes(self.snippet, run))):
            what = f"`{item.source} {item.sign} {item.against}` over its runs"
            reason = f"claim holds by less than {margin.SPREADS} times the spread of {what}"
            yield f"{self.where}: {reason}, in {run.path}; measure longer or claim less"

    def html(self, view) -> str:
        """Its evidence, which the mark opens; the sentence, too, where the prose does not set the mark."""
        verdicts = view.book.verdicts(self)
        view.anchors.add(self.anchor)
        view.claims.append(verdicts)
        return view.render(
            self.template,
            claim=self,
            verdicts=verdicts,
            tally=Tally.of(verdicts),
            sentence=view.inline(self.text),
            mark=self.marked(view),
            alone=self.name not in view.cited,
        )

    def marked(self, view) -> str:
        """What stands in the sentence: whether it holds, and on how many machines."""
        tally = Tally.of(view.book.verdicts(self))
        return view.render(self.mark_template, claim=self, tally=tally).strip()

    def cells(self, notebook) -> list[dict]:
        """The same, as a quotation."""
        rows = [f"> **Claim.** {self.text}", ">", f"> `{self.expression}`"]
        for verdict in notebook.book.verdicts(self):
            text = f"{notebook.label(verdict.profile)}: {verdict.state.word}: {verdict.figures}"
            rows.append(f"> - {notebook.text(text)}")
        return [notebook.markdown("\n".join(rows))]

    def row(self, view) -> list[str]:
        """The sentence with a link to its place and the expression; on each machine the verdict."""
        verdicts = {verdict.profile: verdict for verdict in view.book.verdicts(self)}
        sentence = view.render(
            '<a href="{{ href }}">{{ text }}</a> <code>{{ claim.conditioned }}</code>',
            href=view.page(self.page, self.anchor),
            text=view.inline(self.text),
            claim=self,
        )
        profiles = _profiles(view.book)
        cells = [view.render(self.cell_template, verdict=verdicts.get(profile)) for profile in profiles]
        return [sentence, *cells]

    @classmethod
    def headings(cls, view) -> list[str]:
        """The sentence; every machine that something ran on, and whether it is one of the book's own."""
        template = "{{ label(p) }}{% if not home %}<small>not one of the book’s own</small>{% endif %}"
        machines = [view.render(template, p=p, home=view.book.at_home(p)) for p in _profiles(view.book)]
        return [*cls.columns, *machines]

    @classmethod
    def overview(cls, view, sections: dict[str, list[Block]]) -> str:
        """How many hold, are false and are open on each machine, by chapter and in the whole book."""
        rows = {}
        everything = []
        for name, claims in sections.items():
            verdicts = [view.book.verdicts(claim) for claim in claims]
            rows[titled(name)] = Counts.of(verdicts).by
            everything += verdicts
        rows["The whole book"] = Counts.of(everything).by
        return view.render(
            cls.counts_template,
            headings=cls.headings(view)[1:],
            profiles=_profiles(view.book),
            rows=rows,
            states=list(State),
        )


def _profiles(book) -> list[str]:
    return [machine["profile"] for machine in book.machines()]


def _conditioned(row: str) -> tuple[str, str]:
    """Expression and condition of `EXPRESSION for CONDITION`.

    The `for` of a comprehension stands in brackets, that of a text in quotes.
    """
    for match in re.finditer(r"\s+for\s+", row):
        before = re.sub(r"'[^']*'|\"[^\"]*\"", "", row[: match.start()])
        opened = sum(before.count(mark) for mark in "([{")
        closed = sum(before.count(mark) for mark in ")]}")
        if opened <= closed and "'" not in before and '"' not in before:
            return row[: match.start()].strip(), row[match.end() :].strip()
    return row.strip(), ""
