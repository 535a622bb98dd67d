# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# ///
"""Models that this chapter trains: DenseNet-121, a transformer, and a tiny network."""

import torch
from torch import nn


class Dense(nn.Module):
    """A layer of DenseNet: `growth` new channels, behind those that came in."""

    def __init__(self, channels: int, growth: int):
        super().__init__()
        self.new = nn.Sequential(
            *activated(channels),
            nn.Conv2d(channels, 4 * growth, 1, bias=False),
            *activated(4 * growth),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.new(x)], 1)


def activated(channels: int) -> list[nn.Module]:
    """What stands before a convolution in DenseNet."""
    return [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]


def densenet(blocks=(6, 12, 24, 16), growth=32, outputs=1000) -> nn.Sequential:
    """DenseNet-121, or one with other blocks, for images (batch, 3, n, n), n ≥ 32."""
    channels = 2 * growth
    layers = [
        nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
        *activated(channels),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    for i, block in enumerate(blocks):
        if i > 0:  # between blocks: half the channels, half the height and width
            half = channels // 2
            layers += [nn.Conv2d(channels, half, 1, bias=False), nn.AvgPool2d(2)]
            channels = half
        layers += [Dense(channels + j * growth, growth) for j in range(block)]
        channels += block * growth
        layers += activated(channels)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs)
    return nn.Sequential(*layers, *head)


def transformer(layers: int = 12, width: int = 1024) -> nn.Sequential:
    """Blocks of attention and feed-forward, for rows (batch, tokens, width)."""
    shape = {"nhead": width // 64, "dim_feedforward": 4 * width, "dropout": 0.0}
    shape |= {"batch_first": True, "norm_first": True}
    return nn.Sequential(
        *(nn.TransformerEncoderLayer(width, **shape) for _ in range(layers))
    )


def tiny() -> nn.Sequential:
    """Twenty inputs, twenty hidden units, the shares of four classes."""
    layers = nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 4), nn.Softmax(dim=1)
    return nn.Sequential(*layers)


def main() -> dict:
    shapes = {densenet: (2, 3, 64, 64), transformer: (2, 8, 1024), tiny: (2, 20)}
    parameters, tensors = {}, {}
    for make, shape in shapes.items():
        name, model = make.__name__, make()
        assert model(torch.randn(shape)).isfinite().all()
        parameters[name] = sum(p.numel() for p in model.parameters())
        tensors[name] = len(list(model.parameters()))
        print(
            f"{name:<12}{parameters[name]:>12,} parameters in {tensors[name]} tensors"
        )
    return {"parameters": parameters, "tensors": tensors}


if __name__ == "__main__":
    main()
