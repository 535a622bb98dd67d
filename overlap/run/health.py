"""What the driver says of a GPU: clocks and what holds them down, power limit, memory in use."""

import contextlib
import threading
from collections.abc import Iterator

from overlap.run import machine

#: What is asked of nvidia-smi; of several names the first that the driver knows.
_FIELDS = {
    "reasons": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
    "clock_mhz": ("clocks.sm",),
    "clock_max_mhz": ("clocks.max.sm",),
    "power_limit_w": ("power.limit",),
    "power_default_w": ("power.default_limit",),
    "temperature_c": ("temperature.gpu",),
    "memory_used_mib": ("memory.used",),
    "utilization": ("utilization.gpu",),
}
#: Bits of the reasons, by NVIDIA's NVML documentation; an idle GPU's is none of them.
_REASONS = {
    0x02: "clocks set by an application",
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x10: "sync boost with other GPUs",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
    0x100: "clocks set for the display",
}
#: Seconds between two looks.
_EVERY_S = 0.3


def state() -> list[dict]:
    """Of each GPU that CUDA would show, in order: the fields above that are known, `reasons` in words."""
    gpus = {gpu["uuid"]: {} for gpu in machine.cuda_gpus().values()}
    first_names = {key: names[0] for key, names in _FIELDS.items()}
    if gpus and not machine.ask(first_names, gpus, _read):
        for key, names in _FIELDS.items():
            for name in names:
                if machine.ask({key: name}, gpus, _read):
                    break
    return list(gpus.values())


def _read(key: str, text: str) -> float | list[str] | None:
    with contextlib.suppress(ValueError):
        if key == "reasons":
            bits = int(text, 16)
            return [words for bit, words in _REASONS.items() if bits & bit]
        return float(text)
    return None


@contextlib.contextmanager
def watched() -> Iterator[list[dict]]:
    """What is seen of each visible GPU meanwhile: the largest of each number, all `reasons`."""
    seen: list[dict] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for number, now in enumerate(state()):
                if number == len(seen):
                    seen.append({"reasons": []})
                _add(seen[number], now)
            over.wait(_EVERY_S)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _add(most: dict, now: dict) -> None:
    for key, value in now.items():
        if key == "reasons":
            most[key] = sorted({*most[key], *value})
        else:
            most[key] = max(most.get(key, value), value)
