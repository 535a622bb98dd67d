# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# timeout = 120
# ///
"""A tensor's maker overwrites it, frees it or exits: what does its user still read?"""

from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing as mp

FLOATS = 16 * 2**20  # 64 MiB: a segment of its own
#: what maker and user do, one after the other; the user opens, clones and reads
CASES = [
    "open overwrite read",
    "open free read",
    "free open read",
    "open exit read",
    "open clone exit read",
    "exit open read",
]


def maker(connection) -> None:
    """In one child: send the handle of a tensor of ones, then do as told."""
    x = torch.ones(FLOATS, device="cuda")
    connection.send_bytes(ForkingPickler.dumps(x))
    for order in iter(connection.recv, "exit"):
        if order == "overwrite":
            x.fill_(9)
        if order == "free":
            del x
            x = torch.full((FLOATS,), 9.0, device="cuda")  # would take its place
        torch.cuda.synchronize()
        connection.send(torch.cuda.memory_allocated() // 2**20)


def user(connection) -> None:
    """In another child: open the handle, clone, read; an error is an answer, too."""
    x = None
    for order in iter(connection.recv, "exit"):
        try:
            if order == "read":
                connection.send(x.unique().tolist())
            else:
                x = x.clone() if order == "clone" else ForkingPickler.loads(order)
                connection.send(None)
        except Exception as error:
            connection.send(f"{type(error).__name__}: {error}".splitlines()[0])


def started(target) -> tuple:
    """A child that runs `target(connection)`, and our end of its connection."""
    ours, theirs = mp.Pipe()
    process = mp.get_context("forkserver").Process(target=target, args=(theirs,))
    process.start()
    theirs.close()
    return process, ours


def answer(connection):
    try:
        return connection.recv()
    except EOFError:
        return "died"


def tried(case: str) -> dict:
    """What each step of a case gave, until one was an error; and the exit codes."""
    (making, to_maker), (using, to_user) = started(maker), started(user)
    handle, said = to_maker.recv_bytes(), {}
    for step in case.split():
        if step in ("overwrite", "free", "exit"):
            to_maker.send(step)
            said[step] = making.join() if step == "exit" else answer(to_maker)
        else:
            to_user.send(handle if step == "open" else step)
            said[step] = answer(to_user)
        if isinstance(said[step], str):
            break
    for process, connection in ((using, to_user), (making, to_maker)):
        if process.is_alive():
            connection.send("exit")
        process.join()
    return said | {"exit_codes": [making.exitcode, using.exitcode]}


def main() -> dict:
    mp.get_context("forkserver").set_forkserver_preload(["torch"])
    found = {case: tried(case) for case in CASES}
    for case, said in found.items():
        last = [said[step] for step in case.split() if step in said][-1]
        print(f"{case:<22}{str(last)[:100]}")
    return {"mib": FLOATS * 4 // 2**20, "found": found}


if __name__ == "__main__":
    main()
