# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 120
# ///
"""Square numbers in a Python loop, in two threads: half the time for half the work.

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
"""

from functools import partial
from threading import Thread

import numpy as np

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

ROWS, COLUMNS, THREADS = 400, 4000, 2


def square_some(numbers: np.ndarray) -> int:
    """As in the notebook: of each row as many elements as there are rows.

    Squares them in place, and gives their number.
    """
    for i in range(numbers.shape[0]):
        for j in range(numbers.shape[0]):
            numbers[i][j] = numbers[i][j] ** 2
    return numbers.shape[0] ** 2


def square_all(numbers: np.ndarray) -> int:
    """All elements of each row."""
    for i in range(numbers.shape[0]):
        for j in range(numbers.shape[1]):
            numbers[i][j] = numbers[i][j] ** 2
    return numbers.size


def in_threads(square, numbers: np.ndarray) -> None:
    """A thread for each part of the rows."""
    parts = np.array_split(numbers, THREADS)
    threads = [Thread(target=square, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def squared(work) -> int:
    """How many elements a way squares, counted in an array of twos."""
    numbers = np.full((ROWS, COLUMNS), 2)
    work(numbers)
    return int((numbers == 4).sum())


def main() -> dict:
    ways = {
        "as printed, loop": square_some,
        "as printed, threads": partial(in_threads, square_some),
        "all, loop": square_all,
        "all, threads": partial(in_threads, square_all),
    }
    done = {name: squared(way) for name, way in ways.items()}
    ones = np.ones((ROWS, COLUMNS), dtype=np.int64)  # their squares stay ones
    works = {name: partial(way, ones) for name, way in ways.items()}
    result = recorded(take_turns(works, warmup=1, trials=7)) | {"squared": done}
    for name, ms in result["ms"].items():
        print(f"{name:20}{done[name]:>10,} elements {ms:7.1f} ms")
    return result | {"elements": ROWS * COLUMNS, "threads": THREADS}


def derive(results: dict) -> dict:
    """Nanoseconds for an element, in each way."""
    done = results["squared"]
    return {"ns": {name: 1e6 * ms / done[name] for name, ms in results["ms"].items()}}


def plot(results: dict, ceilings: dict):
    done = results["squared"]
    names = {name: f"{name}: {done[name]:,} elements" for name in done}
    return bars({text: results["ms"][name] for name, text in names.items()}, {}, "ms")


if __name__ == "__main__":
    main()
