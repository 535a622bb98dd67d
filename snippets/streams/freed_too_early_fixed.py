# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: three ways to keep a tensor's memory while another stream must read it."""

import torch

from snippets.timing.wait_for import wait_for

STEPS, FLOATS, CYCLES = 50, 16 * 2**20, 4_000_000


def record_stream(x: torch.Tensor, reader: torch.cuda.Stream) -> None:
    """Once x is dropped, its memory waits for all that the reader has got by then."""
    x.record_stream(reader)


def keep(x: torch.Tensor, reader: torch.cuda.Stream) -> torch.Tensor:
    """Hold a reference for as long as the caller keeps what this returns."""
    return x


def join(x: torch.Tensor, reader: torch.cuda.Stream) -> None:
    """Let the main stream, which may get the memory again, wait for the reader."""
    torch.cuda.current_stream().wait_stream(reader)


POLICIES = {"record_stream": record_stream, "keep": keep, "join": join}


def step(number: int, reader: torch.cuda.Stream, let_go) -> tuple[torch.Tensor, object]:
    """Whether the reader saw x other than written; and what let_go wants kept."""
    x = torch.full((FLOATS,), float(number), device="cuda")
    reader.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(reader):
        torch.cuda._sleep(CYCLES)  # the reader is late
        changed = (x != number).any()
    return changed, let_go(x, reader)


def corrupted(let_go) -> int:
    """Steps whose reader saw something else than was written."""
    reader = torch.cuda.Stream()
    step(0, reader, let_go)  # loads the kernels
    wait_for()
    steps = [step(number, reader, let_go) for number in range(1, STEPS + 1)]
    torch.full((FLOATS,), -1.0, device="cuda")  # whoever comes next
    wait_for()
    return sum(changed.item() for changed, _ in steps)


def main() -> dict:
    results = {"steps": STEPS, "policies": {}}
    for name, let_go in POLICIES.items():
        count = corrupted(let_go)
        print(f"{name:<14}{count:2} of {STEPS} reads corrupted")
        results["policies"][name] = {"corrupted": count}
    return results


if __name__ == "__main__":
    main()
