# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""D2L's overlap with its own calls, `.to("cpu")`, blocking or not: what else takes the time?"""

from statistics import median

import torch

from snippets.timing.benchmark import measure

N, ROUNDS = 4000, 5  # float32; D2L has 50 rounds


def products(x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.mm(x, x) for _ in range(ROUNDS)]


def to_cpu(results: list[torch.Tensor], non_blocking: bool) -> list[torch.Tensor]:
    """A new tensor on the host for each result: a pinned one if nobody waits for it."""
    return [result.to("cpu", non_blocking=non_blocking) for result in results]


def main() -> dict:
    x, kept = torch.randn(N, N, device="cuda"), []
    results = products(x)
    waited, landed = to_cpu(results, False), to_cpu(results, True)
    torch.cuda.synchronize()
    torch.testing.assert_close(landed[-1], waited[-1], rtol=0, atol=0)
    pinned = {"blocking": waited[-1].is_pinned(), "non_blocking": landed[-1].is_pinned()}
    works = {
        "products": lambda: products(x),
        "copies_blocking": lambda: to_cpu(results, False),
        "both_new": lambda: kept.append(to_cpu(products(x), True)),  # kept: never used again
        "both_again": lambda: to_cpu(products(x), True),
    }
    timings = {name: measure(work, warmup=1, trials=5) for name, work in works.items()}
    trials = {name: [ms / ROUNDS for ms in timing.ms()] for name, timing in timings.items()}
    ms = {name: median(trials[name]) for name in works}
    print(*(f"{name.replace('_', ' '):<16}{ms[name]:7.2f} ms per round" for name in ms), sep="\n")
    result = {"rounds": ROUNDS, "bytes": x.nbytes, "flop": 2 * N**3, "is_pinned": pinned}
    return result | {"round_ms": ms, "round_ms_trials": trials}


if __name__ == "__main__":
    main()
