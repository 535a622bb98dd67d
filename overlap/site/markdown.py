"""Python-Markdown extension: what a page's tree becomes, with no book: tables as entries, evidence closed."""

from markdown import Extension, Markdown

from overlap.site.layers import Layers
from overlap.site.tables import Tables


class OverlapExtension(Extension):
    """For any builder that reads pages with Python-Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register both."""
        # Before sentences are taken apart, at 20.
        md.treeprocessors.register(Tables(md), "overlap-tables", 25)
        md.treeprocessors.register(Layers(md), "overlap-layers", 4)  # behind ids and contents, at 5


def makeExtension(**options) -> OverlapExtension:
    """Entry point of Python-Markdown."""
    return OverlapExtension(**options)
