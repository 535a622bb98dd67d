"""A number with several runs behind it: median, range, where they ran; and how numbers read on a page."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from overlap.run.text import plain

#: A range wider than this share of the median is shown beside the number; a narrower one can be asked for.
WIDE = 0.25
#: Characters of a text or a list that stand in a sentence.
_LONGEST_TEXT = 60
#: The format of seconds in the unit that people would say.
TIME = "time"
_FORMAT = re.compile(r"[-+ ]?0?\d{0,2}[,_]?(?:\.\d{1,2})?[bdeEfFgGnosxX%]?")


def is_number(value) -> bool:
    """Whether it is a number, and not true or false."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def middle(values: Sequence):
    """The median of numbers; of anything else the first."""
    if not all(map(is_number, values)):
        return values[0]
    if all(isinstance(value, int) for value in values):
        return median_low(values)
    return median(values)


def is_format(text: str) -> bool:
    """Whether this is a format such as `.2f`, `,` or `.0%`; a width has two digits at most. Or `time`."""
    return text == TIME or bool(_FORMAT.fullmatch(text))


def duration(seconds: float) -> str:
    """Seconds in the unit that people would say: `21 µs`; none are `0 s`."""
    for unit, length in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= length or not seconds:
            return f"{show(seconds / length)} {unit}"
    return f"{show(seconds / 1e-9)} ns"


def show(value, spec: str = "") -> str:
    """A value as text: by its format, else with about three significant digits."""
    if spec == TIME:
        return duration(value)
    if spec:
        return plain(format(value, spec))
    if not is_number(value):
        text = plain(str(value))
        return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "…"
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 999.5:  # which reads 1,000, and not 1e+03
        return f"{value:,.0f}"
    return f"{value:.3g}"


def counted(runs: int, hosts: int, disturbed: int = 0, say: Callable[[str], str] = str) -> str:
    """`1 run`, `3 runs on one host`, `5 runs on 2 hosts, 1 of them disturbed`; `say` gives these words."""
    if runs == 1:
        return say("1 run")
    template = "{runs} runs on {hosts} hosts" if hosts > 1 else "{runs} runs on one host"
    text = say(template).format(runs=runs, hosts=hosts)
    if not disturbed:
        return text
    return text + say(", ") + say("{disturbed} of them disturbed").format(disturbed=disturbed)


@dataclass(frozen=True)
class Statistic:
    """What an expression gave in each run on one machine, `hosts` of them; or, without any, `why`.

    In so many runs as `disturbed` says other work used the host.
    """

    values: tuple = ()
    hosts: int = 0
    why: str = ""
    spec: str = ""
    disturbed: int = 0

    @property
    def middle(self):
        """What the book says."""
        return middle(self.values)

    @property
    def text(self) -> str:
        """What the book says, in its format; a dash where there is no value."""
        return show(self.middle, self.spec) if self.values else "–"

    @property
    def range(self) -> str:
        """`60 to 106`; empty where there are no several numbers, or all read the same."""
        return self._from(" to ")

    @property
    def wide_range(self) -> str:
        """The range, where the number alone would mislead: `60–106`, which every language reads."""
        if not self.range or max(self.values) - min(self.values) <= WIDE * abs(self.middle):
            return ""
        return self._from("–")

    @property
    def origin(self) -> str:
        """`5 runs on 2 hosts`; empty for a single run."""
        return self._origin(str)

    @property
    def note(self) -> str:
        """Range and origin; or why there is no value."""
        return self.told(str)

    def told(self, say: Callable[[str], str]) -> str:
        """The note in the language that `say` speaks; why there is no value is told in English."""
        return self.why or say(", ").join(filter(None, (self._from(say(" to ")), self._origin(say))))

    def _origin(self, say: Callable[[str], str]) -> str:
        return counted(len(self.values), self.hosts, self.disturbed, say) if len(self.values) > 1 else ""

    def _from(self, to: str) -> str:
        """The range, with this between its ends."""
        if not all(map(is_number, self.values)):
            return ""
        texts = [show(value, self.spec) for value in sorted(self.values)]
        return f"{texts[0]}{to}{texts[-1]}" if texts and texts[0] != texts[-1] else ""
