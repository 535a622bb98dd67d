# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 180
# ///
"""What a host's caches, vector units, disk and its own network take and give."""

import json
import mmap
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from snippets.pictures import sweep

KIB = [
    16,
    64,
    256,
    1024,
    4096,
    16384,
    65536,
    262144,
]  # of memory that is walked through
FILE_MIB, BLOCK = 256, 2**20
READS, PINGS, TRIALS = 200, 2000, 5
MAIN = """
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct alignas(64) Line { size_t next; };

// Nanoseconds of a read whose address the read before it gave: lines in random order.
double chase(size_t bytes) {
  std::vector<Line> lines(bytes / 64);
  for (size_t i = 0; i < lines.size(); i++) lines[i].next = i;
  std::mt19937_64 numbers(0);
  for (size_t i = lines.size() - 1; i > 0; i--)  // one circle through all of them
    std::swap(lines[i].next, lines[numbers() % i].next);
  size_t at = 0;
  for (size_t i = 0; i < lines.size(); i++) at = lines[at].next;
  long steps = 1000000;
  auto begin = Clock::now();
  for (long i = 0; i < steps; i++) at = lines[at].next;
  double ns = 1e9 * since(begin) / steps;
  return at == lines.size() ? 0 : ns;
}

// Not inlined: else a compiler may turn the two loops, and wait for each sum.
__attribute__((noinline)) void add(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
  for (int i = 0; i < n; i++) y[i] += a * x[i];
}

// GFLOP/s of y += a * x over 16 KiB, which stay in the first cache.
double axpy() {
  const int n = 2048, rounds = 400000;
  alignas(64) static float x[n], y[n];
  for (int i = 0; i < n; i++) x[i] = y[i] = 1e-3f * i;
  auto begin = Clock::now();
  for (int r = 0; r < rounds; r++) add(n, 1e-9f * r, x, y);
  double seconds = since(begin);
  return y[7] < 0 ? 0 : 2e-9 * n * rounds / seconds;
}

int main(int count, char** words) {
  std::printf("{\\"gflop_s\\": %g, \\"ns\\": [", axpy());
  for (int i = 1; i < count; i++)
    std::printf("%s%g", i > 1 ? ", " : "", chase(1024 * std::strtoull(words[i], 0, 10)));
  std::printf("]}");
}
"""
VECTORS = {
    "one number at a time": ["-fno-tree-vectorize", "-fno-tree-slp-vectorize"],
    "vector units": ["-march=native"],
}


def compiled(folder: Path, flags: list[str]) -> Path:
    """The program in C++, on one core; these flags say with or without vector units."""
    source, program = folder / "main.cpp", folder / f"main{len(flags)}"
    source.write_text(MAIN)
    subprocess.run(
        ["g++", "-std=c++17", "-O3", *flags, str(source), "-o", str(program)],
        check=True,
    )
    return program


def told(program: Path, sizes_kib: list[int]) -> dict:
    """What a run of it measured."""
    words = [str(program), *map(str, sizes_kib)]
    return json.loads(subprocess.check_output(words, text=True))


def of_the_cpu() -> dict:
    """Trials of GFLOP/s by kind of instructions, and of ns by size."""
    result: dict = {"gflop_s_trials": {}, "ns_trials": []}
    with TemporaryDirectory() as folder:
        programs = {name: compiled(Path(folder), f) for name, f in VECTORS.items()}
        for name, program in programs.items():
            runs = [told(program, []) for _ in range(TRIALS)]
            result["gflop_s_trials"][name] = [run["gflop_s"] for run in runs]
        runs = [told(programs["vector units"], KIB) for _ in range(TRIALS)]
    result["ns_trials"] = [
        list(row) for row in zip(*(r["ns"] for r in runs), strict=True)
    ]
    return result


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def of_the_disk() -> dict:
    """GB/s of a file in a row and µs of 4 KiB of it anywhere, past the page cache."""
    blocks = FILE_MIB * 2**20 // BLOCK
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        with path.open("wb") as file:
            for _ in range(blocks):
                file.write(os.urandom(BLOCK))
            os.fsync(file.fileno())
        try:
            file, direct = os.open(path, os.O_RDONLY | os.O_DIRECT), True
        except OSError:  # a file system in memory has nothing to pass by
            file, direct = os.open(path, os.O_RDONLY), False
        room = mmap.mmap(-1, BLOCK)  # O_DIRECT needs whole pages
        small = memoryview(room)[:4096]

        def in_a_row() -> None:
            for i in range(blocks):
                os.preadv(file, [room], i * BLOCK)

        places = [4096 * random.randrange(FILE_MIB * 256) for _ in range(READS)]
        rows = [FILE_MIB * 2**20 / timed(in_a_row) / 1e9 for _ in range(TRIALS)]
        reads = [
            1e6 * timed(lambda at=at: os.preadv(file, [small], at)) for at in places
        ]
        os.close(file)
        small.release()
    return {"direct": direct, "gb_s_trials": rows, "us": median(reads)}


def answer(port: int, size: int) -> None:
    """A process that sends each byte back, then takes `size` bytes."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(PINGS):
            line.sendall(line.recv(1))
        room, taken = bytearray(BLOCK), 0
        while taken < size:
            taken += line.recv_into(room)
        line.sendall(b"!")


def of_the_network() -> dict:
    """µs there and back, and GB/s, over TCP to another process of this host."""
    size = FILE_MIB * 2**20
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        child = get_context("spawn").Process(target=answer, args=(port, size))
        child.start()
        line, _ = server.accept()
        with line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def ping() -> None:
                line.sendall(b"?")
                line.recv(1)

            us = [1e6 * timed(ping) for _ in range(PINGS)]
            data = bytes(BLOCK)

            def send() -> None:
                for _ in range(size // BLOCK):
                    line.sendall(data)
                line.recv(1)

            seconds = timed(send)
        child.join()
    return {"us": median(us), "gb_s": size / seconds / 1e9}


def main() -> dict:
    cpu, disk, network = of_the_cpu(), of_the_disk(), of_the_network()
    cpu["ns"] = [median(trials) for trials in cpu["ns_trials"]]
    cpu["gflop_s"] = {n: median(trials) for n, trials in cpu["gflop_s_trials"].items()}
    disk["gb_s"] = median(disk["gb_s_trials"])
    for kib, ns in zip(KIB, cpu["ns"], strict=True):
        print(f"a read within {kib:>7,} KiB{ns:9.1f} ns")
    for name, rate in cpu["gflop_s"].items():
        print(f"{name:21}{rate:9.1f} GFLOP/s on one core")
    print(f"disk: {disk['gb_s']:.2f} GB/s in a row, 4 KiB in {disk['us']:.0f} µs")
    print(f"TCP to itself: {network['us']:.0f} µs, {network['gb_s']:.2f} GB/s")
    return {"kib": KIB, "cpu": cpu, "disk": disk, "network": network}


def plot(results: dict, ceilings: dict):
    axes = {"xlabel": "KiB that are read in random order", "ylabel": "ns of a read"}
    lines = {"": results["cpu"]["ns"]}
    return sweep(results["kib"], lines, {}, xlog=True, ylog=True, **axes)


if __name__ == "__main__":
    main()
