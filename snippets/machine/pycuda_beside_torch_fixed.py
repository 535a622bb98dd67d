# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Fixed: pycuda takes PyTorch's context, and the order of all work stays."""

from snippets.machine.pycuda_beside_torch_broken import ELEMENTS, costs
from snippets.machine.pycuda_context import primary_context


def share() -> None:
    """Push PyTorch's context, for as long as this process lives."""
    primary_context().push()


def main() -> dict:
    result = costs(share) | {"elements": ELEMENTS}
    print(f"PyTorch's context, pushed: {result['ms']:.2f} ms, {result['mib']:.0f} MiB")
    print(f"then PyTorch waits {result['waited_ms']:.0f} ms for another thread's work")
    print(f"and reads {result['wrong']:,} of {ELEMENTS:,} elements wrong")
    return result


if __name__ == "__main__":
    main()
