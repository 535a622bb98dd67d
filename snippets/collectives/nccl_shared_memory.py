# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# exclusive = false
# timeout = 330
# ///
"""NCCL in a container with little shared memory: what it says, and what helps."""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist

from snippets.collectives.collectives_zoo import join

LIMIT_S = 50
NO_P2P = {"NCCL_P2P_DISABLE": "1"}
IN_SHM = {"NCCL_CUMEM_HOST_ENABLE": "0"}  # else newer releases take other memory
#: MiB of /dev/shm, and the environment
CASES: dict[str, tuple[int, dict[str, str]]] = {
    "direct copies": (1, {}),
    "through the host": (1, NO_P2P),
    "in /dev/shm, 1 MiB": (1, NO_P2P | IN_SHM),
    "in /dev/shm, 64 MiB": (64, NO_P2P | IN_SHM),
    "in /dev/shm, 1 GiB": (1024, NO_P2P | IN_SHM),
    "through sockets": (1, NO_P2P | IN_SHM | {"NCCL_SHM_DISABLE": "1"}),
}


def job() -> None:
    """An all-reduce of a mebibyte, and its sum."""
    device = join()
    x = torch.ones(1 << 18, device=device)
    dist.all_reduce(x)
    assert x.sum().item() == x.numel() * dist.get_world_size()
    if dist.get_rank() == 0:
        print("the sum is right")
    dist.destroy_process_group()


def in_container(file: str, mib: int, environment: dict[str, str]) -> tuple[str, str]:
    """Run a file in two ranks that have a /dev/shm of so many MiB; what they print, and NCCL's log.

    It is a mount namespace of its own, so the host's /dev/shm stays as it is.
    """
    mount = f"mount -t tmpfs -o size={mib}m tmpfs /dev/shm && exec "
    torchrun = f'"{sys.executable}" -m torch.distributed.run --standalone'
    torchrun += f' --nproc-per-node=2 "{file}" job'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount + torchrun]
    with TemporaryDirectory() as folder:
        asks = {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": f"{folder}/%p"}
        child = subprocess.Popen(
            command,
            env=os.environ | asks | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            printed, _ = child.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            child.terminate()  # torchrun then ends its ranks
            printed = child.communicate()[0] + f"no end within {LIMIT_S} s"
        files = sorted(Path(folder).iterdir())
        return printed, "".join(path.read_text() for path in files)


def read(printed: str, log: str) -> dict:
    """What PyTorch's error and NCCL's warning say, without names that change."""
    ends = re.search(r"unhandled \w+ error|internal error|no end within \d+ s", printed)
    warns = re.findall(r"NCCL WARN ((?:Error|Call).*)", log)
    warns = [re.sub(r"nccl-\w+", "nccl-…", line) for line in warns]
    right = "the sum is right" in printed
    if not (right or ends or warns):
        raise RuntimeError(printed[-2000:])  # another error: perhaps no namespace here
    return {"right": right, "says": ends[0] if ends else "", "warns": warns[:2]}


def main() -> dict:
    found = {}
    for name, (mib, environment) in CASES.items():
        told = read(*in_container(__file__, mib, environment))
        found[name] = told | {"shm_mib": mib}
        words = "right" if told["right"] else told["says"]
        print(f"{name:<26}{mib:5} MiB: {words}", *told["warns"][:1], sep="\n    ")
    return {"found": found}


def derive(results: dict) -> dict:
    """In words, by case; where the sum is right, and where NCCL's log names a file."""
    rows = results["found"]
    words = {n: "right" if r["right"] else r["says"] for n, r in rows.items()}
    right = [name for name, word in words.items() if word == "right"]
    full = []
    for name, row in rows.items():
        logged = any("/dev/shm/nccl" in line for line in row["warns"])
        if logged and words[name] == "unhandled system error":
            full.append(name)
    return {"word": words, "right": right, "full": full}


if __name__ == "__main__":
    if "RANK" in os.environ:
        job()
    else:
        main()
