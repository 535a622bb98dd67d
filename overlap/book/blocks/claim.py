"""A claim: a sentence, and the expression over one snippet's result that must be true for it to stand."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from overlap import OverlapError
from overlap.book import margin
from overlap.book.blocks.block import Block, Source
from overlap.book.expression import Undecided, evaluate, names, parse, show, sides, wrap
from overlap.book.verdict import State, Verdict

_OPTION = re.compile(r"([A-Za-z_]{2,12})\s*:(?!\S)")


@dataclass(frozen=True)
class Claim(Block):
    """```` ```claim chapter/snippet ````: an expression, perhaps `for` a condition on gpus; `limit: VALUE of CEILING`; the sentence."""

    snippet: str
    expression: str
    condition: str
    limits: tuple[tuple[str, str], ...]
    text: str

    kind: ClassVar[str] = "claim"
    columns: ClassVar[tuple[str, ...]] = ("claim", "expression", "verdict")
    template: ClassVar[str] = """
<div class="ov-claim ov-{{ worst.word }}">
<p class="ov-sentence" id="{{ claim.anchor }}">{{ sentence }}</p>
<ul>
{% for item in verdicts %}
<li class="ov-{{ item.state.word }}" data-machine="{{ item.profile }}"><span class="ov-mark" aria-hidden="true">{{ item.state.mark }}</span>
<b>{{ label(item.profile) }}</b> <span class="ov-state">{{ item.state.word }}{{ " · this build" if item.live }}</span>
<code>{{ item.figures }}</code></li>
{% endfor %}
</ul>
</div>"""

    @classmethod
    def read(cls, source: Source) -> "Claim":
        """Read expression, `limit:` lines and sentence."""
        rows, write = source.rows(), "write `limit: VALUE of CEILING`"
        if len(rows) < 2:
            remedy = "write the one, then the other"
            raise source.refuse(f"claim {source.snippet} needs an expression on its first line and a sentence", remedy)
        expression, _, condition = re.sub(r"\s+for\s+(?=gpus\b)", "\0", rows[0]).partition("\0")
        limits, text = [], []
        for row in rows[1:]:
            found = re.fullmatch(r"limit:\s*(.+?)\s+of\s+(.+)", row)
            option = _OPTION.match(row)
            near = option and difflib.get_close_matches(option[1].lower(), ("limit", "for", "claim"), cutoff=0.7)
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
        )
        for part in claim.expressions:
            try:
                parse(part)
            except OverlapError as error:
                raise source.refuse(f"claim {source.snippet}: {error}", "mend the expression") from None
        return claim

    @property
    def expressions(self) -> list[str]:
        """Everything it evaluates."""
        return [self.expression, self.condition or "True", *(part for limit in self.limits for part in limit)]

    @property
    def anchor(self) -> str:
        """HTML id."""
        return f"claim-{self.snippet.replace('/', '-')}-{self.line}"

    def applies(self, gpus: int) -> bool:
        """Whether it speaks of machines with this many GPUs."""
        return bool(evaluate(self.condition, {"gpus": gpus})) if self.condition else True

    def verdict(self, scope: dict, run) -> Verdict:
        """Decide it on one machine's data."""
        try:
            holds = bool(evaluate(self.expression, scope))
            figures = [sides(self.expression, scope)]
            for value, ceiling in self.limits:
                share = evaluate(f"({value}) / ({ceiling})", scope)
                if not isinstance(share, (int, float)):
                    raise OverlapError(f"`{value}` of `{ceiling}` is no number")
                holds = holds and share <= 1
                sign = "" if share <= 1 else " — beats its ceiling"
                figures.append(f"{show(evaluate(value, scope))} of {show(evaluate(ceiling, scope))}: {share:.0%}{sign}")
        except Undecided as error:
            return Verdict(run.profile, State.OPEN, str(error), run.live, run.path)
        except OverlapError as error:
            raise OverlapError(f"{self.where}: claim {self.snippet}: {error}, in {run.path}; mend the claim") from None
        return Verdict(run.profile, State.HOLDS if holds else State.FALSE, " · ".join(figures), run.live, run.path)

    def falsehood(self, verdict: Verdict) -> str:
        """What to say when it is false: where it stands, what it says, the figures, the recording."""
        return f"{self.where}: claim is false: {self.text} `{self.expression}`: {verdict.figures}, in {verdict.path}"

    def thin(self, book, run) -> Iterator[str]:
        """What may not move by three times its spread without making the claim false there."""
        seen, scope = set(), book.scope(self.snippet, run)
        for path, spread, result in margin.moved(run.result, names(self.expression)):
            if path in seen:
                continue
            top = path[0]
            if not evaluate(self.expression, scope | {top: wrap(result[top], f"{self.snippet}.{top}")}):
                seen.add(path)
                key = ".".join(map(str, path))
                yield (
                    f"{self.where}: claim holds by less than {margin.SPREADS} times the spread of `{key}` ({spread:.1%}): "
                    f"`{self.expression}`, in {run.path}; measure longer or claim less"
                )

    def snippets(self, book) -> set[str] | None:
        """Its snippet, and those that its expressions name."""
        return {self.snippet}.union(*map(book.reads, self.expressions))

    def check(self, book, margins: bool) -> Iterator[str]:
        """False, open or thin on a machine."""
        for verdict in book.verdicts(self):
            if verdict.state is State.FALSE:
                yield self.falsehood(verdict)
            elif verdict.state is State.OPEN:
                yield f"{self.where}: claim cannot be decided in {verdict.path}: {verdict.figures}"
            elif margins:
                yield from self.thin(book, book.runs(self.snippet)[verdict.profile])

    def html(self, view) -> str:
        """The sentence, and its verdict and figures per machine."""
        verdicts = view.book.verdicts(self)
        worst = State.FALSE if any(verdict.state is State.FALSE for verdict in verdicts) else State.HOLDS
        view.anchors.add(self.anchor)
        sentence = view.inline(self.text)
        return view.render(self.template, claim=self, verdicts=verdicts, worst=worst, sentence=sentence)

    def cells(self, notebook) -> list[dict]:
        """The same, as a quotation."""
        rows = [f"> **Claim.** {self.text}", ">", f"> `{self.expression}`"]
        for verdict in notebook.book.verdicts(self):
            said = f"{notebook.label(verdict.profile)}: {verdict.state.word}: {verdict.figures}"
            rows.append(f"> - {notebook.text(said)}")
        return [notebook.markdown("\n".join(rows))]

    def row(self, view) -> list[str]:
        """The sentence with a link to its place, the expression, the verdicts."""
        expression = self.expression + (f" for {self.condition}" if self.condition else "")
        return [
            view.render(
                '<a href="{{ href }}">{{ text }}</a>',
                href=view.page(self.page, self.anchor),
                text=view.inline(self.text),
            ),
            view.render('<span class="ov-wide"><code>{{ text }}</code></span>', text=expression),
            view.render(
                '{% for v in verdicts %}<span class="ov-together">{{ label(v.profile) }} {{ v.state.mark }} {{ v.state.word }}</span>'
                "{{ '<br>'|safe if not loop.last }}{% endfor %}",
                verdicts=view.book.verdicts(self),
            ),
        ]
