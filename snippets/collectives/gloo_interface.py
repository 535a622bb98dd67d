# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 300
# exclusive = false
# ///
"""Gloo between two hosts, each with two networks: which it takes, and how to name it."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

LIMIT_S = 5
#: Two hosts on one machine, as namespaces of Linux: each has a loopback of its own, `lo`,
#: and one end of a cable, `left` or `right`. Needs root, or users that may be root there.
HOSTS = """
set -e
unshare -n sleep 60 & other=$!
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]
do sleep 0.05; done
there="nsenter -t $other -n"
ip link add left type veth peer name right netns $other
ip addr add 10.9.0.1/24 dev left; ip link set left up; ip link set lo up
$there ip addr add 10.9.0.2/24 dev right
$there ip link set right up; $there ip link set lo up
export MASTER_ADDR=10.9.0.1 MASTER_PORT=29500 WORLD_SIZE=2
RANK=0 GLOO_SOCKET_IFNAME=$3 "$1" "$2" & first=$!
RANK=1 GLOO_SOCKET_IFNAME=$4 $there "$1" "$2" & second=$!
set +e
wait -n $first $second && wait $first $second
kill $first $second $other 2> /dev/null
true
"""
CASES = {
    "nothing": ("", ""),
    "loopback": ("lo", "lo"),
    "unknown": ("eth9", "eth9"),
    "cable": ("left", "right"),
}


def job() -> None:
    """Add up the ones of both ranks, and tell the sum, or the error."""
    if not os.environ["GLOO_SOCKET_IFNAME"]:
        del os.environ["GLOO_SOCKET_IFNAME"]
    told: dict = {"rank": int(os.environ["RANK"])}
    told["own_address"] = socket.gethostbyname(socket.gethostname())
    start = time.perf_counter()
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT_S))
        x = torch.ones(1)
        dist.all_reduce(x)
        told["sum"] = x.item()
        dist.destroy_process_group()
    except RuntimeError as error:
        told["error"] = re.sub(r"/\S+/gloo/gloo/", "gloo/", str(error))
    told["s"] = time.perf_counter() - start
    sys.stdout.write(json.dumps(told) + "\n")  # in one piece: both ranks write
    sys.stdout.flush()
    sys.exit("error" in told)


def on_two_hosts(*interfaces: str) -> list[dict]:
    """What the ranks told; each rank's gloo is to use the interface of this name."""
    shell = ["unshare", "-rn", "bash", "-c", HOSTS, "hosts", sys.executable, __file__]
    options = {"capture_output": True, "text": True, "timeout": 100}
    done = subprocess.run([*shell, *interfaces], **options)  # type: ignore
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"no two hosts could be made here: {done.stderr[-500:]}")
    return sorted(map(json.loads, lines), key=lambda told: told["rank"])


def main() -> dict:
    told = {name: on_two_hosts(*interfaces) for name, interfaces in CASES.items()}
    for name, ranks in told.items():
        first = ranks[0]
        says = first.get("error", f"the sum is {first.get('sum')}")
        print(f"{name:8}", says.splitlines()[0])
    return {"told": told, "limit_s": LIMIT_S}


def derive(results: dict) -> dict:
    """The cases in which a rank refused a connection, found no interface, had the sum."""
    words = {"refused": "Connection refused", "not_found": "Unable to find address for"}
    found: dict = {key: [] for key in (*words, "added")}
    for name, ranks in sorted(results["told"].items()):
        for key, text in words.items():
            if any(text in rank.get("error", "") for rank in ranks):
                found[key].append(name)
        if [rank.get("sum") for rank in ranks] == [2, 2]:
            found["added"].append(name)
    nothing = results["told"]["nothing"][0]
    return found | {"own_address": nothing["own_address"]}


if __name__ == "__main__":
    if "RANK" in os.environ:
        job()
    else:
        main()
