# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# take = ["PowerMeter"]
# take_on_cpu = ["PowerMeter"]
# ///
"""Read the clock and the power of a GPU while it works, and what holds it back."""

import time
from contextlib import suppress
from threading import Event, Thread

import torch

from snippets.timing.wait_for import wait_for

#: why the driver holds a clock down: bits of NVML's mask of "clocks event reasons"
REASONS = {
    "idle": 0x1,
    "applications_clock": 0x2,
    "power_limit": 0x4,
    "hardware_slowdown": 0x8,
    "sync_boost": 0x10,
    "thermal_software": 0x20,
    "thermal_hardware": 0x40,
    "power_brake": 0x80,
    "display_clock": 0x100,
}


class PowerMeter:
    """`with PowerMeter() as meter:` asks NVML every `every_s` seconds while it is open.

    `rows` has a list for each of `s` (since it was opened), `mhz`, `watt`, `watt_now`,
    `capped` (1 while the power limit holds the clock down), `reasons` (the whole mask,
    see REASONS) and `busy_percent`. NVML itself renews what it says about ten times a
    second; on H100 and H200 `watt` is a mean over about one second, `watt_now` is not,
    and `mhz` lags by 0.1 to 0.2 s. Where NVML cannot be asked, `missing` says why and
    the lists stay empty. In a block shorter than the first reading, or where the GPU
    is lost meanwhile, they are empty or short, too, and `missing` may be "": look at
    their lengths. `device` counts as PyTorch does. A meter is used once. NVML
    stays open until the process ends, as others may use it.
    """

    COLUMNS = ("s", "mhz", "watt", "watt_now", "capped", "reasons", "busy_percent")

    def __init__(self, device: int = 0, every_s: float = 0.02):
        self.device, self.every_s, self.missing = device, every_s, ""
        self.rows: dict[str, list[float]] = {name: [] for name in self.COLUMNS}
        self._ended, self._thread = Event(), Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PowerMeter":
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = torch.cuda.get_device_properties(self.device).uuid
            self._nvml, self._gpu = (
                pynvml,
                pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"),
            )
            self.read()  # a driver may refuse
        except Exception as error:
            self.missing = f"{type(error).__name__}: {error}"
            return self
        self._start = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        if not self.missing:
            self._thread.join()

    def read(self) -> tuple[int, float, float, int, int, int]:
        """MHz, W, W now, 1 or 0 for the power limit, all reasons, percent of time busy.

        Where a driver does not tell the power of the moment, W stands for it.
        """
        nvml, gpu = self._nvml, self._gpu
        reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
        watt = nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3
        (now,) = nvml.nvmlDeviceGetFieldValues(gpu, [nvml.NVML_FI_DEV_POWER_INSTANT])
        told = now.nvmlReturn == nvml.NVML_SUCCESS
        return (
            nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            watt,
            now.value.uiVal / 1e3 if told else watt,
            int(bool(reasons & REASONS["power_limit"])),
            reasons,
            nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        )

    def _watch(self) -> None:
        with suppress(self._nvml.NVMLError):  # a GPU may be lost: what was read stays
            while not self._ended.wait(self.every_s):
                row = (time.perf_counter() - self._start, *self.read())
                for column, value in zip(self.rows.values(), row, strict=True):
                    column.append(value)


def main() -> dict:
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    with PowerMeter() as meter:
        for _ in range(400):
            torch.mm(x, x)
        wait_for()
    print(meter.missing, *(f"{name:>14}" for name in meter.rows), sep="")
    for row in list(zip(*meter.rows.values(), strict=True))[::4]:
        print(*(f"{value:>14.4g}" for value in row), sep="")
    return {"rows": meter.rows, "missing": meter.missing}


if __name__ == "__main__":
    main()
