# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["holders"]
# take_on_cpu = ["holders"]
# ///
"""A program is gone, and its child still holds GPU memory: who has the GPU open?"""

import glob
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch

CHILD_MIB = 1024


def holders(device: str = "/dev/nvidia") -> dict[int, str]:
    """Processes that have a file open whose path begins so, and their commands.

    Linux. Without the rights of root it sees your own processes alone; so does
    `fuser -v /dev/nvidia*`. In a container it sees those of the container.
    """
    found = {}
    for file in glob.iglob("/proc/[0-9]*/fd/*"):  # skips processes that end meanwhile
        with suppress(OSError):  # it is closed again, or another user's
            if os.readlink(file).startswith(device):
                process = Path(file).parents[1]
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(process.name)] = command.decode(errors="replace").strip()
    return found


def child() -> None:
    """Take GPU memory, say so, and never end."""
    held = torch.ones(CHILD_MIB << 18, device="cuda")
    torch.cuda.synchronize()
    print(os.getpid(), flush=True)
    time.sleep(600)
    del held


def parent() -> None:
    """Start a child, as a program starts its workers, and never end."""
    subprocess.Popen([sys.executable, __file__, "child"])
    time.sleep(600)


def used_mib() -> int:
    free, total = torch.cuda.mem_get_info()
    return (total - free) >> 20


def settled_mib(enough: int) -> int:
    """MiB in use, as soon as they are this or less, or after five seconds."""
    for _ in range(50):
        if used_mib() <= enough:
            break
        time.sleep(0.1)
    return used_mib()


def main() -> dict:
    before = used_mib()
    program = subprocess.Popen(
        [sys.executable, __file__, "parent"], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout
    orphan = int(program.stdout.readline())
    try:
        mib = {"running": used_mib() - before}
        program.kill()
        program.wait()
        mib["parent is gone"] = settled_mib(before) - before
        commands = holders()
        seen = orphan in commands and commands[orphan].endswith("child")
    finally:
        os.kill(orphan, signal.SIGKILL)
        program.stdout.close()
    mib["child is gone"] = settled_mib(before) - before
    for moment, size in mib.items():
        print(f"{moment:15}{size:6} MiB")
    print("`holders` names the child:", seen)
    return {"mib": mib, "child_mib": CHILD_MIB, "seen": seen}


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        child()
    elif sys.argv[1:] == ["parent"]:
        parent()
    else:
        main()
