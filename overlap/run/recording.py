"""A recording: what one snippet gave on one machine, as a JSON file that can be reviewed: one run whole, of others what was measured."""

import contextlib
import hashlib
import json
import os
import re
import stat
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from overlap import OverlapError
from overlap.run import strict
from overlap.run.snippet import Snippet

if TYPE_CHECKING:
    from overlap.run.memo import Memo

SCHEMA = 1
#: Runs that a recording keeps, the newest ones.
KEPT = 10
_TYPES = {str: "snippet profile digest", dict: "source inputs run machine software result", list: "outputs"}
_KEYS = {
    "source": "path sha256",
    "run": "command started seconds exit",
    "machine": "gpus host_gpus driver links cpu cores system",
    "software": "python torch torch_git cuda cudnn nccl numpy triton pycuda",
}
_REMEDY = "restore the file from version control or record the snippet again"
FRESH, CODE, ENVIRONMENT, OTHER, MISSING = "fresh", "code changed", "environment changed", "other machine", "missing"


class Recording(dict):
    """What a recording file holds."""

    @cached_property
    def intact(self) -> bool:
        """Whether its digest matches what was read: it was not edited by hand."""
        return digest(self) == self["digest"]

    @property
    def runs(self) -> list[dict]:
        """`run`, `machine`, `software` and `result` of every run: the one that is whole, then the others."""
        return [self, *(self.get("others") or [])]

    def has(self, other: "Recording") -> bool:
        """Whether all runs of another recording are in this one, too."""
        return self["digest"] == other["digest"] or run_digests(other) <= run_digests(self)


def digest(data: dict) -> str:
    """SHA-256 of everything in a recording but the digest itself."""
    body = {key: value for key, value in data.items() if key != "digest"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def sealed(data: dict) -> dict:
    """The recording with its digest, in the form it has once read back from JSON; what JSON cannot hold is refused."""
    try:
        text = json.dumps(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise OverlapError(
            f"{data.get('snippet')}: gave what is no plain JSON ({error}); let main() return less"
        ) from None
    data = strict.loads(text, str(data.get("snippet")), "let main() return plain JSON data")
    return data | {"digest": digest(data)}


def merged(old: dict, new: dict) -> dict:
    """Both recordings as one: the newer run whole, unless it was disturbed and the older was not; of the rest what was measured.

    A run that both have counts once. Other code or another torch begins anew: then it is `new` alone.
    """
    if not _comparable(old, new):
        return new
    others = {}
    for run in [*(old.get("others") or []), *(new.get("others") or [])]:
        others.setdefault(run["digest"], run)
    candidates = [data for data in (old, new) if run_digest(data) not in others] or [old]
    whole = max(candidates, key=rank)
    others |= {run["digest"]: run for run in map(_reduced, candidates)}
    others.pop(run_digest(whole))
    kept = sorted(others.values(), key=lambda run: run["run"]["started"], reverse=True)[: KEPT - 1]
    return sealed(_alone(whole) | ({"others": kept} if kept else {}))


def _comparable(old: dict, new: dict) -> bool:
    if any(old[key] != new[key] for key in ("snippet", "profile", "source", "inputs")) or _ranks(old) != _ranks(new):
        return False
    return all(
        (old["software"][key] or "").partition("+")[0] == (new["software"][key] or "").partition("+")[0]
        for key in ("torch", "cuda", "numpy")
    )


def rank(data: dict) -> tuple:
    """The highest of several runs of the same code is shown whole: calm, then new."""
    run = data["run"]
    return not (run.get("noise") or {}).get("disturbed", False), run["started"], run_digest(data)


def _alone(data: dict) -> dict:
    return {key: value for key, value in data.items() if key not in ("others", "digest")}


def run_digest(data: dict) -> str:
    """What tells a run from others."""
    return digest(_alone(data))


def run_digests(data: dict) -> set[str]:
    """The digests of all its runs."""
    return {run_digest(data), *(run["digest"] for run in data.get("others") or [])}


def _reduced(data: dict) -> dict:
    """What is kept of a run that is not shown whole: what was measured, without raw trials and timelines."""
    run = {key: data[key] for key in ("run", "machine", "software")}
    run["machine"] = run["machine"] | {"links": []}
    return run | {"digest": run_digest(data), "result": measured(data["result"])}


def measured(value):
    """What of a result was measured: without raw trials and timelines."""
    if isinstance(value, dict):
        return {key: measured(inner) for key, inner in value.items() if not _is_raw(key, inner)}
    return [measured(item) for item in value] if isinstance(value, list) else value


def _is_raw(key: str, value) -> bool:
    return key.endswith("_trials") or (key in ("events", "timelines") and isinstance(value, (list, dict)))


def dump(data: dict) -> str:
    """The text of a recording: sorted keys, one item a line; each run beside the whole one is a line."""
    text = json.dumps({k: v for k, v in data.items() if k != "others"}, indent=1, sort_keys=True, ensure_ascii=False)
    if data.get("others"):
        lines = ",\n  ".join(json.dumps(run, sort_keys=True, ensure_ascii=False) for run in data["others"])
        text = f'{text[:-2]},\n "others": [\n  {lines}\n ]\n}}'
    return text + "\n"


def parse(text: str | bytes, origin: str, remedy: str = _REMEDY) -> Recording:
    """Read a recording's text; what is not one is an error that names `origin`, what is wrong, and the remedy."""
    data = strict.loads(text, origin, remedy)
    if not isinstance(data, dict) or type(data.get("schema")) is not int or data["schema"] != SCHEMA:
        raise OverlapError(f"{origin}: not a recording of schema {SCHEMA}; {remedy}")
    schema = strict.schema()
    strict.refuse(origin, schema.problems(schema.Recording, data) if schema else _bare_problems(data), remedy)
    return Recording(data)


def read(path: Path, memo: "Memo | None" = None) -> Recording:
    """Read one recording file; what the memo knows to be valid is not validated again."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise OverlapError(f"{path}: is no file; remove it or name it otherwise")
        if found.st_size > strict.MAX_BYTES:
            raise OverlapError(f"{path}: larger than {strict.MAX_BYTES >> 20} MiB; {_REMEDY}")
        raw = path.read_bytes()
    except OSError as error:
        raise OverlapError(f"{path}: cannot be read ({error}); restore it or record the snippet again") from None
    if memo is None:
        return parse(raw, str(path))
    intact = memo.get("recording", hashlib.sha256(raw).hexdigest(), lambda: parse(raw, str(path)).intact)
    data = Recording(json.loads(raw))
    data.intact = intact
    return data


def load(path: Path) -> Recording:
    """Read one recording file without holding it against the schema; what lacks a key is an error that names it."""
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise OverlapError(f"{path}: not JSON ({error}); {_REMEDY}") from None
    except OSError as error:
        raise OverlapError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise OverlapError(f"{path}: not a recording of schema {SCHEMA}; {_REMEDY}")
    strict.refuse(str(path), _bare_problems(data), _REMEDY)
    return Recording(data)


@contextlib.contextmanager
def alone(folder: Path):
    """Within this only one process at a time reads and changes the recordings of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all; whoever is killed meanwhile leaves nothing beside it. An error names the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        spare = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            _write_beside(spare, text.encode())
            os.replace(spare, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(spare)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write_beside(spare: Path, content: bytes) -> None:
    """Write a file that has no name before it is whole, where the file system knows such files."""
    try:
        file = os.fdopen(os.open(spare.parent, os.O_TMPFILE | os.O_WRONLY, 0o644), "wb")
    except (AttributeError, OSError):
        spare.write_bytes(content)
        return
    with file:
        file.write(content)
        file.flush()
        # with a folder given, so that Python asks for the file behind this link
        os.link(f"/proc/self/fd/{file.fileno()}", spare, src_dir_fd=file.fileno(), follow_symlinks=True)


def _bare_problems(data: dict) -> list[tuple[str, str]]:
    """What a machine without pydantic looks at: that everything is there."""
    bad = [key for kind, keys in _TYPES.items() for key in keys.split() if not isinstance(data.get(key), kind)]
    for part in _KEYS if not bad else ():
        bad += [f"{part}.{key}" for key in _KEYS[part].split() if key not in data[part]]
    return [(key, "is missing or of a wrong kind") for key in bad]


def _ranks(data: dict) -> int | None:
    """How many processes torchrun started, by the command; None without torchrun."""
    found = re.match(r"torchrun --nproc-per-node (\d+) ", data["run"]["command"])
    return int(found[1]) if found else None


def grade(data: dict, snippet: Snippet, here: dict, profiles_here: set[str]) -> str:
    """How fresh a recording is: by what the code means, on how many processes and where it ran, never by time."""
    if not data["machine"]["gpus"] and _ranks(data) != snippet.options["ranks"]:
        return CODE
    if data["source"]["sha256"] != snippet.hash or data["inputs"] != snippet.input_hashes:
        return CODE
    if data["profile"] not in profiles_here:
        return OTHER
    then, now = data["software"], here["versions"]
    known = [key for key in now if key != "python" and now[key] and then[key]]
    # torch says 2.11.0+cu130 of itself and its package 2.11.0: the build tag is not compared
    changed = any(then[key].partition("+")[0] != now[key].partition("+")[0] for key in known)
    return ENVIRONMENT if changed else FRESH
