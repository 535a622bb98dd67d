"""What the data of one machine say of a claim. The words for it stand here and nowhere else."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """A verdict: its word and its mark."""

    HOLDS = ("holds", "✓")
    FALSE = ("false", "✗")
    OPEN = ("open", "–")

    @property
    def word(self) -> str:
        """How it is called in text, and what its CSS class ends in."""
        return self.value[0]

    @property
    def mark(self) -> str:
        """How it is drawn."""
        return self.value[1]

    def counted(self, count: int) -> str:
        """Its word behind a number: `1 holds`, `2 hold`."""
        return "hold" if self is State.HOLDS and count != 1 else self.word


@dataclass(frozen=True)
class Verdict:
    """A state on one machine, with the figures that decide it, the recording they come from, in how many of its runs it is true, and how far what
    comes nearest to its bound is from it: `15%`.
    """

    profile: str
    state: State
    figures: str
    live: bool = False
    path: str = ""
    true: int = 1
    runs: int = 1
    margin: str = ""


@dataclass(frozen=True)
class Tally:
    """On how many machines a claim holds, of those that decide it."""

    holds: tuple[str, ...]
    false: tuple[str, ...]
    open: tuple[str, ...]

    @classmethod
    def of(cls, verdicts: list[Verdict]) -> "Tally":
        """Count verdicts."""
        return cls(*(tuple(v.profile for v in verdicts if v.state is state) for state in State))

    @property
    def state(self) -> State:
        """False on one machine is false; open on all is open."""
        return State.FALSE if self.false else State.HOLDS if self.holds else State.OPEN

    @property
    def short(self) -> str:
        """`5/6`: on how many of the machines that decide it; `open` where none does."""
        decided = len(self.holds) + len(self.false)
        return f"{len(self.holds)}/{decided}" if decided else State.OPEN.word

    def said(self, label: Callable[[str], str]) -> str:
        """`holds on 5 of 6 machines; not on 1 × H100; open on 1 × A100`."""
        decided = len(self.holds) + len(self.false)
        if not decided:
            return "not decided by any machine"
        where = f"{decided} machine{'s' * (decided > 1)}"
        text = f"holds on {len(self.holds)} of {where}"
        for word, profiles in (("not", self.false), (State.OPEN.word, self.open)):
            text += f"; {word} on {', '.join(map(label, profiles))}" if profiles else ""
        return text


@dataclass(frozen=True)
class Counts:
    """How many claims there are; how many hold on every machine that decides them, are false on one, are open on one; their states by machine."""

    claims: int
    holds: int
    false: int
    open: int
    by: dict[str, Counter]

    @classmethod
    def of(cls, claims: Iterable[list[Verdict]]) -> "Counts":
        """Count claims by the verdicts of each."""
        tallies, by = [], {}
        for verdicts in claims:
            tallies.append(Tally.of(verdicts))
            for verdict in verdicts:
                by.setdefault(verdict.profile, Counter())[verdict.state] += 1
        states = Counter(tally.state for tally in tallies)
        some_open = sum(bool(tally.open) for tally in tallies)
        return cls(len(tallies), states[State.HOLDS], states[State.FALSE], some_open, by)

    def said(self) -> str:
        """`28 of 29 claims hold on every machine that decides them; 1 is false on one or more; 2 are open on one or more`."""
        one = self.claims == 1
        parts = [
            f"{self.holds} of {self.claims} claim{'' if one else 's'} {State.HOLDS.counted(self.holds)}"
            f" on every machine that decides {'it' if one else 'them'}"
        ]
        for count, state in ((self.false, State.FALSE), (self.open, State.OPEN)):
            if count:
                parts.append(f"{count} {'is' if count == 1 else 'are'} {state.word} on one or more")
        return "; ".join(parts)

    def on(self, profile: str) -> str:
        """`24 of 25 hold` of the claims that this machine decides; those it leaves open behind."""
        here = self.by[profile]
        decided = here[State.HOLDS] + here[State.FALSE]
        left = f", {here[State.OPEN]} open" if here[State.OPEN] else ""
        return f"{here[State.HOLDS]} of {decided} {State.HOLDS.counted(here[State.HOLDS])}{left}"
