"""Which machines are the book's own, and which of several a page shows before a reader picks one."""

import tomllib
from pathlib import Path

from overlap import OverlapError


def home(root: Path) -> dict[str, int] | None:
    """Runs wanted on each of the book's own machines: `home = {cpu = 3}` in pyproject.toml, [tool.overlap].

    None where it is not there: then every machine is one of the book's own.
    """
    path = root / "pyproject.toml"
    if not path.exists():
        return None
    try:
        tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as error:
        raise OverlapError(f"pyproject.toml: cannot be read ({error}); mend it") from None
    machines = tools.get("overlap", {}).get("home")
    if machines is None:
        return None
    counts = machines.values() if isinstance(machines, dict) else [None]
    if not all(type(runs) is int and runs > 0 for runs in counts):
        reason = "`home` of [tool.overlap] gives no runs by machine"
        raise OverlapError(f"pyproject.toml: {reason}; write `home = {{cpu = 3, h200 = 3}}`")
    return machines


def shown_first(gpus: dict[str, int], home: dict[str, int] | None, best: int = 1) -> str | None:
    """Of machines with their GPU counts the one that a page shows first.

    One of the book's own comes first; then one of `best` GPUs, else of the fewest, and the CPU last. With
    `best` GPUs of a model that is one of the book's own a machine counts as the book's own, too.
    """

    def order(profile: str) -> tuple[bool, bool, bool, int]:
        count = gpus[profile]
        model = profile.removesuffix(f"-x{count}")
        own = home is None or profile in home or (count == best and model in home)
        return not own, count == 0, count != best, count

    return min(gpus, key=order, default=None)
