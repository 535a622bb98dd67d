"""What the data of one machine say of a claim. The words for it stand here and nowhere else."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Protocol

from overlap import OverlapError
from overlap.book.recording import Recording
from overlap.run.text import plural


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


#: The marks by the words.
MARKS = dict(state.value for state in State)
#: Of several verdicts the first of these that is among them is that of all: false on one machine is false,
#: open on all is open.
DECISIVE = (State.FALSE, State.HOLDS, State.OPEN)


@dataclass(frozen=True)
class Verdict:
    """A state on one machine, with the recording that decides it.

    `tell` gives its figures; most pages show the state alone. It is `true` in so many of its `runs`.
    `busy` is what other work did to the host in such a run. `torch` names the torch of the runs and the
    recorded one, where the claim is false and they differ.
    """

    recording: Recording
    state: State
    tell: Callable[[], str]
    true: int = 1
    runs: int = 1
    busy: str = ""
    torch: str = ""

    @classmethod
    def undecided(cls, recording: Recording, why: str) -> "Verdict":
        """That of data which do not decide a claim."""
        return cls(recording, State.OPEN, lambda: why)

    @property
    def machine(self) -> str:
        """Name of the machine."""
        return self.recording.machine

    @cached_property
    def figures(self) -> str:
        """What it compares; of a part that the state did not need and nothing is known of, why."""
        try:
            return self.tell()
        except OverlapError as error:
            return str(error)

    @property
    def advice(self) -> str:
        """Another torch, and what to do about a run that a busy host made; nothing where neither is known."""
        parts = [self.torch] if self.torch else []
        if self.busy:
            which = "this machine" if self.recording.is_local else "the host"
            parts.append(f"{which} was busy ({self.busy}): repeat it when calm")
        return "; ".join(parts)

    @property
    def reason(self) -> str:
        """The figures, and what to do about them if something can be done."""
        return "; ".join(filter(None, [self.figures, self.advice]))


class Decidable(Protocol):
    """What the book needs of a claim: its snippet, its place, and what it says of the runs of a machine.

    `verdict` gets what expressions see in each run; it is None where the claim does not speak of the machine.
    """

    @property
    def snippet(self) -> str: ...

    @property
    def where(self) -> str: ...

    def verdict(self, scopes: list[dict], recording: Recording) -> Verdict | None: ...


@dataclass(frozen=True)
class Tally:
    """On which machines a claim holds, is false, is open."""

    holds: list[str]
    false: list[str]
    open: list[str]

    @classmethod
    def of(cls, verdicts: list[Verdict]) -> "Tally":
        """Count verdicts."""
        return cls(*([verdict.machine for verdict in verdicts if verdict.state is state] for state in State))

    @property
    def state(self) -> State:
        """What they say together."""
        by_state = dict(zip(State, (self.holds, self.false, self.open), strict=True))
        return next((state for state in DECISIVE if by_state[state]), State.OPEN)

    @property
    def short(self) -> str:
        """`5/6`: on how many of the machines that decide it."""
        return f"{len(self.holds)}/{len(self.holds) + len(self.false)}"

    def summary(self, label: Callable[[str], str]) -> str:
        """`holds on 5 of 6 machines; not on 1 × H100; open on 1 × A100`."""
        decided = len(self.holds) + len(self.false)
        text = f"holds on {len(self.holds)} of {plural(decided, 'machine')}"
        if self.false:
            text += f"; not on {', '.join(map(label, self.false))}"
        if self.open:
            text += f"; open on {', '.join(map(label, self.open))}"
        return text


@dataclass(frozen=True)
class Counts:
    """How many claims there are, hold on every machine that decides them, are false on one, are open on one.

    `by` has their states by machine.
    """

    claims: int
    holds: int
    false: int
    open: int
    by: dict[str, Counter]

    @classmethod
    def of(cls, claims: Iterable[list[Verdict]]) -> "Counts":
        """Count claims by the verdicts of each."""
        tallies = []
        by: dict[str, Counter] = {}
        for verdicts in claims:
            tallies.append(Tally.of(verdicts))
            for verdict in verdicts:
                by.setdefault(verdict.machine, Counter())[verdict.state] += 1
        states = Counter(tally.state for tally in tallies)
        some_open = sum(bool(tally.open) for tally in tallies)
        return cls(len(tallies), states[State.HOLDS], states[State.FALSE], some_open, by)

    @property
    def summary(self) -> str:
        """`28 of 29 claims hold on every machine that decides them; 1 is false on one or more`.

        Where nothing differs: `29 claims, checked on 6 machines, and true on each`.
        """
        if self.holds == self.claims and not self.open:
            machines = plural(len(self.by), "machine")
            return f"{plural(self.claims, 'claim')}, checked on {machines}, and true on each"
        them = "it" if self.claims == 1 else "them"
        claims = f"{self.holds} of {plural(self.claims, 'claim')}"
        text = f"{claims} {State.HOLDS.counted(self.holds)} on every machine that decides {them}"
        for count, state in ((self.false, State.FALSE), (self.open, State.OPEN)):
            if count:
                verb = "is" if count == 1 else "are"
                text += f"; {count} {verb} {state.word} on one or more"
        return text

    def on(self, machine: str) -> str:
        """`24 of 25 hold`, or `25 hold`, of the claims it decides; those that it leaves open behind."""
        states = self.by[machine]
        holds = states[State.HOLDS]
        if holds == states.total():
            return f"{holds} {State.HOLDS.counted(holds)}"
        text = f"{holds} of {holds + states[State.FALSE]} {State.HOLDS.counted(holds)}"
        if states[State.OPEN]:
            text += f", {states[State.OPEN]} open"
        return text
