# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2, 4, 8]
# launcher = "torchrun"
# ranks = 4
# missing = { 8 = "not recorded yet" }
# take = ["ring_all_reduce"]
# ///
"""An all-reduce by hand: parts of the tensor go round a ring of ranks, twice."""

import torch
import torch.distributed as dist

from snippets.collectives.collectives_zoo import join


def ring_all_reduce(x: torch.Tensor) -> int:
    """Add up x of all ranks, in place; the bytes that this rank sent.

    Every rank calls it, with a tensor of one shape and dtype. It is contiguous and
    records no gradients: else this rank raises, and the others wait. Of the default
    group. To see how it works: `dist.all_reduce` does the same.
    """
    rank, n, sent = dist.get_rank(), dist.get_world_size(), 0
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        ours, theirs = parts[(rank - step) % n], parts[(rank - step - 1) % n]
        room = torch.empty_like(theirs)
        sending = dist.P2POp(dist.isend, ours, (rank + 1) % n)
        receiving = dist.P2POp(dist.irecv, room, (rank - 1) % n)
        for work in dist.batch_isend_irecv([sending, receiving]):
            work.wait()
        if step < n - 1:
            room += theirs  # first round: sums grow, until each rank has one part whole
        theirs.copy_(room)  # second round: whole parts go to everybody
        sent += ours.nbytes
    return sent


def main() -> dict:
    device, equal = join(), {}
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    for name, kind in {"int64": torch.int64, "float32": torch.float32}.items():
        by_hand = (2**40 * torch.randn(2**20 + 3, dtype=torch.double)).to(device, kind)
        by_library = by_hand.clone()
        sent = ring_all_reduce(by_hand) / by_hand.nbytes
        dist.all_reduce(by_library)
        least = (by_hand == by_library).double().mean()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        equal[name] = least.item()
        print(f"rank {rank} {name:<8} {equal[name]:.2%} equal, sent {sent:.3f} × x")
    dist.destroy_process_group()
    return {"ranks": ranks, "equal": equal, "sent": sent}


if __name__ == "__main__":
    main()
