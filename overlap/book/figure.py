"""A number with several runs behind it: their median, their range, and where they ran."""

from dataclasses import dataclass

from overlap.book.expression import is_number, middle, show

#: A range wider than this share of the median is shown beside the number; a narrower one can be asked for.
WIDE = 0.15


@dataclass(frozen=True)
class Figure:
    """What an expression gave in each run on one machine, `hosts` of them; or, without any, `why`."""

    values: tuple = ()
    hosts: int = 0
    why: str = ""

    @property
    def middle(self):
        """What the book says."""
        return middle(self.values)

    @property
    def wide(self) -> bool:
        """Whether the runs differ so much that the number alone would mislead."""
        if len(self.values) < 2 or not all(map(is_number, self.values)):
            return False
        return max(self.values) - min(self.values) > WIDE * abs(self.middle)

    def range(self, spec: str = "") -> str:
        """`60 to 106`; empty where all runs read the same."""
        if len(self.values) < 2 or not all(map(is_number, self.values)):
            return ""
        low, high = show(min(self.values), spec), show(max(self.values), spec)
        return f"{low} to {high}" if low != high else ""

    @property
    def origin(self) -> str:
        """`5 runs, 2 hosts`; empty for a single run."""
        return counted(len(self.values), self.hosts) if len(self.values) > 1 else ""


def counted(runs: int, hosts: int) -> str:
    """`1 run`, `3 runs on one host`, `5 runs on 2 hosts`."""
    return f"{runs} run{'s' * (runs > 1)}" + (f" on {hosts if hosts > 1 else 'one'} host{'s' * (hosts > 1)}") * (
        runs > 1
    )
