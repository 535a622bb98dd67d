"""A recording: what one snippet gave on one machine, as a JSON file that can be reviewed."""

import hashlib
import json
import os
import tempfile
from pathlib import Path

from overlap import OverlapError
from overlap.run.snippet import Snippet

SCHEMA = 1
_TYPES = {str: "snippet profile digest", dict: "source inputs run machine software result", list: "outputs"}
_KEYS = {
    "source": "path sha256",
    "run": "command started seconds exit",
    "machine": "gpus host_gpus driver links cpu cores system",
    "software": "python torch torch_git cuda cudnn nccl numpy triton pycuda",
}
FRESH, CODE, ENVIRONMENT, OTHER, MISSING = "fresh", "code changed", "environment changed", "other machine", "missing"


def digest(data: dict) -> str:
    """SHA-256 of everything in a recording but the digest itself."""
    body = {key: value for key, value in data.items() if key != "digest"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def sealed(data: dict) -> dict:
    """The recording with its digest, in the form it has once read back from JSON."""
    data = json.loads(json.dumps(data))
    return data | {"digest": digest(data)}


def dump(data: dict) -> str:
    """The text of a recording: sorted keys, one item a line."""
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def parse(text: str, origin: str) -> dict:
    """Read a recording's text; what is not one is an error that names `origin` and the remedy."""
    remedy = "restore the file from version control or record the snippet again"
    try:
        data = json.loads(text)
    except ValueError as error:
        raise OverlapError(f"{origin}: not JSON ({error}); {remedy}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise OverlapError(f"{origin}: not a recording of schema {SCHEMA}; {remedy}")
    bad = [key for kind, keys in _TYPES.items() for key in keys.split() if not isinstance(data.get(key), kind)]
    for part in _KEYS if not bad else ():
        bad += [f"{part}.{key}" for key in _KEYS[part].split() if key not in data[part]]
    if bad:
        raise OverlapError(f"{origin}: incomplete, without a proper {', '.join(bad)}; {remedy}")
    return data


def read(path: Path) -> dict:
    """Read one recording file."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise OverlapError(f"{path}: cannot be read ({error}); restore it or record the snippet again") from None


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".", suffix=".tmp", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def grade(data: dict, snippet: Snippet, here: dict, profiles_here: set[str]) -> str:
    """How fresh a recording is: by what the code means and where it ran, never by time."""
    if data["source"]["sha256"] != snippet.hash or data["inputs"] != snippet.input_hashes:
        return CODE
    if data["profile"] not in profiles_here:
        return OTHER
    then, now = data["software"], here["versions"]
    known = [key for key in now if key != "python" and now[key] and then[key]]
    # torch says 2.11.0+cu130 of itself and its package 2.11.0: the build tag is not compared
    changed = any(then[key].partition("+")[0] != now[key].partition("+")[0] for key in known)
    return ENVIRONMENT if changed else FRESH
