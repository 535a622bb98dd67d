"""What the data of one machine say of a claim. The words for it stand here and nowhere else."""

from collections.abc import Callable
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


@dataclass(frozen=True)
class Verdict:
    """A state on one machine, with the figures that decide it, the recording they come from, and in how many of its runs it is true."""

    profile: str
    state: State
    figures: str
    live: bool = False
    path: str = ""
    true: int = 1
    runs: int = 1


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

    def said(self, label: Callable[[str], str]) -> str:
        """`holds on 5 of 6 machines; not on 1 × H100`."""
        decided = len(self.holds) + len(self.false)
        if not decided:
            return "not decided by any machine"
        where = f"{decided} machine{'s' * (decided > 1)}"
        text = f"holds on {len(self.holds)} of {where}"
        return text + (f"; not on {', '.join(map(label, self.false))}" if self.false else "")
