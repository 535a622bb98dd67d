# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Run three chains of kernels in a row and side by side: how long is each kernel?"""

from functools import partial
from statistics import median

import torch

from snippets.timing.kernel_time import captured
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns

LINKS = 40


def chains(launch, streams: list) -> None:
    """Forty launches on each of the streams, between a fork and a join."""
    main = torch.cuda.current_stream()
    for i, stream in enumerate(streams):
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            for _ in range(LINKS):
                launch(i)
    for stream in streams:
        main.wait_stream(stream)


def kernel_us(work) -> float:
    """µs that the kernels of `work` last, added up."""
    return sum(us for lane, _, us, _ in lanes(work) if lane != "CPU")


def main() -> dict:
    x, y = torch.randn(256, 256, device="cuda"), torch.empty(3, 256, 256, device="cuda")
    kinds = {"one_block": lambda i: torch.cuda._sleep(20_000)}
    kinds["mm_256"] = lambda i: torch.mm(x, x, out=y[i])
    streams, results = [torch.cuda.Stream() for _ in y], {"links": LINKS}
    ways = {"in_a_row": streams[:1] * 3, "forked": streams}
    for kind, launch in kinds.items():
        works = {n: captured(partial(chains, launch, way)) for n, way in ways.items()}
        row = recorded(take_turns(works, trials=21, calls=5), "us")
        trials = {n: [kernel_us(w) for _ in range(3)] for n, w in works.items()}
        row["kernel_us"] = {n: median(each) for n, each in trials.items()}
        results[kind] = row | {"kernel_us_trials": trials}
        for name, us in row["us"].items():
            told = f"{us:6.0f} µs, kernels {row['kernel_us'][name]:6.0f} µs"
            print(f"{kind:<10}{name:<9}{told}")
    return results


if __name__ == "__main__":
    main()
