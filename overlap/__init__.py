"""The machine behind the book: it runs snippets, keeps what they gave, and inserts it into pages."""

from pathlib import Path


class OverlapError(Exception):
    """Something a person must mend: the message names the file, the reason and the remedy."""


def find_root(start: Path | None = None) -> Path:
    """Return the nearest folder upwards that holds snippets/ and docs/."""
    try:
        start = (start or Path.cwd()).resolve()
    except FileNotFoundError:
        raise OverlapError("the working directory is gone; change into a checkout of the book") from None
    for folder in (start, *start.parents):
        if (folder / "snippets").is_dir() and (folder / "docs").is_dir():
            return folder
    raise OverlapError(f"{start}: no snippets/ and docs/ here or above; run inside a checkout of the book")
