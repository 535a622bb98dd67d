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
<div class="ov-index ov-{{ of }}s" tabindex="0" role="group" aria-label="{{ title }}"><table class="ov-matrix{{ " ov-cards" if cards }}">
<thead><tr>{% for heading in headings %}<th scope="col">{{ heading }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr>{% for cell in row %}{% if loop.first %}<th scope="row">{{ cell }}</th>{% else %}<td{% if cards %} data-label="{{ headings[loop.index0] }}"{% endif %}>{{ cell }}</td>{% endif %}{% endfor %}</tr>
{% endfor %}
</tbody></table></div>"""

    @classmethod
    def read(cls, source: Source) -> "Index":
        """Read which kind."""
        if source.argument or source.rows():
            raise source.refuse(
                f"the index of all {source.kind} has no argument and no body", "leave them out"
            )
        return cls(source.page, source.line, source.kind.removesuffix("s"))

    def sections(self, book) -> Iterator[tuple[str, list[Block]]]:
        """Names of pages with their blocks of the kind; one for each key in the whole book."""
        seen = set()
        for page in book.pages.values():
            found = []
            for block in page.blocks:
                if block.kind == self.of and block.key() not in seen and block.listed(book):
                    seen.add(block.key())
                    found.append(block)
            if found:
                yield page.name, found

    def shows(self, book) -> list[str]:
        """All blocks that it lists, and which machines are the book's own."""
        return [repr(book.home), *(repr(block) for _, blocks in self.sections(book) for block in blocks)]

    def markdown(self, view) -> str:
        """An overview; a heading, which the page's contents name, and a table for each page."""
        sections, parts = dict(self.sections(view.book)), []
        for name, blocks in sections.items():
            kind, title = type(blocks[0]), titled(name)
            rows = [block.row(view) for block in blocks]
            table = view.render(
                self.template,
                of=self.of,
                title=title,
                headings=kind.headings(view),
                rows=rows,
                cards=kind.cards,
            )
            overview = [] if parts else [view.put(kind.overview(view, sections))]
            parts += [*overview, f"## {title}", view.put(table)]
        return "\n\n".join(["", *parts, ""])

    def cells(self, notebook) -> list[dict]:
        """Nothing: what it lists is on the site."""
        return []


def titled(name: str) -> str:
    """How a page is called where blocks are listed."""
    return name.replace("_", " ").capitalize()
