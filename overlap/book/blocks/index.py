"""The index of all blocks of a kind: all claims, all snippets; a table for each page that has some."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from overlap.book.blocks.block import Block, Source


@dataclass(frozen=True)
class Index(Block):
    """```` ```claims ```` or ```` ```snippets ````, without a body."""

    of: str

    template: ClassVar[str] = """
<div class="md-typeset__scrollwrap" tabindex="0" role="group" aria-label="{{ title }}"><div class="md-typeset__table"><table>
<thead><tr>{% for column in columns %}<th>{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div></div>"""

    @classmethod
    def read(cls, source: Source) -> "Index":
        """Read which kind."""
        if source.argument or source.rows():
            raise source.refuse(f"the index of all {source.kind} has no argument and no body", "leave them out")
        return cls(source.page, source.line, source.kind.removesuffix("s"))

    def sections(self, book) -> Iterator[tuple[str, list[Block]]]:
        """Names of pages with their blocks of the kind; one for each key in the whole book."""
        seen = set()
        for page in book.pages.values():
            found = []
            for block in page.blocks:
                if block.kind == self.of and block.key() not in seen:
                    seen.add(block.key())
                    found.append(block)
            if found:
                yield page.name, found

    def shows(self, book) -> list[str]:
        """All blocks that it lists."""
        return [repr(block) for _, blocks in self.sections(book) for block in blocks]

    def markdown(self, view) -> str:
        """A heading, which the page's contents name, and a table for each page."""
        parts = []
        for name, blocks in self.sections(view.book):
            title, rows = name.replace("_", " ").capitalize(), [block.row(view) for block in blocks]
            table = view.render(self.template, title=title, columns=blocks[0].columns, rows=rows)
            parts += [f"## {title}", view.put(table)]
        return "\n\n".join(["", *parts, ""])

    def cells(self, notebook) -> list[dict]:
        """Nothing: what it lists is on the site."""
        return []
