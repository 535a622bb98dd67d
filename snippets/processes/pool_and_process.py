# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 120
# ///
"""Square many numbers in a Python loop: from which size on do two processes pay?

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
"""

from functools import partial
from multiprocessing import get_context

import numpy as np

from snippets.pictures import sweep
from snippets.timing.take_turns import recorded, take_turns

CONTEXT, WORKERS = get_context("forkserver"), 2
COLUMNS, SIZES = 1000, [2_000, 20_000, 200_000, 1_000_000]


def square_all(numbers: np.ndarray) -> np.ndarray:
    """The squares of a matrix, one by one, as the article's notebook takes them."""
    squares = np.zeros_like(numbers)
    for i in range(numbers.shape[0]):
        for j in range(numbers.shape[1]):
            squares[i][j] = numbers[i][j] ** 2
    return squares


def by_pool(pool, numbers: np.ndarray) -> np.ndarray:
    """Squared by a pool that runs: each worker gets a part, and sends it back."""
    return np.concatenate(pool.map(square_all, np.array_split(numbers, WORKERS)))


def by_new_pool(numbers: np.ndarray) -> np.ndarray:
    with CONTEXT.Pool(WORKERS) as pool:
        return by_pool(pool, numbers)


def answer(numbers: np.ndarray, connection) -> None:
    connection.send(square_all(numbers))


def by_new_processes(numbers: np.ndarray) -> np.ndarray:
    """Squared by a `Process` for each part; what a Process returns is lost: send it."""
    ours, children = [], []
    for part in np.array_split(numbers, WORKERS):
        mine, theirs = CONTEXT.Pipe()
        ours.append(mine)
        children.append(CONTEXT.Process(target=answer, args=(part, theirs)))
        children[-1].start()
        theirs.close()  # else recv() waits for ever if the child dies
    squares = np.concatenate([connection.recv() for connection in ours])
    for child in children:
        child.join()
    return squares


def compared(pool, n: int) -> dict:
    """All ways for n numbers, in turns, after a look at their results."""
    numbers = np.random.default_rng(0).integers(1, 9, n).reshape(-1, COLUMNS)
    ways = {"loop": square_all, "pool running": partial(by_pool, pool)}
    ways |= {"new pool": by_new_pool, "new processes": by_new_processes}
    ways["no loop"] = np.square
    for way in ways.values():
        np.testing.assert_array_equal(way(numbers), numbers * numbers)
    works = {name: partial(way, numbers) for name, way in ways.items()}
    return recorded(take_turns(works, warmup=0, trials=5))


def main() -> dict:
    CONTEXT.set_forkserver_preload(["torch"])
    with CONTEXT.Pool(WORKERS) as pool:
        rows = [compared(pool, n) for n in SIZES]
    for n, row in zip(SIZES, rows, strict=True):
        times = ", ".join(f"{name} {ms:.2f}" for name, ms in row["ms"].items())
        print(f"{n:>9,} numbers, ms: {times}")
    names = rows[0]["ms"]
    result = {"sizes": SIZES, "ms": {n: [row["ms"][n] for row in rows] for n in names}}
    trials = {name: [row["ms_trials"][name] for row in rows] for name in names}
    return result | {"ms_trials": trials}


def plot(results: dict, ceilings: dict):
    names = {"pool running": "running pool", "no loop": "np.square, no loop"}
    lines = {names.get(name, name): ms for name, ms in results["ms"].items()}
    axes = {"xlabel": "numbers to square", "ylabel": "ms"}
    return sweep(results["sizes"], lines, {}, xlog=True, ylog=True, **axes)


if __name__ == "__main__":
    main()
