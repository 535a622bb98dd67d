# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Programs that fail on the GPU, one process each: what PyTorch says, and of which line."""

import json
import re
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn import functional as F

WRITE = """
extern "C" __global__ void write(float *x, int far) { x[(long)far << 30] = 1; }
"""
MISALIGNED = """
extern "C" __global__ void write(char *x, int offset) { *(float *)(x + offset) = 1; }
"""
TRAP = """
extern "C" __global__ void write(float *x) { if (x[0] == 0) __trap(); }
"""


def launch(source: str, *arguments: object) -> None:
    """One thread of a kernel of our own."""
    kernel = torch.cuda._compile_kernel(source, "write")
    x = torch.zeros(1024, device="cuda")
    kernel((1, 1, 1), (1, 1, 1), [x, *arguments])


def label_out_of_range() -> None:
    scores = torch.zeros(8, 10, device="cuda")
    labels = torch.full((8,), 10, device="cuda")  # the last class is 9
    F.cross_entropy(scores, labels).item()


def index_out_of_range() -> None:
    x = torch.zeros(10, device="cuda")
    x[torch.tensor([10], device="cuda")].sum().item()


def word_out_of_range() -> None:
    table = nn.Embedding(10, 64, device="cuda")
    table(torch.tensor([10], device="cuda")).sum().item()


def word_before_a_product() -> None:
    """The first matmul of the process comes after the bad index."""
    table = nn.Embedding(10, 64, device="cuda")
    layer = nn.Linear(64, 64, device="cuda")
    x = table(torch.tensor([[10]], device="cuda"))
    torch.cuda._sleep(200_000_000)  # the GPU is not there yet
    layer(x).sum().item()


def probability_out_of_range() -> None:
    p = torch.full((8,), 2.0, device="cuda")
    F.binary_cross_entropy(p, torch.ones_like(p)).item()


def bad_probabilities() -> None:
    p = torch.full((8,), float("nan"), device="cuda")
    torch.multinomial(p, 1).item()


def address_of_nobody() -> None:
    launch(WRITE, 1024)
    torch.cuda.synchronize()


def misaligned_address() -> None:
    launch(MISALIGNED, 1)
    torch.cuda.synchronize()


def trap() -> None:
    launch(TRAP)
    torch.cuda.synchronize()


def too_many_threads() -> None:
    kernel = torch.cuda._compile_kernel(TRAP, "write")
    kernel((1, 1, 1), (2048, 1, 1), [torch.zeros(1, device="cuda")])


def full() -> list[torch.Tensor]:
    """Take all memory of the GPU, in smaller and smaller pieces."""
    held = []
    for mib in (4096, 256, 16, 1):
        try:
            while True:
                held.append(torch.empty(mib << 20, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            pass
    return held


def product_without_room() -> None:
    x, out = torch.ones(2, 64, 64, device="cuda")
    held = full()
    torch.mm(x, x, out=out)
    del held


def convolution_without_room() -> None:
    x, kernel = torch.ones(1, 3, 32, 32).cuda(), torch.ones(8, 3, 3, 3).cuda()
    held = full()
    F.conv2d(x, kernel)
    del held


def shapes_of_a_product() -> None:
    (torch.ones(2, 3, device="cuda") @ torch.ones(2, 3, device="cuda")).sum().item()


BESIDE_OTHERS = (
    label_out_of_range,
    index_out_of_range,
    word_out_of_range,
    word_before_a_product,
    probability_out_of_range,
    bad_probabilities,
    address_of_nobody,
    misaligned_address,
    trap,
    too_many_threads,
    shapes_of_a_product,
)
ALONE = (product_without_room, convolution_without_room)  # they fill the GPU
PROGRAMS = {program.__name__: program for program in (*BESIDE_OTHERS, *ALONE)}


def failed(name: str) -> dict:
    """What this program's error says, its line, and whether the GPU is usable then."""
    facts = {"error": "", "kind": "", "line": "", "usable": True}
    try:
        PROGRAMS[name]()
    except Exception as error:
        own = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == __file__
        ]
        words = re.sub(r"Process \d+ has .*? in use\. ", "", str(error))
        facts |= {"error": words, "kind": type(error).__name__}
        facts["line"] = own[-1].line
    try:
        torch.zeros(1, device="cuda").item()
    except RuntimeError:
        facts["usable"] = False
    return facts


def assertion(stderr: str) -> str:
    """What a kernel's own assertion said, without the number of its thread."""
    found = re.search(r"Assertion `(.*?)` failed", stderr)
    return found[1] if found else ""


def in_process_of_its_own(name: str) -> dict:
    command = [sys.executable, __file__, name]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60)
    facts = {"error": child.stderr, "kind": "", "line": "", "usable": False}
    if child.stdout:
        facts = json.loads(child.stdout.splitlines()[-1])
    return facts | {"assertion": assertion(child.stderr), "exit": child.returncode}


def main() -> dict:
    beside = [program.__name__ for program in BESIDE_OTHERS]
    with ThreadPoolExecutor(6) as pool:
        rows = dict(zip(beside, pool.map(in_process_of_its_own, beside), strict=True))
    for program in ALONE:
        rows[program.__name__] = in_process_of_its_own(program.__name__)
    for name, facts in rows.items():
        first = facts["error"].splitlines()[0] if facts["error"] else "no error"
        print(f"{name}: {facts['kind']}: {first}")
        print(f"  in the line `{facts['line']}`", end="")
        if facts["assertion"]:
            print(f"; the kernel: {facts['assertion']}", end="")
        print("" if facts["usable"] else "; afterwards every call fails")
    return {"programs": rows}


def derive(results: dict) -> dict:
    """The first line of each message; faults of the GPU; and after which no call works."""
    rows = results["programs"]
    first = {name: facts["error"].split("\n")[0] for name, facts in rows.items()}
    lost = [name for name, facts in rows.items() if not facts["usable"]]
    faults = [
        name for name, facts in rows.items() if facts["kind"] == "AcceleratorError"
    ]
    return {"first_line": first, "faults": faults, "lost": lost}


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(failed(sys.argv[1])), flush=True)
    else:
        main()
