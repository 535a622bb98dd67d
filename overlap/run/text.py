"""Text from outside: what a snippet printed, what a recording says."""

import re

#: Characters as they stand between the brackets of a regular expression: control characters but tab and newline, and halves of characters;
#: marks that turn the direction of what follows; what cannot be seen, such as spaces without width.
CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
TURNING = "\u202a-\u202e\u2066-\u2069"
INVISIBLE = "\u00ad\u200b-\u200f\u2028\u2029\u2060-\u2064\ufeff\U000e0000-\U000e007f"
_UNSAFE = re.compile(f"[{CONTROL}{TURNING}]")


def plain(text: str) -> str:
    """The text with U+FFFD for each control character but newline and tab, each half of a character, and each mark that turns the direction."""
    return _UNSAFE.sub("\ufffd", text)
