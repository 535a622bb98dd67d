# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Predict the peak of a convolutional network, and see what PyTorch takes for it."""

import gc

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from snippets.memory.peak_predicted import predicted

CLASSES, IMAGES, SIDE = 1000, 64, 224
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride
CASES = {"fp32": {}, "fp32, benchmark": {"benchmark": True}, "bf16": {"bf16": True}}


def conv(inputs: int, outputs: int, side: int, stride: int = 1) -> list[nn.Module]:
    """A convolution of side × side pixels and its normalisation."""
    padding = side // 2
    layer = nn.Conv2d(inputs, outputs, side, stride, padding, bias=False)
    return [layer, nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut: (n, inputs, h, w) to (n, 4 × width, …)."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        layers = [*conv(inputs, width, 1), nn.ReLU(inplace=True)]
        layers += [*conv(width, width, 3, stride), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers, *conv(width, 4 * width, 1))
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != 4 * width:
            self.shortcut = nn.Sequential(*conv(inputs, 4 * width, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.body(x) + self.shortcut(x))


def resnet() -> nn.Sequential:
    """ResNet-50 for images (n, 3, 224, 224)."""
    layers = [*conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in STAGES:
        for number in range(blocks):
            layers.append(Bottleneck(inputs, width, 1 if number else stride))
            inputs = 4 * width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES)
    )


def two_steps(bf16: bool = False, images: int = IMAGES, device: str = "cuda") -> None:
    """Train it with AdamW on random images."""
    with torch.device(device):
        net = resnet()
        x = torch.randn(images, 3, SIDE, SIDE)
        classes = torch.arange(images)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    for _ in range(2):
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = cross_entropy(net(x), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def peaks(work) -> dict[str, int]:
    """Most bytes during `work()`: in tensors, taken by PyTorch, used on the GPU.

    The last is read after it: PyTorch keeps what it took, and so does the context.
    """
    gc.collect()  # a model and its optimizer hold each other
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    tensors = torch.cuda.max_memory_allocated() - before
    free, total = torch.cuda.mem_get_info()
    reserved = torch.cuda.max_memory_reserved()
    return {"tensors": tensors, "reserved": reserved, "used": total - free}


def main() -> dict:
    two_steps()  # libraries take their workspaces, and load what they need
    rows = []
    for name, case in CASES.items():
        bf16 = "bf16" in case
        torch.backends.cudnn.benchmark = "benchmark" in case
        dry, by = predicted(lambda bf16=bf16: two_steps(bf16))
        real = peaks(lambda bf16=bf16: two_steps(bf16))
        print(f"{name:<16}predicted {dry >> 20:6} MiB", end="")
        print("".join(f"; {peak} {n >> 20:6}" for peak, n in real.items()))
        print(f"{'':<16}{by}")
        rows.append({"case": name, "predicted": dry, "by": by} | real)
    return {"cases": rows, "images": IMAGES, "side": SIDE}


def derive(results: dict) -> dict:
    """How the forecast differs from the tensors, and what more is reserved and used."""
    cases = results["cases"]
    return {
        "off": [abs(case["predicted"] / case["tensors"] - 1) for case in cases],
        "reserved_share": [case["reserved"] / case["tensors"] for case in cases],
        "used_share": [case["used"] / case["predicted"] for case in cases],
        "by": [case["by"].partition(":")[0] for case in cases],
    }


if __name__ == "__main__":
    main()
