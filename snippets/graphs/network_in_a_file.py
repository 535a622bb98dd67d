# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# ///
"""A network written down, out into a file and back, the deprecated way and today's."""

import io
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def mlp() -> nn.Module:
    """D2L's network: layers of 512, 256, 128 and 2 units."""
    hidden = [nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(128, 2))


def through_a_file(net: nn.Module, x: torch.Tensor) -> tuple[Callable[..., Any], int]:
    """The network after a round trip through a file in memory, and the file's bytes.

    It takes inputs of x's shape only; `dynamic_shapes` of `export` leaves sizes open.
    """
    file = io.BytesIO()
    torch.export.save(torch.export.export(net, (x,)), file)
    file.seek(0)
    return torch.export.load(file).module(), len(file.getvalue())


def warnings_of(work: Callable[..., Any], *args) -> list[str]:
    """What `work(*args)` warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work(*args)
    return sorted({f"{each.category.__name__}: {each.message}" for each in caught})


def main() -> dict:
    warnings.filterwarnings("ignore", "The given buffer is not writable")  # none writes
    torch.manual_seed(0)
    net, x, other = mlp(), *torch.randn(2, 1, 512)
    loaded, size = through_a_file(net, x)
    equal = torch.equal(loaded(other), net(other))
    said = warnings_of(torch.jit.script, net)
    parameters = sum(p.numel() for p in net.parameters())
    print("torch.jit.script:", *said)
    print(f"exported: {size:,} bytes, of which {4 * parameters:,} are parameters")
    print(f"read back, it gives the same numbers: {equal}")
    result = {"script_warns": said, "loaded_equal": equal}
    return result | {"file_bytes": size, "parameters": parameters}


if __name__ == "__main__":
    main()
