"""The batches of `loader` (tensors in tuples, lists and dicts), on the GPU, each copied ahead."""

from itertools import chain, pairwise

import torch
from torch.utils._pytree import tree_map_only as each


def ahead(loader):
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()

    def send(batch):
        main.wait_stream(side)  # the previous batch has arrived
        side.wait_stream(main)  # the memory of an older batch is free
        batch = each(torch.Tensor, torch.Tensor.pin_memory, batch)
        with torch.cuda.stream(side):
            return each(torch.Tensor, lambda x: x.cuda(non_blocking=True), batch)

    return (now for now, _ in pairwise(map(send, chain(loader, [None]))))
