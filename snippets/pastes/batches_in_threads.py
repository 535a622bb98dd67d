"""Batches in order, of rows made in threads; `batches` has lists of places, as a BatchSampler."""

from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import default_collate


def batches_in_threads(dataset, batches, threads=4, collate=default_collate):
    made = []
    with ThreadPoolExecutor(threads) as pool:
        for places in batches:
            made.append([pool.submit(dataset.__getitem__, i) for i in places])
            if len(made) == 3:  # one to give, while threads make two more
                yield collate([row.result() for row in made.pop(0)])
        for rows in made:
            yield collate([row.result() for row in rows])
