# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Broken on purpose: three `with stream` blocks that wait for nobody.

After a post by u_16099226 on 51CTO, which names no licence.
"""

from collections.abc import Callable
from functools import partial

import torch

from snippets.streams.three_streams_cka import fork_join, similarity, three_models
from snippets.timing.wait_for import wait_for

RUNS, N = 50, 4096
# products that are launched before the input is written
QUEUED = {"as posted": 0, "behind other work": 5}


def three_blocks(
    branches: list[Callable[[], torch.Tensor]], streams: list[torch.cuda.Stream]
) -> list[torch.Tensor]:
    """What the branches return, each launched in a block of its own."""
    results = []
    for branch, stream in zip(branches, streams, strict=True):
        with torch.cuda.stream(stream):  # which does not wait for the input
            results.append(branch())
    torch.cuda.synchronize()
    return results


def wrong_runs(launch, right, queued: int, busy: torch.Tensor, x, images) -> int:
    """In how many runs a score differs, with so many products before x is written."""
    wrong = 0
    for _ in range(RUNS):
        x.zero_()
        wait_for()
        for _ in range(queued):
            torch.mm(busy, busy)
        x.copy_(images)
        wrong += not torch.allclose(torch.stack(launch()), right, rtol=1e-3)
    return wrong


def main() -> dict:
    images, noise = torch.rand(2, 64, 3, 16, 16, device="cuda")
    x, busy = images.clone(), torch.randn(N, N, device="cuda")
    models = [model.cuda() for model in three_models().values()]
    branches = [partial(similarity, model, x, images + noise) for model in models]
    right = torch.stack([branch() for branch in branches])
    streams = [torch.cuda.Stream() for _ in branches]
    results = {"runs": RUNS}
    for form, queued in QUEUED.items():
        results[form] = {"queued": queued}
        for way in (fork_join, three_blocks):
            launch = partial(way, branches, streams)
            launch()  # the first call loads kernels, which takes long
            wrong = wrong_runs(launch, right, queued, busy, x, images)
            results[form][way.__name__] = wrong
            print(f"{form:18}{way.__name__:13}wrong: {wrong:2} of {RUNS}")
    return results


def derive(results: dict) -> dict:
    """In how many runs the result is wrong, as posted and behind other work."""
    posted, behind = results["as posted"], results["behind other work"]
    return {"wrong": {"as_posted": posted, "behind_work": behind}}


if __name__ == "__main__":
    main()
