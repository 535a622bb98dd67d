"""Reads the snippets and committed recordings of a checkout, and keeps what is wrong with each."""

import json
import tomllib
from functools import partial
from pathlib import Path

from overlap import OverlapError
from overlap.book.recording import Recording
from overlap.run import hardware
from overlap.run.recording import grade, machine_name, read
from overlap.run.snippet import Snippet, discover

#: What stands for recordings that `overlap.pyz` leaves out.
SECONDS = "docs/recordings/seconds.json"


class Library:
    """What a checkout holds when this is made."""

    def __init__(self, root: Path):
        self.root = root
        #: Snippets by name.
        self.snippets = discover(root)
        #: What this machine is called with no GPU visible, with one, with two …
        self.machines_here: list[str] = []
        here = hardware.here()
        for count in range(len(here["gpus"]) + 1):
            gpus = here["gpus"][:count]
            self.machines_here.append(machine_name(root, gpus, here["cpu"], here["cores"]))
        #: Committed recordings by snippet and machine, and what is wrong with the others.
        self.recordings: dict[str, dict[str, Recording]] = {}
        self.unreadable_recordings: list[str] = []
        for path in sorted(root.glob("docs/recordings/*/*/*.json")):
            try:
                recording = self._recording(path)
                self.recordings.setdefault(recording.data["snippet"], {})[recording.machine] = recording
            except OverlapError as error:
                self.unreadable_recordings.append(str(error))
        #: How long each snippet takes, by the number of GPUs, where recordings were left out.
        self.seconds: dict[str, dict[str, float]] = {}
        if (root / SECONDS).exists():
            self.seconds = json.loads((root / SECONDS).read_text(encoding="utf-8"))
        #: The reference machines, with the number of runs that each measurement should have there.
        self.references: dict[str, int] = {}
        pyproject = root / "pyproject.toml"
        if pyproject.exists():
            tools = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool", {})
            self.references = tools.get("overlap", {}).get("home", {})

    def snippet(self, name: str) -> Snippet:
        """The snippet of this name; a wrong name is an error that says why."""
        return self.snippets.get(name) or Snippet.read(self.root, name)

    def _recording(self, path: Path) -> Recording:
        data = read(path)
        where = path.relative_to(self.root).as_posix()
        name = f"{path.parent.name}/{path.stem}"
        if (data["snippet"], data[hardware.MACHINE]) != (name, path.parent.parent.name):
            reason = f"says it is {data['snippet']} on {data[hardware.MACHINE]}"
            raise OverlapError(f"{where}: {reason}; move or remove it")
        if name not in self.snippets:
            raise OverlapError(f"{where}: there is no snippets/{name}.py; remove the recording")
        graded = partial(grade, data, self.snippets[name], hardware.here(), self.machines_here)
        return Recording(data, where, is_local=False, graded=graded)
