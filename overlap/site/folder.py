"""The command `build`: docs/ with everything inserted, as a folder that any builder can take for its own."""

import shutil
import tempfile
from pathlib import Path

from overlap import OverlapError
from overlap.cache import MAKE_WRITABLE, is_writable
from overlap.site.insert import insert
from overlap.site.view import Site


def refuse(docs: Path, folder: Path) -> None:
    """Refuse, before any run, a folder that `write` could not make, or not without a loss."""
    if folder.resolve().is_relative_to(docs.resolve()):
        raise OverlapError(f"{folder}: is within docs/, of which it is made; name a folder elsewhere")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OverlapError(f"{folder}: is there and not empty; name a new folder, or empty this one")
    for needed, remedy in ((folder.parent, "name another folder"), (docs / "generated", MAKE_WRITABLE)):
        if not is_writable(needed):
            raise OverlapError(f"{folder}: nothing can be written to {needed}; {remedy}")


def write(site: Site, folder: Path) -> int:
    """Write docs/ with everything inserted, whole or not at all; how many pages it has."""
    docs = site.book.docs
    refuse(docs, folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".overlap-", dir=folder.parent) as made:
            whole = Path(made) / "docs"
            shutil.copytree(docs, whole)
            for path, page in site.pages.by_path.items():
                text = page.front + insert(site, path, page.text).lstrip("\n")
                (whole / path).write_text(text, encoding="utf-8")
            whole.replace(folder)
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        raise OverlapError(f"{folder}: {reason}; mend this, or name another folder") from None
    return len(site.pages.by_path)
