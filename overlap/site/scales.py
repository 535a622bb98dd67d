"""Texts and numbers as pixels: how wide a text is, where a number lies, which numbers an axis names."""

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Pixels: the size of letters, and from line to line.
FONT = 10
LINE = 12
#: Widths of letters in the page's type, Inter, as parts of its size; what is not named is 0.61 wide.
_LETTERS = {"il'I ,.:;|!": 0.27, "tfjr()/[]": 0.36, '1-_"*': 0.45, "scekxzavyL7J": 0.56}
_LETTERS |= {"PRSTBKAVXY×+=−": 0.67, "DCUGNOQHw&": 0.76, "mMW…%@—": 0.91}
#: A number and its unit, between which a line does not break: a space of `_TIED` is no place to break at.
_UNIT = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s|[KMGT]i?B|[KMG]B/s|TB/s|TFLOP/s)\b)")
_TIED = "\u00a0"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_WIDTHS = {letter: width for letters, width in _LETTERS.items() for letter in letters}


def text_width(text: str) -> float:
    """About how many pixels the longest line of a text takes."""
    return max(map(_line_width, text.split("\n")), default=0.0)


def _line_width(line: str) -> float:
    ems = 0.0
    for letter in line:
        ems += _WIDTHS.get(letter, 0.61 if ord(letter) < 0x2E80 else 1.0)
    return ems * FONT


def wrapped(text: str, pixels: float) -> str:
    """A text in lines of at most so many pixels, where its words allow. A unit stays with its number."""
    lines = []
    for line in _UNIT.sub(_TIED, text).split("\n"):
        wide = _line_width(line)
        letters = max(8, int(len(line) * pixels / wide)) if wide > pixels else len(line)
        lines += textwrap.wrap(line, max(letters, 1), break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(lines).replace(_TIED, " ")


@dataclass
class Scale:
    """Numbers of an axis as pixels, from `low` at `start` to `high` at `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    @property
    def ends(self) -> list[float]:
        """Both, on a logarithmic axis as powers of ten: equal differences of them are equal lengths."""
        ends = (self.low, self.high)
        return [float(f"{math.log10(end) if self.log else end:.4g}") for end in ends]

    def shows(self, value: float | None) -> bool:
        """Whether it is a number within the ends."""
        if value is None or not math.isfinite(value) or (self.log and value <= 0):
            return False
        first, last = sorted((self.start, self.end))
        return first - 1 <= self(value) <= last + 1

    def ticks(self) -> list[float]:
        """Round numbers, as many as have room beside or above each other."""
        if self.log:
            return log_ticks(self.low, self.high)
        room = abs(self.end - self.start)
        if self.start > self.end:  # from the bottom up
            return round_ticks(self.low, self.high, max(5, int(room / 28)))
        for most in range(8, 2, -1):
            places = round_ticks(self.low, self.high, most)
            if sum(text_width(number(place)) + 16 for place in places) <= room:
                return places
        return round_ticks(self.low, self.high, 2)


def round_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    size = 10 ** math.floor(math.log10(least))
    return next(size * times for times in (1, 2, 5, 10) if least <= size * times * (1 + 1e-9))


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, about so many of them."""
    step = round_step((high - low) / most)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Powers of ten; 1, 2 and 5 times those where there are few, about so many; or other round numbers."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**power for power in powers]
    places = [factor * ten for ten in tens for factor in (1, 2, 5)]
    within = [place for place in places if low * 0.999 <= place <= high * 1.001]
    if high >= 200 * low or len(within) > most:
        within = [place for place in within if place in tens]
    if len(within) < 2 and high < 30 * low:
        return round_ticks(low, high, 4)
    return within[:: -(-len(within) // most) or 1]


def number(value: float) -> str:
    """A number of an axis; from a million on as 1.05 M, below a ten thousandth as 2×10⁻⁵."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.3g} M".replace("-", "−")
    if 0 < abs(value) < 1e-4:
        times, power = f"{value:.2e}".split("e")
        raised = str(int(power)).translate(_RAISED)
        return f"{float(times):g}×10{raised}".removeprefix("1×").replace("-", "−")
    return f"{value:,.10g}".replace("-", "−")


def thinned(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Every second label goes, until none touches its neighbour."""
    while len(labels) > 2 and any(
        x + text_width(word) / 2 + 4 > x2 - text_width(word2) / 2
        for (x, word), (x2, word2) in pairwise(labels)
    ):
        labels = labels[::2]
    return labels
