# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""`reduce-overhead` with many sizes: how many graphs, of how many bytes; three cures."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snippets.pictures import bars
from snippets.timing.benchmark import wall_clock
from snippets.timing.take_turns import recorded, take_turns

WIDTH, LAYERS, LARGEST, COUNT, BUCKETS = 512, 12, 768, 24, 4
SIZES = tuple(LARGEST * (i + 1) // COUNT for i in range(COUNT))
SETTINGS: dict[str, dict] = {  # of the compiler; the most graphs come last
    "eager": {},
    "padded": {},
    "no_graph_if_dynamic": {"triton.cudagraph_skip_dynamic_graphs": True},
    "chosen_sizes": {"triton.cudagraph_capture_sizes": SIZES[5::6]},
    "each_size": {},
}


def network(device: str) -> nn.Sequential:
    """Small layers, so that their launches take most of the time."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
    return nn.Sequential(*layers).to(device)


def padded(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Call it with rows of zeros behind x, so that only BUCKETS sizes occur."""
    rows = len(x)
    step = LARGEST // BUCKETS
    return call(F.pad(x, (0, 0, 0, -rows % step)))[:rows]


def way(name: str, net: nn.Module) -> Callable[[Tensor], Tensor]:
    """The network as a function, compiled unless it is "eager"."""
    if name == "eager":
        return net
    compiled = torch.compile(net, mode="reduce-overhead")
    return partial(padded, compiled) if name == "padded" else compiled


def recorded_graphs() -> int:
    """How many graphs `torch.compile` has recorded on this GPU since it was reset."""
    from torch._inductor.cudagraph_trees import get_manager

    manager = get_manager(torch.cuda.current_device(), create_if_none_exists=False)
    return manager.new_graph_id().id if manager else 0


def taken_bytes() -> dict[str, int]:
    """Bytes that PyTorch's allocator has, and all that are in use on the GPU."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return {"reserved": torch.cuda.memory_reserved(), "used": total - free}


@torch.no_grad()
def looked_at(name: str, net: nn.Module, batches: list[Tensor]) -> dict:
    """Calls with each size: seconds until all are fast, bytes after each, and times."""
    torch.compiler.reset()
    call = way(name, net)
    before, grown, first_s = taken_bytes(), [], []
    for batch in batches:
        # warm up, record, replay
        first_s.append(sum(wall_clock(partial(call, batch)) for _ in range(3)))
        torch.testing.assert_close(call(batch), net(batch), rtol=1e-3, atol=1e-3)
        now = taken_bytes()
        grown.append({key: now[key] - before[key] for key in now})
    row: dict = {"first_s": first_s, "grown": grown}
    row["graphs"] = 0 if name == "eager" else recorded_graphs()

    def all_sizes() -> None:
        for batch in batches:
            call(batch)

    times = recorded(take_turns({"all": all_sizes}, 1, 7), "us")
    row["us"] = times["us"]["all"] / len(batches)
    row["us_trials"] = [us / len(batches) for us in times["us_trials"]["all"]]
    return row


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = network(device)
    batches = [torch.randn(rows, WIDTH, device=device) for rows in SIZES]
    rows = {}
    for name, settings in SETTINGS.items():
        with torch._inductor.config.patch(settings):  # also read when it is called
            row = looked_at(name, net, batches)
        rows[name] = row
        used, reserved = (row["grown"][-1][key] / 2**20 for key in ("used", "reserved"))
        print(f"{name:20}{row['graphs']:3} graphs, {used:6.0f} MiB more,", end=" ")
        print(
            f"{reserved:5.0f} of them PyTorch's; {sum(row['first_s']):5.1f} s", end=""
        )
        print(f" until all are fast, then {row['us']:6.0f} µs a call")
    torch.compiler.reset()
    return {"ways": rows, "sizes": SIZES, "layers": LAYERS, "buckets": BUCKETS}


def derive(results: dict) -> dict:
    """MiB more in use at the end of each way, and what a further graph takes to record.

    `padded` comes first of those that are compiled: what is loaded once counts there.
    """
    ways = results["ways"]
    mib = {name: row["grown"][-1]["used"] / 2**20 for name, row in ways.items()}
    return {"mib": mib, "new_size_ms": 1e3 * median(ways["each_size"]["first_s"][2:])}


def plot(results: dict, ceilings: dict):
    words = {
        "eager": "eager",
        "each_size": "a graph for each size",
        "padded": "padded to four sizes",
        "chosen_sizes": "graphs for four sizes alone",
        "no_graph_if_dynamic": "no graph if sizes change",
    }
    ways = results["ways"]
    return bars({text: ways[name]["us"] for name, text in words.items()}, {}, "µs")


if __name__ == "__main__":
    main()
