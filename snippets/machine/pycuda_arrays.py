# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# exclusive = false
# ///
"""Which functions of pycuda's arrays compile with today's CUDA, and agree with NumPy."""

from collections.abc import Callable

import numpy as np

from snippets.machine.pycuda_context import torch_context

SIZE = 4096


def verdict(call: Callable[[], object], expected: object) -> dict:
    """Whether a call gives what NumPy gives; else the error, in its first line."""
    try:
        value = call()
    except Exception as error:
        lines = f"{type(error).__name__}: {error}".splitlines()
        reason = next((line for line in lines if "error:" in line), lines[0])
        return {"right": False, "error": reason}
    return {"right": bool(np.allclose(value, expected, rtol=1e-4)), "error": ""}


def in_unit(numbers: np.ndarray) -> bool:
    """Whether they are random numbers between 0 and 1, as many of them say."""
    low, high, mean = numbers.min(), numbers.max(), numbers.mean()
    return bool(0 <= low < 0.1 and 0.9 < high <= 1 and 0.4 < mean < 0.6)


def calls(host: np.ndarray) -> dict[str, tuple[Callable[[], object], object]]:
    """Functions of pycuda on an array, and what NumPy gives."""
    from pycuda import cumath, curandom, gpuarray
    from pycuda.scan import InclusiveScanKernel

    a = gpuarray.to_gpu(host)
    places = np.arange(0, host.size, 7, dtype=np.uint32)

    def uniform() -> bool:
        generator = curandom.XORWOWRandomNumberGenerator()
        return in_unit(generator.gen_uniform(SIZE, np.float32).get())

    def scanned() -> np.ndarray:
        return InclusiveScanKernel(np.float32, "a + b")(a.copy()).get()

    return {
        "2 * a + 1": (lambda: (2 * a + 1).get(), 2 * host + 1),
        "a[100:200]": (lambda: a[100:200].get(), host[100:200]),
        "a.astype(float64)": (lambda: a.astype(np.float64).get(), host),
        "a.reverse()": (lambda: a.reverse().get(), host[::-1]),
        "cumath.exp(a)": (lambda: cumath.exp(a).get(), np.exp(host)),
        "gpuarray.sum(a)": (lambda: gpuarray.sum(a).get(), host.sum()),
        "gpuarray.dot(a, a)": (lambda: gpuarray.dot(a, a).get(), host @ host),
        "gpuarray.max(a)": (lambda: gpuarray.max(a).get(), host.max()),
        "gpuarray.if_positive": (
            lambda: gpuarray.if_positive(a, a, -a).get(),
            np.abs(host),
        ),
        "gpuarray.take": (
            lambda: gpuarray.take(a, gpuarray.to_gpu(places)).get(),
            host[places],
        ),
        "InclusiveScanKernel": (scanned, np.cumsum(host)),
        "curandom.rand": (lambda: in_unit(curandom.rand((SIZE,)).get()), True),
        "XORWOW generator": (uniform, True),
    }


def main() -> dict:
    host = np.random.default_rng(0).random(SIZE, np.float32) + 0.5
    with torch_context():
        works = calls(host)
        rows = {name: verdict(*work) for name, work in works.items()}
        del works  # the array, in its context
    for name, row in rows.items():
        agrees = "as NumPy" if row["right"] else "not as NumPy"
        print(f"{name:21}{row['error'] or agrees}")
    return {"rows": rows}


def derive(results: dict) -> dict:
    """Functions that are not right, and the headers that the compiler did not find."""
    wrong = {name: row for name, row in results["rows"].items() if not row["right"]}
    errors = " ".join(row["error"] for row in wrong.values())
    headers = [
        part.split(": No such file")[0] for part in errors.split("fatal error: ")
    ]
    return {"wrong": sorted(wrong), "missing_headers": headers[1:]}


if __name__ == "__main__":
    main()
