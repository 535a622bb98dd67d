"""What an expression knows of a machine, and whether a condition is true of it."""

from overlap.book.ceiling import ceilings
from overlap.book.expression import Data, evaluate
from overlap.book.recording import Recording
from overlap.run import hardware


def machine_scope(here: dict) -> dict:
    """What an expression or a condition knows of a recorded machine."""
    name = "the CPU"
    facts: dict = {}
    model = hardware.name_of([])
    capability = 0.0
    if here["gpus"]:
        first = here["gpus"][0]
        name = first["name"]
        model = hardware.name_of([name])
        capability = float(first["capability"])
        facts = {key: value for key, value in first.items() if value is not None}
    return {
        "model": model,
        "gpus": len(here["gpus"]),
        "capability": capability,
        "cores": here["cores"],
        "first_gpu": Data(facts, f"the recording of {name}"),
        "ceiling": Data(ceilings(here), f"ceiling of {name}"),
    }


def speaks_of(condition: str, recording: Recording) -> bool:
    """Whether a condition is true of a recording's machine; an empty one is true of all."""
    if not condition:
        return True
    return bool(evaluate(condition, machine_scope(recording.data["machine"])))
