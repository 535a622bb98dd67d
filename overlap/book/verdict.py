"""What the data of one machine say of a claim. The words for it stand here and nowhere else."""

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
    """A state on one machine, with the figures that decide it and the recording they come from."""

    profile: str
    state: State
    figures: str
    live: bool = False
    path: str = ""
