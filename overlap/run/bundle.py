"""A bundle: a file of recordings, one a line, for machines that are reached by upload and download only."""

import json
from pathlib import Path

from overlap import OverlapError
from overlap.cache import locked, write
from overlap.run import recording
from overlap.run.recording import Recording
from overlap.run.snippet import Snippet


def lines(path: Path) -> list[tuple[str, bytes]]:
    """(file:line, text) of each recording in a bundle."""
    try:
        numbered = enumerate(path.read_bytes().split(b"\n"), 1)
    except OSError as error:
        raise OverlapError(f"{path}: cannot be read ({error.strerror}); copy the bundle here again") from None
    return [(f"{path}:{number}", line) for number, line in numbered if line.strip()]


class Bundle:
    """A bundle to go on with. It is written whole each time, so that a kill leaves what it was before."""

    def __init__(self, path: Path):
        self.path = path
        self.recordings: list[Recording] = []
        remedy = "take this line out, or name another file"
        if path.exists():
            self.recordings = [recording.parse(line, where, remedy) for where, line in lines(path)]

    def runs(self, snippet: Snippet, profile: str) -> set[str]:
        """The digests of the runs of what this snippet is now on such a machine."""
        digests = set()
        for data in self.recordings:
            same = (data["snippet"], data["profile"]) == (snippet.name, profile)
            fresh = (data["source"]["sha256"], data["inputs"]) == (snippet.hash, snippet.input_hashes)
            if same and fresh:
                digests |= recording.run_digests(data)
        return digests

    def add(self, data: dict) -> None:
        """Append a recording."""
        with locked(self.path.absolute().parent):
            text = self.path.read_bytes() if self.path.exists() else b""
            if text and not text.endswith(b"\n"):
                text += b"\n"
            write(self.path, text + json.dumps(data, sort_keys=True).encode() + b"\n")
