# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# once = { peak_mib = "memory, counted once", x_mib = "a size, not measured" }
# ///
"""What four ways to keep a tensor's memory cost, in time and in memory."""

from functools import partial

import torch

from snippets.timing.take_turns import recorded, take_turns

STEPS, FLOATS, CYCLES = 20, 16 * 2**20, 4_000_000


def record_stream(x: torch.Tensor, reader: torch.cuda.Stream, kept: list) -> None:
    """Forbid the allocator to reuse x before the reader is done."""
    x.record_stream(reader)


def keep(x: torch.Tensor, reader: torch.cuda.Stream, kept: list) -> None:
    """Hold x until the end."""
    kept.append(x)


def join(x: torch.Tensor, reader: torch.cuda.Stream, kept: list) -> None:
    """Let the main stream wait for the reader of x."""
    torch.cuda.current_stream().wait_stream(reader)


def join_late(x: torch.Tensor, reader: torch.cuda.Stream, kept: list) -> None:
    """Hold x for one more step; wait for the reader of the x before, and drop that."""
    kept.append((x, reader.record_event()))
    if len(kept) > 1:
        torch.cuda.current_stream().wait_event(kept[0][1])
        del kept[0]


def run(let_go, reader: torch.cuda.Stream) -> None:
    """In each step write x, lend it to a late reader, let go of it, do other work."""
    main, kept = torch.cuda.current_stream(), []
    for number in range(STEPS):
        x = torch.full((FLOATS,), float(number), device="cuda")
        reader.wait_stream(main)
        with torch.cuda.stream(reader):
            torch.cuda._sleep(CYCLES)
            x.sum()
        let_go(x, reader, kept)
        del x
        torch.cuda._sleep(CYCLES)  # the main stream has work of its own
    main.wait_stream(reader)


def main() -> dict:
    reader, policies = torch.cuda.Stream(), (record_stream, keep, join, join_late)
    works = {let_go.__name__: partial(run, let_go, reader) for let_go in policies}
    results = recorded(take_turns(works, warmup=1, trials=7), "ms")
    results |= {"steps": STEPS, "x_mib": FLOATS / 2**18, "peak_mib": {}}
    for name, work in works.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        work()
        mib = results["peak_mib"][name] = torch.cuda.max_memory_reserved() / 2**20
        print(f"{name:<14}{results['ms'][name]:6.1f} ms, {mib:6,.0f} MiB")
    return results


if __name__ == "__main__":
    main()
