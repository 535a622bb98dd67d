# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# ///
"""Send through a Queue, a Pipe and an Array: whose memory does the child write to?"""

import multiprocessing

import numpy as np
import torch
import torch.multiprocessing as mp

WRITTEN, ELEMENTS = -1.0, 4


def write(queue, connection, array) -> None:
    """In the child: write into the first element of whatever arrives."""
    for take in (queue.get, queue.get, connection.recv, connection.recv):
        message = take()
        message[0] = WRITTEN
    array[0] = WRITTEN


def as_tensor(array) -> torch.Tensor:
    """A float Array as a tensor, in the same memory."""
    return torch.frombuffer(array.get_obj(), dtype=torch.float32)


def main() -> dict:
    names = multiprocessing.__all__
    absent = [name for name in names if not hasattr(mp, name)]
    same = mp.Queue == multiprocessing.Queue
    print(f"names of multiprocessing: {len(names)}, absent in torch's: {len(absent)}")
    print(f"torch.multiprocessing.Queue is Python's own: {same}")

    context = mp.get_context("spawn")
    queue, array = context.Queue(), context.Array("f", ELEMENTS)
    ours, theirs = context.Pipe()
    sent = {
        way: {"tensor": torch.zeros(ELEMENTS), "numpy": np.zeros(ELEMENTS)}
        for way in ("Queue", "Pipe")
    }
    process = context.Process(target=write, args=(queue, theirs, array))
    process.start()
    for put, way in ((queue.put, "Queue"), (ours.send, "Pipe")):
        for message in sent[way].values():
            put(message)
    process.join()
    assert process.exitcode == 0, f"exit code {process.exitcode}"
    memory = np.frombuffer(array.get_obj(), dtype=np.float32)
    sent["Array"] = {"tensor": as_tensor(array), "numpy": memory}

    seen = {}
    for way, messages in sent.items():
        seen[way] = {
            kind: float(message[0]) == WRITTEN for kind, message in messages.items()
        }
        print(f"{way}: the child's write is seen in {seen[way]}")
    return {"names": len(names), "absent": absent, "same_queue": same, "seen": seen}


def derive(results: dict) -> dict:
    """By kind of memory, the ways that share it."""
    seen = results["seen"]
    kinds = ("tensor", "numpy")
    return {
        "shared": {
            kind: sorted(way for way in seen if seen[way][kind]) for kind in kinds
        }
    }


if __name__ == "__main__":
    main()
