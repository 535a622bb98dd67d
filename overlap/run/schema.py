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

from overlap.run import hardware, snippet


def _matching(pattern: str) -> StringConstraints:
    return StringConstraints(pattern=rf"^(?:{pattern})$", max_length=250)


Digest = Annotated[str, _matching("[0-9a-f]{64}")]
Path = Annotated[str, _matching(rf"snippets/{snippet.NAME}\.py")]
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
Count = Annotated[int, Field(ge=0)]
Some = Annotated[float, Field(gt=0)]


def _with_a_day(text: str) -> str:
    """A time as ISO 8601 writes it."""
    datetime.fromisoformat(text)
    return text


class _Form(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Gpu(_Form):
    """One GPU that a run could see."""

    name: Text
    memory_bytes: Some
    capability: Annotated[str, _matching(r"\d+\.\d+")]
    sms: Some | None = None
    clock_mhz: Some | None = None
    clock_max_mhz: Some | None = None
    memory_clock_mhz: Some | None = None
    memory_bus_bits: Some | None = None
    l2_bytes: Some | None = None
    pcie_generation: Some | None = None
    pcie_width: Some | None = None
    pcie_width_max: Some | None = None
    power_limit_w: Some | None = None
    nvlinks: Count | None = None


class Machine(_Form):
    """What a run ran on."""

    gpus: list[Gpu]
    host_gpus: Count
    driver: Text | None
    links: list[str]
    cpu: Text
    cores: Annotated[int, Field(ge=1)]
    system: Text
    virtual: bool | None = None
    host: Annotated[str, _matching("[0-9a-f]{8}")] | None = None


class Software(_Form):
    """Versions; null where something is not installed."""

    python: Text
    torch: Text
    torch_git: Text | None
    cuda: Text | None
    cudnn: int | None
    nccl: Text | None
    numpy: Text | None
    triton: Text | None
    pycuda: Text | None


class Source(_Form):
    """The snippet that ran."""

    path: Path
    sha256: Digest


class Noise(_Form):
    """How busy the host was: its load, and shares of CPU time that other machines and processes took.

    Where one looked, also what a small torch call costs at least. Older recordings have what it cost before
    and after the run, and a verdict on that, which nobody reads.
    """

    dispatch_us: Any = None
    least_us: Some | None = None
    steal: float | None
    others: float | None = None
    load: float | None
    disturbed: Any = None


class Run(_Form):
    """How it ran; older recordings have `worked`, which nobody reads."""

    command: Text
    started: Annotated[Text, AfterValidator(_with_a_day)]
    seconds: Annotated[float, Field(ge=0)]
    exit: Annotated[int, Field(ge=0, le=0)]
    noise: Noise | None = None
    worked: Any = None


class Output(_Form):
    """An nbformat stream, with the rank that wrote it."""

    output_type: Literal["stream"]
    name: Literal["stdout", "stderr"]
    text: list[str]
    rank: Count


class Other(_Form):
    """A run beside the one that is shown: what was measured, and its digest."""

    digest: Digest
    run: Run
    machine: Machine
    software: Software
    result: dict[str, Any]


class Recording(Other):
    """A recording file, or one line of a bundle: a run that is shown, and others beside it."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    snippet: Annotated[str, _matching(snippet.NAME)]
    machine_name: Annotated[Text, Field(alias=hardware.MACHINE)]
    source: Source
    inputs: dict[Path, Digest]
    outputs: list[Output]
    others: list[Other] = []

    @model_validator(mode="after")
    def _fits_together(self) -> "Recording":
        if self.source.path != f"snippets/{self.snippet}.py":
            raise ValueError(f"source.path is {self.source.path}, but the recording is of {self.snippet}")
        for run in [self, *self.others]:
            names = [gpu.name for gpu in run.machine.gpus]
            for name in names:
                if not hardware.is_one_gpu(hardware.name_of([name])):
                    raise ValueError(f"{name!r} is no name of a GPU")
            machines = [hardware.name_of(names)]
            if not names:
                machines.append(hardware.cpu_name(run.machine.cpu, run.machine.cores))
            if self.machine_name not in machines:
                known = " or ".join(machines)
                raise ValueError(f"{hardware.MACHINE} is {self.machine_name!r}, but a run is of {known}")
        return self


def problems(data: dict) -> list[str]:
    """What is wrong with a recording, each with its field and the reason; the first three."""
    try:
        Recording.model_validate(data)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False)[:3]:
            field = ".".join(map(str, item["loc"]))
            lines.append(f"{field}: {item['msg']}".removeprefix(": "))
        return lines
    return []
