"""The colours of the site: each stands here once, and everywhere else by its name."""

#: By CSS variable: (light, dark).
COLORS = {
    "--ov-ink": ("#1f2328", "#e3e7eb"),
    "--ov-muted": ("#57606a", "#a5aeb8"),
    "--ov-faint": ("#b6bec7", "#596370"),
    "--ov-line": ("#e6eaee", "#2a3038"),
    "--ov-paper": ("#ffffff", "#14171b"),
    "--ov-surface": ("#f6f8fa", "#1c2026"),
    "--ov-footer": ("#f6f8fa", "#0f1215"),
    "--ov-sunken": ("#eef1f4", "#0c0e11"),
    "--ov-shadow": ("#0000002e", "#0000002e"),
    "--ov-link": ("#0b5cad", "#7cbcf5"),
    "--ov-good": ("#13703a", "#4cc38a"),
    "--ov-bad": ("#b42318", "#ff8f85"),
    # Of pictures.
    "--ov-series-1": ("#0a6cb0", "#5aaef0"),
    "--ov-series-2": ("#c2500a", "#f0945a"),
    "--ov-series-3": ("#00805c", "#3fc59b"),
    "--ov-series-4": ("#b0558a", "#e193bd"),
    "--ov-series-5": ("#a06c00", "#e0b040"),
    "--ov-series-6": ("#1097b4", "#86e3ef"),
    "--ov-series-7": ("#7a4fc0", "#b79cf2"),
    "--ov-grid": ("#d7dde3", "#343b44"),
    "--ov-ceiling": ("#6a737d", "#a5aeb8"),
    "--ov-pale": ("#ffffff", "#434c58"),  # what pale parts are mixed with
    # Of code.
    "--ov-code": ("#36464e", "#dbe1e7"),
    "--ov-code-comment": ("#5d6671", "#98a2ad"),
    "--ov-code-sign": ("#4c5661", "#a5aeb8"),
    "--ov-code-keyword": ("#3f6ec6", "#6791e0"),
    "--ov-code-constant": ("#6e59d9", "#9383e2"),
    "--ov-code-function": ("#7a3fb8", "#c973d9"),
    "--ov-code-number": ("#b02a4c", "#e6695b"),
    "--ov-code-string": ("#13703a", "#2fb170"),
}
#: What a lane of a timeline is, on all pages: the number of its colour, and how sentences call that. They are
#: the four answers to what a GPU waits for; the style sheet and drawings say `--ov-lane-python`.
LANES = {
    "python": (5, "yellow"),
    "data": (3, "green"),
    "peer": (4, "pink"),  # another GPU
    "gpu": (1, "blue"),  # which works
}
COLORS |= {f"--ov-lane-{lane}": COLORS[f"--ov-series-{number}"] for lane, (number, _) in LANES.items()}
LIGHT, DARK = ({name: pair[scheme] for name, pair in COLORS.items()} for scheme in (0, 1))

#: What Material calls them; its other names come from these, or show nowhere in the book.
_MATERIAL = {
    "--md-default-fg-color": "--ov-ink",
    "--md-default-fg-color--light": "--ov-muted",
    "--md-default-fg-color--lighter": "--ov-faint",
    "--md-default-fg-color--lightest": "--ov-line",
    "--md-default-bg-color": "--ov-paper",
    "--md-primary-fg-color": "--ov-paper",
    "--md-primary-bg-color": "--ov-ink",
    "--md-primary-bg-color--light": "--ov-muted",
    "--md-accent-fg-color": "--ov-link",
    "--md-typeset-a-color": "--ov-link",
    "--md-typeset-table-color": "--ov-line",
    "--md-code-bg-color": "--ov-surface",
    "--md-code-fg-color": "--ov-code",
    "--md-code-hl-comment-color": "--ov-code-comment",
    "--md-code-hl-operator-color": "--ov-code-sign",
    "--md-code-hl-punctuation-color": "--ov-code-sign",
    "--md-code-hl-keyword-color": "--ov-code-keyword",
    "--md-code-hl-constant-color": "--ov-code-constant",
    "--md-code-hl-function-color": "--ov-code-function",
    "--md-code-hl-number-color": "--ov-code-number",
    "--md-code-hl-special-color": "--ov-code-number",
    "--md-code-hl-string-color": "--ov-code-string",
    "--md-footer-bg-color": "--ov-footer",
    "--md-footer-bg-color--dark": "--ov-sunken",
    "--md-footer-fg-color": "--ov-ink",
    "--md-footer-fg-color--light": "--ov-muted",
    "--md-footer-fg-color--lighter": "--ov-muted",
}


def declared(colors: dict[str, str]) -> str:
    """The declarations that give these variables their colours."""
    return ";".join(f"{name}:{color}" for name, color in colors.items())


def stylesheet() -> str:
    """The colours as a page's style sheet: by the scheme that its reader chose, light where it is printed."""
    material = declared({name: f"var({color})" for name, color in _MATERIAL.items()})
    light = f"[data-md-color-scheme]{{{material};{declared(LIGHT)}}}"
    dark = f'@media screen{{[data-md-color-scheme="slate"]{{{declared(DARK)}}}}}'
    return f"{light}{dark}\n"
