"""What a picture on a page in Chinese says to who does not see it.

A picture is drawn once, in English. Its labels in Chinese are those of docs/assets/words.js, and the rules
are those of its `pictured`, which speaks when a reader picks another machine.
"""

import re
from functools import lru_cache
from pathlib import Path

WORDS = "assets/words.js"
_LABEL = re.compile(r'^ {6}"(.+)": "(.+)",$', re.M)
#: Bars with their values: a name may have a comma, and a number.
_BARS = re.compile(r"(.+?) ([\d.,–−]+)(?:, |$)")
#: What the value of a mark is made of: labels, and how Python joins them to numbers.
_FORMS = (
    (r"([\d.,]+) to ([\d.,]+.*)", "{0}–{1}"),
    (r"lasts (.+)", "持续 {0}"),
    (r"(\d+) together: (.+)", "{0} 个合计 {1}"),
    (r"(?P<name>.+), (\d+) streams", "{0}，{1} 个流"),
    (r"([\d.,]+) streams?", "{0} 个流"),
    (r"(?P<name>.+): (?P<value>[^:]+)", "{0}：{1}"),
    (r"([\d.,]+) (?P<name>\D+)", "{0} {1}"),
)


def labels(docs: Path) -> dict[str, str]:
    """Words in pictures, in Chinese by their English; a book without the file has none."""
    path = docs / WORDS
    return _labels(path, path.stat().st_mtime_ns) if path.exists() else {}


@lru_cache(maxsize=8)
def _labels(path: Path, saved: int) -> dict[str, str]:
    """The table as it was saved at that time."""
    table = path.read_text(encoding="utf-8").partition("const LABELS")[2].partition("\n  }\n")[0]
    return dict(_LABEL.findall(table))


class Told:
    """What pictures say in words (`in_words` of overlap/site/numbers.py), in Chinese."""

    def __init__(self, known: dict[str, str]):
        self._known = known

    def picture(self, alt: str) -> str:
        """A picture's alternative text. Its first sentence is left out: the caption below says the same."""
        match = re.search(r"Measured on (.+?)\. (.*)$", alt, re.S)
        if not match:
            return alt
        machine, words = match.groups()
        own = f"你的 {machine[5:]} " if machine.startswith("your ") else f"{machine} "
        return f"图中的数值，在 {own}上测得。{'；'.join(map(self._part, words.split('; ')))}"

    def _part(self, part: str) -> str:
        if part.endswith("…"):  # it was cut off here
            return "…"
        name, colon, told = part.partition(": ")
        return f"{self._label(name)}：{self._words(told)}" if name and colon and told else self._words(part)

    def _words(self, text: str) -> str:
        """The sum of spans, the ends of a line, or bars with their values."""
        if match := re.fullmatch(r"(.+?) in (\d+) parts?", text):
            return f"{self._label(match[1])}，共 {match[2]} 段"
        if match := re.fullmatch(r"(.+?) at (.+?), (.+) at (.+)", text):
            low, first, high, last = map(self._label, match.groups())
            return f"{first} 时 {low}，{last} 时 {high}"
        if match := re.fullmatch(r"(.+ [\d.,]+) (\D+)", text):
            bars = (f"{self._label(name)} {value}" for name, value in _BARS.findall(match[1]))
            return f"{'，'.join(bars)}（{self._label(match[2])}）"
        return self._label(text)

    def _label(self, drawn: str) -> str:
        parts = (self._known.get(part) or self._form(part) for part in drawn.split(" · "))
        return self._known.get(drawn) or " · ".join(parts)

    def _form(self, part: str) -> str:
        for pattern, put in _FORMS:
            if match := re.fullmatch(pattern, part):
                named = match.re.groupindex.values()
                groups = enumerate(match.groups(), 1)
                return put.format(*(self._label(text) if i in named else text for i, text in groups))
        return part
