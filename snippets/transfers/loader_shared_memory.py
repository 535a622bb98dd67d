# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 120
# ///
"""A loader whose workers have 4 MiB of shared memory, as in a small container."""

import json
import re
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

MIB = 1 << 20
ROW_MIB, ROWS = 0.25, 64
#: MiB of /dev/shm, and the loader's arguments
CASES: dict[str, tuple[int, dict]] = {
    "no workers": (4, {"batch_size": 8}),
    "2 workers": (4, {"batch_size": 8, "num_workers": 2}),
    "a smaller batch": (4, {"batch_size": 1, "num_workers": 2}),
    "1 worker, 1 ahead": (4, {"batch_size": 2, "num_workers": 1, "prefetch_factor": 1}),
    "64 MiB": (64, {"batch_size": 8, "num_workers": 2}),
    "its own memory": (4, {"batch_size": 1, "num_workers": 1}),
}


class Rows(Dataset):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(int(ROW_MIB * MIB) // 4)


class OwnMemory(Rows):
    """A library that takes shared memory itself, and does not ask whether it is there."""

    def __getitem__(self, index: int) -> Tensor:
        memory = SharedMemory(create=True, size=8 * MIB)
        memory.buf[:] = bytes(8 * MIB)  # more than there is
        return torch.zeros(1)


def load(name: str) -> dict:
    """How many batches arrive, and which error ends the loop."""
    data = OwnMemory() if name == "its own memory" else Rows()
    batches, says = 0, ""
    try:
        for _ in DataLoader(data, **CASES[name][1]):
            batches += 1
    except RuntimeError as error:
        cause = error.__cause__ or error  # of "exited unexpectedly", why it did
        says = str(cause).strip().splitlines()[-1].removeprefix("RuntimeError: ")
        says = re.sub(r" </torch_.*?>| \(pid.*?\)", "", says)
    return {"batches": batches, "says": says}


def load_all() -> dict[str, dict]:
    """All cases, one after the other, each with a new /dev/shm of its size."""
    found = {}
    for name, (mib, _) in CASES.items():
        mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", "/dev/shm"]
        subprocess.run(mount, check=True)  # over the one before
        found[name] = load(name)
    return found


def in_namespace() -> dict[str, dict]:
    """What `load_all` gives in a mount namespace, where it may mount."""
    command = ["unshare", "--map-root-user", "--mount"]
    command += [sys.executable, __file__, "inside"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        raise RuntimeError(f"no namespace of its own here: {done.stderr}")
    return json.loads(done.stdout)


def main() -> dict:
    found = in_namespace()
    for name, (mib, options) in CASES.items():
        told = found[name]
        told["shm_mib"] = mib
        told["batch_mib"] = ROW_MIB * options["batch_size"]
        told["all"] = told["batches"] == ROWS // options["batch_size"]
        print(
            f"{name:<18}{told['batches']:3} batches of {told['batch_mib']:4} MiB",
            end="",
        )
        print(f", {mib} MiB: {told['says'][:60] or 'no error'}")
    return {"found": found}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(load_all()))
    else:
        main()
