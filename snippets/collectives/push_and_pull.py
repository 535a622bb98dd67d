# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 300
# take = ["push_and_pull"]
# ///
"""Push gradients to a server and pull weights, beside an all-reduce, on a slow network.

Push and pull are what Dive into Deep Learning calls them, in "Parameter Servers".
"""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from snippets.collectives.bus_bandwidth import slowest
from snippets.timing.take_turns import recorded, take_turns

Tensors = dict[str, torch.Tensor]

RATE = 2**-4  # of the step; gradients are small integers: each order adds up alike
KEYS = [f"layer_{i}" for i in range(8)]
KEY_BYTES = 2**20
LINK_MBIT_S = 400
#: Hosts on one machine, as namespaces of Linux, on one switch. Each is joined to it by a
#: link of the same rate in both directions. Needs root, or users that may be root there.
HOSTS = """
set -e
python=$1 file=$2 hosts=$3 shape="tbf rate $4mbit burst 256kb latency 100ms"
export MASTER_ADDR=10.9.0.1 MASTER_PORT=29500 WORLD_SIZE=$hosts
export GLOO_SOCKET_IFNAME=card OMP_NUM_THREADS=1
ip link add switch type bridge; ip link set switch up
for rank in $(seq 0 $((hosts - 1)))
do
    unshare -n sleep 120 & host=$!; sleeping="$sleeping $host"
    until [ "$(readlink /proc/$host/ns/net)" != "$(readlink /proc/self/ns/net)" ]
    do sleep 0.05; done
    there="nsenter -t $host -n"
    ip link add port$rank type veth peer name card netns $host
    ip link set port$rank master switch up
    $there ip addr add 10.9.0.$((rank + 1))/24 dev card
    $there ip link set card up; $there ip link set lo up
    tc qdisc add dev port$rank root $shape
    $there tc qdisc add dev card root $shape
done
rank=0
for host in $sleeping
do
    RANK=$rank nsenter -t $host -n "$python" "$file" & ranks="$ranks $!"
    rank=$((rank + 1))
done
set +e
for one in $ranks
do wait -n $ranks || break; done
kill $ranks $sleeping 2> /dev/null
true
"""


@torch.no_grad()
def push_and_pull(
    weights: Tensors, gradients: Tensors, server: dict[str, int], rate: float
) -> None:
    """Push each gradient to the rank that serves its key; pull the key's new weights.

    All ranks know the same keys in the same order. A server adds up what all ranks push
    for its key, makes the step with it, and sends the new weights.

    `weights` change in place: give `dict(model.named_parameters())`, and `gradients` by
    the same names, of the same shapes and dtypes, alike on all ranks. ValueError, before
    anything is sent, for a tensor that is not contiguous. `server` has a rank for each
    key, of all ranks. Every rank calls it, with gloo: that NCCL orders what two ranks
    send to each other was not tried.
    """
    for key, weight in weights.items():
        if not (weight.is_contiguous() and gradients[key].is_contiguous()):
            raise ValueError(f"{key} is not contiguous")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    others = [other for other in range(ranks) if other != rank]
    sending, pulling, pushed = [], [], {}
    for tag, key in enumerate(weights):
        if server[key] == rank:
            rooms = [torch.empty_like(gradients[key]) for _ in others]
            pairs = zip(rooms, others, strict=True)
            works = [dist.irecv(room, other, tag=tag) for room, other in pairs]
            pushed[key] = (rooms, works)
        else:
            sending.append(dist.isend(gradients[key], server[key], tag=tag))
            pulling.append(dist.irecv(weights[key], server[key], tag=tag))
    for tag, key in enumerate(weights):
        if key in pushed:
            rooms, works = pushed[key]
            for work in works:
                work.wait()  # type: ignore  # None is for ranks outside of the group
            weights[key] -= rate * sum(rooms, gradients[key])
            sending += [dist.isend(weights[key], other, tag=tag) for other in others]
    for work in sending + pulling:
        work.wait()  # type: ignore


def all_reduce(weights: Tensors, gradients: Tensors, rate: float) -> None:
    """Add up each gradient on all ranks; then each makes the same step alone."""
    for key, gradient in gradients.items():
        total = gradient.clone()
        dist.all_reduce(total)
        weights[key] -= rate * total


def gradients_of(rank: int) -> Tensors:
    """Small whole numbers for each key, other ones on each rank."""
    numbers = torch.Generator().manual_seed(rank)
    size = (KEY_BYTES // 4,)
    return {key: torch.randint(-8, 9, size, generator=numbers).float() for key in KEYS}


def counted() -> tuple[int, int]:
    """The bytes that this host's network card has received and sent, by the kernel."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "card":
            numbers = counts.split()
            return int(numbers[0]), int(numbers[8])
    raise RuntimeError("this host has no network card named `card`")


def job() -> None:
    """What each rank does; rank 0 prints the result of all."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    start = {key: torch.zeros(KEY_BYTES // 4) for key in KEYS}
    gradients, totals = gradients_of(rank), gradients_of(0)
    for other in range(1, ranks):
        for key, gradient in gradients_of(other).items():
            totals[key] += gradient
    one = dict.fromkeys(KEYS, 0)
    spread = {key: i % ranks for i, key in enumerate(KEYS)}
    ways: dict = {
        "server": partial(push_and_pull, server=one),
        "spread": partial(push_and_pull, server=spread),
        "all_reduce": all_reduce,
    }
    works, bytes_of = {}, {}
    for name, way in ways.items():
        weights = {key: weight.clone() for key, weight in start.items()}
        works[name] = partial(way, weights, gradients, rate=RATE)
        dist.barrier()
        before = counted()
        works[name]()
        dist.barrier()
        received, sent = (b - a for a, b in zip(before, counted(), strict=True))
        bytes_of[name] = {"received": received, "sent": sent}
        for key, weight in weights.items():
            assert torch.equal(weight, start[key] - RATE * totals[key]), (name, key)
    times = take_turns(works, warmup=1, trials=5, clock=slowest)
    each: list[Any] = [None] * ranks
    dist.all_gather_object(each, bytes_of)
    if rank == 0:
        print(json.dumps(recorded(times) | {"ranks": ranks, "each": each}))
    dist.barrier()
    dist.destroy_process_group()


def on_hosts(hosts: int) -> dict:
    """What rank 0 of so many hosts has to tell."""
    command = ["unshare", "-rn", "bash", "-c", HOSTS, "hosts", sys.executable, __file__]
    command += [str(hosts), str(LINK_MBIT_S)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"no hosts could be made here: {done.stderr[-500:]}")
    return json.loads(lines[0])


def main() -> dict:
    size = KEY_BYTES * len(KEYS)
    hosts = {f"of_{n}": on_hosts(n) for n in (2, 4)}
    for told in hosts.values():
        for way, ms in told["ms"].items():
            most = [each[way]["received"] / size for each in told["each"]]
            by_rank = ", ".join(f"{times:.2f}" for times in most)
            print(f"{told['ranks']} hosts, {way:<10} {ms:6.0f} ms, received {by_rank}")
    print(f"received: by each rank, in times of {size / 2**20:.0f} MiB, all gradients")
    return hosts | {"bytes": size, "link_mbit_s": LINK_MBIT_S}


def derive(results: dict) -> dict:
    """What each rank received, and the bytes on the busiest link, in times of all bytes."""
    found = {}
    for name in ("of_2", "of_4"):
        each = results[name]["each"]
        for way in each[0]:
            received = [rank[way]["received"] / results["bytes"] for rank in each]
            sent = [rank[way]["sent"] / results["bytes"] for rank in each]
            most = max(received + sent)
            link_ms = 8e-3 * most * results["bytes"] / results["link_mbit_s"]
            entry = {"received": received, "most": most, "link_ms": link_ms}
            found.setdefault(name, {})[way] = entry
    return {"links": found}


if __name__ == "__main__":
    if "RANK" in os.environ:
        job()
    else:
        main()
