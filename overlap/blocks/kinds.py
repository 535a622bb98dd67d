"""The kinds of block that a page can hold.

One kind is one class: how it is written, what `overlap check` says of it, how it looks on the page and in the
notebook. To add a kind, write such a class and name it here.
"""

from overlap.blocks.block import Block
from overlap.blocks.calculator import Calculator
from overlap.blocks.claim import Claim
from overlap.blocks.entries import Glossary, Statements, Symptoms
from overlap.blocks.figure import Diagram, FigureBlock, Step
from overlap.blocks.guess import Guess
from overlap.blocks.headlines import Headlines
from overlap.blocks.index import Calculators, ClaimIndex, Questions, SnippetIndex, Weakened
from overlap.blocks.pair import Pair
from overlap.blocks.paste import Paste
from overlap.blocks.snippet import SnippetBlock

_CLASSES = (
    SnippetBlock,
    Pair,
    Paste,
    Guess,
    FigureBlock,
    Step,
    Claim,
    Diagram,
    Headlines,
    Calculator,
    Questions,
    Weakened,
    ClaimIndex,
    SnippetIndex,
    Calculators,
    Symptoms,
    Glossary,
    Statements,
)
#: Kinds by the word that opens their fence.
KINDS: dict[str, type[Block]] = {block.kind: block for block in _CLASSES}
