# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# ///
"""Read the clock and the power of a GPU while it works, and what holds it back."""

import time
from contextlib import suppress
from threading import Event, Thread

import torch

from snippets.timing.wait_for import wait_for


class PowerMeter:
    """`with PowerMeter() as meter:` asks NVML every `every_s` seconds while it is open.

    `rows` has a list for each of `s` (since it was opened), `mhz`, `watt`, `capped` (1
    while the power limit holds the clock down) and `busy_percent`. NVML itself renews
    what it says about ten times a second; on H100 and H200 `watt` is a mean over about
    one second, and `mhz` lags by 0.1 to 0.2 s. Where NVML cannot be asked, `missing`
    says why and the lists stay empty. `device` counts as PyTorch does. A meter is used
    once.
    """

    def __init__(self, device: int = 0, every_s: float = 0.02):
        self.device, self.every_s, self.missing = device, every_s, ""
        self.rows = {"s": [], "mhz": [], "watt": [], "capped": [], "busy_percent": []}
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

    def __exit__(self, *exc_info) -> None:
        self._ended.set()
        if not self.missing:
            self._thread.join()

    def read(self) -> tuple[int, float, int, int]:
        """MHz, W, 1 or 0 for the power limit, percent of the time it was busy."""
        nvml, gpu = self._nvml, self._gpu
        reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
        return (
            nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
            int(bool(reasons & nvml.nvmlClocksEventReasonSwPowerCap)),
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
