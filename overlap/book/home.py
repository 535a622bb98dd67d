"""The book's own machines: where a false claim stops the build, and how many runs stand behind each measurement."""

import re
from pathlib import Path

from overlap import OverlapError

_LINE = re.compile(r"^ +home:(.*)$", re.M)
_MACHINE = re.compile(r"\s*([a-z0-9]+(?:[-+][a-z0-9]+)*)\s*:\s*([1-9]\d?)\s*")


def home(root: Path) -> dict[str, int] | None:
    """Runs wanted by profile, as `home: {cpu: 3, h200: 3}` in mkdocs.yml says; None where it says nothing: then all are at home."""
    path = root / "mkdocs.yml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise OverlapError(f"{path}: cannot be read ({error}); mend it") from None
    if not (found := _LINE.search(text)):
        return None
    said = found[1].partition("#")[0].strip()
    machines = [_MACHINE.fullmatch(part) for part in said[1:-1].split(",")]
    if not (said.startswith("{") and said.endswith("}") and all(machines)):
        line = text.count("\n", 0, found.start()) + 1
        raise OverlapError(
            f"mkdocs.yml:{line}: `home:{found[1]}` names no machines; write `home: {{cpu: 3, h200: 3}}`"
        )
    return {machine[1]: int(machine[2]) for machine in machines}
