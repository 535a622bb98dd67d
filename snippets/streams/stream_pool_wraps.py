# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Ask for forty streams: from the 33rd on they are old ones."""

import torch


def first_twins(streams: list[torch.cuda.Stream]) -> list[int]:
    """For each stream, counted from 1: the first one that has the same handle."""
    handles = [stream.cuda_stream for stream in streams]
    return [handles.index(handle) + 1 for handle in handles]


def main() -> dict:
    twins = first_twins([torch.cuda.Stream() for _ in range(40)])
    different = len(set(twins))
    print(
        f"{len(twins)} asked for, {different} different: number 33 is {twins[32]} again"
    )
    return {"asked": len(twins), "different": different, "first_twins": twins}


if __name__ == "__main__":
    main()
