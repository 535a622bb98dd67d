# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""How many bytes does a loss keep, a single number, after its graph is gone?"""

import torch
from torch.nn import functional

LOSSES = ("cross_entropy", "nll_loss", "l1_loss", "huber_loss", "mse_loss")
ROWS, CLASSES = 1024, 1000


def kept_bytes(loss: torch.Tensor) -> int:
    """Bytes of memory that this tensor keeps from being used again."""
    return loss.detach().untyped_storage().nbytes()


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scores = torch.rand(ROWS, CLASSES, device=device)
    classes = torch.arange(ROWS, device=device) % CLASSES
    kept = {}
    for name in LOSSES:
        target = classes if name in ("cross_entropy", "nll_loss") else scores
        kept[name] = kept_bytes(getattr(functional, name)(scores, target))
        print(f"{name:<14}{kept[name]:>10,} B")
    return {"scores_bytes": scores.nbytes, "kept_bytes": kept}


if __name__ == "__main__":
    main()
