"""The cache of this machine, and files that are written whole or not at all."""

import contextlib
import errno
import hashlib
import json
import os
import threading
from pathlib import Path

from overlap import OverlapError

_STANDS_THERE = "where its folder should be stands a file: move that away"
MAKE_WRITABLE = "make its folder writable for you, or work in a copy of the checkout"
#: What to do about a file that cannot be written.
_REMEDIES = {
    errno.EACCES: MAKE_WRITABLE,
    errno.EROFS: MAKE_WRITABLE,
    errno.EEXIST: _STANDS_THERE,
    errno.ENOTDIR: _STANDS_THERE,
    errno.EISDIR: "a folder has its name: move that away",
    errno.ENOSPC: "the disk is full: free some space",
}


class Cache:
    """A folder of files, each named after a digest of its inputs: a file that exists is up to date."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, kind: str, name: str, inputs: object, suffix: str) -> Path:
        """Where the file `name` of this kind is kept that was made from these inputs, plain JSON data."""
        return self.folder / kind / f"{name.replace('/', '-')}-{digest(inputs)[:20]}{suffix}"


def is_writable(folder: Path) -> bool:
    """Whether files can be written to a folder, which is made then."""
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def digest(inputs: object) -> str:
    """A digest of plain JSON data."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def write(path: Path, text: str | bytes) -> None:
    """Write a file under a temporary name beside it and rename it: an interruption leaves the old one.

    An error names the file and what to do. A process that is killed may leave the temporary file, whose name
    begins with a dot.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(text.encode() if isinstance(text, str) else text)
        os.replace(temporary, path)
    except OSError as error:
        remedy = _REMEDIES.get(error.errno, "mend this and repeat the command")
        raise OverlapError(f"{path}: cannot be written ({error.strerror}); {remedy}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
