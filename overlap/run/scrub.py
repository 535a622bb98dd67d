"""Takes out of a recording what names a person: paths, the names of host and user, serial numbers."""

import contextlib
import getpass
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

#: What stands in the place of what is taken out.
REMOVED = "…"
#: Folders that all Linux systems have, and that name nobody.
_COMMON = "bin|dev|etc|lib|lib64|proc|sbin|sys|usr"
_PATH = re.compile(rf"(?<![\w.:/~)\]])(?:~/|/(?!(?:{_COMMON})/)(?=[\w.+-]+/))[^\s'\"<>|,;:()\[\]{{}}]*")
_NUMBERS = (
    re.compile(r"\b(?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I),  # UUIDs
    re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.I),  # network cards
    re.compile(r"(?<![\w.])(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}(?![\w.])"),  # addresses
)
#: Names that nobody has for himself.
_NOBODY = ("root", "localhost", "")


def scrubbed(data: dict, code: str) -> dict:
    """The recording without them. A word that stands in the snippet's own code is no person's name."""
    names = [name for name in _names() if not re.search(rf"\b{re.escape(name)}\b", code)]
    folders = list(_folders())

    def clean(text: str) -> str:
        for folder in folders:
            text = text.replace(folder, REMOVED)
        text = _PATH.sub(_last, text).replace(REMOVED + REMOVED, REMOVED)
        for name in names:
            text = re.sub(rf"\b{re.escape(name)}\b", REMOVED, text)
        return text

    def clean_of_numbers(text: str) -> str:
        for pattern in _NUMBERS:
            text = pattern.sub(REMOVED, text)
        return clean(text)

    here = data["machine"]
    about = {"system": clean(here["system"]), "links": [clean(line) for line in here["links"]]}
    texts = {key: _walked(data[key], clean_of_numbers) for key in ("outputs", "result")}
    return data | texts | {"machine": here | about}


def _names() -> list[str]:
    """Names of this host and of its user, the longer ones first."""
    host = platform.node()
    names = {host, host.partition(".")[0], Path.home().name}
    with contextlib.suppress(KeyError, OSError):  # the user of a container may have no name
        names.add(getpass.getuser())
    return sorted(names - set(_NOBODY), key=len, reverse=True)


def _folders() -> Iterator[str]:
    """Folders of this machine that may have spaces in their names, the longer ones first."""
    folders = {Path.cwd(), Path.home(), Path(sys.prefix), Path(sys.base_prefix), Path(tempfile.gettempdir())}
    for folder in sorted(map(str, folders), key=len, reverse=True):
        if folder.count("/") > 1 or " " in folder:
            yield folder


def _walked(value: object, clean: Callable[[str], str]) -> object:
    """A value with all its texts clean, keys included."""
    if isinstance(value, dict):
        return {clean(key): _walked(inner, clean) for key, inner in value.items()}
    if isinstance(value, list):
        return [_walked(item, clean) for item in value]
    return clean(value) if isinstance(value, str) else value


def _last(path: re.Match) -> str:
    """Keep the name of a file, which says where a warning comes from; remove its folders."""
    name = path[0].rpartition("/")[2]
    return f"{REMOVED}/{name}" if re.search(r"\.\w+$", name) else REMOVED
