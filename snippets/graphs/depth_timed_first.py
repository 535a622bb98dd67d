# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Networks of one to thirty layers, compiled and captured, in a process without a profile."""

import torch

from snippets.graphs.compile_by_depth import DEPTHS, WIDTH, network, ways_to_call
from snippets.timing.take_turns import recorded, take_turns


@torch.no_grad()
def compared(depth: int) -> dict:
    """µs of a call in each way; AssertionError if results differ."""
    torch._dynamo.reset()  # code compiled for another depth must not be asked first
    net, x = network(depth).cuda(), torch.randn(1, WIDTH, device="cuda")
    works = ways_to_call(net, x)
    for work in works.values():
        torch.testing.assert_close(work(), net(x), rtol=1e-4, atol=1e-5)
    return {"depth": depth} | recorded(take_turns(works, trials=31, calls=20), "us")


def main() -> dict:
    rows = [compared(depth) for depth in DEPTHS]
    for row in rows:
        for name, us in row["us"].items():
            print(f"{row['depth']:2} layers, {name:16}{us:7.1f} µs")
    return {"rows": rows}


def derive(results: dict) -> dict:
    """How many times as fast as eager mode each way is: {way: one for each depth}."""
    rows = [row["us"] for row in results["rows"]]
    return {"gain": {way: [us["eager"] / us[way] for us in rows] for way in rows[0]}}


def plot(results: dict, ceilings: dict):
    from snippets.graphs.compile_by_depth import plot

    return plot(results, ceilings)


if __name__ == "__main__":
    main()
