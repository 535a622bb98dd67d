"""A built page in fewer bytes: without indentation, what only search reads, and tags that browsers add.

Nor has it what no Markdown can leave out: a link within what one clicks to open, a heading of a table that
heads nothing, marks around code that has no colour.
"""

import re

_FOR_SEARCH = re.compile(r" data-search-exclude(?:=\"[^\"]*\")?(?=[^<>]*>)")
_IN_ROW = re.compile(r'<a class="headerlink"[^>]*>[^<]*</a>(?=</h2>\s*</summary>)')
_CORNER = re.compile(r"(<thead>\s*<tr>\s*)<th></th>")
_CODE = r"(?P<tag>pre|script|textarea)\b.*?</(?P=tag)>"
#: Tags at which a line ends anyhow, and the words of a drawing.
_BLOCK = r"</?(?:nav|ul|ol|li|p|div|h[1-6]|details|summary|figure|table|thead|tbody|tr|t[hd]|text)\b"
#: Blank space around the ends of lines; code keeps its own.
_INDENTED = re.compile(rf"<{_CODE}|\s*\n\s*(?P<block>(?={_BLOCK}))?", re.S)
#: Ends of lines around the title of an entry in the menu.
_IN_MENU = re.compile(
    r'\n(?:(?<=<span class="md-ellipsis">\n)|(?=<span class="md-ellipsis">|(?:</span>\n?)?</a>\n?</li>))'
)
#: Classes of the menu and of the contents, which need no quotes: there are some hundred on each page.
_CLASS = re.compile(r' class="(md-(?:ellipsis|nav__\w+))"(?=[ >])')
#: Ends of elements that HTML leaves to what follows: another one, or the end of what they are in.
_ENDS = (
    r"/li>(?=<li\b|</[uo]l>)",
    r"/t[hd]>(?=<t[hd]\b|</tr>)",
    r"/tr>(?=<tr\b|</t(?:head|body)>)",
    r"/thead>(?=<tbody>)|/tbody>(?=</table>)",
    r"/p>(?=<(?:p|div|details|figure|h[1-6]|ul|ol|table)\b|</(?:div|details|li|td|article)>)",
)
_ENDING = re.compile(rf"<(?:{_CODE}|{'|'.join(_ENDS)})", re.S)
#: Names, signs, punctuation and spaces of code, as Pygments marks them: in this book they have no colour.
_COLOURLESS = re.compile(r'<span class="[nopw]">([^<]*)</span>')


def squeezed(html: str) -> str:
    """The page as it is published."""
    html = _INDENTED.sub(_shorter, html)
    html = _IN_ROW.sub("", _CORNER.sub(r"\1<td></td>", html))
    html = _COLOURLESS.sub(r"\1", html)
    html = _CLASS.sub(r" class=\1", _IN_MENU.sub("", _FOR_SEARCH.sub("", html)))
    return _ENDING.sub(lambda match: match[0] if match["tag"] else "", html)


def _shorter(match: re.Match) -> str:
    if match["tag"]:
        return match[0]
    return "" if match["block"] is not None else "\n"
