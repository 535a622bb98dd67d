"""What limits each kernel of a program: per cent of four peaks of the GPU, by ncu."""

import csv
import subprocess

OF_PEAK = "__throughput.avg.pct_of_peak_sustained_elapsed"
PEAKS = [unit + OF_PEAK for unit in ("dram", "lts", "l1tex", "sm")]


def kernel_limits(*program, kernels=20):  # % of memory, L2, L1, SMs
    ncu = f"ncu --clock-control none --csv --page raw -c {kernels} --metrics".split()
    ncu += [",".join(PEAKS), *program]
    run = subprocess.run(ncu, capture_output=True, text=True)
    rows = [*csv.DictReader(x for x in run.stdout.splitlines() if x[:1] == '"')][1:]
    if run.returncode or not rows:
        raise RuntimeError(f"no kernel counted: {(run.stdout + run.stderr)[-2000:]}")
    return [(row["Kernel Name"], *(float(row[p]) for p in PEAKS)) for row in rows]
