"""A recording: what one snippet gave on one machine, as a JSON file that can be reviewed.

It holds one run that pages show, with what it printed, and of up to nine others of the same code on such
machines what was measured. A bundle
is a file of recordings, one a line, for machines that are reached by upload and download only.
"""

import codecs
import contextlib
import json
import re
from pathlib import Path

from overlap import OverlapError, cache
from overlap.cache import write
from overlap.run import hardware, noise
from overlap.run.snippet import Snippet

SCHEMA = 1
#: How many runs a recording has at most: the newest ones.
MOST_RUNS = 10
_REMEDY = "restore the file from version control or record the snippet again"
#: Grades: how fresh a recording is.
FRESH, CODE, ENVIRONMENT = "fresh", "code changed", "environment changed"
OTHER, MISSING = "other machine", "missing"


def all_runs(data: dict) -> list[dict]:
    """`run`, `machine`, `software` and `result` of each run; the one that is shown is first."""
    return [data, *data.get("others", [])]


def is_intact(data: dict) -> bool:
    """Whether its digest matches what was read: it was not edited by hand."""
    return digest(data) == data.get("digest")


def has_runs_of(data: dict, other: dict) -> bool:
    """Whether a recording has all runs of another one, too."""
    return data["digest"] == other["digest"] or run_digests(other) <= run_digests(data)


def digest(data: dict) -> str:
    """SHA-256 of everything in a recording but the digest itself."""
    return cache.digest({key: value for key, value in data.items() if key != "digest"})


def sealed(data: dict) -> dict:
    """The recording with its digest."""
    data = json.loads(json.dumps(data))  # as it is when it is read back: no tuples, keys are text
    return data | {"digest": digest(data)}


def merged(old: dict, new: dict) -> dict:
    """Both recordings as one: the newer run in full, of the others what was measured.

    A disturbed run does not take the place of a calm one. A run that both have counts once. Other code or
    another torch begins anew: then it is `new` alone.
    """
    if not _comparable(old, new):
        return new
    reduced = {}
    for run in [*old.get("others", []), *new.get("others", [])]:
        reduced.setdefault(run["digest"], run)
    # a run that either has already set aside for a better one stays so
    candidates = [data for data in (old, new) if run_digest(data) not in reduced]
    if not candidates:
        candidates = [old]
    shown = max(candidates, key=_order)
    for data in candidates:
        reduced[run_digest(data)] = _reduced(data)
    others = [run for key, run in reduced.items() if key != run_digest(shown)]
    others.sort(key=lambda run: run["run"]["started"], reverse=True)
    data = _alone(shown)
    if others:
        data["others"] = others[: MOST_RUNS - 1]
    return sealed(data)


def _comparable(old: dict, new: dict) -> bool:
    """Whether both are of the same code, on such a machine, with as many processes and the same releases."""
    for key in ("snippet", hardware.MACHINE, "source", "inputs"):
        if old[key] != new[key]:
            return False
    for key in ("cpu", "cores"):
        if not old["machine"]["gpus"] and old["machine"][key] != new["machine"][key]:
            return False
    for key in ("torch", "cuda", "numpy"):
        if _release(old["software"][key]) != _release(new["software"][key]):
            return False
    return _ranks(old) == _ranks(new)


def _order(data: dict) -> tuple:
    """Sort key of runs: the last one is shown; it is calm if one is, and then the newest."""
    busy = noise.is_disturbed(data["run"].get("noise") or {}, data["machine"]["cores"])
    return not busy, data["run"]["started"], run_digest(data)


def run_digest(data: dict) -> str:
    """The digest of the run that a recording shows."""
    return digest(_alone(data))


def run_digests(data: dict) -> set[str]:
    """The digests of all its runs."""
    return {run_digest(data), *(run["digest"] for run in data.get("others", []))}


def _alone(data: dict) -> dict:
    return {key: value for key, value in data.items() if key not in ("others", "digest")}


def _reduced(data: dict) -> dict:
    """What is kept of a run that is not shown."""
    return {
        "digest": run_digest(data),
        "run": data["run"],
        "machine": data["machine"] | {"links": []},
        "software": data["software"],
        "result": without_raw(data["result"]),
    }


def without_raw(value: object) -> object:
    """A result without raw trials and timelines."""
    if isinstance(value, dict):
        return {key: without_raw(inner) for key, inner in value.items() if not _is_raw(key, inner)}
    if isinstance(value, list):
        return [without_raw(item) for item in value]
    return value


def _is_raw(key: str, value: object) -> bool:
    return key.endswith("_trials") or (key in ("events", "timelines") and isinstance(value, (list, dict)))


def dump(data: dict) -> str:
    """The text of a recording: sorted keys, one item a line; each run beside the shown one is a line."""
    shown = {key: value for key, value in data.items() if key != "others"}
    text = json.dumps(shown, indent=1, sort_keys=True, ensure_ascii=False)
    if data.get("others"):
        lines = [json.dumps(run, sort_keys=True, ensure_ascii=False) for run in data["others"]]
        text = text.removesuffix("\n}") + ',\n "others": [\n  ' + ",\n  ".join(lines) + "\n ]\n}"
    return text + "\n"


def read(path: Path) -> dict:
    """Read a recording file."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise OverlapError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from None
    return parse(text, str(path))


def parse(text: bytes | str, origin: str, remedy: str = _REMEDY) -> dict:
    """Read a recording's text; a wrong one is an error that names `origin`, what is wrong, and the remedy.

    Fields are checked where pydantic is installed: a machine that only records can do without.
    """
    try:
        data = plain_json(text)
    except (ValueError, RecursionError) as error:
        raise OverlapError(f"{origin}: not JSON ({error}); {remedy}") from None
    if not isinstance(data, dict) or data.get("schema") is not SCHEMA:  # True equals 1
        raise OverlapError(f"{origin}: not a recording of schema {SCHEMA}; {remedy}")
    try:
        from overlap.run import schema
    except ImportError:
        problems = [] if is_intact(data) else ["its digest does not match its content"]
    else:
        problems = schema.problems(data)
    if problems:
        raise OverlapError(f"{origin}: {'; '.join(problems)}; {remedy}")
    return data


def plain_json(text: bytes | str) -> object:
    """The content of a JSON text. A key that stands twice, or half a character, is a ValueError."""
    data = json.loads(text, object_pairs_hook=_without_duplicates)
    escape = "\\ud" if isinstance(text, str) else b"\\ud"
    if escape in text.lower():  # only such an escape gives a text that cannot be written again
        json.dumps(data, ensure_ascii=False).encode()
    return data


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict:
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        key = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {key!r} stands twice in one object")
    return data


def add(path: Path, data: dict) -> tuple[dict | None, dict]:
    """Put runs with those that are recorded at this path; return what was recorded, and what is now.

    Nothing was recorded where the file was spoilt.
    """
    old = None
    if path.exists():
        with contextlib.suppress(OverlapError):  # a spoilt one is replaced
            old = read(path)
            data = merged(old, data)
    write(path, dump(data))
    return old, data


def bundled(path: Path) -> list[tuple[str, bytes]]:
    """(file:line, text) of each recording in a bundle."""
    try:
        text = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise OverlapError(f"{path}: cannot be read ({error.strerror}); copy the bundle here again") from None
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise OverlapError(f"{path}: is text in UTF-16, as PowerShell writes it; save it as UTF-8")
    lines = text.split(b"\n")
    return [(f"{path}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]


class Bundle:
    """A bundle that recordings are appended to. Each time it is written anew: a kill leaves the old file."""

    def __init__(self, path: Path):
        self.path = path
        self.recordings: list[dict] = []
        remedy = "take this line out, or name another file"
        if not path.absolute().parent.is_dir():
            raise OverlapError(f"{path}: there is no folder {path.parent}; make it, or name another file")
        if path.exists():
            self.recordings = [parse(line, where, remedy) for where, line in bundled(path)]

    def runs(self, snippet: Snippet, machine: str) -> set[str]:
        """The digests of its runs of this snippet, as its code is now, on such a machine."""
        digests = set()
        for data in self.recordings:
            of_snippet = (data["snippet"], data[hardware.MACHINE]) == (snippet.name, machine)
            if of_snippet and _is_of(data, snippet):
                digests |= run_digests(data)
        return digests

    def add(self, data: dict) -> None:
        """Append a recording."""
        text = self.path.read_bytes() if self.path.exists() else b""
        if text and not text.endswith(b"\n"):
            text += b"\n"
        write(self.path, text + json.dumps(data, sort_keys=True).encode() + b"\n")


def machine_name(root: Path, gpus: list[str], cpu: str, cores: int) -> str:
    """Name of a machine in the book at `root`; `cpu` if processor and cores are those of the book's CPU runs.

    Runs on other processors, or on another number of cores, are not put with the book's.
    """
    if gpus:
        return hardware.name_of(gpus)
    for path in sorted(root.glob("docs/recordings/cpu/*/*.json")):
        with contextlib.suppress(OverlapError):
            books = read(path)["machine"]
            if (books["cpu"], books["cores"]) != (cpu, cores):
                return hardware.cpu_name(cpu, cores)
            break
    return hardware.name_of([])


def machine_of(root: Path, here: dict) -> str:
    """Name of a recorded machine in the book at `root`."""
    return machine_name(root, [gpu["name"] for gpu in here["gpus"]], here["cpu"], here["cores"])


def grade(data: dict, snippet: Snippet, here: dict, machines_here: list[str]) -> str:
    """How fresh a recording is: by code, number of processes, machine and releases, never by time."""
    if not data["machine"]["gpus"] and _ranks(data) != snippet.options["ranks"]:
        return CODE
    if not _is_of(data, snippet):
        return CODE
    if data[hardware.MACHINE] not in machines_here:
        return OTHER
    for name, version in here["versions"].items():
        recorded = data["software"][name]
        if name != "python" and version and recorded and _release(version) != _release(recorded):
            return ENVIRONMENT
    return FRESH


def _is_of(data: dict, snippet: Snippet) -> bool:
    """Whether a recording is of what the snippet's code means now."""
    return data["source"]["sha256"] == snippet.digest and data["inputs"] == snippet.input_digests


def _release(version: str | None) -> str:
    """A version without its build: torch says 2.11.0+cu130 of itself, and its package 2.11.0."""
    return (version or "").partition("+")[0]


def _ranks(data: dict) -> int | None:
    """How many processes torchrun started, by the command; None without torchrun."""
    match = re.match(r"torchrun --nproc-per-node (\d+) ", data["run"]["command"])
    return int(match[1]) if match else None
