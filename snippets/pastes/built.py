"""A model that no rank ever has whole; each `reset_parameters` fills all its module owns."""

import torch


@torch.no_grad()
def built(make, split, device="cuda"):
    with torch.device("meta"):
        model = make()  # shapes without memory
    split(model)
    model.to_empty(device=device)  # memory for this rank's parts, with garbage in it
    for module in reversed(list(model.modules())):
        if [*module.parameters(False), *module.buffers(False)]:
            module.reset_parameters()  # an error where a module has no such method
    return model
