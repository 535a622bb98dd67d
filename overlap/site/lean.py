"""Styles and scripts of a built site without what no reader needs: the first paint waits for styles."""

import re
from pathlib import Path

#: In our own files: comments that begin or end a line, and indents.
_FOR_AUTHORS = re.compile(r"^\s*/\*.*?\*/|  /\*[^\n]*?\*/$|^\s*//[^\n]*|  // [^\n]*$|^\s+", re.M | re.S)
#: In the theme's: a rule, the commas between its selectors, and what only bounds one.
_RULE = re.compile(r"([^{}@;]+)(\{[^{}]*\})")
_COMMA = re.compile(r",(?![^()]*\))")
_BOUND = re.compile(r":(?:not|is|where|has)\([^()]*\)")
#: The classes, colours and direction that a selector asks for; scripts put together what follows `--`.
_SETTING = r"(?:dir|data-md-color-\w+)=[\w-]+"
_ASKED = re.compile(rf"(?<=\.)[a-zA-Z](?:(?!--)[\w-])*|(?<=\[){_SETTING}")


def make_lean(site: Path, own: Path) -> None:
    """Write anew the styles and scripts that lie in `own`, and the theme's style sheets."""
    for file in own.glob("*.*s"):
        text = _FOR_AUTHORS.sub("", file.read_text(encoding="utf-8"))
        (site / "assets" / file.name).write_text(text, encoding="utf-8")
    words = set()
    for kind in ("html", "js"):
        for file in site.rglob(f"*.{kind}"):
            text = file.read_text(encoding="utf-8").replace('"', "")
            words.update(re.findall(rf"{_SETTING}|[\w-]+", text))
    for file in site.glob("assets/stylesheets/*.css"):
        file.write_text(without_unused(file.read_text(encoding="utf-8"), words), encoding="utf-8")


def without_unused(styles: str, words: set[str]) -> str:
    """The rules, and of their selectors those that ask for nothing but what is among these words."""

    def rule(match: re.Match) -> str:
        selectors = _COMMA.split(match[1])
        used = [one for one in selectors if words.issuperset(_ASKED.findall(_BOUND.sub("", one)))]
        return ",".join(used) + match[2] if used else ""

    return _RULE.sub(rule, styles)
