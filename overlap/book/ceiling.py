"""What a machine cannot pass: ceilings from what its GPU says of itself, and what its datasheet prints."""

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

#: 10^9 bits a lane carries each second and way, by PCIe generation: 8b/10b, then 128b/130b, then 242 of a
#: flit's 256 bytes.
_LANE_GBIT = {
    1: 2.5 * 8 / 10,
    2: 5 * 8 / 10,
    3: 8 * 128 / 130,
    4: 16 * 128 / 130,
    5: 32 * 128 / 130,
    6: 64 * 242 / 256,
}
#: Bytes of the largest packet's payload on most hosts, and of its header; framing, sequence number and
#: checksum of a packet before flits.
_PAYLOAD, _HEADER, _FRAME = 256, 12, 8

#: How NVIDIA's drivers name their GPUs, old ones and those of boards included. Capabilities are numbers of
#: NVIDIA's: of another maker's GPU that says "9.0" too, the tables know nothing.
_NVIDIA = re.compile(r"(NVIDIA|Tesla|Quadro|GeForce|TITAN|GRID|Xavier|Orin|Thor)\b")


def ceilings(machine: dict) -> dict:
    """Ceilings of a recorded machine's first GPU, as far as the recording or `gpus.toml` knows them.

    Of a GPU that NVIDIA did not make there are none.

    Rates are SMs × FLOP per clock × the largest clock, in TFLOP/s: `bf16_tflop_s`, `fp16_…`, `tf32_…`,
    `fp8_…` (tensor cores), `fp32_…`, `fp64_…`. The FLOP per clock are those of the capability, but for
    GeForce cards and for models whose datasheet says otherwise. A clock may pass what the GPU reports as its
    largest by a few per cent: `limits.ABOVE`. Bandwidths are GB/s: `hbm_gb_s` is the memory's bus ×
    clock × 2 whatever its kind, `pcie_gb_s` and `nvlink_gb_s` are one way. `memory_gb` counts 10⁹ bytes.
    Beside `sms`, `clock_mhz` and `power_limit_w`, `flop_per_clock` has the table's row of one SM by data
    type, and `datasheet` the printed figures under the names above. What else is recorded of a GPU is no
    ceiling: expressions know it as `first_gpu`.
    """
    gpus = machine.get("gpus")
    if not gpus or not _NVIDIA.match(gpus[0].get("name", "")):
        return {}
    sheet = _tables()["datasheet"].get(gpus[0]["name"], {})
    gpu = sheet | {key: value for key, value in gpus[0].items() if value is not None}
    kind = _tables()["capability"].get(gpu.get("capability"), {})
    clock = max(gpu.get("clock_mhz", 0), gpu.get("clock_max_mhz", 0))
    per_clock = kind.get("flop_per_clock", {}) | sheet.get("flop_per_clock", {})
    if "GeForce" in gpu["name"]:
        per_clock |= kind.get("geforce", {})
    limits = {
        "sms": gpu.get("sms"),
        "clock_mhz": clock,
        "power_limit_w": gpu.get("power_limit_w"),
        "memory_gb": gpu.get("memory_bytes", 0) / 1e9,
        "flop_per_clock": per_clock,
        "datasheet": sheet and sheet["figures"] | {"sms": sheet["sms"]},
        "nvlink_gb_s": _neat(gpu.get("nvlinks", 0) * kind.get("nvlink_gb_s", 0)),
    }
    for dtype, flop in per_clock.items():
        limits[f"{dtype}_tflop_s"] = _neat(gpu.get("sms", 0) * flop * clock / 1e6)
    if not kind.get("integrated"):
        limits["hbm_gb_s"] = _neat(
            gpu.get("memory_clock_mhz", 0) * gpu.get("memory_bus_bits", 0) * 2 / 8 / 1e3
        )
        if "host_link" not in gpu:
            limits |= _pcie(gpu)
    return {key: value for key, value in limits.items() if value}


@cache
def clocked() -> frozenset[str]:
    """The names of those ceilings that a clock is in."""
    tables = _tables()
    kinds = [*tables["capability"].values(), *tables["datasheet"].values()]
    dtypes = {dtype for kind in kinds for dtype in kind.get("flop_per_clock", {}) | kind.get("geforce", {})}
    return frozenset({"clock_mhz", *(f"{dtype}_tflop_s" for dtype in dtypes)})


def family(machine: dict) -> str:
    """The capability of a recorded machine's first GPU, if `gpus.toml` has its datasheet; else nothing.

    GPUs of one family reach similar shares of their ceilings. Of a model that is not in the table nobody has
    looked up whether the rule of its capability holds.
    """
    gpus = machine.get("gpus")
    if not gpus or gpus[0].get("name") not in _tables()["datasheet"]:
        return ""
    return gpus[0].get("capability", "")


def kinship(machines: Sequence[dict]) -> str:
    """What recorded machines have in common, so that they repeat a result less than their number says.

    `all of one GPU family (Hopper), one kind of host`: the architecture of their GPUs, and the processor that
    they name, on a virtual machine or not. Empty for one machine, and where they differ.
    """
    names = {_architecture(machine) for machine in machines}
    if len(machines) < 2 or len(names) > 1 or "" in names:
        return ""
    text = f"all of one GPU family ({names.pop()})"
    hosts = {(machine.get("cpu"), machine.get("virtual")) for machine in machines}
    return f"{text}, one kind of host" if len(hosts) == 1 else text


def _architecture(machine: dict) -> str:
    gpus = machine.get("gpus") or [{}]
    return _tables()["capability"].get(gpus[0].get("capability"), {}).get("architecture", "")


def _pcie(gpu: dict) -> dict[str, float]:
    """Rates of the link at its full width; `pcie_payload_gb_s` is what is left to the data.

    The PCI Express Base Specification gives a packet a header of at least 12 bytes; up to generation 5 a
    framing token with the sequence number and a checksum take 4 bytes each: 256 of 276 bytes. In generation 6
    a flit of 256 bytes has 236 for packets, of 256 and 12 bytes. Packets that acknowledge and grant credit
    take a little more. Where a host allows packets of 512 bytes the data may pass this figure, but not
    `pcie_gb_s`.
    """
    generation = gpu.get("pcie_generation", 0)
    rate = _LANE_GBIT.get(generation, 0) / 8 * gpu.get("pcie_width_max", 0)
    payload = _PAYLOAD / (_PAYLOAD + _HEADER + _FRAME)
    if generation >= 6:
        payload = _PAYLOAD / (_PAYLOAD + _HEADER) * 236 / 242
    return {"pcie_gb_s": _neat(rate), "pcie_payload_gb_s": _neat(payload * rate)}


def _neat(rate: float) -> float:
    """To four digits, as a whole number where it is one."""
    rate = float(f"{rate:.4g}")
    return int(rate) if rate.is_integer() else rate


@cache
def _tables() -> dict:
    return tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8"))
