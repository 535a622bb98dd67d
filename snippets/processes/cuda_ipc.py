# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Hand 1 GiB of GPU memory to another process: by its handle, or through the host."""

from functools import partial
from multiprocessing.reduction import ForkingPickler

import torch

from snippets.pictures import bars
from snippets.processes.share_memory import child, send
from snippets.timing.benchmark import measure
from snippets.timing.take_turns import recorded

FLOATS = 2**28  # 1 GiB


def receive(connection) -> None:
    """In the child: bring each message to the GPU, answer with its first element."""
    for payload in iter(connection.recv_bytes, b""):
        message = ForkingPickler.loads(payload).to("cuda")  # a handle: it is there
        connection.send((float(message[0]), len(payload)))
        del message


def through_host(connection, x: torch.Tensor, room: torch.Tensor) -> int:
    """Copy x into shared memory of the host, from which the child copies it back."""
    room.copy_(x)
    return send(connection, room)


def queued_value(connection, x: torch.Tensor) -> float:
    """What the child reads of x if it is sent while its new values are only queued."""
    torch.cuda._sleep(200_000_000)  # cycles: about 100 ms
    x.fill_(2.0)
    connection.send_bytes(ForkingPickler.dumps(x))
    return connection.recv()[0]


def main() -> dict:
    x = torch.ones(FLOATS, device="cuda")
    room = torch.empty(FLOATS).share_memory_()
    with child(receive) as connection:
        payload, queued = send(connection, x), queued_value(connection, x)
        works = {"handle": partial(send, connection, x), "copy": x.clone}
        works["host"] = partial(through_host, connection, x, room)
        times = {name: measure(work) for name, work in works.items()}
    print(f"the message: {payload} B; sent while a fill is queued, it reads {queued}")
    for name, timing in times.items():
        print(f"{name:<7}{1e6 * timing.median:12,.0f} µs")
    return recorded(times, "us") | {"payload_bytes": payload, "queued": queued}


def plot(results: dict, ceilings: dict):
    labels = {"handle": "as a handle", "host": "through the host"}
    labels["copy"] = "one copy on the GPU"
    rows = {labels[name]: us / 1e3 for name, us in results["us"].items()}
    return bars(rows, {}, "ms for 1 GiB", log=True)


if __name__ == "__main__":
    main()
