# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# exclusive = false
# ///
"""What a wrong launch of pycuda's says, when it says it, and what PyTorch can do then."""

import json
import subprocess
import sys

from snippets.machine.pycuda_context import pycuda_driver

#: What each process does first; it launches in PyTorch's context.
BEGIN = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
x = torch.zeros(1024, device="cuda")
import pycuda.driver as driver
from pycuda.compiler import SourceModule
driver.init()
context = driver.Device(0).retain_primary_context()
context.push()
SOURCE = '''
#include <stdio.h>
extern "C" {
__global__ void fill(float *x, long long n)
{
    long long i = blockIdx.x * (long long) blockDim.x + threadIdx.x;
    if (i < n) x[i] = 1;
}
__global__ void wild(float *x) { x[1LL << 40] = 1; }
__global__ void say(float *x) { if (threadIdx.x < 2) printf("thread %d", threadIdx.x); }
}
'''
module = SourceModule(SOURCE, no_extern_c=True)
fill, wild, say = map(module.get_function, ("fill", "wild", "say"))

def said(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""

def launch():
    LAUNCH

row = {"launch": said(launch), "wait": said(driver.Context.synchronize)}
row["torch"] = said(lambda: torch.ones(4, device="cuda").sum().item())
row["ones"] = 0 if row["torch"] else int((x == 1).sum())
print("ROW" + json.dumps(row), flush=True)
context.pop()
"""
#: Each mistake, as a launch; the first is right.
LAUNCHES = {
    "right": "fill(x, np.int64(1024), grid=(4, 1), block=(256, 1, 1))",
    "int": "fill(x, 1024, grid=(4, 1), block=(256, 1, 1))",
    "int32": "fill(x, np.int32(1024), grid=(4, 1), block=(256, 1, 1))",
    "float64_tensor": "fill(x.double(), np.int64(1024), grid=(4, 1), block=(256, 1, 1))",
    "cpu_tensor": "fill(x.cpu(), np.int64(1024), grid=(4, 1), block=(256, 1, 1))",
    "argument_missing": "fill(x, grid=(4, 1), block=(256, 1, 1))",
    "block_of_2048": "fill(x, np.int64(1024), grid=(1, 1), block=(2048, 1, 1))",
    "shared_of_a_mib": "fill(x, np.int64(1024), block=(256, 1, 1), shared=2**20)",
    "grid_y_of_70000": "fill(x, np.int64(1024), grid=(4, 70000), block=(256, 1, 1))",
    "illegal_address": "wild(x, block=(1, 1, 1))",
    "printf": "say(x, block=(32, 1, 1))",
}


def in_a_process(launch: str) -> dict:
    """What a fresh Python says of this launch; its exit code, and what the GPU printed."""
    code = BEGIN.replace("LAUNCH\n", f"{launch}\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    before, _, rest = done.stdout.partition("ROW")
    line, _, after = rest.partition("\n")
    row = json.loads(line) if line else {"launch": done.stderr[-300:]}
    return row | {"exit": done.returncode, "printed": before + after}


def main() -> dict:
    pycuda_driver()  # says so if pycuda is missing
    rows = {name: in_a_process(launch) for name, launch in LAUNCHES.items()}
    for name, row in rows.items():
        print(f"{name}: exit code {row['exit']}, {row.get('ones', 0):,} ones")
        for when in ("launch", "wait", "torch", "printed"):
            if row.get(when):
                print(f"    {when:8}{row[when]}")
    return {"rows": rows}


def derive(results: dict) -> dict:
    """Which launches nobody refuses, and which are refused before the GPU has them."""
    rows = results["rows"].items()
    told = ("launch", "wait", "torch")
    return {
        "silent": sorted(name for name, row in rows if not any(row[w] for w in told)),
        "refused": sorted(name for name, row in rows if row["launch"]),
        "fatal": sorted(name for name, row in rows if row["torch"]),
    }


if __name__ == "__main__":
    main()
