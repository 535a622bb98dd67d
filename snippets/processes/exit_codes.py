# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# ///
"""Five ways for a child to end, and what four ways to start it say of each."""

import io
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from textwrap import shorten

import torch.multiprocessing as mp

FORK = mp.get_context("fork")  # quick, and safe here: no child computes anything
ENDINGS = {
    "returns": lambda: "done",
    "raises": lambda: int("three"),
    "sys.exit(3)": lambda: sys.exit(3),
    # as the kernel does when memory runs out, and as a wrong address does
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crashes": lambda: os.kill(os.getpid(), signal.SIGSEGV),
}


def end(how: str):
    """In the child: end in this way."""
    sys.stderr = io.StringIO()  # the traceback, which many logs lose
    return ENDINGS[how]()


def process(how: str) -> str:
    child = FORK.Process(target=end, args=(how,))
    child.start()
    child.join()
    return f"exit code {child.exitcode}"


def pool(how: str) -> str:
    with FORK.Pool(1) as workers:
        return workers.apply_async(end, (how,)).get(timeout=2)


def executor(how: str) -> str:
    with ProcessPoolExecutor(1, FORK) as workers:
        return workers.submit(end, how).result()


def torch_spawn(how: str) -> str:
    mp.start_processes(lambda index: end(how), start_method="fork")
    return "returned"


def told(start, how: str) -> str:
    """What the parent gets to know: the answer, or the last line of an error."""
    try:
        return start(how)
    except BaseException as error:  # SystemExit is no Exception
        said = str(error).strip().splitlines() or ["(no text)"]
        return f"{type(error).__name__}: {said[-1]}"


def main() -> dict:
    starts = (process, pool, executor, torch_spawn)
    found = {how: {s.__name__: told(s, how) for s in starts} for how in ENDINGS}
    for how, said in found.items():
        for name, words in said.items():
            print(f"{how:<13}{name:<13}{shorten(words, 62, placeholder=' …')}")
    return {"found": found}


def derive(results: dict) -> dict:
    """What each way of starting processes tells of how they ended."""
    found = results["found"]
    ends = [found[how] for how in ("killed", "crashes")]
    without_exception = [found["sys.exit(3)"], *ends]
    codes = [said["process"] for said in found.values()]
    raises, leaves = found["raises"], found["sys.exit(3)"]
    return {
        "error_is_told": all(
            "ValueError" in raises[way] for way in ("executor", "torch_spawn")
        ),
        "exit_is_told": "SystemExit" in leaves["executor"]
        and "exit code 3" in leaves["torch_spawn"],
        "broken_by_signal": all(
            "Broken" in said["executor"] and "signal" in said["torch_spawn"]
            for said in ends
        ),
        "pool_waits": all("TimeoutError" in said["pool"] for said in without_exception),
        "codes_alone": all(
            "exit code" in code and "Error" not in code for code in codes
        ),
        "codes_differ": len(set(codes)) == len(codes),
    }


if __name__ == "__main__":
    main()
