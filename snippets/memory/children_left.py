# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 400
# ///
"""A program is stopped by Ctrl-C, `kill` or `kill -9`: which of its children live on?"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

LIMIT_S, GRACE_S, BESIDE = 120, 15, 3


def child(folder: str) -> None:
    """Say which process this is, and never end."""
    Path(folder, "new").write_text(str(os.getpid()))
    Path(folder, "new").rename(Path(folder, "child"))
    time.sleep(600)


def by_subprocess(folder: str) -> None:
    subprocess.Popen([sys.executable, __file__, "child", folder]).wait()


def by_multiprocessing(folder: str) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=child, args=[folder])
    process.start()
    process.join()


def spawned(rank: int, folder: str) -> None:
    child(folder)


def by_spawn(folder: str) -> None:
    import torch.multiprocessing

    torch.multiprocessing.spawn(spawned, (folder,))


class Rows:
    """A map-style dataset whose worker says who it is."""

    def __init__(self, folder: str, slow: bool) -> None:
        self.folder, self.slow = folder, slow

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if self.slow:
            child(self.folder)
        Path(self.folder, "child").write_text(str(os.getpid()))
        return index


def load(folder: str, slow: bool) -> None:
    from torch.utils.data import DataLoader

    context = {"multiprocessing_context": "fork"}
    for _ in DataLoader(Rows(folder, slow), num_workers=1, **context):
        time.sleep(600)  # a training step


def by_loader(folder: str) -> None:
    load(folder, slow=False)


def by_slow_loader(folder: str) -> None:
    load(folder, slow=True)


def by_torchrun(folder: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    os.execv(sys.executable, [*command, __file__, "child", folder])


#: what starts the child; a worker that waits for room, and one that is in a row
KINDS: dict[str, Callable[[str], None]] = {
    "subprocess.Popen": by_subprocess,
    "multiprocessing.Process": by_multiprocessing,
    "torch.multiprocessing.spawn": by_spawn,
    "worker of a DataLoader": by_loader,
    "worker that hangs": by_slow_loader,
    "rank of torchrun": by_torchrun,
}


def interrupt(program: int) -> None:
    """Ctrl-C: the terminal sends it to all processes of the job."""
    os.killpg(program, signal.SIGINT)


def suspend(program: int) -> None:
    """Ctrl-Z, in the same way."""
    os.killpg(program, signal.SIGSTOP)


ENDS: dict[str, Callable[[int], None]] = {
    "Ctrl-C": interrupt,
    "kill": lambda program: os.kill(program, signal.SIGTERM),
    "kill -9": lambda program: os.kill(program, signal.SIGKILL),
    "Ctrl-Z": suspend,
}


def lives(process: int) -> bool:
    """Whether it is there and has not ended; who waits for nobody is a zombie."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def until(done: Callable[[], bool], seconds: float) -> bool:
    """Whether it is so, within so many seconds."""
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.1)
    return done()


def gone(process: int) -> bool:
    return not lives(process)


def left(kind: str, end: str) -> str:
    """What has become of the child: "ends", or "lives on"."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options: dict = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = [sys.executable, __file__, kind, folder]
        program = subprocess.Popen(command, start_new_session=True, **options)
        try:
            told = Path(folder, "child")
            if not until(lambda: told.exists() and told.read_text() != "", LIMIT_S):
                raise RuntimeError(f"{kind} has started no child within {LIMIT_S} s")
            time.sleep(1)  # a worker fills its queue
            process = int(told.read_text())
            ENDS[end](program.pid)
            ended = until(lambda: gone(process), GRACE_S)
            if not ended:
                os.kill(process, signal.SIGKILL)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    return "ends" if ended else "lives on"


def cases() -> Iterator[tuple[str, str]]:
    for kind in KINDS:
        for end in ENDS:
            yield kind, end


def main() -> dict:
    with ThreadPoolExecutor(BESIDE) as pool:
        words = list(pool.map(lambda case: left(*case), cases()))
    found: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for (kind, end), word in zip(cases(), words, strict=True):
        found[kind][end] = word
    print(f"{'':28}", *(f"{end:10}" for end in ENDS))
    for kind, row in found.items():
        print(f"{kind:28}", *(f"{word:10}" for word in row.values()))
    return {"grace_s": GRACE_S, "found": found}


def derive(results: dict) -> dict:
    """By the way to stop a program: the children that live on."""
    found = results["found"]
    ends = next(iter(found.values()))
    left = {}
    for end in ends:
        left[end] = sorted(
            kind for kind, row in found.items() if row[end] == "lives on"
        )
    kinds = ["multiprocessing.Process", "subprocess.Popen", "worker that hangs"]
    return {"left": left, "plain": kinds, "job": sorted([*kinds, "rank of torchrun"])}


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "child":
        child(sys.argv[2])
    elif len(sys.argv) == 3:
        KINDS[sys.argv[1]](sys.argv[2])
    else:
        main()
