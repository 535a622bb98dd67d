# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""One line on the same input again and again, or on three inputs in turn."""

from collections.abc import Callable
from functools import partial
from itertools import cycle

import torch

from snippets.first_steps.three_lines import one_line
from snippets.timing.take_turns import recorded, take_turns

NUMBERS = 2**22  # float32: 16 MiB, and as much for the result


def in_turn(inputs: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """`one_line` on the next input with each call."""
    following = cycle(inputs)
    return lambda: one_line(next(following))


def main() -> dict:
    inputs = list(torch.randn(3, NUMBERS, device="cuda"))
    ways = {"same": partial(one_line, inputs[0]), "in_turn": in_turn(inputs)}
    results = recorded(take_turns(ways, trials=15, calls=21), "ms")
    for way, ms in results["ms"].items():
        print(f"{way:<9}{ms:8.3f} ms")
    l2_mib = torch.cuda.get_device_properties(0).L2_cache_size / 2**20
    return results | {"mib": 4 * NUMBERS / 2**20, "l2_mib": l2_mib}


if __name__ == "__main__":
    main()
