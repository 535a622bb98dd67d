# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""What a new thread for every forward pass costs: DataParallel's way, on one GPU."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns
from snippets.training.models import densenet, transformer

#: how it is made, and the shape of a batch
MODELS = {
    "densenet": (densenet, (64, 3, 224, 224)),
    "transformer": (transformer, (8, 512, 1024)),
}


def in_new_thread(work, *args) -> None:
    """Call work in a thread that has never called anything before."""
    with ThreadPoolExecutor(1) as fresh:
        in_thread(fresh, work, *args)


def in_thread(pool: ThreadPoolExecutor, work, *args) -> None:
    """Call work in a thread of the pool, and wait for it."""
    pool.submit(work, *args).result()


def main() -> dict:
    torch.set_float32_matmul_precision("high")  # TF32
    pool, results = ThreadPoolExecutor(1), {}
    for name, (make, shape) in MODELS.items():
        model, rows = make().to("cuda"), torch.randn(shape, device="cuda")
        works = {
            "main_thread": partial(model, rows),
            "kept_thread": partial(in_thread, pool, model, rows),
            "new_thread": partial(in_new_thread, model, rows),
        }
        results[name] = recorded(take_turns(works, trials=9))
        each = (f"{way} {ms:.1f} ms" for way, ms in results[name]["ms"].items())
        print(f"{name:<12}", *each)
    pool.shutdown()
    return results


def plot(results: dict, ceilings: dict):
    titles = {"densenet": "DenseNet-121", "transformer": "transformer"}
    names = {"main_thread": "main thread", "kept_thread": "another thread, kept"}
    names |= {"new_thread": "a new thread each time"}
    groups = {}
    for model, title in titles.items():
        row = results[model]["ms"]
        groups[title] = {text: row[name] for name, text in names.items()}
    return bars(groups, {}, "ms, forward pass")


if __name__ == "__main__":
    main()
