# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# ///
"""Three additions in four forms: imperative, a generated program, an FX graph, compiled. What does each one know?"""

import dis
import io
from collections.abc import Callable
from contextlib import redirect_stdout

import torch
from torch import fx


def add(a, b):
    print(f"adding {a} and {b}")
    return a + b


def fancy_func(a, b, c, d):
    return add(add(a, b), add(c, d))


def overheard(work: Callable, *args) -> tuple:
    """What `work(*args)` returns, and the lines it printed meanwhile."""
    with redirect_stdout(io.StringIO()) as said:
        result = work(*args)
    return result, said.getvalue().splitlines()


def run_program(text: str) -> tuple[int, int]:
    """Define, compile, run: the value the text gives to `result`, and the additions left in its byte code."""
    program = compile(text, "<program>", "exec")
    names = {}
    exec(program, names)
    return names["result"], sum(step.opname == "BINARY_OP" for step in dis.get_instructions(program))


def additions(graph: fx.Graph) -> list[str]:
    """The additions of a graph, each with its operands, in the order they run."""
    return [f"{node} = {node.args[0]} + {node.args[1]}" for node in graph.nodes if node.op == "call_function"]


def compiled_graphs(work: Callable, *args) -> dict:
    """Call `work` twice under `torch.compile`: its result, the lines the second call printed, the graphs handed to us."""
    graphs = []

    def backend(module: fx.GraphModule, _) -> Callable:
        graphs.append(additions(module.graph))
        return module.forward

    torch.compiler.reset()
    compiled = torch.compile(work, backend=backend)
    overheard(compiled, *args)
    result, lines = overheard(compiled, *args)
    return {"result": int(result), "lines": len(lines), "graphs": graphs}


def main() -> dict:
    result, lines = overheard(fancy_func, 1, 2, 3, 4)
    print("imperative, as it runs", *lines, f"-> {result}", sep="\n  ")

    text = "result = (1 + 2) + (3 + 4)"
    program_result, additions_left = run_program(text)
    print("generated program", text, f"-> {program_result}, with {additions_left} additions left to run", sep="\n  ")

    traced, tracing_lines = overheard(fx.symbolic_trace, fancy_func)
    traced_result, traced_lines = overheard(traced, 1, 2, 3, 4)
    print("FX, as it is traced", *tracing_lines, sep="\n  ")
    print("FX, the graph it keeps", *additions(traced.graph), f"-> {traced_result}, silently", sep="\n  ")

    a, b, c, d = (torch.tensor(value) for value in (1, 2, 3, 4))
    compiled = {
        "print_inside": compiled_graphs(fancy_func, a, b, c, d),
        "no_print": compiled_graphs(traced, a, b, c, d),
        "one_tensor": compiled_graphs(traced, a, 2, 3, 4),
        "no_tensor": compiled_graphs(traced, 1, 2, 3, 4),
    }
    for name, seen in compiled.items():
        print(
            f"compiled, {name.replace('_', ' ')}",
            *(op for graph in seen["graphs"] for op in graph),
            f"-> {seen['result']}",
            sep="\n  ",
        )
    return {
        "imperative": {"result": result, "lines": len(lines)},
        "program": {"result": program_result, "additions": additions_left},
        "fx": {"result": traced_result, "lines_tracing": len(tracing_lines), "lines_running": len(traced_lines)},
        "fx_graph": additions(traced.graph),
        "compiled": compiled,
    }


if __name__ == "__main__":
    main()
