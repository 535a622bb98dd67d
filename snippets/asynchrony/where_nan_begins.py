# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# few = { cpu = "two runs; on a CPU it measures nothing" }
# take = ["first_not_finite"]
# ///
"""A loss or its gradient is NaN: what anomaly detection finds, and what a hook finds."""

import re
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from snippets.timing.take_turns import ratios, recorded, take_turns

LAYERS, WIDTH, ROWS = 12, 1024, 512


def first_not_finite(model: nn.Module, *args: Any) -> str:
    """The first module whose output has a NaN or an infinity; "" if there is none.

    Calls `model(*args)` once, without gradients, in the mode in which the model is. A
    module that got such numbers has not made them, so only the first is named. Outputs
    that are no tensors, nor tuples or lists of them, are not looked at. In training mode
    a BatchNorm counts this batch once more. On a GPU it waits for each module.
    """
    found: list[str] = []

    def look(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, _: Any, output: Any) -> None:
            parts = output if isinstance(output, list | tuple) else [output]
            tensors = [part for part in parts if isinstance(part, Tensor)]
            if not found and not all(tensor.isfinite().all() for tensor in tensors):
                found.append(f"{name or 'the model'} ({type(module).__name__})")

        return hook

    hooks = [m.register_forward_hook(look(name)) for name, m in model.named_modules()]
    try:
        with torch.no_grad():
            model(*args)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else ""


class Distance(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - x.detach()).square().sum(1).sqrt()


class SafeLog(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x.log(), 0.0)


class Log(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - 1).log()


class Masked(nn.Module):
    """Each row has places that it may look at; the first row has none."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.ones_like(x, dtype=torch.bool).triu()
        return x.masked_fill(hidden, -torch.inf).softmax(1)


class Scale(nn.Module):
    """Halves end at 65504."""

    def forward(self, x: Tensor) -> Tensor:
        return x.half() * 400 * 400


class Centre(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean()


#: what a network of one or two parts does with ones and a few zeros
PARTS: dict[str, dict[str, nn.Module]] = {
    "a square root of 0": {"distance": Distance()},
    "a logarithm of 0 behind `where`": {"safe_log": SafeLog()},
    "a logarithm of -1": {"log": Log()},
    "a softmax of -inf only": {"masked": Masked()},
    "float16 above 65504": {"scale": Scale(), "centre": Centre()},
}


def network(case: str) -> nn.Sequential:
    net = nn.Sequential()
    for name, part in PARTS[case].items():
        net.add_module(name, part)
    return net


def forward_line(words: str) -> str:
    """The last line of this file that the warning of anomaly detection shows."""
    lines = re.findall(rf'File "{re.escape(__file__)}".*\n +(.+)', words)
    return lines[-1] if lines else ""


def anomaly(step: Callable[[], object]) -> dict[str, str]:
    """The error of a step under anomaly detection, and the line of its forward pass."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with torch.autograd.set_detect_anomaly(True):
                step()
        except RuntimeError as error:
            words = "".join(str(warning.message) for warning in told)
            return {"says": str(error), "line": forward_line(words)}
    return {"says": "", "line": ""}


def looked_at(case: str, device: str) -> dict:
    """Whether loss and gradient are finite, and what each way names."""
    net = network(case)
    x = torch.eye(3, device=device).requires_grad_()

    def step() -> Tensor:
        x.grad = None
        loss = net(x).float().square().mean()
        loss.backward()
        return loss.detach()

    row: dict = {"loss": str(step().item())}
    assert x.grad is not None
    row["gradient_is_finite"] = bool(x.grad.isfinite().all())
    return row | {"anomaly": anomaly(step), "hook": first_not_finite(net, x)}


def price(device: str) -> dict:
    """How many times as long a forward and backward pass takes under the detection."""
    with torch.device(device):
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        x = torch.randn(ROWS, WIDTH)
    net = nn.Sequential(*layers)

    def step() -> None:
        net.zero_grad()
        net(x).square().mean().backward()

    def detected() -> None:
        with torch.autograd.set_detect_anomaly(True):
            step()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that it is slow
        turns = take_turns({"default": step, "detected": detected}, calls=5)
    slower = ratios(turns["detected"], turns["default"])
    return recorded(turns, "ms") | {"slower": median(slower), "slower_trials": slower}


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = {case: looked_at(case, device) for case in PARTS}
    for case, row in found.items():
        gradient = "finite" if row["gradient_is_finite"] else "not finite"
        print(f"{case}: loss {row['loss']}, gradient {gradient}")
        print(f"    anomaly detection: {row['anomaly']['says'] or 'no error'}")
        if row["anomaly"]["line"]:
            print(f"    {'':19}{row['anomaly']['line']}")
        print(f"    hook: {row['hook'] or 'nothing'}")
    result: dict = {"found": found}
    if device == "cuda":  # a CPU that others use would tell nothing
        result["price"] = price(device)
        print(f"a step takes {result['price']['slower']:.1f} times as long under it")
    return result


def derive(results: dict) -> dict:
    """Gradients in a word; what the detection names by the loss; what the hook finds."""
    found = results["found"]
    word, by_name, lines, of_nan_loss = {}, [], [], set()
    for case, row in sorted(found.items()):
        word[case] = "finite" if row["gradient_is_finite"] else "not finite"
        function = row["anomaly"]["says"].split("'")[1]
        if row["loss"] == "nan":
            of_nan_loss.add(function)
        else:
            by_name.append(function)
            lines.append(row["anomaly"]["line"])
    return {
        "word": word,
        "by_name": by_name,
        "lines": lines,
        "of_nan_loss": sorted(of_nan_loss),
        "by_hook": sorted(case for case, row in found.items() if row["hook"]),
        "loss_is_nan": sorted(c for c, row in found.items() if row["loss"] == "nan"),
    }


if __name__ == "__main__":
    main()
