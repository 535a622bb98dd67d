# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1, 2]
# timeout = 150
# ///
"""Two threads, each with a network of its own: do they launch faster than one?"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from snippets.pictures import bars
from snippets.timing.take_turns import both_orders, ratios, recorded

LAYERS, WIDTH, STEPS, MATMULS = 100, 64, 20, 2000


def network() -> nn.Sequential:
    """A hundred small layers on the current GPU: many launches, short kernels."""
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers).cuda()


@torch.no_grad()
def forward(net: nn.Module, x: Tensor) -> Tensor:
    """The result of the last of many forward passes."""
    for _ in range(STEPS):
        y = net(x)
    return y


def forward_and_backward(net: nn.Module, x: Tensor) -> Tensor:
    """The first layer's gradient, after many forward and backward passes."""
    for _ in range(STEPS):
        net.zero_grad(set_to_none=True)
        net(x).sum().backward()
    return net[0].weight.grad


def matmuls(net: nn.Module, x: Tensor) -> Tensor:
    """The same matmul in a loop: the least Python for a launch."""
    out = torch.empty_like(x)
    for _ in range(MATMULS):
        torch.mm(x, x, out=out)
    return out


class Worker:
    """A thread with a GPU, a stream, a network and its input of its own."""

    def __init__(self, number: int, gpus: int):
        self.device = number % gpus
        self.thread = ThreadPoolExecutor(1, initializer=self.begin)
        self.thread.submit(int).result()  # it has begun

    def begin(self) -> None:
        torch.cuda.set_device(self.device)
        torch.cuda.set_stream(torch.cuda.Stream())
        torch.manual_seed(0)
        self.net = network()
        self.x = torch.randn(WIDTH, WIDTH, device="cuda")

    def call(self, job: Callable[..., Any]) -> Tensor:
        return job(self.net, self.x)

    def submit(self, job: Callable[..., Any]):
        return self.thread.submit(self.call, job)


def in_turn(workers: list[Worker], job: Callable[..., Any]) -> list[Tensor]:
    """Each does the job when the one before has launched all of it."""
    return [worker.submit(job).result() for worker in workers]


def together(workers: list[Worker], job: Callable[..., Any]) -> list[Tensor]:
    """All do the job at the same time."""
    answers = [worker.submit(job) for worker in workers]
    return [answer.result() for answer in answers]


def main() -> dict:
    gpus = torch.cuda.device_count()
    workers, works = [Worker(0, gpus), Worker(1, gpus)], {}
    jobs = {"matmuls": matmuls, "forward": forward, "passes": forward_and_backward}
    for name, job in jobs.items():
        first, second = together(workers, job)
        torch.cuda.synchronize(workers[0].device)
        torch.cuda.synchronize(workers[1].device)
        torch.testing.assert_close(first.cpu(), second.cpu())
        works[f"{name} in turn"] = partial(in_turn, workers, job)
        works[name] = partial(together, workers, job)
    times = both_orders(works, warmup=1, trials=9)
    gain, trials = {}, {}
    for name in jobs:
        trials[name] = ratios(times[f"{name} in turn"], times[name])
        gain[name] = median(trials[name])
        print(f"{name:9} two threads: {gain[name]:.2f} times as fast as in turn")
    result = recorded(times) | {"visible_gpus": gpus}
    return result | {"gain": gain, "gain_trials": trials}


def plot(results: dict, ceilings: dict):
    labels = {
        "matmuls": "a loop of\nmatmuls",
        "forward": "forward passes of\na hundred layers",
        "passes": "forward and\nbackward passes",
    }
    gain = {label: results["gain"][name] for name, label in labels.items()}
    return bars(gain, {"two threads": 2}, "times as fast as one after the other")


if __name__ == "__main__":
    main()
