"""A value: an expression over what a snippet gave, as sentences, calculators and the book ask for it."""

import base64
import hashlib
from dataclasses import dataclass


def key(*parts: object) -> str:
    """Identifies a value, a claim or a table: eight letters and digits, a digest of what is computed."""
    return base64.b32encode(hashlib.sha256(repr(parts).encode()).digest()[:5]).decode().lower()


@dataclass(frozen=True)
class Value:
    """An expression over a snippet's result; `machine` pins it to one machine, `spec` is its format."""

    snippet: str
    machine: str | None
    expression: str
    spec: str

    @property
    def key(self) -> str:
        """Identifies it among all values."""
        return key(self.snippet, self.machine, self.expression, self.spec)

    def __str__(self) -> str:
        """As it is written between braces."""
        name = f"{self.snippet}@{self.machine}" if self.machine else self.snippet
        return f"{name}: {self.expression}:{self.spec}" if self.spec else f"{name}: {self.expression}"
