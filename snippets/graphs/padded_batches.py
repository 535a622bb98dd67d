# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# take = ["bucketed"]
# ///
"""Graphs for texts of many lengths: the same training as without, and wrong batches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from snippets.graphs.language_model import LanguageModel, successors

WIDTH, BLOCKS, ROWS, SIZES = 256, 2, 4, (64, 128)
LENGTHS = (64, 5, 128, 65, 1, 100)  # tokens of a text


def bucketed(
    step: Callable[[Tensor, Tensor], Tensor],
    sizes: Sequence[int],
    example: Callable[[int], tuple[Tensor, Tensor]],
    kept: Iterable[Tensor] = (),
    token: int = 0,
    ignored: int = -100,
) -> Callable[[Tensor, Tensor], Tensor]:
    """`step(tokens, targets)` as graphs, one for each of `sizes`, a number of tokens.

    `example(size)` gives tokens and targets of (rows, size), on the GPU. With them a
    step of each size warms up, which trains: tensors in `kept` get their values back.
    So take a first step yourself, then name all parameters, buffers and optimizer state
    there. The optimizer must be `capturable`; a learning rate must be a tensor, else it
    stays as it is now. Random numbers that the warm-up draws are not given back.

    Call the result with tokens and targets of (rows, length), on any device. A length
    between two sizes is filled up with `token` and with the target `ignored`, so `step`
    must not look ahead, and its loss must leave `ignored` out. All graphs share their
    memory: the next call overwrites what a call returned.

    ValueError for an example, before anything is captured, and for a batch that does
    not fit: other shapes, rows or dtypes than the examples have, no token, too many.
    If `step` raises in the warm-up, `kept` has its values back all the same.
    """
    examples = {size: example(size) for size in sorted(sizes, reverse=True)}
    if not examples:
        raise ValueError("no sizes")
    first = next(iter(examples.values()))
    rows, kinds = len(first[0]), [tensor.dtype for tensor in first]

    def fits(batch: tuple[Tensor, Tensor], length: int) -> None:
        shapes = [tuple(tensor.shape) for tensor in batch]
        dtypes = [tensor.dtype for tensor in batch]
        if shapes != [(rows, length)] * 2 or dtypes != kinds:
            told = f"tokens and targets are {shapes} of {dtypes}"
            raise ValueError(f"{told}, not ({rows}, {length}) of {kinds}")

    for size, batch in examples.items():
        fits(batch, size)
    before = [(tensor, tensor.detach().clone()) for tensor in kept]
    graphs, pool = {}, torch.cuda.graph_pool_handle()
    aside = torch.cuda.Stream()
    try:
        for size, batch in examples.items():  # the largest brings memory for all
            held = [tensor.clone() for tensor in batch]
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                step(*held)
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=aside):
                loss = step(*held)
            graphs[size] = held, graph, loss
    finally:
        torch.cuda.current_stream().wait_stream(aside)  # a step that raised wrote there
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)

    def call(tokens: Tensor, targets: Tensor) -> Tensor:
        length = tokens.shape[-1]
        fits((tokens, targets), length)
        size = min((size for size in graphs if size >= length), default=0)
        if not 0 < length <= size:
            raise ValueError(f"{length} tokens, captured for 1 to {max(graphs)}")
        (places, aims), graph, loss = graphs[size]
        places.fill_(token)
        aims.fill_(ignored)
        places[:, :length].copy_(tokens)
        aims[:, :length].copy_(targets)
        graph.replay()
        return loss

    call.step = step  # type: ignore  # and all that it refers to: addresses are in use
    return call


class Training:
    """A model, its optimizer, and a step of both."""

    def __init__(self, net: nn.Module):
        self.net = net
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, capturable=True)

    def step(self, tokens: Tensor, targets: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.net(tokens, targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def tensors(self) -> Iterator[Tensor]:
        """All that a step changes: weights, and what the optimizer knows of each."""
        yield from self.net.parameters()
        for state in self.optimizer.state.values():
            yield from state.values()


def refused(call: Callable[[Tensor, Tensor], Tensor], batch: list[Tensor]) -> bool:
    """Whether it raises ValueError."""
    try:
        call(*batch)
    except ValueError:
        return True
    return False


def main() -> dict:
    torch.manual_seed(0)
    net = LanguageModel(WIDTH, BLOCKS, max(SIZES)).to("cuda")
    eager, graphed = Training(net), Training(deepcopy(net))
    example = partial(successors, ROWS, device="cuda")
    first, batches = example(max(SIZES)), [example(length) for length in LENGTHS]
    for training in (eager, graphed):
        training.step(*first)  # the optimizer makes its state
    step = bucketed(graphed.step, SIZES, example, kept=graphed.tensors())

    rows = []
    for length, batch in zip(LENGTHS, batches, strict=True):
        losses = [float(eager.step(*batch)), float(step(*batch))]
        print(f"{length:3} tokens: loss {losses[0]:.5f}, in a graph {losses[1]:.5f}")
        rows.append({"tokens": length, "eager": losses[0], "graph": losses[1]})

    tokens, targets = example(8)
    wrong = {
        "targets of (rows, 1)": [tokens, targets[:, :1]],
        "fewer rows": [tokens[1:], targets[1:]],
        "another dtype": [tokens.float(), targets],
        "too many tokens": [*example(max(SIZES) + 1)],
        "no token": [tokens[:, :0], targets[:, :0]],
    }
    refusals = {name: refused(step, batch) for name, batch in wrong.items()}
    print("refused:", ", ".join(name for name, was in refusals.items() if was))
    return {"steps": rows, "refused": refusals}


def derive(results: dict) -> dict:
    """How far the losses of the two ways differ, at most."""
    return {"differ_by": max(abs(r["eager"] - r["graph"]) for r in results["steps"])}


if __name__ == "__main__":
    main()
