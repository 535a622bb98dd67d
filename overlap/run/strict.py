"""Strict JSON, and the words for what is wrong with data. It needs the standard library only."""

import json
import math
import re
import reprlib
from collections.abc import Iterable, Iterator
from types import ModuleType

from overlap import OverlapError
from overlap.run.text import CONTROL, INVISIBLE, TURNING

MAX_BYTES, MAX_DEPTH, MAX_LISTED = 64 << 20, 100, 5
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_ONE_LINE = re.compile(f"[\t\n{CONTROL}{TURNING}{INVISIBLE}]")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlevel = 2


class _Twice(dict):
    """A JSON object in which keys stand twice."""

    keys_twice: tuple[str, ...]


def schema() -> ModuleType | None:
    """The schema, imported when something must be validated; None on a machine without pydantic, which only records."""
    try:
        from overlap.run import schema
    except ImportError:
        return None
    return schema


def decode(raw: bytes, origin: str, remedy: str) -> str:
    """UTF-8 text without a byte order mark; what is not is an error that names line and byte."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise OverlapError(f"{origin}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8; {remedy}") from None
    if text.startswith("\ufeff"):
        raise OverlapError(f"{origin}: begins with a byte order mark, which has no place in UTF-8; {remedy}")
    return text


def loads(raw: str | bytes, origin: str, remedy: str):
    """Read JSON without NaN, keys that stand twice, lone surrogates, or more than 100 levels; every error names `origin`."""
    if len(raw) > MAX_BYTES:
        raise OverlapError(f"{origin}: larger than {MAX_BYTES >> 20} MiB; {remedy}")
    text = decode(raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass"), origin, remedy)
    try:
        data = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise OverlapError(f"{origin}: nested deeper than {MAX_DEPTH} levels; {remedy}") from None
    except ValueError as error:
        raise OverlapError(f"{origin}: not JSON ({error}); {remedy}") from None
    refuse(origin, _problems(data), remedy)
    return data


def refuse(origin: str, problems: Iterable[tuple[str, str]], remedy: str) -> None:
    """Raise one error for all problems (where, why), the first five in words; without any, do nothing."""
    texts = [
        f"{where} {why}" if why.startswith(("is ", "must ", "stands ")) else f"{where}: {why}"
        for where, why in problems
    ]
    texts = [text.removeprefix(": ") for text in texts]
    if len(texts) == 1:
        raise OverlapError(f"{origin}: {texts[0]}; {remedy}")
    if texts:
        lines = "".join(f"\n  {text}" for text in texts[:MAX_LISTED])
        more = f"\n  and {len(texts) - MAX_LISTED} more" if len(texts) > MAX_LISTED else ""
        raise OverlapError(f"{origin}: {len(texts)} problems; {remedy}{lines}{more}")


def shown(value) -> str:
    """A value as it can stand in a message: short and printable."""
    return _SHORT.repr(value)


def dotted(steps: Iterable[str | int]) -> str:
    """A path such as `machine.gpus[0].name`; keys that are no plain words are quoted."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif re.fullmatch(r"[\w-]{1,80}", step):
            path += f".{step}" if path else step
        else:
            path += f"[{shown(step)}]"
    return path


def control_in(text: str, allowed: str = "") -> str | None:
    """The first control character (or lone surrogate) of a text, escaped; None where there is none."""
    found = next((mark for mark in _NOT_ONE_LINE.findall(text) if mark not in allowed), None)
    return found and ascii(found)[1:-1]


def _object(pairs: list[tuple]) -> dict:
    data = dict(pairs)
    if len(data) == len(pairs):
        return data
    keys = [key for key, _ in pairs]
    twice = _Twice(data)
    twice.keys_twice = tuple(key for key in data if keys.count(key) > 1)
    return twice


def _problems(data) -> Iterator[tuple[str, str]]:
    if not isinstance(data, (dict, list)):
        data = [data]
    todo = [((), data)]
    while todo:
        path, node = todo.pop()
        if len(path) >= MAX_DEPTH:
            yield dotted(path[:3]) + "…", f"is nested deeper than {MAX_DEPTH} levels"
            continue
        for key in node.keys_twice if isinstance(node, _Twice) else ():
            yield dotted((*path, key)), "stands twice in its object"
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(child, (dict, list)):
                todo.append(((*path, key), child))
            elif why := _scalar(child):
                yield dotted((*path, key)), why
            if isinstance(key, str) and _SURROGATE.search(key):
                yield dotted((*path, key)), "is no text: its key has half a character (a lone surrogate)"


def _scalar(value) -> str | None:
    if isinstance(value, str):
        lone = None if value.isascii() else _SURROGATE.search(value)
        return f"is no text: {shown(value)} has half a character (a lone surrogate)" if lone else None
    if isinstance(value, int) and value.bit_length() > 1023:
        return f"is too large for a number: {shown(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, but NaN, Infinity and numbers beyond 1e308 are not JSON"
    return None
