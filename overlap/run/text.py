"""Text from outside: what a snippet printed, what a recording says."""

import re

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def plain(text: str) -> str:
    """The text with every control character but newline and tab, and every lone surrogate, as U+FFFD."""
    return _UNSAFE.sub("\ufffd", text)
