"""Run `work`, and write who allocated what, also if it runs out of memory."""

import torch


def with_snapshot(work, path="snapshot.pickle"):
    open(path, "ab").close()  # a missing folder is an error now, not after the work
    record = torch.cuda.memory._record_memory_history
    record(max_entries=100_000, stacks="python")
    try:
        return work()
    finally:
        try:
            torch.cuda.memory._dump_snapshot(path)
        finally:
            record(enabled=None)
