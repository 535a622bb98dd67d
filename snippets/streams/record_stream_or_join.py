# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""What four ways to keep a tensor's memory cost, in time and in memory."""

from functools import partial

import torch

from snippets.timing.take_turns import recorded, take_turns

STEPS, FLOATS, CYCLES = 20, 16 * 2**20, 4_000_000
HELD = {"record_stream": None, "keep": STEPS, "join": 0, "join_late": 1}  # steps


def hold(
    steps: int,
    held: list[tuple[torch.Tensor, torch.Event]],
    x: torch.Tensor,
    reader: torch.cuda.Stream,
) -> None:
    """Hold x for so many steps more; then drop it, and let the main stream wait for
    its reader. Before `held` itself is dropped, let it wait for the reader, too."""
    held.append((x, reader.record_event()))
    if len(held) > steps:
        torch.cuda.current_stream().wait_event(held.pop(0)[1])


def run(steps: int | None, reader: torch.cuda.Stream) -> None:
    """In each step write x, lend it to a late reader, let go of it, do other work.

    How x is let go: `hold` for so many steps, or `record_stream` if `steps` is None.
    """
    let_go = torch.Tensor.record_stream if steps is None else partial(hold, steps, [])
    main = torch.cuda.current_stream()
    for number in range(STEPS):
        x = torch.full((FLOATS,), float(number), device="cuda")
        reader.wait_stream(main)
        with torch.cuda.stream(reader):
            torch.cuda._sleep(CYCLES)
            x.sum()
        let_go(x, reader)
        del x
        torch.cuda._sleep(CYCLES)  # the main stream has work of its own
    main.wait_stream(reader)


def main() -> dict:
    reader, peak_mib = torch.cuda.Stream(), {}
    works = {name: partial(run, steps, reader) for name, steps in HELD.items()}
    results = recorded(take_turns(works, warmup=1, trials=7))
    for name, work in works.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        work()
        mib = peak_mib[name] = torch.cuda.max_memory_reserved() / 2**20
        print(f"{name:<14}{results['ms'][name]:6.1f} ms, {mib:6,.0f} MiB")
    return results | {"steps": STEPS, "x_mib": FLOATS / 2**18, "peak_mib": peak_mib}


if __name__ == "__main__":
    main()
