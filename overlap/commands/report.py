"""The report of `verify` for people."""

from collections.abc import Iterator

from overlap.book.limits import FAR
from overlap.book.statistic import show
from overlap.book.verdict import State
from overlap.commands.diagnosis import LOW
from overlap.run import hardware
from overlap.run.text import aligned, plural


def is_off(report: dict) -> bool:
    """Whether a headline is LOW, a claim false or a snippet failed."""
    if any(line["state"] == LOW for line in report["headlines"]):
        return True
    return any(claim["state"] == State.FALSE.word for claim in report["claims"]) or bool(report["failures"])


def as_text(report: dict) -> Iterator[str]:
    """A report for people, line by line."""
    here = report["machine"]
    label = hardware.label(hardware.name_of([gpu["name"] for gpu in here["gpus"]]))
    torch = report["software"]["torch"]
    yield f"Measured now: {label}, {here['cpu']}, {plural(here['cores'], 'core')}, torch {torch}"
    if not here["gpus"]:
        yield "torch sees no GPU here, so this measures the CPU; the page First steps tells why that may be."
    headlines = report["headlines"]
    rows = [_row(line, here, len({line["machine"] for line in headlines}) > 1) for line in headlines]
    yield from aligned(rows)
    if not rows:
        yield "No headline rate could be measured here."
    yield ""
    yield from _claims_as_text(report["claims"])
    left: dict[str, list[str]] = {}
    for item in report["unchecked"]:
        left.setdefault(item["why"], []).append(item["snippet"])
    for why, names in left.items():
        more = f" and {len(names) - 4} more" if names[4:] else ""
        yield f"Not measured ({why}): {', '.join(names[:4])}{more}"
    if report["failures"]:
        yield ""
        yield from report["failures"]
    yield ""
    yield from map(_fact, report["diagnosis"])
    if not any(line["compared"] for line in headlines):
        yield "Nothing could be compared with a recording."
    elif not any(line["state"] == LOW for line in headlines):
        yield "Nothing that could be compared is low."


def _claims_as_text(claims: list[dict]) -> Iterator[str]:
    decided = [claim for claim in claims if claim["machine"] is not None]
    count = {state: sum(claim["state"] == state.word for claim in decided) for state in State}
    false = [claim for claim in decided if claim["state"] == State.FALSE.word]
    disturbed = sum(bool(claim["busy"]) for claim in false)
    text = f"Claims that hold here: {count[State.HOLDS]}; false: {count[State.FALSE]}"
    if disturbed:
        text += f" ({disturbed} while this machine was busy)"
    yield f"{text}; cannot be decided: {count[State.OPEN]}; not checked: {len(claims) - len(decided)}"
    for claim in false:
        page = claim["page"].removesuffix(".md")  # the program alone has no docs: no file and line
        where = f"page {page}, claim {claim['name']}" if claim["name"] else f"page {page}"
        yield f"  {where}: false on {hardware.label(claim['machine'])}: {claim['text']}"
        yield f"    {claim['expression']}: {claim['figures']}"
        if claim["torch"]:
            yield f"    But it is another torch: {claim['torch'].removeprefix('torch ')}."
        if claim["busy"]:
            yield f"    But this machine was busy ({claim['busy']}): repeat it when calm."


def _row(line: dict, here: dict, several: bool) -> tuple[str, ...]:
    """Label, value, share, what is recorded, state; `several`: name the machine, too."""
    where = f" ({hardware.label(line['machine'])})" if several else ""
    share = ""
    if line["share"]:
        share = f"{line['share']:.0%} of {show(line['ceiling'])}"
        gpu = next(iter(here["gpus"]), {})
        if line["bound_by"] == "pcie" and {"pcie_generation", "pcie_width_max"} <= gpu.keys():
            share += f" (PCIe {gpu['pcie_generation']} x{gpu['pcie_width_max']})"
    comparison = line["why"]
    if line["compared"] == "model":
        same_model = line["recorded"][line["machine"]]
        span = f"{show(same_model['low'])} to {show(same_model['high'])}, " if same_model["runs"] > 1 else ""
        comparison = f"recorded: {show(same_model['median'])} ({span}{plural(same_model['runs'], 'run')})"
    elif line["compared"] == "family":
        least = line["bound"] / FAR / line["ceiling"]
        comparison = f"this model is not recorded; its family reaches at least {least:.0%}"
    return line["label"] + where, f"{show(line['value'])} {line['unit']}", share, comparison, line["state"]


def _fact(item: dict) -> str:
    """One line of the diagnosis."""
    labels = " and ".join(item["explains"])
    if item["fact"] is None:
        return f"Low, and the cause is not known: {labels}."
    text = item["fact"][0].upper() + item["fact"][1:]
    return f"{text}, which can hold down: {labels}." if labels else f"{text}."
