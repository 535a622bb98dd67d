"""Pages in Chinese: where they stand, what they translate, and the book's own words on them."""

#: The folder below docs/ whose pages translate those of the same name above it.
FOLDER = "zh/"
#: The guide, which translates no page.
GUIDE = "zh.md"
_WORDS = {
    ".": "。",
    # what joins labels and numbers in what a picture says (overlap/site/numbers.py)
    ", ": "，",
    "; ": "；",
    " to ": "–",
    "{0}: {1}": "{0}：{1}",
    "{values} {unit}": "{values}（{unit}）",
    "{value} {unit}": "{unit}：{value}",
    "{place} {unit}": "{place}（{unit}）",
    "{0} at {1}, {2} at {3}": "{1} 时 {0}，{3} 时 {2}",
    "{total} in {count} part": "{total}，共 {count} 段",
    "{total} in {count} parts": "{total}，共 {count} 段",
    "{count} together: {total}": "{count} 个合计 {total}",
    "{range} in {runs} runs": "{runs} 次运行为 {range}",
    " ({range})": "（{range}）",
    "lowest to highest of {runs} runs": "{runs} 次运行中从最低到最高",
    "from": "开始",
    "lasts": "持续",
    "size": "大小",
    "all": "全部",
    # where a picture and a value are from (overlap/site/machines.py, overlap/book/statistic.py)
    "your {0}": "你的 {0}",
    "{summary} Measured on {machine}. {words}": "图中的数值，在 {machine} 上测得。{words}",
    "{0} on {1}": "{0}，在 {1} 上测得",
    "1 run": "1 次运行",
    "{runs} runs on one host": "同一台主机上 {runs} 次运行",
    "{runs} runs on {hosts} hosts": "{hosts} 台主机上 {runs} 次运行",
    "{disturbed} of them disturbed": "其中 {disturbed} 次受到干扰",
    # on pages
    "Answer": "答案",
    "Figure": "图",
    "Guess first.": "先猜一猜。",
    "How it was measured": "怎样测得",
    "Link to this figure": "这张图的链接",
    "None on ": "没有这张图：",
    "Did not run on ": "没有运行：",
    "; shown: ": "；这里显示 ",
    "See what was measured": "看测到了什么",
    "Pale: other parts of the step. ([How it is drawn]({to}))": "淡色：其他部分。（[怎样画的]({to})）",
}


def is_chinese(path: str) -> bool:
    """Whether a page is in Chinese, by its path below docs/."""
    return path == GUIDE or path.startswith(FOLDER)


def original(path: str) -> str:
    """The English page that a page translates; of any other page itself."""
    return path.removeprefix(FOLDER)


def say(words: str, path: str) -> str:
    """Words of the book in the language of a page."""
    return in_chinese(words) if is_chinese(path) else words


def in_chinese(words: str) -> str:
    """Words of the book in Chinese."""
    return _WORDS[words]
