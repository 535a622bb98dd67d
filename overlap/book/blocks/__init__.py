"""The kinds of block that a page can hold.

One kind is one class: how it is written, what `overlap check` says of it, how it looks on the page and in the
notebook. To add a kind, write such a class and name it here.
"""

from overlap.book.blocks.block import Block
from overlap.book.blocks.calculator import Calculator
from overlap.book.blocks.claim import Claim
from overlap.book.blocks.figure import Diagram, FigureBlock
from overlap.book.blocks.guess import Guess
from overlap.book.blocks.headlines import Headlines
from overlap.book.blocks.index import ClaimIndex, SnippetIndex, Tally
from overlap.book.blocks.pair import Pair
from overlap.book.blocks.paste import Paste
from overlap.book.blocks.snippet import SnippetBlock

_CLASSES = (
    SnippetBlock,
    Pair,
    Paste,
    Guess,
    FigureBlock,
    Claim,
    Diagram,
    Headlines,
    Calculator,
    Tally,
    ClaimIndex,
    SnippetIndex,
)
#: Kinds by the word that opens their fence.
KINDS: dict[str, type[Block]] = {block.kind: block for block in _CLASSES}
