# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Wait for an event before and after it is recorded: only one of the two is a wait."""

import torch

from snippets.timing.wait_for import wait_for

RUNS, CYCLES = 10, 2_000_000


def sum_after(x: torch.Tensor, side: torch.cuda.Stream, record_first: bool) -> float:
    """Write ones late on the main stream; sum them on one that waits for an event."""
    main, written = torch.cuda.current_stream(), torch.cuda.Event()
    x.zero_()
    wait_for()
    torch.cuda._sleep(CYCLES)
    x.fill_(1)
    if record_first:
        written.record(main)
    side.wait_event(written)  # without a record: no error, and no wait
    with torch.cuda.stream(side):
        total = x.sum()
    written.record(main)
    wait_for()
    return total.item()


def main() -> dict:
    x, side = torch.ones(1000, device="cuda"), torch.cuda.Stream()
    sum_after(x, side, record_first=True)  # loads the kernels
    results = {"runs": RUNS, "unrecorded_is_done": torch.cuda.Event().query()}
    print(f"an event that was never recorded is done: {results['unrecorded_is_done']}")
    for name, record_first in {"recorded": True, "unrecorded": False}.items():
        sums = [sum_after(x, side, record_first) for _ in range(RUNS)]
        results[name] = {"sums": sums, "wrong": sum(total != 1000 for total in sums)}
        print(f"{name:<11} wrong in {results[name]['wrong']:2} of {RUNS} runs")
    return results


if __name__ == "__main__":
    main()
