# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: three ways to keep the memory of a tensor while another stream still reads it."""

import torch

STEPS, FLOATS, CYCLES = 50, 16 * 2**20, 4_000_000


def record_stream(x: torch.Tensor, reader: torch.cuda.Stream) -> None:
    """Tell the allocator: not to be reused before the reader has done what is queued now."""
    x.record_stream(reader)


def keep_all(x: torch.Tensor, reader: torch.cuda.Stream) -> torch.Tensor:
    """Hold a reference for as long as the caller keeps what this returns."""
    return x


def join_first(x: torch.Tensor, reader: torch.cuda.Stream) -> None:
    """Let the main stream, which will reuse the memory, wait for the reader before x is dropped."""
    torch.cuda.current_stream().wait_stream(reader)


POLICIES = {f.__name__: f for f in (record_stream, keep_all, join_first)}


def step(number: int, reader: torch.cuda.Stream, let_go) -> tuple[torch.Tensor, object]:
    """Whether the reader found x other than it was written; and what let_go wants kept."""
    x = torch.full((FLOATS,), float(number), device="cuda")
    reader.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(reader):
        torch.cuda._sleep(CYCLES)  # the reader is late
        changed = (x != number).any()
    return changed, let_go(x, reader)


def tried(let_go) -> dict:
    """Steps that read something else than was written, and the most memory that PyTorch took."""
    reader = torch.cuda.Stream()
    step(0, reader, let_go)  # loads the kernels
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    kept = [step(number, reader, let_go) for number in range(1, STEPS + 1)]
    torch.full((FLOATS,), -1.0, device="cuda")  # whoever comes next
    torch.cuda.synchronize()
    changed = [each.item() for each, _ in kept]
    peak_mib = torch.cuda.max_memory_reserved() / 2**20
    return {"corrupted": sum(changed), "peak_mib": peak_mib, "changed": changed}


def main() -> dict:
    results = {"steps": STEPS, "x_mib": 4 * FLOATS / 2**20, "policies": {}}
    for name, let_go in POLICIES.items():
        results["policies"][name] = tried(let_go)
        shown = "{corrupted:2} of {steps} reads corrupted, at most {peak_mib:5,.0f} MiB reserved"
        print(f"{name:<14}", shown.format(steps=STEPS, **results["policies"][name]))
    return results


if __name__ == "__main__":
    main()
