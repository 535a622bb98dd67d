"""A file of recordings, one a line, for machines that are reached by upload and download only."""

import contextlib
import json
from pathlib import Path

from overlap import OverlapError
from overlap.run import recording
from overlap.run.snippet import Snippet

_BEGIN = b'{"digest": '


class Bundle:
    """A bundle to go on with: `recordings` is what it has, `mended` says what had to be cut off."""

    def __init__(self, path: Path):
        self.path, self.mended = path, ""
        with self._open() as file:
            file.seek(0)
            text = file.read()
            end = text.rfind(b"\n") + 1
            lines, torn = text[:end].decode("utf-8", "replace").split("\n")[:-1], text[end:]
            self.recordings = [recording.parse(line, f"{path}:{i}") for i, line in enumerate(lines, 1) if line.strip()]
            if torn:
                self._mend(file, end, torn)

    def _mend(self, file, end: int, torn: bytes) -> None:
        try:
            self.recordings.append(recording.parse(torn.decode("utf-8", "replace"), str(self.path)))
            file.write(b"\n")
        except OverlapError as error:
            if torn.endswith(b"}") or not _BEGIN.startswith(torn[: len(_BEGIN)]):
                raise OverlapError(f"{self.path}: is not a bundle; name another file. {error}") from None
            file.truncate(end)
            self.mended = f"{self.path}: the last line was torn ({len(torn):,} bytes) and is cut off"

    def runs(self, snippet: Snippet, profile: str) -> int:
        """How often what this snippet is now has been recorded on such a machine."""
        wanted = (snippet.name, profile, snippet.hash, snippet.input_hashes)
        return sum(
            (data["snippet"], data["profile"], data["source"]["sha256"], data["inputs"]) == wanted
            for data in self.recordings
            if data["digest"] == recording.digest(data)
        )

    def add(self, data: dict) -> None:
        """Append a recording."""
        with self._open() as file:
            file.write(json.dumps(data, sort_keys=True).encode() + b"\n")

    @contextlib.contextmanager
    def _open(self):
        """The file, to be read and appended to by one process at a time."""
        try:
            with open(self.path, "a+b") as file:
                with contextlib.suppress(ImportError, OSError):
                    import fcntl

                    fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except OSError as error:
            raise OverlapError(f"{self.path}: cannot be written ({error.strerror}); name another file") from None
