"""The one schema: what a recording, a line of a bundle and a snippet's header may hold, to the last field.

It needs pydantic, which a machine that only records need not have: import it through `overlap.run.strict.schema()`.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from overlap import OverlapError
from overlap.run import machine, strict


def _matching(pattern: str, words: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must be {words}, not {strict.shown(text)}")
        return text

    return AfterValidator(check)


def _without_control(allowed: str = "") -> AfterValidator:
    def check(text: str) -> str:
        if mark := strict.control_in(text, allowed):
            raise ValueError(f"must be one line of printable text, without {mark}")
        return text

    return AfterValidator(check)


def _gpu_name(name: str) -> str:
    if not name.isprintable() or strict.control_in(name):
        raise ValueError(f"must be printable, not {strict.shown(name)}")
    try:
        machine.profile([name])
    except OverlapError:
        raise ValueError(f"must name a machine, but no profile can be named after {strict.shown(name)}") from None
    return name


def _moment(text: str) -> str:
    try:
        zoned = re.match(r"20\d\d-\d\d-\d\dT\d\d:", text) and datetime.fromisoformat(text).tzinfo
    except ValueError:
        zoned = False
    if not zoned:
        raise ValueError(f"must be date, time and zone such as 2026-01-31T12:00:00+00:00, not {strict.shown(text)}")
    return text


_NAME = r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*"
_Short = Field(max_length=100)
Name = Annotated[str, Field(max_length=200), _matching(_NAME, "<chapter>/<snippet> in lower case")]
Profile = Annotated[str, _Short, _matching("[a-z0-9]+([-+][a-z0-9]+)*", "`cpu` or lower-case words joined by -")]
Path = Annotated[str, Field(max_length=250), _matching(rf"snippets/{_NAME}\.py", "snippets/<chapter>/<snippet>.py")]
Hash = Annotated[str, _matching("[0-9a-f]{64}", "a SHA-256 of 64 hex digits")]
Text = Annotated[str, Field(max_length=1000), _without_control()]
Said = Annotated[str, Field(min_length=1, max_length=1000), _without_control(), _matching(r".*\S.*", "some words")]
Row = Annotated[str, Field(max_length=1000), _without_control("\t")]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Some = Annotated[int, Field(gt=0, lt=10**15)]
Rate = Annotated[float, Field(gt=0, lt=1e15, allow_inf_nan=False)]


class _Form(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class Gpu(_Form):
    """One GPU a run could see."""

    name: Annotated[str, Field(min_length=1), _Short, AfterValidator(_gpu_name)]
    memory_bytes: Annotated[int, Field(gt=0)]
    capability: Annotated[str, _Short, _matching(r"\d+\.\d+", "a compute capability such as '9.0'")]
    sms: Some | None = None
    clock_mhz: Rate | None = None
    clock_max_mhz: Rate | None = None
    memory_clock_mhz: Rate | None = None
    memory_bus_bits: Some | None = None
    l2_bytes: Some | None = None
    pcie_generation: Some | None = None
    pcie_width: Some | None = None
    pcie_width_max: Some | None = None
    power_limit_w: Rate | None = None
    nvlinks: Count | None = None


class Machine(_Form):
    """What a run ran on."""

    gpus: Annotated[list[Gpu], Field(max_length=1024)]
    host_gpus: Count
    driver: Text | None
    links: Annotated[list[Row], Field(max_length=1000)]
    cpu: Text
    cores: Annotated[int, Field(ge=1, le=100_000)]
    system: Text
    virtual: bool | None = None
    host: Annotated[str, _matching("[0-9a-f]{8}", "8 hex digits")] | None = None

    @model_validator(mode="after")
    def _host_has_them(self) -> "Machine":
        if self.host_gpus < len(self.gpus):
            raise ValueError(f"host_gpus is {self.host_gpus}, but the run saw {len(self.gpus)} GPUs")
        return self


class Software(_Form):
    """Versions; null where something is not installed."""

    python: Said
    torch: Said
    torch_git: Text | None
    cuda: Text | None
    cudnn: Annotated[int, Field(ge=0, le=10**9)] | None
    nccl: Text | None
    numpy: Text | None
    triton: Text | None
    pycuda: Text | None


class Source(_Form):
    """The snippet that ran."""

    path: Path
    sha256: Hash


class Noise(_Form):
    """How busy the host was: what one small torch call cost before and after the run, and at least; shares of CPU time."""

    dispatch_us: Annotated[list[Rate], Field(min_length=2, max_length=2)]
    least_us: Rate
    steal: Share | None
    load: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None
    disturbed: bool


class Run(_Form):
    """How it ran; older recordings have `worked`, which nobody reads."""

    command: Said
    started: Annotated[str, _Short, AfterValidator(_moment)]
    seconds: Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
    exit: Annotated[int, Field(ge=0, le=0)]
    noise: Noise | None = None
    worked: Any = None


class Output(_Form):
    """An nbformat stream, with the rank that wrote it; terminal output may hold any character."""

    output_type: Literal["stream"]
    name: Literal["stdout", "stderr"]
    text: list[str]
    rank: Count


class Other(_Form):
    """A further run of the same code on such a machine: what was measured, and the digest of the recording it was."""

    digest: Hash
    run: Run
    machine: Machine
    software: Software
    result: dict[str, Any]


class Recording(_Form):
    """A recording file, or one line of a bundle."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    snippet: Name
    profile: Profile
    digest: Hash
    source: Source
    inputs: dict[Path, Hash]
    run: Run
    machine: Machine
    software: Software
    outputs: list[Output]
    result: dict[str, Any]
    others: Annotated[list[Other], Field(min_length=1, max_length=1000)] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> "Recording":
        if self.source.path != f"snippets/{self.snippet}.py":
            raise ValueError(f"source.path is {self.source.path}, but the recording is of {self.snippet}")
        if (self.profile == "cpu") != (not self.machine.gpus):
            raise ValueError(f"profile is {self.profile!r}, but machine.gpus names {len(self.machine.gpus)} GPUs")
        if any(len(other.machine.gpus) != len(self.machine.gpus) for other in self.others or ()):
            raise ValueError("others has a run with another number of GPUs")
        return self


class Options(_Form):
    """`[tool.overlap]` of a snippet's header."""

    gpus: Annotated[list[Count], Field(min_length=1, max_length=100)]
    timeout: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 60
    exclusive: bool = True
    launcher: Literal["python", "torchrun"] = "python"
    missing: dict[str, Said] = {}
    ranks: Annotated[int, Field(ge=1, le=1024)] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> "Options":
        if len(set(self.gpus)) < len(self.gpus):
            raise ValueError(f"gpus has a count twice: {strict.shown(self.gpus)}")
        if excess := [count for count in self.missing if count not in map(str, self.gpus)]:
            raise ValueError(f"missing excuses {strict.shown(excess[0])} GPUs, which gpus does not name")
        if self.launcher == "torchrun" and 0 in self.gpus and not self.ranks:
            raise ValueError("torchrun on the CPU needs to know how many processes: add ranks = 2")
        if self.launcher != "torchrun" and self.ranks:
            raise ValueError('ranks are processes of torchrun: add launcher = "torchrun", or drop ranks')
        return self


class Tool(BaseModel):
    """`[tool]` of a header; tables of other tools are theirs."""

    model_config = ConfigDict(strict=True, extra="allow")
    overlap: Options


class Header(_Form):
    """Inline script metadata (PEP 723)."""

    requires_python: Annotated[Said | None, Field(alias="requires-python")] = None
    dependencies: list[Said] = []
    tool: Tool


_TYPES = {"string": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list"}
_REASONS = {f"{kind}_type": f"must be {words}" for kind, words in _TYPES.items()}
_REASONS |= {"model_type": "must be a table of keys", "dict_type": "must be a table of keys"}


def problems(model: type[BaseModel], data) -> list[tuple[str, str]]:
    """What is wrong with data that should be of this form, as (dotted path, reason); empty when nothing is."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        return [(strict.dotted(step for step in item["loc"] if step != "[key]"), _why(model, item)) for item in found]
    return []


def _why(model: type[BaseModel], error: dict) -> str:
    kind, key = error["type"], error["loc"][-1] if error["loc"] else ""
    if kind == "missing":
        hints = {"gpus": " (write the counts, for instance gpus = [0, 1])", "tool": " (write [tool.overlap])"}
        return "is missing" + (hints.get(key, "") if model is Header else "")
    if kind == "extra_forbidden":
        known = _keys(model, error["loc"][:-1])
        near = get_close_matches(str(key), known, 1)
        return f"is unknown, did you mean {near[0]}?" if near else f"is unknown; known are {', '.join(known)}"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind in ("too_short", "string_too_short"):
        return "must not be empty"
    reason = _REASONS.get(kind) or re.sub(r"^\w+ should ", "must ", error["msg"]).partition(" after validation")[0]
    return f"{reason}, not {strict.shown(error['input'])}"


def _keys(model: type[BaseModel], path: tuple) -> list[str]:
    for step in path:
        if isinstance(step, str):
            fields = {field.alias or name: field for name, field in model.model_fields.items()}
            model = next(_forms(fields[step].annotation))
    return [field.alias or name for name, field in model.model_fields.items()]


def _forms(annotation) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _forms(inner)
