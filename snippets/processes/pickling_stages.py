# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy"]
# [tool.overlap]
# gpus = [0]
# ///
"""Take the way of a pickled array to a child apart, and count new pages."""

import json
import multiprocessing
import os
import sys
import time
from multiprocessing.reduction import ForkingPickler
from resource import RUSAGE_SELF, getpagesize, getrusage
from statistics import median
from subprocess import PIPE, run

import numpy as np

from snippets.pictures import Rule, stacked

MIB, TRIALS, STAGES = 16, 11, ("dumps", "pipe", "loads", "copy")
# glibc: ask for much at once, and give nothing back
KEEP = {"MALLOC_TOP_PAD_": "268435456", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
KEEP |= {"MALLOC_MMAP_THRESHOLD_": "33554432"}


def new_pages() -> int:
    """How many pages of memory this process has had to be given so far."""
    return getrusage(RUSAGE_SELF).ru_minflt


def receive(connection) -> None:
    """In the child: rebuild each message; tell when it came and when it was ready."""
    for payload in iter(connection.recv_bytes, b""):
        there = time.perf_counter()  # one clock for all processes of a machine
        ForkingPickler.loads(payload)
        connection.send((there, time.perf_counter(), new_pages()))


def send(connection, array: np.ndarray) -> dict[str, float]:
    """Milliseconds of each stage of one message, and the new pages of both so far."""
    start = time.perf_counter()
    payload = ForkingPickler.dumps(array)
    pickled = time.perf_counter()
    connection.send_bytes(payload)
    there, ready, pages = connection.recv()
    row = {"pages": pages + new_pages(), "dumps": 1e3 * (pickled - start)}
    return row | {"pipe": 1e3 * (there - pickled), "loads": 1e3 * (ready - there)}


def sent() -> list[dict[str, float]]:
    """The same for several messages of 16 MiB, and the time of a plain copy."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=receive, args=(theirs,))
    child.start()
    theirs.close()  # if the child dies, recv() raises instead of waiting for ever
    array = np.random.rand(MIB * 2**17)
    room, rows = array.copy(), []
    for _ in range(3 + TRIALS):
        row, start = send(ours, array), time.perf_counter()
        np.copyto(room, array)
        rows.append(row | {"copy": 1e3 * (time.perf_counter() - start)})
    ours.send_bytes(b"")
    child.join()
    return rows[3:]  # the first ones warm up


def main() -> dict:
    ms, ms_trials, new_mib = {}, {}, {}
    for name, setting in {"as it is": {}, "memory kept": KEEP}.items():
        command, env = [sys.executable, __file__, "child"], os.environ | setting
        rows = json.loads(run(command, env=env, stdout=PIPE, check=True).stdout)
        pages = (rows[-1]["pages"] - rows[0]["pages"]) / (TRIALS - 1)
        new_mib[name] = round(pages * getpagesize() / 2**20)
        ms_trials[name] = {stage: [row[stage] for row in rows] for stage in STAGES}
        ms[name] = {stage: median(each) for stage, each in ms_trials[name].items()}
        shown = ", ".join(f"{stage} {each:.1f}" for stage, each in ms[name].items())
        print(f"{name:<12}{shown} ms; {new_mib[name]} MiB of new memory")
    return {"mib": MIB, "ms": ms, "ms_trials": ms_trials, "new_mib": new_mib}


def derive(results: dict) -> dict:
    """How many times as long the stages take together with new memory."""
    stages = ("dumps", "pipe", "loads")
    new, kept = (
        sum(results["ms"][way][stage] for stage in stages)
        for way in ("as it is", "memory kept")
    )
    return {"new_memory_takes": new / kept}


def plot(results: dict, ceilings: dict):
    titles = {"as it is": "by default", "memory kept": "glibc keeps memory"}
    ms = results["ms"]
    parts = {
        stage: {title: ms[name][stage] for name, title in titles.items() if name in ms}
        for stage in STAGES[:3]
    }
    picture = stacked(parts, "ms for one message")
    picture.panels[0].marks.append(Rule("x", ms["memory kept"]["copy"], "one copy"))
    return picture


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        print(json.dumps(sent()))
    else:
        main()
