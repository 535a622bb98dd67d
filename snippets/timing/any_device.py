# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# take = ["measure"]
# ///
"""`measure` to take home: name the devices as you like, a CPU among them."""

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
)
from functools import partial

import torch

from snippets.timing.benchmark import Timing, wall_clock
from snippets.timing.take_turns import recorded

Device = int | str | torch.device


def numbers_of(devices: Device | Iterable[Device] | None) -> list[int] | None:
    """Numbers of the GPUs among these devices; None, all that are in use, stays None.

    A CPU has finished whatever has returned: nobody needs to wait for it. ValueError
    for a GPU that is not there.
    """
    if devices is None:
        return None
    if isinstance(devices, Device):
        devices = [devices]
    numbers = []
    for device in devices:
        if isinstance(device, int):
            numbers.append(device)
            continue
        place = torch.device(device)
        if place.type != "cpu" and place.index is None:
            numbers.append(torch.accelerator.current_device_index())
        elif place.type != "cpu":
            numbers.append(place.index)
    there = torch.accelerator.device_count()
    for number in numbers:
        if number >= there:
            raise ValueError(f"there is no GPU {number}; PyTorch sees {there}")
    return numbers


def refuse_what_waits(result: object) -> None:
    """TypeError for what has done nothing yet: a coroutine or a generator."""
    if isinstance(result, Coroutine):
        result.close()  # else Python warns that nobody awaited it
    if isinstance(result, (Awaitable, Generator, AsyncGenerator)):
        kind = type(result).__name__
        raise TypeError(f"work returns a {kind}, and nothing has run: call it in work")


def measure(
    work: Callable[[], object],
    devices: Device | Iterable[Device] | None = None,
    warmup: int = 2,
    trials: int = 7,
    calls: int = 1,
) -> Timing:
    """Time a call on any device: `trials` times, `calls` calls each, after a warm-up.

    `devices`: whom to wait for, one or several: numbers, names such as "cuda:1" or
    "cpu", or what `tensor.device` gives. All that are in use by default, none if empty:
    give [] for "meta", where nothing runs. ValueError if there are no trials or calls;
    what PyTorch raises, as RuntimeError, for a name or a GPU that it does not know;
    TypeError, in the warm-up, for a function that gives a coroutine or a generator.
    """
    if trials < 1 or calls < 1:
        raise ValueError(f"{trials} trials of {calls} calls: at least 1 of each")
    numbers = numbers_of(devices)
    for _ in range(warmup):
        refuse_what_waits(work())
    return Timing([wall_clock(work, calls, numbers) for _ in range(trials)])


def main() -> dict:
    device, n = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 512)
    x = torch.randn(n, n, device=device)
    ways = {"nothing": None, "a name": device, "a tensor's device": x.device, "[]": []}
    work, timings = partial(torch.mm, x, x), {}
    for way, devices in ways.items():
        timings[way] = measure(work, devices, trials=15)
        numbers = numbers_of(devices)
        waits = "all in use" if numbers is None else str(numbers)
        ms = 1e3 * timings[way].median
        print(f"given {way:17}  waits for {waits:10}  {ms:6.3f} ms")
    return {"n": n} | recorded(timings)


if __name__ == "__main__":
    main()
