# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""The same processes on one GPU, without MPS and with it; or why it does not start."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from snippets.pictures import bars
from snippets.processes.one_gpu_shared import MODELS, served

CONTROL = "nvidia-cuda-mps-control"
PROCESSES = (1, 4)
LIMIT_S = 60


def asked(order: str, env: dict[str, str]) -> str:
    """What MPS's control daemon answers."""
    options: dict = {"env": env, "capture_output": True, "text": True}
    child = subprocess.run([CONTROL], input=order + "\n", timeout=LIMIT_S, **options)
    return (child.stdout + child.stderr).strip()


@contextmanager
def mps(folder: str) -> Iterator[tuple[dict[str, str], str]]:
    """The environment of processes that share the GPU by MPS; words if there is none.

    It changes no setting of the GPU, and is for those who have this environment only.
    """
    pipes, logs = Path(folder, "pipes"), Path(folder, "logs")
    pipes.mkdir()
    logs.mkdir()
    env = os.environ | {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
        "CUDA_MPS_LOG_DIRECTORY": str(logs),
    }
    if not shutil.which(CONTROL):
        yield env, f"{CONTROL} is not installed"
        return
    options: dict = {"env": env, "capture_output": True, "text": True}
    try:
        child = subprocess.run([CONTROL, "-d"], timeout=LIMIT_S, **options)
    except subprocess.TimeoutExpired:
        yield env, f"{CONTROL} -d did not return within {LIMIT_S} s"
        return
    if child.returncode:
        words = (child.stdout + child.stderr).strip()
        yield env, words or f"{CONTROL} -d ended with {child.returncode}"
        return
    try:
        yield env, ""
    finally:
        with suppress(subprocess.TimeoutExpired):
            asked("quit -t 5", env)


def rates(env: dict[str, str]) -> dict:
    """What processes with this environment serve, or how they failed."""
    command = [sys.executable, __file__, "rates"]
    options: dict = {"env": env, "capture_output": True, "text": True}
    try:
        child = subprocess.run(command, timeout=LIMIT_S, **options)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {LIMIT_S} s"}
    if child.returncode:
        return {"error": child.stderr.strip().splitlines()[-1]}
    return json.loads(child.stdout)


def by_processes() -> dict[str, dict[str, dict]]:
    """Answers of each model by one process, and by four."""
    found: dict[str, dict[str, dict]] = {}
    for model in MODELS:
        counts = {str(count): served(model, "alone", count) for count in PROCESSES}
        found[model] = counts
    return found


def main() -> dict:
    result: dict = {"in_turn": rates(dict(os.environ)), "shared": {}}
    with TemporaryDirectory() as folder, mps(folder) as (env, words):
        result |= {"refusal": words, "servers": 0}
        if not words:
            result["shared"] = rates(env)
            result["servers"] = len(asked("get_server_list", env).split())
    if words:
        print("MPS does not start here:", words)
    for name, key in {"without": "in_turn", "with": "shared"}.items():
        if "error" in result[key]:
            print(f"{name} MPS: {result[key]['error']}")
            continue
        for model, counts in result[key].items():
            each = [
                f"{count}: {row['requests_s']:7.0f}" for count, row in counts.items()
            ]
            print(f"{name:8}MPS, {model:6}answers a second by processes", *each)
    return result


def plot(results: dict, ceilings: dict):
    groups = {}
    for model, counts in results["in_turn"].items():
        for count, row in counts.items():
            name = f"{model} model, {count} processes"
            groups[name] = {"without MPS": row["requests_s"]}
            if model in results["shared"]:
                shared = results["shared"][model][count]["requests_s"]
                groups[name]["with MPS"] = shared
    return bars(groups, {}, "answers a second", log=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(by_processes()))
    else:
        main()
