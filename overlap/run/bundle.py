"""A bundle: a file of recordings, one a line, for machines that are reached by upload and download only."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from overlap import OverlapError
from overlap.run import recording
from overlap.run.recording import Recording
from overlap.run.snippet import Snippet

_BEGIN = b'{"digest": '
_REMEDY = "take this line out, or name another file"


def lines(path: Path) -> list[tuple[str, bytes]]:
    """(file:line, text) of each recording in a bundle."""
    try:
        numbered = enumerate(path.read_bytes().split(b"\n"), 1)
    except (OSError, ValueError) as error:
        raise OverlapError(f"{path}: cannot be read ({error}); copy the bundle here again") from None
    every = [(f"{path}:{number}", line) for number, line in numbered if line.strip()]
    if not every:
        raise OverlapError(f"{path}: has no recording in it; copy the bundle here again")
    return every


class Bundle:
    """A bundle to go on with: `recordings` is what it has, `mended` says what had to be cut off."""

    def __init__(self, path: Path):
        self.path = path
        self.mended = ""
        with self._open() as file:
            file.seek(0)
            whole, newline, rest = file.read().rpartition(b"\n")
            numbered = enumerate(whole.split(b"\n"), 1)
            self.recordings = [
                recording.parse(line, f"{path}:{number}", _REMEDY)
                for number, line in numbered
                if line.strip()
            ]
            if rest:
                self._mend(file, len(whole + newline), rest)

    def _mend(self, file, end: int, rest: bytes) -> None:
        """Complete the last line, or cut it off where its writer was killed."""
        try:
            self.recordings.append(recording.parse(rest, str(self.path), _REMEDY))
            file.write(b"\n")
        except OverlapError as error:
            if rest.endswith(b"}") or not _BEGIN.startswith(rest[: len(_BEGIN)]):
                raise OverlapError(f"{self.path}: is not a bundle; name another file. {error}") from None
            file.truncate(end)
            self.mended = f"{self.path}: the last line was torn ({len(rest):,} bytes) and is cut off"

    def runs(self, snippet: Snippet, profile: str) -> set[str]:
        """The digests of the runs of what this snippet is now on such a machine."""
        digests = set()
        for data in self.recordings:
            same = (data["snippet"], data["profile"]) == (snippet.name, profile)
            fresh = (data["source"]["sha256"], data["inputs"]) == (snippet.hash, snippet.input_hashes)
            if same and fresh and data.intact:
                digests |= recording.run_digests(data)
        return digests

    def add(self, data: dict) -> None:
        """Append a recording."""
        self.recordings.append(Recording(data))
        with self._open() as file:
            file.write(json.dumps(data, sort_keys=True).encode() + b"\n")

    @contextlib.contextmanager
    def _open(self) -> Iterator:
        """The file, to be read and appended to by one process at a time."""
        try:
            with open(self.path, "a+b") as file:
                with contextlib.suppress(ImportError):
                    import fcntl

                    fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except (OSError, ValueError) as error:
            raise OverlapError(f"{self.path}: cannot be written ({error}); name another file") from None
