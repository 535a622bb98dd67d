# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""A small network on CPU and GPU: the GPU is eight times as fast, with fewer rows.

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
"""

from functools import partial

import torch
from torch import Tensor, nn

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

#: rows in a call, and calls: what the notebook gave to the CPU, and to the GPU
GIVEN = {"cpu": (100_000, 1), "gpu": (1_000, 10)}


def several(model: nn.Module, rows: Tensor, calls: int) -> None:
    """The model on the same rows, several times."""
    for _ in range(calls):
        model(rows)


def main() -> dict:
    layers = nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 4), nn.Softmax(dim=1)
    on_cpu = nn.Sequential(*layers)
    on_gpu = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 4), layers[3])
    on_gpu.load_state_dict(on_cpu.state_dict())
    models = {"cpu": on_cpu, "gpu": on_gpu.to("cuda")}
    works, counts = {}, {}
    for device, model in models.items():
        for whose, (rows, calls) in GIVEN.items():
            x = torch.ones(rows, 20, device=next(model.parameters()).device)
            name = f"{device}_with_rows_of_{whose}"
            works[name] = partial(several, model, x, calls)
            counts[name] = rows * calls
    x = torch.randn(1000, 20)
    torch.testing.assert_close(models["gpu"](x.to("cuda")).cpu(), on_cpu(x))
    with torch.no_grad():
        result = recorded(take_turns(works, trials=11))
    result["rows"], result["ns_per_row"] = counts, {}
    for name, ms in result["ms"].items():
        result["ns_per_row"][name] = 1e6 * ms / counts[name]
        print(f"{name:<23}{ms:8.3f} ms{result['ns_per_row'][name]:9.2f} ns a row")
    return result


def derive(results: dict) -> dict:
    """What each device takes for the rows that it has in the notebook."""
    ms = results["ms"]
    own = {device: ms[f"{device}_with_rows_of_{device}"] for device in ("cpu", "gpu")}
    return {"own_ms": own}


def plot(results: dict, ceilings: dict):
    names = {"cpu": "100,000 rows in one call", "gpu": "ten calls of 1,000 rows"}
    groups = {}
    for whose, label in names.items():
        each = {d: results["ns_per_row"][f"{d}_with_rows_of_{whose}"] for d in names}
        groups[label] = {device.upper(): ns for device, ns in each.items()}
    return bars(groups, {}, "ns per row", log=True)


if __name__ == "__main__":
    main()
