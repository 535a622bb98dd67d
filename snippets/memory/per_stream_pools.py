# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Use many side streams once each: how much memory stays behind."""

import torch

from snippets.pictures import DASHES, Axis, Line, Panel, Picture

BLOCK_MIB, TIMES = 64, 40


def tensor() -> torch.Tensor:
    """64 MiB on the GPU, in memory that belongs to the current stream from now on."""
    return torch.empty(BLOCK_MIB * 2**20, dtype=torch.uint8, device="cuda")


def on_main(side: torch.cuda.Stream) -> None:
    """Allocate and fill on the main stream; the side stream is not used."""
    tensor().fill_(1)


def on_side(side: torch.cuda.Stream) -> None:
    """Allocate and fill on the side stream."""
    with torch.cuda.stream(side):
        tensor().fill_(1)


def lent_to_side(side: torch.cuda.Stream) -> None:
    """Allocate on the main stream, fill on the side stream, join before it is freed."""
    main, x = torch.cuda.current_stream(), tensor()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        x.fill_(1)
    main.wait_stream(side)


def reserved_mib(use) -> list[float]:
    """MiB that PyTorch keeps at first, and after each `use(stream)` of a new stream."""
    torch.cuda.empty_cache()
    on_main(None)
    found = [torch.cuda.memory_reserved() / 2**20]
    for _ in range(TIMES):
        use(torch.cuda.Stream())
        found.append(torch.cuda.memory_reserved() / 2**20)
    return found


def main() -> dict:
    results = {"block_mib": BLOCK_MIB}
    for use in (on_main, lent_to_side, on_side):
        results[use.__name__] = kept = reserved_mib(use)
        shown = f"{kept[0]:.0f} at first, {kept[1]:.0f} after 1, {kept[-1]:.0f} after"
        print(f"{use.__name__:<13} MiB kept: {shown} {TIMES} uses")
    torch.cuda.empty_cache()
    results["emptied_mib"] = torch.cuda.memory_reserved() / 2**20
    print(f"after empty_cache() {results['emptied_mib']:.0f} MiB")
    return results


def plot(results: dict, ceilings: dict):
    names = {"on_side": "allocated on each side stream"}
    names["lent_to_side"] = "allocated on the main stream and lent"
    marks = []
    for (way, label), dash in zip(names.items(), ("", DASHES[0]), strict=True):
        kept = results[way]
        marks.append(Line(range(len(kept)), kept, label, dots=False, dash=dash))
    x, y = Axis("side streams used"), Axis("MiB kept by PyTorch", low=0)
    return Picture([Panel(marks, x, y)])


if __name__ == "__main__":
    main()
