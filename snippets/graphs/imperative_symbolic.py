# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# ///
"""Three additions, imperative and written down: who knows what, and when?

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

import dis
import io
from contextlib import redirect_stdout

from torch import fx


def add(a, b):
    print(f"adding {a} and {b}")
    return a + b


def fancy_func(a, b, c, d):
    return add(add(a, b), add(c, d))


def program():
    return (1 + 2) + (3 + 4)


def overheard(work, *args) -> tuple:
    """What `work(*args)` returns, and the lines it printed meanwhile."""
    with redirect_stdout(io.StringIO()) as said:
        result = work(*args)
    return result, said.getvalue().splitlines()


def additions_left(compiled) -> int:
    """How many additions the byte code of a Python function still has to do."""
    return sum(step.opname == "BINARY_OP" for step in dis.get_instructions(compiled))


def additions(graph: fx.Graph) -> list[str]:
    """The additions of a graph, each with its operands, in the order they run."""
    calls = [node for node in graph.nodes if node.op == "call_function"]
    return [f"{node} = {node.args[0]} + {node.args[1]}" for node in calls]


def main() -> dict:
    result, lines = overheard(fancy_func, 1, 2, 3, 4)
    print("imperative, as it runs", *lines, f"-> {result}", sep="\n  ")
    known = {"result": program(), "additions": additions_left(program)}
    print("a program of numbers", known, sep="\n  ")
    traced, told = overheard(fx.symbolic_trace, fancy_func)
    again, silence = overheard(traced, 1, 2, 3, 4)
    print("FX, as it is traced", *told, sep="\n  ")
    kept = additions(traced.graph)
    print("FX, the graph it keeps", *kept, f"-> {again}, silently", sep="\n  ")
    imperative = {"result": result, "lines": len(lines)}
    seen = {"result": again, "lines_tracing": len(told), "lines_running": len(silence)}
    return {"imperative": imperative, "program": known, "fx": seen}


if __name__ == "__main__":
    main()
