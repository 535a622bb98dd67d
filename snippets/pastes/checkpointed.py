"""Blocks that the backward pass computes again; names in checkpoints stay as they are."""

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)


def checkpointed(model, blocks):
    chosen = set(blocks)
    if not chosen <= set(model.modules()) - {model}:
        raise ValueError("blocks: modules within the model")
    apply_activation_checkpointing(model, check_fn=lambda module: module in chosen)
    return model
