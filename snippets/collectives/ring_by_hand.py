# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0, 2, 4, 8]
# launcher = "torchrun"
# ranks = 4
# once = { equal = "arithmetic", sent = "arithmetic" }
# missing = { 8 = "not recorded yet" }
# ///
"""An all-reduce by hand: parts of the tensor go round a ring of ranks, twice."""

import torch
import torch.distributed as dist

from snippets.collectives.collectives_zoo import join


def ring_all_reduce(x: torch.Tensor) -> int:
    """Add up x of all ranks, in place (x contiguous); the bytes that this rank sent."""
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
            theirs += room  # first round: sums grow, until each rank has one part whole
        else:
            theirs.copy_(room)  # second round: whole parts go to everybody
        sent += ours.nbytes
    return sent


def main() -> dict:
    device = join()
    rank, ranks, equal = dist.get_rank(), dist.get_world_size(), {}
    random = torch.Generator().manual_seed(rank)
    whole = torch.randint(-(2**40), 2**40, (2**20 + 3,), generator=random)
    for name, x in {"int64": whole, "float32": torch.randn(2**20 + 3)}.items():
        by_hand = x.to(device)
        by_library = by_hand.clone()
        sent = ring_all_reduce(by_hand)
        dist.all_reduce(by_library)
        equal[name] = float((by_hand == by_library).double().mean())
        share = sent / x.nbytes
        print(f"rank {rank} {name:<8} {equal[name]:.2%} equal, sent {share:.3f} × x")
    every = [None] * ranks
    dist.all_gather_object(every, equal)
    dist.destroy_process_group()
    least = {name: min(each[name] for each in every) for name in equal}
    return {"ranks": ranks, "equal": least, "sent": share}


if __name__ == "__main__":
    main()
