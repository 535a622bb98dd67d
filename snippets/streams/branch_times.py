# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""When does each branch begin and end on its stream? Ask events, not a profiler."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import median

import torch

from snippets.streams.three_streams_cka import fork_join, similarity, three_models

WARMUP, ROUNDS, SPIN_CYCLES = 3, 25, 20_000_000  # about ten milliseconds
CASES = {"as launched": 0, "launched ahead": SPIN_CYCLES}


def marked(
    branch: Callable[[], object],
) -> tuple[Callable[[], object], list[torch.cuda.Event]]:
    """The branch with an event before and after it, on the stream that it runs on."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def work() -> torch.Tensor:
        events[0].record()
        result = branch()
        events[1].record()
        return result

    return work, events


def branch_times(
    branches: list[Callable[[], object]], streams: list[torch.cuda.Stream], spin: int
) -> list[list[float]]:
    """[Begin, end] of each branch in ms since the fork.

    Before it the GPU spins for so many cycles, and the CPU launches all meanwhile.
    """
    fork = torch.cuda.Event(enable_timing=True)
    works, events = zip(*[marked(branch) for branch in branches], strict=True)
    if spin:
        torch.cuda._sleep(spin)
    fork.record()
    fork_join(works, streams)
    torch.cuda.synchronize()
    return [[fork.elapsed_time(event) for event in pair] for pair in events]


def pauses(times: list[list[float]]) -> list[float]:
    """From the end of each branch to the begin of the next, in ms; negative: overlap."""
    return [later[0] - earlier[1] for earlier, later in pairwise(times)]


def main() -> dict:
    x, noise = torch.rand(2, 64, 3, 16, 16, device="cuda")
    models = {name: model.cuda() for name, model in three_models().items()}
    branches = [partial(similarity, model, x, x + noise) for model in models.values()]
    streams, result = [torch.cuda.Stream() for _ in branches], {"rounds": ROUNDS}
    for case, spin in CASES.items():
        for _ in range(WARMUP):
            branch_times(branches, streams, spin)
        rounds = [branch_times(branches, streams, spin) for _ in range(ROUNDS)]
        print(f"{case}: ms since the fork, in the median of {ROUNDS} rounds")
        times = []
        for name, of_branch in zip(models, zip(*rounds, strict=True), strict=True):
            begin, end = (median(moments) for moments in zip(*of_branch, strict=True))
            print(f"  {name:<8}{begin:6.3f} to {end:6.3f}")
            times.append([begin, end])
        result[case] = {"ms": times, "pause_ms_trials": [pauses(r) for r in rounds]}
    return result


def derive(results: dict) -> dict:
    """When the branches begin and end, and the gaps between one and the next."""
    times = {}
    for way in ("as launched", "launched ahead"):
        begins, ends = zip(*results[way]["ms"], strict=True)
        gaps = [later - end for later, end in zip(begins[1:], ends, strict=False)]
        times[way.replace(" ", "_")] = {"begins": begins, "ends": ends, "gaps": gaps}
    return {"branch_ms": times}


if __name__ == "__main__":
    main()
