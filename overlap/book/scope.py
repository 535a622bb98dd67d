"""What expressions see: the result of a snippet, the machine it ran on, and other snippets' results there."""

from collections.abc import Callable, Iterable

from overlap.book.ceiling import ceilings
from overlap.book.expression import Chapter, Data, wrap
from overlap.run import machine

#: What a condition knows of a machine.
KNOWN = {"profile", "model", "gpus", "capability", "cores", "ceiling"}


def machine_scope(profile: str, here: dict) -> dict:
    """What an expression or a condition knows of a recorded machine, by the names in `KNOWN`."""
    gpus = here["gpus"]
    name = gpus[0]["name"] if gpus else "the CPU"
    return {
        "profile": profile,
        "model": machine.profile([name] if gpus else []),
        "gpus": len(gpus),
        "capability": float(gpus[0]["capability"]) if gpus else 0.0,
        "cores": here["cores"],
        "ceiling": Data(ceilings(here), f"ceiling of {name}"),
    }


def result_scope(
    name: str, profile: str, run: dict, snippets: Iterable[str], load: Callable[[str], dict]
) -> dict:
    """What an expression over one run of a snippet sees; `load` gives other snippets' results there."""
    chapters = {other.partition("/")[0] for other in snippets}
    scope = {chapter: Chapter(chapter, load) for chapter in chapters}
    scope |= machine_scope(profile, run["machine"])
    scope |= {key: wrap(value, f"{name}.{key}") for key, value in run["result"].items()}
    return scope


def mistaken(result: dict, snippets: Iterable[str]) -> str:
    """What of a result a page would take for something of the machine, or for another snippet's result.

    Empty where there is nothing.
    """
    for key in sorted(result):
        if key in KNOWN - {"model"}:
            return f"its result has {key}, which pages know as something of the machine"
    for name in sorted(snippets):
        chapter, _, rest = name.partition("/")
        inside = result.get(chapter)
        if isinstance(inside, dict) and rest in inside:
            return f"its result has {chapter}.{rest}, which pages know as the result of {name}"
    return ""
