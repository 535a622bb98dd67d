# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""A Python loop over the elements of a tensor, in a process that was never profiled."""

from statistics import median

from snippets.graphs.python_loop_broken import ELEMENTS, us_per_element


def main() -> dict:
    results: dict = {"elements": ELEMENTS}
    for name, device in {"cpu": "cpu", "gpu": "cuda"}.items():
        trials = us_per_element(device)
        results |= {f"{name}_us": median(trials), f"{name}_us_trials": trials}
        print(f"{name.upper()}, {ELEMENTS:,} elements: {median(trials):10.5f} µs each")
    return results


if __name__ == "__main__":
    main()
