# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# exclusive = false
# ///
"""CUDA_VISIBLE_DEVICES: which value, set when, shows a process which GPUs?"""

import json
import os
import sys
from subprocess import PIPE, Popen

import torch

SEES = """
import json, torch
count = torch.cuda.device_count()
gpus = [str(torch.cuda.get_device_properties(i).uuid) for i in range(count)]
try:
    more = torch.ones(1, device=f"cuda:{count}").is_cuda
except RuntimeError:
    more = False
print(json.dumps({"gpus": gpus, "more": more}))
"""
ITS_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', "
ITS_CHILD += f"{SEES!r}], check=True)"
USED = "import torch; torch.zeros(1, device='cuda')"


def python(value: str, after: str = "", code: str = SEES, **env: str) -> Popen:
    """Start Python with the variable at this value, or set to it `after` some code."""
    if after:
        late = f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = {value!r}"
        code = f"{after}\n{late}\n{code}"
    else:
        env["CUDA_VISIBLE_DEVICES"] = value
    pipes = {"stdout": PIPE, "stderr": PIPE, "text": True}
    return Popen([sys.executable, "-c", code], env=os.environ | env, **pipes)


def seen(child: Popen, uuids: list[str]) -> dict:
    """The `gpus` it lists, in this process's numbers, and whether it can use `more`."""
    out, err = child.communicate(timeout=100)
    if child.returncode:
        raise RuntimeError(f"a child ended with exit code {child.returncode}: {err}")
    facts = json.loads(out)
    facts["gpus"] = [uuids.index(uuid) for uuid in facts["gpus"] if uuid in uuids]
    return facts


def main() -> dict:
    n = torch.cuda.device_count()
    uuids = [str(torch.cuda.get_device_properties(i).uuid) for i in range(n)]
    given = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(n)))
    first, second, *_ = given.split(",")  # GPUs that are hidden from us stay hidden
    children = {
        "unchanged": python(given),
        "fastest_first": python(given, CUDA_DEVICE_ORDER="FASTEST_FIRST"),
        "second": python(second),
        "second_first": python(f"{second},{first}"),
        "second_unknown_first": python(f"{second},99,{first}"),
        "uuid_of_second": python(f"GPU-{uuids[1]}"),
        "none": python(""),
        "after_import": python(second, "import torch"),
        "after_count": python(second, "import torch; torch.cuda.device_count()"),
        "after_available": python(second, "import torch; torch.cuda.is_available()"),
        "after_a_tensor": python(second, USED),
        "child_after_a_tensor": python(second, USED, ITS_CHILD),
    }
    rows = {name: seen(child, uuids) for name, child in children.items()}
    for name, row in rows.items():
        numbers = ", ".join(f"GPU {i}" for i in row["gpus"]) or "none"
        more = ", but there are more" if row["more"] else ""
        print(f"{name.replace('_', ' '):<22}{numbers}{more}")
    return {"visible_gpus": n, "rows": rows}


def derive(results: dict) -> dict:
    """Which GPUs each process sees, and whether it still counts more."""
    rows = results["rows"]
    return {
        "seen": {name: row["gpus"] for name, row in rows.items()},
        "late_counts": [
            rows[f"after_{what}"]["more"] for what in ("available", "a_tensor")
        ],
        "early_counts": [rows[f"after_{what}"]["more"] for what in ("import", "count")],
    }


if __name__ == "__main__":
    main()
