# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""An index out of bounds on the GPU: which line is blamed, with and without blocking launches."""

import json
import os
import subprocess
import sys
from statistics import median

CRASH = """
import json, time, traceback, torch

x = torch.zeros(1000, device="cuda")
index = torch.tensor([1000], device="cuda")

def launches_us():
    start = time.perf_counter()
    for _ in range(30_000):
        x.add_(1)
    torch.cuda.synchronize()
    return 1e6 / 30_000 * (time.perf_counter() - start)

def step():
    torch.cuda._sleep(200_000_000)
    wrong = x[index]
    right = x + 1
    return right.sum().item()

while input() == "measure":
    print(launches_us(), flush=True)
facts = {}
try:
    step()
except RuntimeError as error:
    facts["line"] = traceback.extract_tb(error.__traceback__)[-1].lineno
    facts["error"] = f"{type(error).__name__}: {error}".splitlines()
try:
    torch.zeros(1, device="cuda")
    facts["gpu_usable"] = True
except RuntimeError:
    facts["gpu_usable"] = False
print(json.dumps(facts), flush=True)
"""


def source(line: int) -> str:
    """The code in this line of the crashing program."""
    return CRASH.splitlines()[line - 1].strip()


def crash(blocking: bool) -> subprocess.Popen:
    """A process of its own, because no GPU work is possible in it after the crash."""
    return subprocess.Popen(
        [sys.executable, "-c", CRASH],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"CUDA_LAUNCH_BLOCKING": str(int(blocking))},
    )


def launch_us(child: subprocess.Popen) -> float:
    """Microseconds of a launch in this process, over thirty thousand of them."""
    print("measure", file=child.stdin, flush=True)
    return float(child.stdout.readline())


def report(child: subprocess.Popen, trials: list[float]) -> dict:
    """What it found out about its own death, and whether the GPU's own message names the cause."""
    out, err = child.communicate("crash\n")
    facts = json.loads(out) | {"us": median(trials), "us_trials": trials}
    facts["code"] = source(facts["line"])
    facts["hint"] = any("CUDA_LAUNCH_BLOCKING=1" in line for line in facts["error"])
    return facts | {"assertion": "index out of bounds" in err, "exit_code": child.returncode}


def main() -> dict:
    children = {"default": crash(blocking=False), "blocking": crash(blocking=True)}
    rounds = [{mode: launch_us(child) for mode, child in children.items()} for _ in range(11)][2:]  # in turn
    reports = {mode: report(child, [each[mode] for each in rounds]) for mode, child in children.items()}
    fault = next(n for n, line in enumerate(CRASH.splitlines(), 1) if "wrong = " in line)
    print(f"the fault     line {fault}: {source(fault)}")
    for mode, facts in reports.items():
        print(f"{mode:<9}blames line {facts['line']}: {facts['code']}")
        print(f"{'':9}{facts['error'][0]}; {facts['us']:.1f} µs per launch")
    slower = [each["blocking"] / each["default"] for each in rounds]
    reports |= {"slowdown": median(slower), "slowdown_trials": slower}
    return reports | {"fault": {"line": fault, "code": source(fault)}}


if __name__ == "__main__":
    main()
