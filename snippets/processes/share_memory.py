# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# ///
"""Send an array and a shared tensor to a child: which bytes travel?"""

from contextlib import contextmanager
from functools import partial
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing as mp

from snippets.pictures import over_sizes
from snippets.timing.benchmark import measure
from snippets.timing.take_turns import recorded

SIZES_KIB, WRITTEN = [4, 32, 256, 2048, 16384], -1.0


@contextmanager
def child(target):
    """A spawned process that runs `target(connection)`, and whose exit code is read.

    RuntimeError if that is not 0, or if the child ends while you talk to it.
    """
    ours, theirs = mp.Pipe()
    process = mp.get_context("spawn").Process(target=target, args=(theirs,))
    process.start()
    theirs.close()  # if the child dies, recv() raises here instead of waiting for ever
    cut = None
    try:
        yield ours
        ours.send_bytes(b"")
    except (EOFError, ConnectionError) as error:
        cut = error
    finally:
        ours.close()
        process.join()
    if cut or process.exitcode != 0:
        raise RuntimeError(f"child ended with exit code {process.exitcode}") from cut


def receive(connection) -> None:
    """In the child: rebuild each message, write into its last element, answer."""
    for payload in iter(connection.recv_bytes, b""):
        message = ForkingPickler.loads(payload)
        message[-1] = WRITTEN
        connection.send((float(message[0]), len(payload)))


def send(connection, message) -> int:
    """Send as `connection.send` does, wait until it is rebuilt; bytes in the pipe."""
    connection.send_bytes(ForkingPickler.dumps(message))
    first, payload_bytes = connection.recv()
    assert first == float(message[0]), "the child received something else"
    return payload_bytes


def compare(connection, kib: int) -> dict:
    """One size: bytes in the pipe, whether the child's write is seen here, times."""
    values, row = torch.rand(kib * 256), {"kib": kib}
    array, shared = values.numpy().copy(), values.clone().share_memory_()
    works = {"copy": partial(torch.empty_like(values).copy_, values)}
    works["clone and share"] = lambda: values.clone().share_memory_()
    for name, message in {"array": array, "shared": shared}.items():
        row[f"{name}_payload_bytes"] = send(connection, message)
        row[f"{name}_write_seen"] = float(message[-1]) == WRITTEN
        works[name] = partial(send, connection, message)
    return row | recorded({name: measure(works[name]) for name in works}, "us")


def main() -> dict:
    torch.set_num_threads(1)  # pickling and pipes use one: so does the copy beside them
    plain = torch.rand(1024)
    with child(receive) as connection:
        before, _, after = plain.is_shared(), send(connection, plain), plain.is_shared()
        rows = [compare(connection, kib) for kib in SIZES_KIB]
    print(f"a plain tensor, sent once: shared before {before}, after {after}")
    for row in rows:
        array = f"{row['array_payload_bytes']:>10,} B {row['us']['array']:>6,.0f} µs"
        shared = f"{row['shared_payload_bytes']} B {row['us']['shared']:,.0f} µs"
        print(f"{row['kib']:>6,} KiB: array {array}, shared tensor {shared}")
    return {"plain_shared_before": before, "plain_shared_after": after, "rows": rows}


def derive(results: dict) -> dict:
    """Bytes and times of arrays and shared tensors, and whether writes were seen."""
    rows = results["rows"]
    return {
        "shared_bytes": [row["shared_payload_bytes"] for row in rows],
        "array_share": [
            row["array_payload_bytes"] / (1024 * row["kib"]) for row in rows
        ],
        "shared_us": [row["us"]["shared"] for row in rows],
        "shared_writes_seen": all(row["shared_write_seen"] for row in rows),
        "array_writes_seen": any(row["array_write_seen"] for row in rows),
    }


def plot(results: dict, ceilings: dict):
    rows = results["rows"]
    labels = {"array": "array, all its bytes", "shared": "shared tensor, a handle"}
    lines = {label: [row["us"][n] / 1e3 for row in rows] for n, label in labels.items()}
    copy = {
        "for comparison: one copy in memory": [row["us"]["copy"] / 1e3 for row in rows]
    }
    kib = [row["kib"] for row in rows]
    axes = {"xlabel": "size of the message", "ylabel": "one send, ms"}
    picture = over_sizes(kib, lines, copy, **axes)
    array, shared, _ = picture.panels[0].marks
    array.color, shared.color = 2, 1  # as in the drawing of the page
    return picture


if __name__ == "__main__":
    main()
