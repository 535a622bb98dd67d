# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["snapshot_on_oom"]
# take_on_cpu = ["snapshot_on_oom"]
# ///
"""Let PyTorch write a memory snapshot at the moment when memory runs out."""

import gc
import pickle
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from snippets.memory.snapshot_reading import at_peak, free_memory, held_by

LAYERS, WIDTH, ROWS, CAP_MIB = 4, 2048, 16384, 1100


def snapshot_on_oom(path: Path | str, most: int = 1) -> list[Path]:
    """From now on, write a memory snapshot each time that PyTorch is out of memory.

    Call it once, early in the program, before anything else records memory: it stays
    until the process ends, and holds for all GPUs. The first `most` snapshots go to
    `path`, with a number in the name from the second on; what is there is overwritten.
    An error that your code catches, to try fewer rows, is one of them. Give each
    process a path of its own, in a folder that is there: one that is not, or a full
    disk, is warned of only when memory is out, and PyTorch's error is raised as ever.

    The list that you get is filled as they are written; drop one on
    pytorch.org/memory_viz to see it. Their history is of the last 100,000 events: what
    was allocated before them is listed, with its stack, but not when. Without CUDA
    nothing happens. PyTorch has no public function for this: a release may change those
    called here.
    """
    path = Path(path)
    written: list[Path] = []
    if not torch.cuda.is_available():
        return written
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=100_000)

    def observer(device: int, asked: int, allowed: int, free: int) -> None:
        if len(written) >= most:
            return
        number = f"_{len(written) + 1}" if written else ""
        target = path.with_name(path.stem + number + path.suffix)
        try:
            torch.cuda.memory._dump_snapshot(str(target))
        except Exception as error:  # PyTorch would raise it in place of its own
            warnings.warn(f"no snapshot in {target}: {error}", stacklevel=2)
        else:
            written.append(target)

    torch._C._cuda_attach_out_of_memory_observer(observer)  # type: ignore
    return written


def refused_bytes(snapshot: dict, device: int = 0) -> int:
    """What the last allocation that failed had asked for."""
    refused = 0
    for event in snapshot["device_traces"][device]:
        if event["action"] == "oom":
            refused = event["size"]
    return refused


def make_model() -> nn.Sequential:
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH, bias=False, device="cuda"), nn.ReLU()]
    return nn.Sequential(*layers)


def load(rows: int) -> Tensor:
    return torch.randn(rows, WIDTH, device="cuda")


def forward(net: nn.Sequential, x: Tensor) -> Tensor:
    return net(x).square().mean()


def step(net: nn.Sequential, rows: int) -> None:
    """Forward and backward pass; gradients are dropped."""
    x = load(rows)
    loss = forward(net, x)
    loss.backward()
    net.zero_grad()


def refused(net: nn.Sequential, rows: int) -> dict:
    """Who holds memory for the handler of the error and after it; who did at the peak."""
    in_handler, peak = {}, {}
    try:
        step(net, rows)
    except torch.OutOfMemoryError:
        snapshot = torch.cuda.memory._snapshot()
        in_handler, peak = held_by(snapshot), at_peak(snapshot)
    gc.collect()
    seen = {
        "in handler": in_handler,
        "after it": held_by(torch.cuda.memory._snapshot()),
    }
    return {"seen": seen, "at_peak": peak}


def main() -> dict:
    step(make_model(), 64)  # libraries take their workspaces
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    total = torch.cuda.mem_get_info()[1]
    with tempfile.TemporaryDirectory() as folder:
        written = snapshot_on_oom(Path(folder) / "oom.pickle")
        torch.cuda.set_per_process_memory_fraction((CAP_MIB << 20) / total)
        net = make_model()
        later = refused(net, ROWS)
        snapshot = pickle.loads(written[0].read_bytes())
        refused(net, ROWS)  # and once more, which shall write nothing
        names = [path.name for path in written]
        files = sorted(path.name for path in Path(folder).iterdir())
    torch.cuda.memory._record_memory_history(enabled=None)
    step(net, ROWS // 2)  # fits
    seen = {"observer": held_by(snapshot)} | later["seen"]
    for when, held in seen.items():
        said = [f"{name} {size >> 20}" for name, size in held.items()]
        print(f"{when:<11}{sum(held.values()) >> 20:5} MiB: {', '.join(said)}")
    asked = refused_bytes(snapshot)
    print(
        f"refused: {asked >> 20} MiB; free: {free_memory(snapshot)['free'] >> 20} MiB"
    )
    ooms = torch.cuda.memory_stats()["num_ooms"]
    result = {"cap_mib": CAP_MIB, "held_before": before, "seen": seen, "ooms": ooms}
    result |= {"refused_bytes": asked, "free": free_memory(snapshot)}
    peaks = {"observer": at_peak(snapshot), "in handler": later["at_peak"]}
    for when, peak in peaks.items():
        print(f"replayed from {when}: {sum(peak.values()) >> 20} MiB at the peak")
    result["at_peak"] = peaks
    return result | {"written": names, "files": files}


def derive(results: dict) -> dict:
    """What each snapshot has without a frame, in shares of that before, and of forward."""
    seen, before = results["seen"], results["held_before"]
    kinds = {"before": "observer", "handler": "in handler", "after": "after it"}
    return {
        "no_frame": {
            kind: seen[at]["no Python frame"] / before for kind, at in kinds.items()
        },
        "forward": {kind: seen[at].get("forward", 0) for kind, at in kinds.items()},
    }


if __name__ == "__main__":
    main()
