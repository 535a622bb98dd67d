# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 600
# exclusive = false
# ///
"""Print a value inside a network, or stop there: eager, compiled and exported."""

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PROGRAM = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = self.first(x).relu()
        LOOK
        return self.last(h)

net, x = Net(), torch.ones(1, 4)
work = WAY
print("made")
for i in range(2):
    work(x)
"""
#: With Dynamo alone: what its compiler would do afterwards changes nothing here.
WAYS = {
    "eager": "net",
    "compiled": "torch.compile(net, backend='eager')",
    "fullgraph": "torch.compile(net, backend='eager', fullgraph=True)",
    "exported": "torch.export.export(net, (x,)).module()",
}
LOOKS = {"print": "print('h is', h)", "breakpoint": "breakpoint()"}
TYPED = "print('shape', tuple(h.shape))\nc\n" * 4  # to the debugger, at each stop


def looked(way: str, look: str) -> dict:
    """What two calls show of `h`, in a process of their own.

    `while_made` counts what is shown before the first call, while the network is
    exported; `values` counts numbers, and `stops` the times that the debugger knew h.
    """
    code = PROGRAM.replace("WAY", WAYS[way]).replace("LOOK", LOOKS[look])
    with TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(code)
        done = subprocess.run(
            [sys.executable, str(file)], input=TYPED, capture_output=True, text=True
        )
    before, made, after = done.stdout.partition("made\n")
    if not made:
        before, after = done.stdout, ""
    shown = "h is" if look == "print" else "shape (1, 4)"
    said = re.findall(r"^[\w.]+: .*", done.stderr, re.M)  # of a traceback
    return {
        "while_made": before.count(shown),
        "values": after.count("h is tensor("),
        "stops": after.count("shape (1, 4)"),
        "unknown": after.count("NameError"),
        "exit": done.returncode,
        "error": said[0][:120] if done.returncode and said else "",
    }


def main() -> dict:
    rows = {way: {look: looked(way, look) for look in LOOKS} for way in WAYS}
    for way, looks in rows.items():
        for look, row in looks.items():
            seen = row["values"] if look == "print" else row["stops"]
            print(f"{way:10}{look:11}seen in {seen} of 2 calls", row["error"])
    return {"rows": rows}


if __name__ == "__main__":
    main()
