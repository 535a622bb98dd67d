"""A file of recordings, one a line, for machines that are reached by upload and download only."""

import contextlib
import json
import os
import stat
from pathlib import Path

from overlap import OverlapError
from overlap.run import recording
from overlap.run.snippet import Snippet

_BEGIN = b'{"digest": '
_REMEDY = "take this line out, or name another file"


def bundle_lines(path: Path) -> list[bytes]:
    """The lines of a bundle as they are; what is no file, or has none, is an error."""
    remedy = "copy the bundle here again"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OverlapError(f"{path}: cannot be read (it is no file); {remedy}")
        lines = path.read_bytes().split(b"\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OverlapError(f"{path}: cannot be read ({reason}); {remedy}") from None
    if not any(map(bytes.strip, lines)):
        raise OverlapError(f"{path}: has no recording in it; {remedy}")
    return lines


def parsed(line: bytes, where: str, remedy: str) -> recording.Recording:
    """The recording that a line holds; what is none is an error that names `where` and the remedy."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OverlapError(f"{where}: byte 0x{line[error.start]:02x} is not UTF-8; {remedy}") from None
    return recording.parse(text, where, remedy)


class Bundle:
    """A bundle to go on with: `recordings` is what it has, `mended` says what had to be cut off."""

    def __init__(self, path: Path):
        self.path, self.mended = path, ""
        with self._open() as file:
            file.seek(0)
            text = file.read()
            end = text.rfind(b"\n") + 1
            lines, torn = text[:end].split(b"\n"), text[end:]
            numbered = [(f"{path}:{i}", line) for i, line in enumerate(lines, 1) if line.strip()]
            self.recordings = [parsed(line, where, _REMEDY) for where, line in numbered]
            if torn:
                self._mend(file, end, torn)

    def _mend(self, file, end: int, torn: bytes) -> None:
        try:
            self.recordings.append(parsed(torn, str(self.path), _REMEDY))
            file.write(b"\n")
        except OverlapError as error:
            if torn.endswith(b"}") or not _BEGIN.startswith(torn[: len(_BEGIN)]):
                raise OverlapError(f"{self.path}: is not a bundle; name another file. {error}") from None
            file.truncate(end)
            self.mended = f"{self.path}: the last line was torn ({len(torn):,} bytes) and is cut off"

    def runs(self, snippet: Snippet, profile: str) -> set[str]:
        """The digests of the runs of what this snippet is now on such a machine."""
        return {digest for data in self.of(snippet, profile) for digest in recording.run_digests(data)}

    def of(self, snippet: Snippet, profile: str) -> list[dict]:
        """The recordings of what this snippet is now on such a machine; a run whose kernels were counted later is there twice."""
        wanted = (snippet.name, profile, snippet.hash, snippet.input_hashes)
        return [
            data
            for data in self.recordings
            if (data["snippet"], data["profile"], data["source"]["sha256"], data["inputs"]) == wanted
            and data["digest"] == recording.digest(data)
        ]

    def add(self, data: dict) -> None:
        """Append a recording."""
        self.recordings.append(data)
        with self._open() as file:
            file.write(json.dumps(data, sort_keys=True).encode() + b"\n")

    @contextlib.contextmanager
    def _open(self):
        """The file, to be read and appended to by one process at a time."""
        try:
            with open(self.path, "a+b") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OverlapError(f"{self.path}: cannot be written (it is no file); name another file")
                with contextlib.suppress(ImportError, OSError):
                    import fcntl

                    fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OverlapError(f"{self.path}: cannot be written ({reason}); name another file") from None
