# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 180
# launcher = "torchrun"
# [tool.overlap.missing]
# 4 = "not recorded yet"
# 8 = "not recorded yet"
# ///
"""What `find_unused_parameters` costs a step of several ranks, which must agree."""

import os

import torch
import torch.distributed as dist

from snippets.training.ddp_search import NETWORKS, WAYS, timed


def main() -> dict:
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    networks, ranks = {}, dist.get_world_size()
    for name, network in NETWORKS.items():
        row = networks[name] = timed(network, device.type)
        if dist.get_rank() == 0:
            print(f"{name}, {network[0] + 1} of them, {ranks} ranks")
            for way in WAYS:
                print(f"    {way:26}{row['step']['ms'][way]:7.2f} ms a step,", end=" ")
                print(f"returns after {row['return']['ms'][way]:7.2f}", end=", ")
                print(f"{row['slower'][way]:.3f} times the default")
    dist.destroy_process_group()
    return {"networks": networks, "ranks": ranks}


def derive(results: dict) -> dict:
    """Many small layers; when Python returns from a step of the wide ones."""
    networks = results["networks"]
    small, wide = networks["small layers"], networks["wide layers"]
    return {"small": small, "returns_ms": wide["return"]["ms"], "wide": wide}


if __name__ == "__main__":
    main()
