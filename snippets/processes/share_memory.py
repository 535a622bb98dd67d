# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# ///
"""Send an array and a shared tensor to a child process: which bytes travel, and who sees the child's write."""

from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing as mp

from snippets.timing.benchmark import measure

SIZES_KIB, WRITTEN = [4, 32, 256, 2048, 16384], -1.0


def receive(connection) -> None:
    """In the child: rebuild each message, answer with its first element and its bytes in the pipe, write into its last."""
    while payload := connection.recv_bytes():
        message = ForkingPickler.loads(payload)
        message[-1] = WRITTEN
        connection.send((float(message[0]), len(payload)))


@contextmanager
def child():
    """A spawned process that receives until it is told to stop, and whose exit code is read."""
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=receive, args=(theirs,))
    process.start()
    theirs.close()  # now only the child holds that end: if it dies, recv() raises here instead of waiting for ever
    try:
        yield ours
        ours.send_bytes(b"")
    finally:
        ours.close()
        process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the child ended with exit code {process.exitcode}")


def send(connection, message) -> int:
    """Send as `connection.send` does and wait until the child has it rebuilt; bytes that went through the pipe."""
    connection.send_bytes(ForkingPickler.dumps(message))
    first, payload_bytes = connection.recv()
    assert first == float(message[0]), "the child received something else"
    return payload_bytes


def compare(connection, kib: int) -> dict:
    """One size: payload, whether the child's write is seen here, and the time of each send, of sharing and of a copy."""
    values = torch.rand(kib * 256)
    room, unshared = values.clone(), [values.clone() for _ in range(9)]
    row, work = {"kib": kib}, {"share": lambda: unshared.pop().share_memory_(), "copy": lambda: room.copy_(values)}
    for name, message in (("array", values.numpy().copy()), ("shared", values.clone().share_memory_())):
        row[f"{name}_payload_bytes"] = send(connection, message)
        row[f"{name}_write_seen"] = float(message[-1]) == WRITTEN
        work[name] = lambda message=message: send(connection, message)
    for name, timing in {name: measure(work[name], warmup=2, trials=7) for name in work}.items():
        row[f"{name}_us"], row[f"{name}_us_trials"] = 1e6 * timing.median, [1e3 * ms for ms in timing.ms()]
    return row | {f"{name}_gb_s": kib * 1.024 / row[f"{name}_us"] for name in ("array", "copy")}


def main() -> dict:
    torch.set_num_threads(1)  # pickling and pipes use one thread: so does the copy beside them
    plain = torch.rand(1024)
    with child() as connection:
        before, _, after = plain.is_shared(), send(connection, plain), plain.is_shared()
        rows = [compare(connection, kib) for kib in SIZES_KIB]
    print(f"a plain tensor, sent once: shared before {before}, after {after}")
    for row in rows:
        array, shared = (f"{row[f'{n}_payload_bytes']:>10,} B {row[f'{n}_us']:>6,.0f} µs" for n in ("array", "shared"))
        print(f"{row['kib']:>6,} KiB: array {array}, shared tensor {shared.strip()}")
    return {"plain_shared_before": before, "plain_shared_after": after, "rows": rows}


def plot(results: dict, ceilings: dict):
    """Time of one send over the size of what is sent, beside one copy of the same bytes."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    rows, sizes = results["rows"], [row["kib"] for row in results["rows"]]
    for name, label in (("array", "array, pickled"), ("shared", "tensor, shared")):
        ax.plot(sizes, [row[f"{name}_us"] for row in rows], marker="o", label=label)
    ax.plot(sizes, [row["copy_us"] for row in rows], color="gray", linestyle="--", label="one copy in memory")
    ax.set(xscale="log", yscale="log", xlabel="size of the message (KiB)", ylabel="time of one send (µs)")
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1))
    return figure


if __name__ == "__main__":
    main()
