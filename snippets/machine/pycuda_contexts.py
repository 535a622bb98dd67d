# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 300
# ///
"""Three ways to give pycuda a context beside PyTorch: cost, order, and how it ends."""

from snippets.machine.pycuda_beside_torch_broken import ELEMENTS, autoinit, costs
from snippets.machine.pycuda_beside_torch_fixed import share
from snippets.machine.pycuda_exit import START, TAKE, end_of

#: PyTorch works first, then the context is taken, and the process ends.
BEGIN = f"import torch; torch.ones(1, device='cuda'); {START}"


def autoprimaryctx() -> None:
    """Import it: the GPU's primary context, which is PyTorch's, pushed until the end."""
    import pycuda.autoprimaryctx  # noqa: F401


WAYS = {"autoinit": autoinit, "autoprimaryctx": autoprimaryctx, "pushed": share}
LINES = {
    "autoinit": TAKE["autoinit"],
    "autoprimaryctx": "import pycuda.autoprimaryctx",
    "pushed": TAKE["primary"],
    "popped": f"{TAKE['primary']}; context.pop()",
}


def main() -> dict:
    rows = {name: costs(take) for name, take in WAYS.items()}
    ends = {name: end_of(BEGIN + line) for name, line in LINES.items()}
    for name, row in rows.items():
        cost = f"{row['ms']:7.2f} ms, {row['mib']:4.0f} MiB"
        print(f"{name:15}{cost}, {row['wrong']:,} of {ELEMENTS:,} elements read early")
    for name, end in ends.items():
        print(f"{name:15}exit code {end['exit']:3}", *end["said"])
    return {"elements": ELEMENTS, "rows": rows, "ends": ends}


if __name__ == "__main__":
    main()
