# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# ///
"""A Dataset that holds or makes GPU tensors: what its workers do with them."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

ROWS, WORKERS, LIMIT_S = 8, 2, 60


class Rows(Dataset):
    """Rows as most datasets give them: on the CPU."""

    def __init__(self, device: str, folder: str) -> None:
        self.device, self.folder = device, folder

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((4,), float(index))


class Holds(Rows):
    """All rows were sent to the GPU before the loader started."""

    def __init__(self, device: str, folder: str) -> None:
        super().__init__(device, folder)
        self.rows = torch.arange(ROWS, device=device).float()[:, None].repeat(1, 4)

    def __getitem__(self, index: int) -> Tensor:
        return self.rows[index]


class Makes(Rows):
    """Each row is sent to the GPU when it is read."""

    def __getitem__(self, index: int) -> Tensor:
        return super().__getitem__(index).to(self.device)


class Loads(Rows):
    """Each row is a file that was saved from the GPU."""

    def __init__(self, device: str, folder: str) -> None:
        super().__init__(device, folder)
        for index in range(ROWS):
            row = torch.full((4,), float(index), device=device)
            torch.save(row, Path(folder, str(index)))

    def __getitem__(self, index: int) -> Tensor:
        return torch.load(Path(self.folder, str(index)))


class LoadsToCpu(Loads):
    """The same files, to where a worker can use them."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.load(Path(self.folder, str(index)), map_location="cpu")


#: the dataset, how workers start, and whether the loader pins
CASES: dict[str, tuple[type[Rows], str, bool]] = {
    "CPU rows, forked": (Rows, "fork", True),
    "holds GPU rows, forked": (Holds, "fork", False),
    "makes GPU rows, forked": (Makes, "fork", False),
    "loads GPU rows, forked": (Loads, "fork", False),
    "loads to the CPU, forked": (LoadsToCpu, "fork", True),
    "holds GPU rows, spawned": (Holds, "spawn", False),
    "makes GPU rows, spawned": (Makes, "spawn", False),
    "makes GPU rows, spawned, pinned": (Makes, "spawn", True),
}


def last_error(text: str) -> str:
    """The line that says what went wrong: a loader's error has a traceback in it."""
    lines = re.findall(r"^[\w.]*Error: (.+)$", text, re.MULTILINE)
    line = lines[-1] if lines else text.partition("\n")[0]
    return re.sub(r" \(pid\(s\) [\d, ]+\)", "", line)


def taken_mib(device: str) -> int:
    """MiB of the GPU in use, by all processes."""
    if device == "cpu":
        return 0
    free, total = torch.cuda.mem_get_info()
    return (total - free) >> 20


def load(case: str, device: str, folder: str) -> dict:
    """How many rows arrive, on which device; what workers take of the GPU; the error."""
    torch.zeros(1, device=device)  # as a training loop has its model there
    kind, start, pin = CASES[case]
    data, before = kind(device, folder), taken_mib(device)
    options = {"num_workers": WORKERS, "timeout": LIMIT_S}
    options["pin_memory"] = pin and device == "cuda"
    loader = DataLoader(data, 2, multiprocessing_context=start, **options)
    told: dict = {"rows": 0, "device": "", "says": "", "taken_mib": 0, "first_s": 0.0}
    began = time.perf_counter()
    try:
        for batch in loader:
            told["first_s"] = told["first_s"] or time.perf_counter() - began
            assert batch[:, 0].tolist() == [told["rows"], told["rows"] + 1]
            told["rows"] += len(batch)
            told["device"] = batch.device.type
            told["taken_mib"] = max(told["taken_mib"], taken_mib(device) - before)
    except RuntimeError as error:
        told["says"] = last_error(str(error))
    return told


def in_process_of_its_own(case: str) -> dict:
    """What `load` tells: an error of CUDA would stay in the process."""
    command = [sys.executable, __file__, case]
    child = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(child.stdout.splitlines()[-1])


def main() -> dict:
    found = {case: in_process_of_its_own(case) for case in CASES}
    for case, told in found.items():
        words = told["says"] or f"on {told['device']}, workers {told['taken_mib']} MiB"
        print(f"{case:<32}{told['rows']} rows: {words}")
    return {"rows": ROWS, "workers": WORKERS, "found": found}


def derive(results: dict) -> dict:
    """The errors by how rows come to the GPU; rows that arrive; MiB of each worker."""
    found = results["found"]
    ways = ("holds", "makes", "loads")
    forked = [found[f"{way} GPU rows, forked"] for way in ways]
    spawned = [found[f"{way} GPU rows, spawned"] for way in ways[:2]]
    says = {way: row["says"] for way, row in zip(ways, forked, strict=True)}
    return says | {
        "forked_rows": [row["rows"] for row in forked],
        "spawned_rows": [row["rows"] for row in spawned],
        "each_mib": min(row["taken_mib"] for row in spawned) / results["workers"],
        "pinned": found["makes GPU rows, spawned, pinned"]["says"],
    }


if __name__ == "__main__":
    if len(sys.argv) == 2:
        with TemporaryDirectory() as folder:
            print(json.dumps(load(sys.argv[1], "cuda", folder)))
    else:
        main()
