"""Which machines are the book's own, and which of several a page shows before a reader picks one."""

import tomllib
from pathlib import Path


def home(root: Path) -> dict[str, int] | None:
    """Runs wanted on each of the book's own machines: `home = {cpu = 3}` in pyproject.toml, [tool.overlap].

    None where it is not there: then every machine is one of the book's own.
    """
    path = root / "pyproject.toml"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return tomllib.loads(text).get("tool", {}).get("overlap", {}).get("home")


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
