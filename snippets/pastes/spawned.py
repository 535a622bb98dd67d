"""Four processes, each with its share of the cores; their results come back in shared memory."""

import torch
import torch.multiprocessing as mp


def worker(rank, count, results):
    torch.set_num_threads(max(1, torch.get_num_threads() // count))
    results[rank] = torch.ones(512, 512).sum()  # your work


if __name__ == "__main__":
    results = torch.zeros(4).share_memory_()  # one memory for all processes
    mp.spawn(worker, (4, results), nprocs=4)  # raises what a worker raises
    print(results.tolist())
