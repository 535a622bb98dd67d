"""The kinds of block that a page can hold.

One kind is one class in one file: how it is written, what `overlap check` says of it, how it looks on the
page, in the notebook and in its index. To add a kind, write such a file and name its class here.
"""

from overlap.book.blocks.bars import Bars
from overlap.book.blocks.block import Block, Source, Text
from overlap.book.blocks.calculator import Calculator
from overlap.book.blocks.claim import Claim
from overlap.book.blocks.diagram import Diagram
from overlap.book.blocks.figure import FigureBlock
from overlap.book.blocks.headlines import Headline, Headlines
from overlap.book.blocks.index import Index
from overlap.book.blocks.scoreboard import Scoreboard
from overlap.book.blocks.snippet import SnippetBlock
from overlap.book.blocks.tally import Tally

_KINDS = (SnippetBlock, FigureBlock, Claim, Diagram, Scoreboard, Headlines, Calculator, Tally, Bars)
#: Kinds by the word that opens their fence; `claims` and `snippets` open the index of that kind.
KINDS: dict[str, type[Block]] = {kind.kind: kind for kind in _KINDS}
KINDS |= {f"{word}s": Index for word, kind in KINDS.items() if kind.columns}

__all__ = [
    "KINDS",
    "Bars",
    "Block",
    "Calculator",
    "Claim",
    "Diagram",
    "FigureBlock",
    "Headline",
    "Headlines",
    "Index",
    "Scoreboard",
    "SnippetBlock",
    "Source",
    "Tally",
    "Text",
]
