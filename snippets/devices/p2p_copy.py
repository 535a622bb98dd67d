# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# ///
"""Copy between two GPUs: one way, through the host, and both ways at once."""

from functools import partial

import torch

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for

BYTES = 2**30


def send(x: torch.Tensor, y: torch.Tensor, streams: tuple) -> None:
    """Copy x to y on another GPU: queued in one stream of each of the two GPUs.

    Neither stream waits for what made x, and nobody waits for the copy: call
    wait_stream, and keep x and y until it is over.
    """
    source, target = streams
    with torch.cuda.stream(source), torch.cuda.stream(target):
        y.copy_(x, non_blocking=True)


def through_host(x: torch.Tensor, room: torch.Tensor, y: torch.Tensor) -> None:
    """Copy x to the pinned room, wait, and copy that to y."""
    room.copy_(x)
    y.copy_(room)


def main() -> dict:
    xs = [torch.randint(256, (BYTES,), dtype=torch.uint8, device=i) for i in (0, 1)]
    ys = [torch.empty_like(x, device=1 - i) for i, x in enumerate(xs)]
    room = torch.empty(BYTES, dtype=torch.uint8, pin_memory=True)
    same = tuple(torch.cuda.default_stream(i) for i in (0, 1))
    aside = tuple(torch.cuda.Stream(i) for i in (0, 1))

    def both(forth: tuple, back: tuple) -> None:
        send(xs[0], ys[0], forth)
        send(xs[1], ys[1], back[::-1])

    works = {
        "one_way": partial(send, xs[0], ys[0], same),
        "host": partial(through_host, xs[0], room, ys[0]),
        "both_one_stream": partial(both, same, same),
        "both_two_streams": partial(both, same, aside),
    }
    for name, work in works.items():
        ys[0].zero_()
        wait_for()
        work()
        wait_for()
        assert torch.equal(ys[0].cpu(), xs[0].cpu()), name
    times, rates = take_turns(works, trials=7, calls=2), {}
    for name, timing in times.items():
        rates[name] = (1 + name.startswith("both")) * BYTES / timing.median / 1e9
        print(f"{name:<17} {rates[name]:6.1f} GB/s")
    peer = torch.cuda.can_device_access_peer(0, 1)
    return recorded(times) | {"bytes": BYTES, "peer_access": peer, "gb_s": rates}


def plot(results: dict, ceilings: dict):
    names = {"one_way": "one way", "both_one_stream": "both ways, same streams"}
    names |= {"both_two_streams": "both ways, own streams", "host": "through the host"}
    rates = {
        text: results["gb_s"][name]
        for name, text in names.items()
        if name in results["gb_s"]
    }
    limits = {}
    if "nvlink_gb_s" in ceilings:
        limits["NVLink, one way"] = ceilings["nvlink_gb_s"]
    return bars(rates, limits, "GB/s")


if __name__ == "__main__":
    main()
