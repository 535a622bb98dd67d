# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 120
# ///
"""A loop keeps batches of a worker, each an open file, until no more may be opened."""

import resource
from collections.abc import Callable

import torch
import torch.multiprocessing as mp
from torch import Tensor
from torch.utils.data import DataLoader

FILES, ROWS = 128, 300  # what a process may have open; rows, each a batch
FORK = mp.get_context("fork")  # quick, and safe here: this process computes nothing


def from_loader(keep: Callable[[Tensor], object], kept: list[object]) -> None:
    rows = torch.arange(float(ROWS))
    worker = {"num_workers": 1, "multiprocessing_context": FORK}
    for batch in DataLoader(rows, batch_size=1, **worker):
        kept.append(keep(batch))


def may_open(files: int) -> None:
    """Set how many files this process may have open."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, most), most))


def send(queue) -> None:
    may_open(4 * ROWS)  # a sender has each tensor open, too, until it is received
    for number in range(ROWS):
        queue.put(torch.tensor(number))
    queue.join()  # the sender must live until the tensors are received


def from_queue(keep: Callable[[Tensor], object], kept: list[object]) -> None:
    queue = FORK.JoinableQueue()
    FORK.Process(target=send, args=(queue,), daemon=True).start()
    for _ in range(ROWS):
        kept.append(keep(queue.get(timeout=20)))


#: how tensors are shared, who sends them, and what is kept of each
CASES = {
    "kept": ("file_descriptor", from_loader, lambda batch: batch),
    "kept from a queue": ("file_descriptor", from_queue, lambda batch: batch),
    "cloned": ("file_descriptor", from_loader, torch.clone),
    "as a number": ("file_descriptor", from_loader, Tensor.item),
    "kept, file_system": ("file_system", from_loader, lambda batch: batch),
}


def collect(
    strategy: str,
    loop: Callable[..., None],
    keep: Callable[[Tensor], object],
    connection,
) -> None:
    """In a child: how many batches it has when the loop ends, and which error ends it."""
    mp.set_sharing_strategy(strategy)
    may_open(FILES)
    kept: list[object] = []
    says = ""
    try:
        loop(keep, kept)
    except Exception as error:
        says = str(error)
    count = len(kept)
    del kept  # what is open is closed, else nothing can be sent
    connection.send({"kept": count, "says": says})


def in_child(target: Callable[..., None], *arguments: object):
    """What a child process sends when it runs `target(*arguments, connection)`."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=target, args=(*arguments, theirs))
    process.start()
    theirs.close()  # so that a child that dies is noticed: recv() raises EOFError
    told = ours.recv()
    process.join()
    return told


def main() -> dict:
    found = {name: in_child(collect, *case) for name, case in CASES.items()}
    print(f"{ROWS} batches, {FILES} files may be open")
    for name, told in found.items():
        says = told["says"].partition(". ")[0] or "no error"
        print(f"{name:<19}{told['kept']:4} kept: {says}")
    return {"files": FILES, "batches": ROWS, "found": found}


def derive(results: dict) -> dict:
    """How many batches each case kept, and what it said."""
    found = results["found"].items()
    keys = {"count": "kept", "says": "says"}
    return {key: {n: told[of] for n, told in found} for key, of in keys.items()}


if __name__ == "__main__":
    main()
