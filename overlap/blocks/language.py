"""Pages in Chinese: where they stand, what they translate, and the book's own words on them."""

#: The folder below docs/ whose pages translate those of the same name above it.
FOLDER = "zh/"
#: The guide, which translates no page.
GUIDE = "zh.md"
_WORDS = {
    ".": "。",
    "Answer": "答案",
    "Figure": "图",
    "Guess first.": "先猜一猜。",
    "How it was measured": "怎样测得",
    "Link to this figure": "这张图的链接",
    "See what was measured": "看测到了什么",
    "The rest is pale.": "其余部分颜色浅。",
    "Recorded with a profiler, which makes a step slower. Gaps are cut to the time without it.": (
        "用性能分析器记录，它会让一步变慢；图中的空隙缩短了，使整个一步与不用分析器时一样长。"
    ),
}


def is_chinese(path: str) -> bool:
    """Whether a page is in Chinese, by its path below docs/."""
    return path == GUIDE or path.startswith(FOLDER)


def original(path: str) -> str:
    """The English page that a page translates; of any other page itself."""
    return path.removeprefix(FOLDER)


def say(words: str, path: str) -> str:
    """Words of the book in the language of a page."""
    return _WORDS[words] if is_chinese(path) else words
