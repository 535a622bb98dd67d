"""A claim: a sentence, and the expression over one snippet's result that must be true for it to stand."""

import ast
import contextlib
import difflib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from overlap import OverlapError
from overlap.book import margin
from overlap.book.blocks.block import Block, Source
from overlap.book.blocks.index import titled
from overlap.book.comparison import close, compared, distance, evaluated, sides
from overlap.book.expression import FUNCTIONS, Undecided, evaluate, names, parse, wrap
from overlap.book.statistic import is_number, middle, show
from overlap.book.value import cited
from overlap.book.verdict import Counts, State, Tally, Verdict

#: What a condition knows of a machine.
KNOWN = {"profile", "model", "gpus", "capability", "cores", "ceiling"}
_OPTION = re.compile(r"([A-Za-z_]{2,12})\s*:(?!\S)")


@dataclass(frozen=True)
class Claim(Block):
    """```` ```claim chapter/snippet ````: an expression, perhaps `for` a condition on the machine; `name: …`, by which `{claim: …}` in the prose
    sets its mark; `limit: VALUE of CEILING`; the sentence.
    """

    snippet: str
    expression: str
    condition: str
    limits: tuple[tuple[str, str], ...]
    text: str
    name: str = ""

    kind: ClassVar[str] = "claim"
    columns: ClassVar[tuple[str, ...]] = ("claim",)
    cards: ClassVar[bool] = False
    #: What stands in a sentence; it opens the evidence, without a script, too.
    mark: ClassVar[str] = """
<button type="button" class="ov-mark ov-{{ tally.state.word }}" id="{{ claim.anchor }}" popovertarget="{{ claim.anchor }}-evidence"
 title="{{ tally.said(label) }}" aria-label="{{ tally.said(label) }}: the evidence">{{ tally.state.mark }}&nbsp;{{ tally.short }}</button>"""
    template: ClassVar[str] = """
{% if alone %}<p>{{ sentence }}&nbsp;{{ mark }}</p>{% endif %}
<div popover class="ov-evidence ov-{{ tally.state.word }}" id="{{ claim.anchor }}-evidence" role="dialog" aria-label="Evidence">
<p>{{ sentence }} <a class="headerlink" href="#{{ claim.anchor }}" title="Link to this claim">¶</a></p>
<p class="ov-tally">{{ tally.said(label) }}</p>
<p><code>{{ claim.conditioned }}</code></p>
<ul>
{% for item in verdicts %}
<li class="ov-{{ item.state.word }}" data-machine="{{ item.profile }}"><span class="ov-sign" aria-hidden="true">{{ item.state.mark }}</span>
<b>{{ label(item.profile) }}</b> <span class="ov-state">{{ item.state.word }}{{ " · this build" if item.live }}</span>
<code>{{ item.figures }}</code>{% if item.margin %} <span class="ov-state">margin {{ item.margin }}</span>{% endif %}</li>
{% endfor %}
</ul>
<button type="button" class="ov-close" popovertarget="{{ claim.anchor }}-evidence" popovertargetaction="hide">Close</button>
</div>"""
    cell: ClassVar[str] = """
{%- if verdict %}<span class="ov-cell ov-{{ verdict.state.word }}" data-machine="{{ verdict.profile }}" data-note="{{ label(verdict.profile) }}: {{ verdict.figures }}" tabindex="-1">
<span class="ov-sign" aria-hidden="true">{{ verdict.state.mark }}</span><span class="ov-unseen">{{ verdict.state.word }}</span></span>{% endif %}"""
    table: ClassVar[str] = """
<div class="ov-index ov-claims ov-counts" tabindex="0" role="group" aria-label="How many claims hold"><table class="ov-matrix">
<thead><tr><th scope="col">chapter</th>{% for heading in headings %}<th scope="col">{{ heading }}</th>{% endfor %}</tr></thead>
<tbody>
{% for title, counts in rows.items() %}
<tr><th scope="row">{{ title }}</th>{% for profile in profiles %}<td>
{% for state in states if profile in counts and counts[profile][state] %}
<span class="ov-cell ov-{{ state.word }}">{{ counts[profile][state] }} {{ state.counted(counts[profile][state]) }}</span>
{% endfor %}
</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>"""

    @classmethod
    def read(cls, source: Source) -> "Claim":
        """Read expression, `limit:` lines and sentence."""
        rows, write = source.rows(), "write `limit: VALUE of CEILING`"
        if len(rows) < 2:
            remedy = "write the one, then the other"
            raise source.refuse(
                f"claim {source.snippet} needs an expression on its first line and a sentence", remedy
            )
        expression, condition = _conditioned(rows[0])
        limits, text, name = [], [], ""
        for row in rows[1:]:
            if row.startswith("name:"):
                if name:
                    raise source.refuse(f"claim {source.snippet}: `{row}` is a second name", "keep one")
                name = row.removeprefix("name:").strip()
                if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
                    raise source.refuse(
                        f"claim {source.snippet}: `{row}` is no name", "write it like no-gain-from-python"
                    )
                continue
            found = re.fullmatch(r"limit:\s*(.+?)\s+of\s+(.+)", row)
            option = _OPTION.match(row)
            near = option and difflib.get_close_matches(
                option[1].lower(), ("limit", "for", "claim", "name"), cutoff=0.7
            )
            if not found and (near or row.startswith("limit:")):
                raise source.refuse(f"claim {source.snippet}: `{row}` is no option of a claim", write)
            limits.append(found.groups()) if found else text.append(row)
        if not text:
            raise source.refuse(f"claim {source.snippet} has no sentence", "say what the data must support")
        claim = cls(
            source.page,
            source.line,
            source.snippet,
            expression.strip(),
            condition.strip(),
            tuple(limits),
            " ".join(text),
            name,
        )
        for part in claim.expressions:
            try:
                parse(part)
            except OverlapError as error:
                raise source.refuse(f"claim {source.snippet}: {error}", "mend the expression") from None
        if unknown := _words(claim.condition) - KNOWN - FUNCTIONS.keys():
            why = f"claim {source.snippet}: `for {claim.condition}` names {', '.join(sorted(unknown))}"
            raise source.refuse(why, f"a condition knows {', '.join(sorted(KNOWN))}")
        return claim

    @property
    def expressions(self) -> list[str]:
        """Everything it evaluates."""
        return [self.expression, self.condition or "True", *(part for limit in self.limits for part in limit)]

    @property
    def anchor(self) -> str:
        """HTML id: it stays where the claim is moved, or its expression mended; with a name also where its words change."""
        if self.name:
            return f"claim-{self.name}"
        return f"claim-{self.snippet.replace('/', '-')}-{hashlib.sha256(self.text.encode()).hexdigest()[:6]}"

    @property
    def conditioned(self) -> str:
        """Its expression with the machines it speaks of."""
        return self.expression + (f" for {self.condition}" if self.condition else "")

    def applies(self, run) -> bool:
        """Whether it speaks of the machine of a run."""
        return not self.condition or bool(evaluate(self.condition, run.known))

    def holds(self, scope: dict) -> bool:
        """Whether it is true in one run: its expression is, and nothing beats a ceiling of the machine."""
        shares = (self._share(limit, scope) for limit in self.limits if _is_physical(limit))
        return bool(evaluate(self.expression, scope)) and all(share is None or share <= 1 for share in shares)

    def _beats(self, limit: tuple[str, str], scopes: list[dict], run) -> bool:
        """Whether a value is above its limit. Where the limit was measured, too, three spreads, over runs or of one number, may explain it."""
        shares = [share for share in (self._share(limit, scope) for scope in scopes) if share is not None]
        if not shares or middle(shares) <= 1:
            return False
        if _is_physical(limit):
            return True
        if len(shares) > 1 and not margin.beaten(shares):
            return False
        for path, _, result in margin.moved(run.result, names(" ".join(limit))):
            scope = scopes[0] | {path[0]: wrap(result[path[0]], f"{self.snippet}.{path[0]}")}
            if (share := self._share(limit, scope)) is not None and share <= 1:
                return False
        return True

    def _share(self, limit: tuple[str, str], scope: dict) -> float | None:
        """How much of a ceiling a value reaches; None where the ceiling is not known."""
        value, ceiling = limit
        with contextlib.suppress(Undecided):
            share = evaluate(f"({value}) / ({ceiling})", scope)
            if not is_number(share):
                raise OverlapError(f"`{value}` of `{ceiling}` is no number")
            return share
        return None

    def _unknown(self, book) -> list[tuple[str, str]]:
        """Limits that no machine knows on which the claim is decided: they guard nothing."""
        decided = {verdict.profile for verdict in book.verdicts(self) if verdict.state is not State.OPEN}
        runs = [run for profile, run in book.runs(self.snippet).items() if profile in decided and self.limits]
        scopes = [scope for run in runs for scope in book.scopes(self.snippet, run)]
        return [limit for limit in self.limits if all(self._share(limit, scope) is None for scope in scopes)]

    def verdict(self, scopes: list[dict], run) -> Verdict | None:
        """Decide it on one machine by what each of its runs says; None where it does not speak of the machine."""
        decided, why = [], ""
        try:
            if not self.applies(run):
                return None
            for scope in scopes:
                try:
                    decided.append((scope, self.holds(scope)))
                except Undecided as error:
                    why = str(error)
            if not decided:
                return Verdict(run.profile, State.OPEN, why, run.live, run.path)
            able = [scope for scope, _ in decided]
            beaten = [limit for limit in self.limits if self._beats(limit, able, run)]
            figures = self._figures(able, beaten)
        except Undecided as error:
            return Verdict(run.profile, State.OPEN, str(error), run.live, run.path)
        except OverlapError as error:
            raise OverlapError(
                f"{self.where}: claim {self.snippet}: {error}, in {run.path}; mend the claim"
            ) from None
        true, count = sum(holds for _, holds in decided), len(decided)
        if 0 < true < count:
            figures += f" · true in {true} of {count} runs"
        state = State.HOLDS if 2 * true > count and not beaten else State.FALSE
        apart = distance(compared(self.expression, able)) if state is State.HOLDS else ""
        return Verdict(run.profile, state, figures, run.live, run.path, true, count, apart)

    def _figures(self, scopes: list[dict], beaten: list[tuple[str, str]]) -> str:
        figures = [sides(self.expression, scopes)]
        for limit in self.limits:
            value = show(middle(evaluated(limit[0], scopes)))
            shares = [share for share in (self._share(limit, scope) for scope in scopes) if share is not None]
            if not shares:
                figures.append(f"{value} of a ceiling that is not known")
                continue
            ceiling = show(middle(evaluated(limit[1], scopes)))
            sign = " — beats its ceiling" if limit in beaten else ""
            figures.append(f"{value} of {ceiling}: {middle(shares):.0%}{sign}")
        return " · ".join(figures)

    def falsehood(self, verdict: Verdict) -> str:
        """What to say when it is false: where it stands, what it says, the figures, the recording."""
        said = f"{self.where}: claim is false: {self.text} `{self.expression}`: {verdict.figures}, in {verdict.path}"
        return f"{said}; claim what the data say, or record again"

    def thin(self, book, run) -> Iterator[str]:
        """What may not move by three times its spread without making the claim false there."""
        scopes, remedy = book.scopes(self.snippet, run), f"in {run.path}; measure longer or claim less"
        if len(scopes) > 1:
            for item, spread in close(compared(self.expression, scopes)):
                what = f"`{item.source} {item.sign} {item.against}` over its runs ({spread:.1%})"
                yield f"{self.where}: claim holds by less than {margin.SPREADS} times the spread of {what}, {remedy}"
            return
        seen = set()
        for path, spread, result in margin.moved(run.result, names(self.expression)):
            if path in seen:
                continue
            top = path[0]
            if not evaluate(self.expression, scopes[0] | {top: wrap(result[top], f"{self.snippet}.{top}")}):
                seen.add(path)
                what = f"`{'.'.join(map(str, path))}` over its trials ({spread:.1%})"
                yield (
                    f"{self.where}: claim holds by less than {margin.SPREADS} times the spread of {what}: `{self.expression}`, {remedy}"
                )

    def snippets(self, book) -> set[str] | None:
        """Its snippet, and those that its expressions name."""
        return {self.snippet}.union(*map(book.reads, self.expressions))

    def check(self, book, margins: bool) -> Iterator[str]:
        """Said twice; false, open or thin on a machine of the book's own; what other machines say is a finding."""
        page = book.pages[self.page]
        for twin in (block for block in page.blocks if isinstance(block, Claim) and block.line < self.line):
            if twin.anchor == self.anchor and self.name:
                yield f"{self.where}: line {twin.line} has a claim named {self.name}, too; change one, so that a link leads to one of them"
            elif twin.anchor == self.anchor:
                remedy = "join both or change a word, so that a link leads to one of them"
                yield f"{self.where}: line {twin.line} claims the same sentence of {self.snippet}; {remedy}"
        marks = (name for block in page.blocks if block.prose for _, name in cited(block.prose.text))
        if self.name and sum(name == self.name for name in marks) > 1:
            yield f"{self.where}: the mark {{claim: {self.name}}} stands on the page more than once; leave one"
        for _, ceiling in self._unknown(book) if margins else ():
            yield f"{self.where}: no machine knows the limit `{ceiling}`; mend it, or take it away"
        for verdict in book.verdicts(self):
            if not book.at_home(verdict.profile):
                continue
            if verdict.state is State.FALSE:
                yield self.falsehood(verdict)
            elif verdict.state is State.OPEN:
                yield f"{self.where}: claim cannot be decided in {verdict.path}: {verdict.figures}; mend it, or add `for` a condition"
            elif margins:
                if verdict.true < verdict.runs:
                    yield f"{self.where}: claim is not true in all runs: `{self.expression}`: {verdict.figures}, in {verdict.path}; claim less, or measure longer"
                yield from self.thin(book, book.runs(self.snippet)[verdict.profile])

    def html(self, view) -> str:
        """Its evidence, which the mark opens; the sentence, too, where the prose does not set the mark."""
        verdicts = view.book.verdicts(self)
        view.anchors.add(self.anchor)
        view.claims.append(verdicts)
        names = {
            "claim": self,
            "verdicts": verdicts,
            "tally": Tally.of(verdicts),
            "sentence": view.inline(self.text),
        }
        return view.render(self.template, mark=self.marked(view), alone=self.name not in view.cited, **names)

    def marked(self, view) -> str:
        """What stands in the sentence: whether it holds, and on how many machines."""
        return view.render(self.mark, claim=self, tally=Tally.of(view.book.verdicts(self))).strip()

    def cells(self, notebook) -> list[dict]:
        """The same, as a quotation."""
        rows = [f"> **Claim.** {self.text}", ">", f"> `{self.expression}`"]
        for verdict in notebook.book.verdicts(self):
            said = f"{notebook.label(verdict.profile)}: {verdict.state.word}: {verdict.figures}"
            rows.append(f"> - {notebook.text(said)}")
        return [notebook.markdown("\n".join(rows))]

    def row(self, view) -> list[str]:
        """The sentence with a link to its place and the expression; on each machine the verdict, or nothing."""
        verdicts = {verdict.profile: verdict for verdict in view.book.verdicts(self)}
        sentence = view.render(
            '<a href="{{ href }}">{{ text }}</a> <code>{{ claim.conditioned }}</code>',
            href=view.page(self.page, self.anchor),
            text=view.inline(self.text),
            claim=self,
        )
        cells = (view.render(self.cell, verdict=verdicts.get(profile)) for profile in _profiles(view.book))
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
        chapters = {
            titled(name): [view.book.verdicts(claim) for claim in claims] for name, claims in sections.items()
        }
        rows = {title: Counts.of(verdicts).by for title, verdicts in chapters.items()}
        rows["The whole book"] = Counts.of(verdicts for each in chapters.values() for verdicts in each).by
        headings, profiles = cls.headings(view)[1:], _profiles(view.book)
        return view.render(cls.table, headings=headings, profiles=profiles, rows=rows, states=list(State))


def _profiles(book) -> list[str]:
    return [machine["profile"] for machine in book.machines()]


def _conditioned(row: str) -> tuple[str, str]:
    """Expression and condition of `EXPRESSION for CONDITION`; the `for` of a comprehension stands in brackets, that of a text in quotes."""
    for found in re.finditer(r"\s+for\s+", row):
        before = re.sub(r"'[^']*'|\"[^\"]*\"", "", row[: found.start()])
        inside = sum(before.count(mark) for mark in "([{") > sum(before.count(mark) for mark in ")]}")
        if not inside and "'" not in before and '"' not in before:
            return row[: found.start()].strip(), row[found.end() :].strip()
    return row.strip(), ""


def _is_physical(limit: tuple[str, str]) -> bool:
    """Whether it is what the machine can do at best, and not made of measured numbers."""
    return "ceiling" in names(limit[1])


def _words(condition: str) -> set[str]:
    """Names that a condition reads."""
    tree = ast.walk(parse(condition)) if condition else ()
    return {node.id for node in tree if isinstance(node, ast.Name)}
