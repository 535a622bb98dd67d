# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# timeout = 120
# ///
"""A tensor's maker overwrites it, frees it or exits: what does its user still read?"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing.reduction import ForkingPickler
from textwrap import shorten

import torch
import torch.multiprocessing as mp

FLOATS = 16 * 2**20  # 64 MiB: a segment of its own
CASES = ["open overwrite read", "open free read", "free open read"]
CASES += ["open exit read", "open clone exit read", "exit open read"]
held = {}  # in each process: its tensor


def make() -> bytes:
    """In the maker: a tensor of ones, and its handle."""
    held["x"] = torch.ones(FLOATS, device="cuda")
    return bytes(ForkingPickler.dumps(held["x"]))


def overwrite() -> None:
    held["x"].fill_(9)
    torch.cuda.synchronize()


def free() -> int:
    """Drop the ones, ask for as much again; MiB that this process has then."""
    del held["x"]
    held["x"] = torch.full((FLOATS,), 9.0, device="cuda")  # would take their place
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated() // 2**20


def open_handle(handle: bytes) -> None:
    """In the user: the maker's tensor."""
    held["x"] = ForkingPickler.loads(handle)


def clone() -> None:
    held["x"] = held["x"].clone()


def read() -> list[float]:
    """The least and the largest element."""
    return [each.item() for each in held["x"].aminmax()]


def tried(case: str) -> dict:
    """What the steps of a case gave, until one was an error."""
    server = mp.get_context("forkserver")
    maker, user = ProcessPoolExecutor(1, server), ProcessPoolExecutor(1, server)
    handle, said = maker.submit(make).result(), {}
    steps = {each.__name__: partial(maker.submit, each) for each in (overwrite, free)}
    steps |= {each.__name__: partial(user.submit, each) for each in (clone, read)}
    steps["open"] = partial(user.submit, open_handle, handle)
    try:
        for step in case.split():
            said[step] = maker.shutdown() if step == "exit" else steps[step]().result()
    except Exception as error:
        said[step] = f"{type(error).__name__}: {error}".splitlines()[0]
    for each in (user, maker):
        each.shutdown()
    return said


def main() -> dict:
    mp.get_context("forkserver").set_forkserver_preload(["torch"])
    found = {case: tried(case) for case in CASES}
    for case, said in found.items():
        last = shorten(str(list(said.values())[-1]), 66, placeholder=" …")
        print(f"{case:<22}{last}")
    return {"mib": FLOATS * 4 // 2**20, "found": found}


if __name__ == "__main__":
    main()
