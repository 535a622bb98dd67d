# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""What the box `full_lanes` says of two training steps: with six faults, and repaired."""

import runpy
from pathlib import Path

from snippets.clinic.six_faults import FAULTS, treated

BOX = Path(__file__).parents[1] / "pastes" / "full_lanes.py"


def main() -> dict:
    full_lanes = runpy.run_path(str(BOX))["full_lanes"]  # as a reader pastes it
    steps = treated(rank=0, ranks=1)
    shares = {}
    for name in ("all", FAULTS[-1]):
        step = steps[name]
        for _ in range(4):
            step()
        shares[name] = full_lanes(lambda step=step: [step() for _ in range(2)])
        print(f"{'with six faults' if name == 'all' else 'repaired'}: {shares[name]}")
    return {"shares": shares, "box": BOX.read_text(encoding="utf-8")}


def derive(results: dict) -> dict:
    """The shares as numbers from 0 to 1."""
    share = {
        name: {lane.strip(): int(text[:-1]) / 100 for lane, text in of.items()}
        for name, of in results["shares"].items()
    }
    return {"share": share}


if __name__ == "__main__":
    main()
