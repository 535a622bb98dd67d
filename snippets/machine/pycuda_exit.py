# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""How a process with pycuda ends: a context that is still pushed aborts it."""

import subprocess
import sys

from snippets.machine.pycuda_context import pycuda_driver

START = "import pycuda.driver as driver; driver.init(); gpu = driver.Device(0); "
TAKE = {
    "primary": "context = gpu.retain_primary_context(); context.push()",
    "own": "context = gpu.make_context()",
    "autoinit": "import pycuda.autoinit",
}


def end_of(code: str) -> dict:
    """The exit code of a Python that runs this code, and what pycuda says at its end."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "PyCUDA" in line]
    return {"exit": done.returncode, "said": said}


def main() -> dict:
    pycuda_driver()  # says so if pycuda is missing
    codes = {name: START + take for name, take in TAKE.items()}
    for name in ("primary", "own"):
        codes[f"{name}_popped"] = f"{codes[name]}; context.pop()"
    ends = {name: end_of(code) for name, code in codes.items()}
    for name, end in ends.items():
        print(f"{name:16}exit code {end['exit']:3}", *end["said"])
    return {"ends": ends}


if __name__ == "__main__":
    main()
