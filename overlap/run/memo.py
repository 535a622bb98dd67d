"""What was once computed from a file's content, kept between processes."""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from overlap.run.recording import write


class Memo:
    """Plain JSON values by kind and content hash, in one file; what is damaged or cannot be written is computed again."""

    def __init__(self, path: Path):
        self.path, self._version = path, _version()
        self._old, self._used, self._changed = self._load(), {}, False

    def get(self, kind: str, content_hash: str, compute: Callable):
        """The value of this content, computed where it is not known; what `compute` raises is not kept."""
        used = self._used.setdefault(kind, {})
        if content_hash not in used:
            old = self._old.get(kind, {})
            if content_hash in old:
                used[content_hash] = old[content_hash]
            else:
                used[content_hash] = compute()
                self._changed = True
        return used[content_hash]

    def save(self) -> None:
        """Write what was used, if something is new. Kinds nobody asked for stay; of the others, what was not used is dropped."""
        if self._changed:
            body = json.dumps(self._old | self._used, separators=(",", ":"))
            with contextlib.suppress(OSError):
                write(self.path, f"{self._seal(body.encode())}\n{body}")
                self._changed = False

    def turn(self) -> None:
        """Begin anew with what was used since the last time: who builds again and again does not gather what no file has any more."""
        self._old, self._used = self._old | self._used, {}

    def _load(self) -> dict[str, dict]:
        if not self.path.is_file():
            return {}
        try:
            seal, _, body = self.path.read_bytes().partition(b"\n")
        except OSError:
            return {}
        return json.loads(body) if seal.decode("latin-1") == self._seal(body) else {}

    def _seal(self, body: bytes) -> str:
        return hashlib.sha256(self._version + body).hexdigest()


def _version() -> bytes:
    """Changes with the code that computes, with the Python that reads syntax, and where pydantic comes or goes."""
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    more = f"{sys.version_info[:2]} {find_spec('pydantic') is not None}".encode()
    return hashlib.sha256(b"\0".join([*sources, more])).digest()
