# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""A healthy training step: read ahead, pinned copies, bf16, fused Adam."""

import torch
from torch import Tensor, nn

from snippets.clinic.photos import CLASSES, PATCH, Photos, known_loss, read_ahead
from snippets.timing.take_turns import recorded, take_turns

SIZES = 128, 128, 1024, 6  # images, patches of an image, width, layers


class Classifier(nn.Module):
    """A small transformer: float patches (images, patches, PATCH) to class scores."""

    def __init__(self, patches: int, width: int, layers: int):
        super().__init__()
        self.embed, self.head = nn.Linear(PATCH, width), nn.Linear(width, CLASSES)
        self.places = nn.Parameter(torch.zeros(patches, width))
        how = {"activation": "gelu", "batch_first": True, "norm_first": True}
        block = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, **how)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(x) + self.places).mean(1))


def normalised(pixels: Tensor) -> Tensor:
    """Each image of (images, patches, bytes) with mean 0 and deviation 1, as float."""
    return nn.functional.layer_norm(pixels.float(), pixels.shape[1:])


def step(model, optimizer, batches, device) -> Tensor:
    """Train on the next of `batches`; the loss, for which nobody has waited."""
    pixels, labels = (part.to(device, non_blocking=True) for part in next(batches))
    with torch.autocast(pixels.device.type, torch.bfloat16):
        loss = known_loss(model(normalised(pixels)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main() -> dict:
    model = Classifier(*SIZES[1:]).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = read_ahead(Photos(*SIZES[:2]), pin=True)
    works = {"step": lambda: step(model, optimizer, batches, "cuda")}
    result = recorded(take_turns(works, calls=4))
    print(f"{result['ms']['step']:.1f} ms a step")
    return result


if __name__ == "__main__":
    main()
