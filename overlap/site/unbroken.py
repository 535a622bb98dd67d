"""Short code in a sentence stays on one line: a browser breaks it behind each hyphen, `--` and all."""

import re
from html import unescape

#: So many characters are no wider than a phone.
_MOST = 24
#: Code in a sentence; what stands in a block keeps its lines.
_CODE = re.compile(r"<pre\b.*?</pre>|<code>(?P<text>[^<]*-[^<]*)</code>", re.S)


def unbroken(html: str) -> str:
    """The page, with code marked that a line must not break."""
    return _CODE.sub(_marked, html)


def _marked(match: re.Match) -> str:
    text = match["text"]
    if text is None or len(unescape(text)) > _MOST:
        return match[0]
    return f'<code class="ov-whole">{text}</code>'
