"""The machine behind the book: it runs snippets, keeps what they gave, and inserts it into pages."""

from pathlib import Path


class OverlapError(Exception):
    """Something a person must mend: the message names the file, the reason and the remedy."""


#: The book within an installed package, which has no checkout.
PACKED = Path(__file__).with_name("data")


def find_root(start: Path | None = None) -> Path:
    """Return the nearest folder upwards that holds snippets/ and docs/, else the book within the package."""
    try:
        start = (start or Path.cwd()).resolve()
    except FileNotFoundError:
        raise OverlapError("the working directory is gone; change into a checkout of the book") from None
    for folder in (start, *start.parents):
        if (folder / "snippets").is_dir() and (folder / "docs").is_dir():
            return folder
    if PACKED.is_dir():
        return PACKED
    raise OverlapError(f"{start}: no snippets/ and docs/ here or above; run inside a checkout of the book")
