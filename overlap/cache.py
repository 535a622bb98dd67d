"""The cache of this machine, and files that are written whole or not at all."""

import contextlib
import hashlib
import json
import os
import threading
from pathlib import Path


class Cache:
    """A folder of files, each named after a digest of its inputs: a file that exists is up to date."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, kind: str, name: str, inputs: object, suffix: str) -> Path:
        """Where the file `name` of this kind is kept that was made from these inputs, plain JSON data."""
        return self.folder / kind / f"{name.replace('/', '-')}-{digest(inputs)[:20]}{suffix}"


def digest(inputs: object) -> str:
    """A digest of plain JSON data."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def write(path: Path, text: str | bytes) -> None:
    """Write a file under a temporary name beside it and rename it: an interruption leaves the old one.

    An error names the file. A process that is killed may leave the temporary file, which begins with a dot.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(text.encode() if isinstance(text, str) else text)
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
