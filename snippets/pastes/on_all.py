"""What each model gives for its batch: all GPUs have their work before the first is waited for."""

import torch


@torch.no_grad()
def on_all(models, batches):
    results = []
    for model, batch in zip(models, batches, strict=True):  # a pair on each GPU
        with torch.cuda.device(batch.device):
            results.append(model(batch))  # no .item(), .cpu() or print in here
    return [result.cpu() for result in results]  # only now wait, for each GPU
