# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# ///
"""GB/s from every GPU to every other, one pair at a time, and all GPUs in a ring."""

from itertools import permutations
from statistics import median

import torch

from snippets.devices.p2p_copy import send
from snippets.timing.benchmark import measure
from snippets.timing.wait_for import wait_for

BYTES = 2**28


def rates(routes: list[tuple]) -> list[float]:
    """GB/s of each of these copies (from, to, streams), queued together; proved."""

    def all_at_once() -> None:
        for x, y, streams in routes:
            send(x, y, streams)

    times = measure(all_at_once, trials=9, calls=4)
    assert all(torch.equal(y.to(x.device), x) for x, y, _ in routes)
    return [BYTES / seconds / 1e9 for seconds in times.trials]


def main() -> dict:
    gpus = range(torch.cuda.device_count())
    xs = [torch.randint(256, (BYTES,), dtype=torch.uint8, device=i) for i in gpus]
    ys = [torch.zeros_like(x) for x in xs]
    sending, receiving = ([torch.cuda.Stream(i) for i in gpus] for _ in range(2))
    pairs = {
        (a, b): (xs[a], ys[b], (sending[a], receiving[b]))
        for a, b in permutations(gpus, 2)
    }
    wait_for()
    trials = {f"{a} to {b}": rates([route]) for (a, b), route in pairs.items()}
    trials["ring"] = rates([pairs[i, (i + 1) % len(gpus)] for i in gpus])
    gb_s = {name: median(each) for name, each in trials.items()}
    for name, rate in gb_s.items():
        print(f"{name:<7}{rate:7.1f} GB/s" + " from each GPU" * (name == "ring"))
    peers = [torch.cuda.can_device_access_peer(*pair) for pair in pairs]
    return {"bytes": BYTES, "peers": peers, "gb_s": gb_s, "gb_s_trials": trials}


def derive(results: dict) -> dict:
    """The rates of single pairs."""
    return {"pairs_gb_s": [r for pair, r in results["gb_s"].items() if pair != "ring"]}


if __name__ == "__main__":
    main()
