# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""`z = x * y + 2`, `print(z)`: what CPU and GPU do meanwhile, and where one waits.

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

from typing import Any

import torch

from snippets.pictures import timelines
from snippets.timing.lanes import lanes

KERNELS = ("earlier", "multiply", "add")  # a stream keeps their order


def traced(x: torch.Tensor, y: torch.Tensor) -> tuple[str, list[list[Any]]]:
    """Text of x * y + 2, launched while the GPU is busy, and what CPU and GPU did."""
    texts = []

    def program() -> None:
        torch.cuda._sleep(4_000_000)  # cycles: about two milliseconds of earlier work
        z = x * y + 2
        texts.append(str(z))  # what print(z) prints

    events = lanes(program)
    return texts[-1], events


def spans(events: list[list[Any]]) -> list[dict[str, float]]:
    """Start and end of each event in µs."""
    return [{"start": start, "end": start + us} for _, start, us, _ in events]


def main() -> dict:
    ones = torch.ones(1, 2, device="cuda")
    text, events = traced(ones, ones)
    launches = spans([event for event in events if "LaunchKernel" in event[3]])
    kernels = spans([event for event in events if event[0] != "CPU"])
    waits = spans([event for event in events if event[3] == "cudaStreamSynchronize"])
    for name, launch, kernel in zip(KERNELS, launches, kernels, strict=False):
        end, start = launch["end"], kernel["start"]
        print(f"{name:9} launched by {end:6.1f}, begun at {start:6.1f} µs")
    print(f"{text} after {len(waits)} waits, the first until {waits[0]['end']:.1f} µs")
    return {
        "text": text,
        "events": events,
        "cpu": dict(zip(KERNELS, launches, strict=False)),
        "gpu": dict(zip(KERNELS, kernels, strict=False)),
        "first_wait": waits[0],
        "waits": len(waits),
        "gpu_events_for_text": len(kernels) - len(KERNELS),
    }


def plot(results: dict, ceilings: dict):
    names = ["1. earlier work", "2. x * y", "3. + 2"]  # a stream keeps their order
    events = []
    for lane, start, us, name in results["events"]:
        if lane != "CPU":
            lane = f"GPU: {names.pop(0) if names else '4. text of z'}"
        elif "Synchronize" in name:
            lane = "CPU waits"
        events.append([lane, start, us, name])
    return timelines({"z = x * y + 2, then str(z)": events})


if __name__ == "__main__":
    main()
