# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# [tool.overlap.once]
# cpu = "a trace: the claim is about order"
# gpu = "a trace: the claim is about order"
# first_wait = "a trace: the claim is about order"
# ///
"""`z = x * y + 2`, `print(z)`: what CPU and GPU do meanwhile, and where one waits."""

import torch

from snippets.timing.lanes import draw_lanes, lanes

KERNELS = ["earlier work", "x * y", "+ 2"]  # a stream keeps their order
WAIT = "cudaStreamSynchronize"


def traced(x: torch.Tensor, y: torch.Tensor) -> tuple[str, list[list]]:
    """Text of x * y + 2, launched while the GPU is busy, and what CPU and GPU did."""
    texts = []

    def program() -> None:
        torch.cuda._sleep(4_000_000)  # cycles: about two milliseconds of earlier work
        z = x * y + 2
        texts.append(str(z))  # what print(z) prints

    events = lanes(program)
    return texts[-1], events


def named(events: list[list]) -> list[list]:
    """Three launches and kernels get the name of their line, all others "for str"."""
    launches = [event for event in events if "LaunchKernel" in event[3]]
    kernels = [event for event in events if event[0] != "CPU"]
    for launch, name in zip(launches, KERNELS, strict=False):
        launch[3] = f"launch {name}"
    for i, kernel in enumerate(kernels):
        kernel[3] = KERNELS[i] if i < len(KERNELS) else "for str"
    return events


def spans(events: list[list]) -> dict[str, dict[str, float]]:
    """Start and end in µs of the first event of each name."""
    found = {}
    for _, start, duration, name in events:
        found.setdefault(name, {"start": start, "end": start + duration})
    return found


def main() -> dict:
    ones = torch.ones(1, 2, device="cuda")
    text, events = traced(ones, ones)
    at = spans(named(events))
    for name in ("launch x * y", "launch + 2", *KERNELS, WAIT):
        print(f"{name:22}{at[name]['start']:9.1f} to {at[name]['end']:8.1f} µs")
    print(text)
    return {
        "text": text,
        "events": events,
        "cpu": {"multiply": at["launch x * y"], "add": at["launch + 2"]},
        "gpu": {"earlier": at[KERNELS[0]], "multiply": at["x * y"], "add": at["+ 2"]},
        "first_wait": at[WAIT],
        "waits": sum(event[3] == WAIT for event in events),
        "gpu_events_for_text": sum(event[3] == "for str" for event in events),
    }


def plot(results: dict, ceilings: dict):

    lanes = {"earlier work": "GPU: earlier work", "x * y": "GPU: product"}
    lanes |= {"+ 2": "GPU: sum", "for str": "GPU: text"}
    events = []
    for lane, start, us, name in results["events"]:
        lane = "CPU waits" if "Synchronize" in name else lanes.get(name, lane)
        events.append([lane, start, us, name])
    return draw_lanes({"z = x * y + 2, then str(z)": events})


if __name__ == "__main__":
    main()
