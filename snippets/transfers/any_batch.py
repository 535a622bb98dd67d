# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""The prefetcher with other batches: packed sequences, dataclasses, sparse tensors."""

from collections import UserDict
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from snippets.transfers.prefetcher import prefetched


@dataclass
class Sample:
    """Two pictures and their names."""

    pixels: Tensor
    names: list[str]


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = [torch.arange(n, dtype=torch.float32) for n in (2, 5, 3)]
    packed = pack_sequence(rows, enforce_sorted=False)
    sample = Sample(torch.ones(2, 3), ["cat", "dog"])
    sparse = torch.eye(4).to_sparse()
    tokens = UserDict(input_ids=torch.zeros(3).long(), text="as a tokenizer gives them")
    batches = [packed, sample, sparse, {"x": torch.zeros(3), "label": 7}, tokens]
    on_device = list(prefetched(batches, device))

    for given, row in zip(rows, unpack_sequence(on_device[0]), strict=True):
        torch.testing.assert_close(row.cpu(), given)
    assert on_device[0].batch_sizes.device.type == "cpu"
    torch.testing.assert_close(on_device[1].pixels.cpu(), sample.pixels)
    torch.testing.assert_close(on_device[2].cpu().to_dense(), torch.eye(4))

    kinds = [type(batch).__name__ for batch in on_device]
    tensors = [on_device[0].data, on_device[1].pixels, on_device[2]]
    tensors += [on_device[3]["x"], on_device[4]["input_ids"]]
    places = [tensor.device.type for tensor in tensors]
    for kind, place in zip(kinds, places, strict=True):
        print(f"{kind:15} on {place}")
    return {"kinds": kinds, "places": places, "device": device}


if __name__ == "__main__":
    main()
