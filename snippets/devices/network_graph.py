# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2]
# missing = { 2 = "not recorded yet" }
# exclusive = false
# ///
"""The graph of a training step: which operation of a CPU and two GPUs needs which.

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
Where two GPUs are missing, the CPU itself stands in for each.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from snippets.devices.two_gpus_broken import two_devices
from snippets.pictures import Axis, Dots, Line, Panel, Picture

ROWS, INPUTS, HIDDEN, RATE = 16, 8, 12, 1e-3
COPIES = ("_to_copy", "copy_")


def storages(values: object) -> dict[int, torch.UntypedStorage]:
    """The memory of all tensors in some arguments or results, by its address."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
    memory = [tensor.untyped_storage() for tensor in tensors]
    return {each.data_ptr(): each for each in memory}


class Graph(TorchDispatchMode):
    """Notes each operation that runs, its place, and which earlier ones it must wait for.

    It must wait for what wrote its inputs; if it writes into memory that is in use,
    also for all that read it or wrote it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[dict] = []
        self.place_of: dict[int, str] = {}
        self.writer: dict[int, int] = {}
        self.readers: dict[int, list[int]] = {}
        self.kept: list[Any] = []  # or new memory would get an old address
        self.part, self.target = "", ""

    @contextmanager
    def to(self, place: str) -> Iterator[None]:
        """Results of the block lie in another place than their inputs."""
        self.target = place
        yield
        self.target = ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        read, given = storages((args, kwargs)), storages(result)
        name = func.overloadpacket.__name__
        if name.endswith("_"):
            written = storages(args[0])
        else:
            written = {key: memory for key, memory in given.items() if key not in read}
        if written:  # else it is a view: nothing runs
            self.note(name, read, written)
        return result

    def note(self, name: str, read: dict, written: dict) -> None:
        number = len(self.operations)
        places = [self.place_of[key] for key in read if key in self.place_of]
        place = self.target or (places[0] if places else "CPU")
        needs = {self.writer[key] for key in read if key in self.writer}
        for key in written:
            needs |= set(self.readers.get(key, ()))
        for key in read:
            self.readers.setdefault(key, []).append(number)
        for key in written:
            self.writer[key], self.readers[key] = number, []
            self.place_of[key] = place
        self.kept += [*read.values(), *written.values()]
        part = "copy" if name in COPIES else self.part
        row = {"name": name, "place": place, "part": part, "needs": sorted(needs)}
        self.operations.append(row)


def loss_of(x: Tensor, y: Tensor, weights: list[Tensor]) -> Tensor:
    """The loss of a network of two layers, added up over the rows."""
    hidden = torch.relu(x @ weights[0])
    return mse_loss(hidden @ weights[1], y, reduction="sum")


def train_step(
    graph: Graph,
    places: dict[str, str],
    x: Tensor,
    y: Tensor,
    weights: list[Tensor],
    copies: dict[str, list[Tensor]],
) -> list[Tensor]:
    """The batch is divided, gradients are added on the CPU, new weights sent back.

    `places` are {name: device}. The weights change in place. Returns the gradients.
    """
    graph.part = "forward"
    losses = []
    parts = zip(places.items(), x.chunk(len(places)), y.chunk(len(places)), strict=True)
    for (place, device), x_part, y_part in parts:
        with graph.to(place):
            rows = x_part.to(device, copy=True), y_part.to(device, copy=True)
        losses.append(loss_of(*rows, copies[place]))
    graph.part = "backward"
    gradients = {}
    for place, loss in zip(places, losses, strict=True):
        gradients[place] = torch.autograd.grad(loss, copies[place])
    graph.part = "add and update"
    sums = []
    for layer in reversed(range(len(weights))):
        with graph.to("CPU"):
            arrived = [each[layer].to("cpu", copy=True) for each in gradients.values()]
        sums.append(arrived[0] + arrived[1])
        weights[layer].sub_(sums[-1], alpha=RATE)
        for place in places:
            with graph.to(place), torch.no_grad():
                copies[place][layer].copy_(weights[layer])
    return sums[::-1]


def main() -> dict:
    names = "GPU" if torch.cuda.device_count() >= 2 else "stand-in"
    places = {f"{names} {i}": device for i, device in enumerate(two_devices())}
    torch.manual_seed(0)
    x, y = torch.randn(ROWS, INPUTS), torch.randn(ROWS, 1)
    weights = [torch.randn(INPUTS, HIDDEN), torch.randn(HIDDEN, 1)]
    whole = [weight.clone().requires_grad_() for weight in weights]
    expected = torch.autograd.grad(loss_of(x, y, whole), whole)
    copies = {
        place: [w.to(device, copy=True).requires_grad_() for w in weights]
        for place, device in places.items()
    }
    graph = Graph()
    for place, parameters in copies.items():
        graph.place_of |= dict.fromkeys(storages(parameters), place)
    with graph:
        gradients = train_step(graph, places, x, y, weights, copies)
    assert_close(gradients, list(expected))
    for number, row in enumerate(graph.operations):
        needs = ", ".join(map(str, row["needs"])) or "-"
        print(f"{number:2} {row['place']:<11}{row['name']:<20} needs {needs}")
    return {"operations": graph.operations, "places": list(places)}


def before(operations: list[dict]) -> list[set[int]]:
    """Of each operation all that must end before it begins."""
    all_before: list[set[int]] = []
    for row in operations:
        direct = set(row["needs"])
        all_before.append(direct.union(*(all_before[need] for need in direct)))
    return all_before


def steps(operations: list[dict]) -> list[int]:
    """The first step in which each can run, if all that can run do so."""
    first: list[int] = []
    for row in operations:
        first.append(1 + max((first[need] for need in row["needs"]), default=0))
    return first


def derive(results: dict) -> dict:
    """The length of the longest chain, and what waits for the other device."""
    operations = results["operations"]
    first, all_before = steps(operations), before(operations)
    pair = set(results["places"])
    crossing = set()
    for row, earlier in zip(operations, all_before, strict=True):
        others = {operations[number]["place"] for number in earlier} & pair
        if row["place"] in pair and others - {row["place"]}:
            crossing.add(row["name"])
    of = {
        part: [i for i, row in enumerate(operations) if row["part"] == part]
        for part in ("backward", "add and update")
    }
    add = of["add and update"][0]  # the second layer's gradients
    last = of["backward"][-1]  # the first layer's
    return {
        "longest_chain": max(first),
        "crossing": sorted(crossing),
        "add_needs_last": last in all_before[add],
        "add_after_last": add > last,
        "step_of_add": first[add],
        "step_of_last": first[last],
    }


def heights(results: dict) -> list[float]:
    """Where each is drawn: backward passes nearer to the CPU, gradients of weights nearest."""
    operations = results["operations"]
    above, below = results["places"]
    side = {above: 1, below: -1, "CPU": 0}
    feeds_backward: set[int] = set()
    for row in operations:
        if row["part"] == "backward":
            feeds_backward.update(row["needs"])
    found: list[float] = []
    taken: set[tuple[int, str]] = set()
    for number, (step, row) in enumerate(
        zip(steps(operations), operations, strict=True)
    ):
        place = row["place"]
        height: float = side[place]
        if place == "CPU" and row["part"] == "copy":
            height += 0.3 * side[operations[row["needs"][0]]["place"]]
        elif row["part"] != "backward":
            height *= 1.3 if (step, place) in taken else 1.15
        elif number not in feeds_backward:
            height *= 0.7
        taken.add((step, place))
        found.append(height)
    return found


def plot(results: dict, ceilings: dict):
    operations = results["operations"]
    step, height = steps(operations), heights(results)
    x: list[Any] = []
    y: list[Any] = []
    for number, row in enumerate(operations):
        for need in row["needs"]:
            x += [step[need], step[number], None]
            y += [height[need], height[number], None]
    marks: list[Any] = [Line(x, y, "is needed by", dots=False, color="muted")]
    for part in dict.fromkeys(row["part"] for row in operations):
        chosen = [i for i, row in enumerate(operations) if row["part"] == part]
        marks.append(Dots([step[i] for i in chosen], [height[i] for i in chosen], part))
    above, below = results["places"]
    lanes = Axis(ticks={1: above, 0: "CPU", -1: below})
    axis = Axis("step: one after the last operation that it needs")
    return Picture([Panel(marks, axis, lanes)])


if __name__ == "__main__":
    main()
