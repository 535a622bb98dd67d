# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""A loader that decodes and augments pictures: how far do workers and threads take it?"""

import warnings
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

SIDE, CROP = 320, 224  # pixels of a stored picture's side, and of what a network sees
PICTURES, BATCH, EPOCH = 16, 16, 96  # files, images of a batch, images of an epoch
WORKERS, THREADS = (0, 1, 2, 4), (2, 4)
MEAN, STD = torch.tensor([124.0, 116.0, 104.0]), torch.tensor([58.0, 57.0, 57.0])


def encode(pixels: np.ndarray) -> bytes:
    """Compress uint8 (rows, columns, 3) as PNG does: differences to the left, by zlib."""
    return zlib.compress(np.diff(pixels, axis=1, prepend=np.uint8(0)).tobytes(), 6)


def decode(file: bytes) -> np.ndarray:
    """Undo `encode`: uint8 (rows, columns, 3)."""
    differences = np.frombuffer(zlib.decompress(file), np.uint8)
    return differences.reshape(SIDE, SIDE, 3).cumsum(1, dtype=np.uint8)


def crop_and_flip(pixels: np.ndarray) -> Tensor:
    """A random square of CROP pixels, mirrored half of the time; uint8 (3, CROP, CROP)."""
    top, left, mirror = torch.randint(SIDE - CROP + 1, (3,)).tolist()
    square = pixels[top : top + CROP, left : left + CROP]
    if mirror % 2:
        square = square[:, ::-1]
    return torch.from_numpy(square.copy()).permute(2, 0, 1)


def normalise(square: Tensor) -> Tensor:
    """float32 with about mean 0 and deviation 1, for each colour."""
    return (square - MEAN[:, None, None]) / STD[:, None, None]


class Pictures(Dataset):
    """EPOCH images from PICTURES compressed files, each decoded, cropped, normalised."""

    def __init__(self):
        self.files = [encode(picture(seed)) for seed in range(PICTURES)]

    def __len__(self) -> int:
        return EPOCH

    def __getitem__(self, i: int) -> Tensor:
        return normalise(crop_and_flip(decode(self.files[i % PICTURES])))


def picture(seed: int) -> np.ndarray:
    """Smooth colours with a little noise, as a photograph has: uint8 (SIDE, SIDE, 3)."""
    draw = np.random.default_rng(seed)
    waves = draw.uniform(0.01, 0.05, (2, 3))
    rows, columns = np.arange(SIDE)[:, None, None], np.arange(SIDE)[None, :, None]
    smooth = 128 + 100 * np.sin(rows * waves[0]) * np.cos(columns * waves[1])
    return (smooth + draw.normal(0, 4, smooth.shape)).clip(0, 255).astype(np.uint8)


def in_threads(data: Dataset[Any], batch: int, threads: int) -> Iterator[Any]:
    """Batches of `data` in order, whose rows are made in threads of this process.

    A thread helps where zlib, numpy and PyTorch compute, which release Python's lock.
    The rows of one batch are made side by side; nothing is made ahead. `data` has a
    length, and its rows are what PyTorch can collate: tensors, numbers, tuples, dicts.
    The last batch may be smaller. A row that raises ends all, once the others of its
    batch are made. ValueError at the first batch for a `batch` of 0 or no threads; a
    negative `batch` gives no batch at all.

    `data[i]` must be safe in several threads at once: no file position, cache or
    generator that rows share without a lock. Random numbers come from the process's
    generators in whatever order the threads ask, so a seed does not repeat them. A
    default device or grad mode set in the caller's thread does not hold in the others.
    """
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(data), batch):  # type: ignore[arg-type]  # as all of torch's own
            places = range(first, min(first + batch, len(data)))  # type: ignore[arg-type]
            yield default_collate(list(pool.map(data.__getitem__, places)))


def epoch(batches: Iterable[Tensor]) -> None:
    """Take all batches, and do nothing with them: only the loader works."""
    for _ in batches:
        pass


class Threads:
    """Batches made in threads, as often as they are asked for."""

    def __init__(self, data: Dataset, threads: int):
        self.data, self.threads = data, threads

    def __iter__(self) -> Iterator[Tensor]:
        return in_threads(self.data, BATCH, self.threads)


def loader(data: Dataset, workers: int) -> DataLoader:
    """Workers are kept from epoch to epoch; PyTorch gives each a single thread."""
    return DataLoader(data, BATCH, num_workers=workers, persistent_workers=workers > 0)


def main() -> dict:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker: an image is too small to divide
    data = Pictures()
    file = data.files[0]
    pixels = decode(file)
    np.testing.assert_array_equal(pixels, picture(0))
    square = crop_and_flip(pixels)
    images = [normalise(square)] * BATCH
    stages = {
        "decode": partial(decode, file),
        "crop_and_flip": partial(crop_and_flip, pixels),
        "normalise": partial(normalise, square),
    }
    image = recorded(take_turns(stages, calls=10))
    batch = recorded(take_turns({"collate": partial(default_collate, images)}))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # over cores
        ways = {f"workers_{count}": loader(data, count) for count in WORKERS}
        ways |= {f"threads_{count}": Threads(data, count) for count in THREADS}
        epochs = {name: partial(epoch, batches) for name, batches in ways.items()}
        turns = take_turns(epochs, warmup=1, trials=4)
    rates, gains = {}, {}
    for name, timing in turns.items():
        rates[name] = [EPOCH / seconds for seconds in timing.trials]
        gains[name] = ratios(turns["workers_0"], timing)
    torch.set_num_threads(threads)

    for name, ms in image["ms"].items():
        print(f"{name:14}{ms:6.2f} ms an image")
    print(f"{'collate':14}{batch['ms']['collate'] / BATCH:6.2f} ms an image")
    result = {"batch": BATCH, "file_bytes": len(file), "pixel_bytes": pixels.nbytes}
    result |= {"sent_bytes": images[0].nbytes, "image": image, "collate": batch}
    for key, trials in {"images_per_s": rates, "gain": gains}.items():
        result[key] = {name: median(row) for name, row in trials.items()}
        result[f"{key}_trials"] = trials
    for name, rate in result["images_per_s"].items():
        print(f"{name:14}{rate:6.0f} images/s, {result['gain'][name]:5.2f} times")
    return result


def plot(results: dict, ceilings: dict):
    labels = {"workers_0": "no workers", "workers_1": "1 worker"}
    rates = {}
    for kind in ("workers", "threads"):
        for name, rate in results["images_per_s"].items():
            if name.startswith(kind):
                rates[labels.get(name, " ".join(reversed(name.split("_"))))] = rate
    return bars(rates, {}, "images per second")


if __name__ == "__main__":
    main()
