"""What the driver says of a GPU: clocks and what holds them down, power limit, memory in use."""

import contextlib
import threading
from collections.abc import Iterator

from overlap.run import machine

#: What is asked of nvidia-smi, beside the reasons that hold the clock down.
_STATE = {
    "clock_mhz": "clocks.sm",
    "clock_max_mhz": "clocks.max.sm",
    "power_limit_w": "power.limit",
    "power_default_w": "power.default_limit",
    "temperature_c": "temperature.gpu",
    "memory_used_mib": "memory.used",
    "utilization": "utilization.gpu",
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
    """Of each GPU that CUDA would show, in order: the fields above that are known, and `reasons` in words."""
    answers = machine.query(["clocks_event_reasons.active", *_STATE.values()])
    states = []
    for gpu in machine.cuda_gpus().values():
        reasons, *cells = answers.get(gpu["uuid"], [""])
        known = {"reasons": _in_words(reasons)}
        for key, cell in zip(_STATE, cells, strict=False):
            value = machine.number(cell)
            if value is not None:
                known[key] = value
        states.append(known)
    return states


def _in_words(reasons: str) -> list[str]:
    try:
        bits = int(reasons, 16)
    except ValueError:  # [N/A]
        return []
    return [words for bit, words in _REASONS.items() if bits & bit]


@contextlib.contextmanager
def watched() -> Iterator[list[dict]]:
    """What is seen of each visible GPU meanwhile: the largest of each number, all `reasons`."""
    most: list[dict] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for number, now in enumerate(state()):
                if number == len(most):
                    most.append(now)
                now["reasons"] = sorted({*most[number]["reasons"], *now["reasons"]})
                most[number] |= {key: max(most[number].get(key, value), value) for key, value in now.items()}
            over.wait(_EVERY_S)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()
