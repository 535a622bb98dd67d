"""What a recording may hold, to the last field. It needs pydantic, which recording can do without."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from overlap import OverlapError
from overlap.run import machine, snippet
from overlap.run.text import visible


def _one_line(text: str) -> str:
    if visible(text) != text or "\n" in text:
        raise ValueError("must be one line of printable text")
    return text


def _moment(text: str) -> str:
    if not datetime.fromisoformat(text).tzinfo:
        raise ValueError("must have a time zone, as in 2026-01-31T12:00:00+00:00")
    return text


def _matching(pattern: str) -> StringConstraints:
    return StringConstraints(pattern=rf"^(?:{pattern})$", max_length=250)


Name = Annotated[str, _matching(snippet.NAME)]
Path = Annotated[str, _matching(rf"snippets/{snippet.NAME}\.py")]
Hash = Annotated[str, _matching("[0-9a-f]{64}")]
Text = Annotated[str, Field(max_length=1000), AfterValidator(_one_line)]
Words = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_one_line)]
Row = Annotated[str, Field(max_length=1000)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Some = Annotated[int, Field(gt=0, lt=10**15)]
Rate = Annotated[float, Field(gt=0, lt=1e15)]


class _Form(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Gpu(_Form):
    """One GPU that a run could see."""

    name: Words
    memory_bytes: Some
    capability: Annotated[str, _matching(r"\d+\.\d+")]
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
    host: Annotated[str, _matching("[0-9a-f]{8}")] | None = None

    @model_validator(mode="after")
    def _host_has_them(self) -> "Machine":
        if self.host_gpus < len(self.gpus):
            raise ValueError(f"host_gpus is {self.host_gpus}, but the run saw {len(self.gpus)} GPUs")
        return self


class Software(_Form):
    """Versions; null where something is not installed."""

    python: Words
    torch: Words
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
    """How busy the host was: what a small torch call cost before and after the run, and at least."""

    dispatch_us: Annotated[list[Rate], Field(min_length=2, max_length=2)]
    least_us: Rate
    steal: Share | None
    load: Annotated[float, Field(ge=0, le=1e6)] | None
    disturbed: bool


class Run(_Form):
    """How it ran; older recordings have `worked`, which nobody reads."""

    command: Words
    started: Annotated[str, AfterValidator(_moment)]
    seconds: Annotated[float, Field(ge=0, le=1e7)]
    exit: Literal[0]
    noise: Noise | None = None
    worked: Any = None


class Output(_Form):
    """An nbformat stream, with the rank that wrote it; terminal output may hold any character."""

    output_type: Literal["stream"]
    name: Literal["stdout", "stderr"]
    text: list[str]
    rank: Count


class Other(_Form):
    """A further run of the same code on such a machine: what was measured, and its digest."""

    digest: Hash
    run: Run
    machine: Machine
    software: Software
    result: dict[str, Any]


class Recording(_Form):
    """A recording file, or one line of a bundle."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    snippet: Name
    profile: str
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
        for run in [self, *(self.others or [])]:
            names = [gpu.name for gpu in run.machine.gpus]
            try:
                profile = machine.profile(names)
            except OverlapError as error:
                raise ValueError(str(error)) from None
            if profile != self.profile:
                raise ValueError(
                    f"profile is {self.profile!r}, but a run with the GPUs {names} is of {profile!r}"
                )
        return self


def problems(data: dict) -> list[str]:
    """What is wrong with a recording, each with its field and the reason; the first five."""
    try:
        Recording.model_validate(data)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False)[:5]:
            field = ".".join(map(str, item["loc"]))
            value = f", not {item['input']!r:.60}" if item["type"] != "missing" and field else ""
            lines.append(f"{field}: {item['msg']}{value}".removeprefix(": "))
        return lines
    return []
