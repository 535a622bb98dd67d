# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""D2L's overlap with its own calls, `.to("cpu")`, blocking or not: what costs time?

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

import torch
from torch import Tensor

from snippets.timing.benchmark import measure
from snippets.timing.take_turns import recorded

N, ROUNDS = 4000, 5  # float32; D2L has 50 rounds


def products(x: Tensor) -> list[Tensor]:
    return [torch.mm(x, x) for _ in range(ROUNDS)]


def to_cpu(results: list[Tensor], non_blocking: bool) -> list[Tensor]:
    """A new tensor on the host for each result: a pinned one if nobody waits for it."""
    return [result.to("cpu", non_blocking=non_blocking) for result in results]


def main() -> dict:
    x, kept = torch.randn(N, N, device="cuda"), []
    results = products(x)
    waited, landed = to_cpu(results, False), to_cpu(results, True)
    torch.cuda.synchronize()
    torch.testing.assert_close(landed[-1], waited[-1], rtol=0, atol=0)
    works = {
        "products": lambda: products(x),
        "copies_blocking": lambda: to_cpu(results, False),
        "both_new": lambda: kept.append(to_cpu(products(x), True)),  # never used again
        "both_again": lambda: to_cpu(products(x), True),
    }
    turns = {way: measure(work, warmup=1, trials=5) for way, work in works.items()}
    result = {"rounds": ROUNDS, "bytes": x.nbytes, "flop": 2 * N**3} | recorded(turns)
    for way, ms in result["ms"].items():
        print(f"{way:<16}{ms / ROUNDS:7.2f} ms for each product")
    pinned = {
        "blocking": waited[-1].is_pinned(),
        "non_blocking": landed[-1].is_pinned(),
    }
    return result | {"is_pinned": pinned}


def derive(results: dict) -> dict:
    """What new memory takes beside memory that is used again; the rate of blocking copies."""
    ms, size = results["ms"], results["bytes"] * results["rounds"]
    return {
        "new_takes": ms["both_new"] / ms["both_again"],
        "blocking_gb_s": size / ms["copies_blocking"] / 1e6,
        "pinned": [way for way, pinned in results["is_pinned"].items() if pinned],
    }


if __name__ == "__main__":
    main()
