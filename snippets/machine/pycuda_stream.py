# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""A stream that pycuda makes and PyTorch works in, too; and what happens in two."""

from contextlib import contextmanager

import torch

from snippets.machine.pycuda_context import torch_context
from snippets.machine.pycuda_kernel import launch


@contextmanager
def one_stream(index: int = 0):
    """Inside, PyTorch works in a stream of pycuda's on this GPU; gives this stream."""
    with torch_context(index) as driver:
        stream = driver.Stream()
    outside = torch.cuda.current_stream(index)
    shared = torch.cuda.ExternalStream(stream.handle, device=index)
    shared.wait_stream(outside)
    with torch.cuda.stream(shared):
        yield stream
    outside.wait_stream(shared)


def wrong_elements(x: torch.Tensor, stream=None) -> int:
    """PyTorch fills x late with threes, pycuda doubles: how many are not six then?"""
    torch.cuda._sleep(100_000_000)  # cycles: some 50 ms of earlier work
    x.fill_(3)
    launch(x, stream)
    return int((x != 6).sum())


def main() -> dict:
    x = torch.zeros(10_000_000, device="cuda")
    wrong = {"default": wrong_elements(x)}
    with one_stream() as stream:
        wrong["shared"] = wrong_elements(x, stream)
    with torch.cuda.stream(torch.cuda.Stream()):
        wrong["two"] = wrong_elements(x)
    streams = {
        "default": "both in the default stream",
        "shared": "both in a stream of pycuda's",
        "two": "PyTorch in a stream of its own",
    }
    for name, words in streams.items():
        print(f"{words:<31}{wrong[name]:10,} of {x.numel():,} wrong")
    return {"elements": x.numel(), "wrong": wrong}


if __name__ == "__main__":
    main()
