"""What limits each kernel of a program: per cent of four peaks of the GPU, by ncu."""

import csv
import subprocess

UNITS = ("dram", "lts", "l1tex", "sm")  # memory, L2 cache, L1 cache, SMs
SHARE = "__throughput.avg.pct_of_peak_sustained_elapsed"


def kernel_limits(*program, kernels=20):  # the first so many; each runs several times
    ncu = f"ncu --clock-control none --csv --page raw -c {kernels} --metrics".split()
    command = [*ncu, ",".join(unit + SHARE for unit in UNITS), *program]
    run = subprocess.run(command, capture_output=True, text=True)
    rows = [*csv.DictReader(x for x in run.stdout.splitlines() if x[:1] == '"')][1:]
    if run.returncode or not rows:
        raise RuntimeError(f"no kernel counted: {(run.stdout + run.stderr)[-2000:]}")
    return [
        (row["Kernel Name"], *(float(row[u + SHARE]) for u in UNITS)) for row in rows
    ]
