# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Texts of many lengths, and a graph needs one: a graph for each of a few lengths."""

import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from snippets.graphs.language_model import LanguageModel, successors
from snippets.pictures import sweep
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTH, BLOCKS, BATCH, LONGEST, BATCHES = 256, 4, 8, 512, 32
COUNTS = (1, 2, 4, 8, 16)  # of buckets
IGNORED = -100  # a target that the loss leaves out


def bucketed(
    step: Callable[[Tensor, Tensor], Tensor],
    sizes: list[int],
    example: Callable[[int], tuple[Tensor, Tensor]],
) -> Callable[[Tensor, Tensor], Tensor]:
    """`step(tokens, targets)` as graphs, one for each size of its second dimension.

    `example(size)` gives a batch to warm up with: a real step for each size, which
    trains. To undo it, keep copies of weights and optimizer state, and copy them back
    in place. A shorter batch is padded with token 0 and with target -100, so `step`
    must not look ahead, and its loss must leave -100 out. All graphs share their
    memory: what a call returns is overwritten by the next. ValueError for a batch
    that is longer than all sizes, or has another number of rows than the examples.

    Nothing else is looked at. `targets` must be of the shape of `tokens`: (rows, 1) is
    spread over the row. Both are converted to the examples' dtypes. `example(size)`
    must give (rows, size): a wrong length is not noticed before a batch needs it.
    The optimizer must be `capturable`, and a learning rate that is a number is frozen.
    """
    graphs, pool = {}, torch.cuda.graph_pool_handle()
    aside = torch.cuda.Stream()
    for size in sorted(sizes, reverse=True):  # the largest brings memory for all
        held = [rows.clone() for rows in example(size)]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            step(*held)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=aside):
            loss = step(*held)
        graphs[size] = held, graph, loss

    def call(tokens: Tensor, targets: Tensor) -> Tensor:
        length = tokens.shape[1]
        fitting = [size for size in graphs if size >= length]
        if not fitting:
            raise ValueError(f"{length} tokens are more than {max(graphs)}")
        (places, aims), graph, loss = graphs[min(fitting)]
        if len(tokens) != len(places):
            raise ValueError(f"{len(tokens)} rows, captured for {len(places)}")
        places.zero_()
        aims.fill_(-100)
        places[:, :length].copy_(tokens)
        aims[:, :length].copy_(targets)
        graph.replay()
        return loss

    call.step = step  # type: ignore  # and all that it refers to: addresses are in use
    return call


def training_step(net: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=1e-4, fused=True, capturable=True
    )

    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def evenly(count: int) -> list[int]:
    """So many lengths, the longest among them."""
    return [LONGEST * (i + 1) // count for i in range(count)]


def padded_share(lengths: list[int], sizes: list[int]) -> float:
    """How much of all tokens, padding included, is padding."""
    padded = 0
    for length in lengths:
        padded += min(size for size in sizes if size >= length)
    return 1 - sum(lengths) / padded


def epoch(
    step: Callable[[Tensor, Tensor], Tensor], batches: list[tuple[Tensor, Tensor]]
) -> None:
    for batch in batches:
        step(*batch)


def main() -> dict:
    torch.manual_seed(0)
    net = LanguageModel(WIDTH, BLOCKS, LONGEST).to("cuda")
    example = partial(successors, BATCH, device="cuda")
    lengths = torch.randint(1, LONGEST + 1, (BATCHES,)).tolist()
    batches = [example(length) for length in lengths]
    eager = training_step(deepcopy(net))
    works = {"eager": partial(epoch, eager, batches)}
    rows, differs_by = [], {}
    for count in COUNTS:
        sizes, model = evenly(count), deepcopy(net)
        start = time.perf_counter()
        step = bucketed(training_step(model), sizes, example)
        torch.cuda.synchronize()
        capture_s = time.perf_counter() - start
        row = {"buckets": count, "capture_s": capture_s}
        rows.append(row | {"padding": padded_share(lengths, sizes)})
        works[str(count)] = partial(epoch, step, batches)

        expected, found = [], []
        for batch in batches[:4]:
            with torch.no_grad():
                expected.append(float(model(*batch)))
            found.append(float(step(*batch)))
        torch.testing.assert_close(
            torch.tensor(found), torch.tensor(expected), rtol=1e-4, atol=1e-4
        )
        gaps = [abs(one - other) for one, other in zip(found, expected, strict=True)]
        differs_by[str(count)] = max(gaps)

    turns = take_turns(works, warmup=1, trials=7)
    result = recorded(turns) | {"rows": rows, "differs_by": differs_by}
    result |= {"batches": BATCHES, "longest": LONGEST, "gain": {}, "gain_trials": {}}
    for name, timing in turns.items():
        faster = ratios(turns["eager"], timing)
        result["gain"][name], result["gain_trials"][name] = median(faster), faster
    print(f"eager      {result['ms']['eager'] / BATCHES:6.2f} ms a step")
    for row in rows:
        name = str(row["buckets"])
        print(
            f"{name:>2} buckets {result['ms'][name] / BATCHES:6.2f} ms a step,", end=""
        )
        print(f" {row['padding']:4.0%} padding, captured in {row['capture_s']:.2f} s")
    return result


def plot(results: dict, ceilings: dict):
    counts = [row["buckets"] for row in results["rows"]]
    steps = [results["ms"][str(count)] / results["batches"] for count in counts]
    eager = results["ms"]["eager"] / results["batches"]
    labels = {"xlabel": "number of lengths", "ylabel": "ms per step"}
    return sweep(
        counts, {"padded, in graphs": steps}, {"eager": eager}, xlog=True, **labels
    )


if __name__ == "__main__":
    main()
