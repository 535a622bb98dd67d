# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Run out of memory beside a CUDA graph: what the message says of private pools."""

import re

import torch
from torch import Tensor

CAP_MIB, GRAPH_MIB, ASK_MIB = 2048, 512, 1024
WORDS = "allocated in private pools (e.g., CUDA Graphs)"
UNITS = {"bytes": 2**-20, "KiB": 2**-10, "MiB": 1.0, "GiB": 2**10}


def chain(x: Tensor) -> Tensor:
    """Two intermediates as large as x, which are dropped, and one number."""
    shifted = x - 1
    return (shifted * shifted).sum()


def captured(x: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A graph of `chain`, and its result; the pool keeps room for the intermediates."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = chain(x)
    return graph, result


def parts(message: str) -> dict[str, float]:
    """MiB by the words of an out-of-memory message; a part that is not named is 0."""
    size = r"([\d.]+) (bytes|KiB|MiB|GiB)"
    patterns = {
        "asked": rf"Tried to allocate {size}",
        "allowed": rf"{size} allowed",
        "allocated": rf"{size} is allocated by PyTorch",
        "pools": rf"{size} allocated in private pools",
        "unallocated": rf"{size} is reserved by PyTorch but unallocated",
    }
    found = dict.fromkeys(patterns, 0.0)
    for name, pattern in patterns.items():
        if match := re.search(pattern, message):
            found[name] = float(match[1]) * UNITS[match[2]]
    return found


def asked(mib: int) -> str:
    """Ask for so many MiB, and drop them; what PyTorch says if it has not got them."""
    try:
        torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return re.sub(r"Process \d+ has .*? in use\. ", "", str(error))
    return ""


def counted(moment: str) -> dict[str, int]:
    """MiB allocated and reserved now, printed."""
    row = {
        "allocated": torch.cuda.memory_allocated() >> 20,
        "reserved": torch.cuda.memory_reserved() >> 20,
    }
    print(f"{moment:24}{row['allocated']:6} MiB allocated,", end=" ")
    print(f"{row['reserved']:6} reserved")
    return row


def main() -> dict:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(CAP_MIB * 2**20 / total)
    x = torch.ones(GRAPH_MIB << 18, device="cuda")
    expected = chain(x)
    torch.cuda.empty_cache()
    mib = {"a tensor": counted("a tensor")}
    says = {"without a graph": asked(ASK_MIB)}
    torch.cuda.empty_cache()
    graph, result = captured(x)
    graph.replay()
    torch.testing.assert_close(result, expected)
    torch.cuda.empty_cache()
    mib["beside a graph"] = counted("beside a graph")
    says["beside a graph"] = asked(ASK_MIB)
    del graph, result
    torch.cuda.empty_cache()
    mib["the graph is dropped"] = counted("the graph is dropped")
    says["the graph is dropped"] = asked(ASK_MIB)
    print(says["beside a graph"])
    told = parts(says["beside a graph"])
    sizes = {"cap_mib": CAP_MIB, "graph_mib": GRAPH_MIB, "ask_mib": ASK_MIB}
    return sizes | {"mib": mib, "says": says, "parts": told}


if __name__ == "__main__":
    main()
