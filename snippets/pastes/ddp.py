"""A model on the GPUs of all ranks that torchrun starts."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def run(model, train):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)  # before anything uses a GPU
    dist.init_process_group("nccl", device_id=device)  # a bad link fails here
    train(DDP(model.cuda(), gradient_as_bucket_view=True))
    dist.destroy_process_group()
