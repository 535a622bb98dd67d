# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [0, 1]
# timeout = 120
# exclusive = false
# ///
"""The calls of article D's notebooks as printed: what they gave then, and give now.

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
Comments are left out, and the kernels of part 3 are put together from what differs.
"""

import json
import subprocess
import sys

#: Runs cells in one process, as a notebook does; each shows its last expression.
NOTEBOOK = """
import ast, json, sys, warnings

def run(cell, names):
    *lines, last = ast.parse(cell).body
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([*lines, last], []), "cell", "exec"), names)
        return ""
    exec(compile(ast.Module(lines, []), "cell", "exec"), names)
    return repr(eval(compile(ast.Expression(last.value), "cell", "eval"), names))

names, rows = {}, []
for cell in json.load(sys.stdin):
    now = error = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            now = run(cell, names)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}".splitlines()[0]
    said = {f"{w.category.__name__}: {w.message}".splitlines()[0] for w in caught}
    rows.append({"now": now, "error": error, "warned": sorted(said)})
print("ROWS" + json.dumps(rows))
"""
CLASS = '''
import pycuda.autoinit

class aboutCudaDevices():
    def __init__(self):
        pass

    def num_devices(self):
        """Return number of devices connected."""
        return cuda.Device.count()

    def mem_info(self):
        """Get available and total memory of all devices."""
        available, total = cuda.mem_get_info()
        print("Available: %.2f GB\\nTotal:     %.2f GB"%(available/1e9, total/1e9))

    def attributes(self, device_id=0):
        """Get attributes of device with device Id = device_id"""
        return cuda.Device(device_id).get_attributes()

    def __repr__(self):
        num = cuda.Device.count()
        string = ""
        string += ("%d device(s) found:\\n"%num)
        for i in range(num):
            string += ( "    %d) %s (Id: %d)\\n"%((i+1),cuda.Device(i).name(),i))
            string += ("          Memory: %.2f GB\\n"%(cuda.Device(i).total_memory()/1e9))
        return string

aboutCudaDevices()
'''
SQ = """
sq = nn.Sequential(
         nn.Linear(20, 20),
         nn.ReLU(),
         nn.Linear(20, 4),
         nn.Softmax()
)
"""
RACE = """
cuda = torch.device('cuda')
s = torch.cuda.Stream()
A = torch.empty((100, 100), device=cuda).normal_(0.0, 1.0)
with torch.cuda.stream(s):
    B = torch.sum(A)
torch.cuda.synchronize()
bool(B == torch.sum(A))
"""
K80 = "1 device(s) found:\n    1) Tesla K80 (Id: 0)\n          Memory: 12.00 GB\n"
#: Of each notebook its cells in order: what is run, and what it printed.
CELLS = {
    "part 1": [
        ("import torch\nfrom torch import nn", ""),
        ("import pycuda.driver as cuda\ncuda.init()", ""),
        ("torch.cuda.is_available()", "True"),
        ("torch.cuda.current_device()", "0"),
        ("cuda.Device(0).name()", "'Tesla K80'"),
        ("torch.cuda.get_device_name(0)", "'Tesla K80'"),
        (CLASS, K80),
        ("torch.cuda.memory_allocated()", "0"),
        (
            "mat_a = torch.cuda.FloatTensor((100., 100.))\nmat_a",
            "tensor([100., 100.], device='cuda:0')",
        ),
        ("torch.cuda.memory_allocated()", "512"),
        ("torch.cuda.memory_cached()", "1048576"),
        ("Mat_cpu = torch.FloatTensor([1., 2.])\nMat_cpu", "tensor([1., 2.])"),
        (
            "Mat_gpu = Mat_cpu.cuda()\nMat_gpu, Mat_cpu",
            "(tensor([1., 2.], device='cuda:0'), tensor([1., 2.]))",
        ),
        (
            "Mat_gpu2 = torch.cuda.FloatTensor([1., 2.])\nMat_gpu2",
            "tensor([1., 2.], device='cuda:0')",
        ),
        (SQ, ""),
        ("model = sq.cuda()", ""),
        ("next(model.parameters()).is_cuda", "True"),
        (
            "gpu_inp = torch.ones((100000, 20), dtype=torch.float32).cuda()\n"
            "for i in range(10):\n  res = model(gpu_inp[i*1000:i*1000+1000])",
            "",
        ),
    ],
    "beside it": [
        ("import torch\nfrom torch import nn", ""),
        (
            "split = nn.Sequential(nn.Linear(2, 2).cuda(), nn.Linear(2, 2))\n"
            "next(split.parameters()).is_cuda, next(split[1].parameters()).is_cuda",
            "",
        ),
        ("next(nn.ReLU().cuda().parameters()).is_cuda", ""),
        (RACE, ""),
    ],
    "part 3": [
        (
            "import numpy\nimport pycuda.driver as cuda\nimport pycuda.autoinit\n"
            "from pycuda.compiler import SourceModule",
            "",
        ),
    ],
}
#: The index of a thread in five grids of blocks, with the launch and what was printed.
GRIDS = [
    (
        ["threadIdx.x"],
        "blockDim.x*blockIdx.x + threadIdx.x",
        "grid=((4000+127)//128, 1), block=(128, 1, 1)",
        -33,
        [[127, *range(32)]],
    ),
    (
        ["threadIdx.x", "threadIdx.y"],
        "blockDim.x*blockDim.y*blockIdx.x + blockDim.x* threadIdx.y + threadIdx.x",
        "grid=((4000+63)//64, 1), block=(8, 8, 1)",
        -10,
        [[6, 7, *range(8)], [2, 2, *[3] * 8]],
    ),
    (
        ["threadIdx.x", "threadIdx.y", "threadIdx.z"],
        "blockDim.x*blockDim.y*blockDim.z*blockIdx.x +\n"
        "blockDim.x*blockDim.y*threadIdx.z + blockDim.x*threadIdx.y + threadIdx.x",
        "grid=((4000+63)//64, 1), block=(4, 4, 4)",
        -17,
        [[3, *[0, 1, 2, 3] * 4], [3, *sorted([0, 1, 2, 3] * 4)], [0, *[1] * 16]],
    ),
    (
        ["threadIdx.x", "threadIdx.y", "threadIdx.z", "blockIdx.x", "blockIdx.y"],
        "gridDim.x*blockDim.x*blockDim.y*blockDim.z*blockIdx.y +\n"
        "blockDim.x*blockDim.y*blockDim.z*blockIdx.x +\n"
        "blockDim.x*blockDim.y*threadIdx.z + blockDim.x*threadIdx.y + threadIdx.x",
        "grid=(8, 8), block=(4, 4, 4)",
        -17,
        [
            [3, *[0, 1, 2, 3] * 4],
            [3, *sorted([0, 1, 2, 3] * 4)],
            [0, *[1] * 16],
            [6] * 17,
            [7] * 17,
        ],
    ),
]
ALONE = """
temp = numpy.zeros((4000,))
temp = temp.astype(numpy.float32)
mod = SourceModule('''
  __global__ void cuda_func(float *a)
  {
    printf("%d", threadIdx.x);
    for(int i=0; i<4000; i++){
      a[i] = i;
    }
  }
  ''')
func = mod.get_function("cuda_func")
func(cuda.InOut(temp), grid=(1, 1), block=(1, 1, 1))
[temp[-10:].tolist()]
"""


def grid_cell(grid: tuple) -> tuple[str, str]:
    """A kernel of part 3's notebook that writes what each thread is, and what it gave."""
    writes, index, launch, last, printed = grid
    names = [f"temp{i}" for i in range(len(writes))]
    parameters = ", ".join(f"float *{'abcde'[i]}" for i in range(len(writes)))
    lines = [f"{'abcde'[i]}[idx] = (float) {what};" for i, what in enumerate(writes)]
    body = "int idx = " + index + ";\nif(idx < 4000){\n" + "\n".join(lines) + "\n}"
    kernel = f"__global__ void cuda_func({parameters})\n{{\n{body}\n}}"
    cell = [f"{n} = numpy.zeros((4000,)).astype(numpy.float32)" for n in names]
    cell.append(f"func = SourceModule('''{kernel}''').get_function('cuda_func')")
    arguments = ", ".join(f"cuda.InOut({name})" for name in names)
    cell.append(f"func({arguments}, {launch})")
    cell.append(f"[each[{last}:].tolist() for each in ({', '.join(names)},)]")
    return "\n".join(cell), repr([[float(x) for x in row] for row in printed])


def notebooks() -> dict[str, list[tuple[str, str]]]:
    """All cells, by notebook."""
    alone = ALONE, repr([[float(x) for x in range(3990, 4000)]])
    third = [*CELLS["part 3"], *map(grid_cell, GRIDS), alone]
    return CELLS | {"part 3": third}


def in_one_process(cells: list[tuple[str, str]]) -> list[dict]:
    """What each cell gives now, beside what it printed."""
    call = [sys.executable, "-c", NOTEBOOK]
    typed = json.dumps([cell for cell, _ in cells])
    done = subprocess.run(
        call, input=typed, capture_output=True, text=True, timeout=100
    )
    line = done.stdout.partition("ROWS")[2].partition("\n")[0]
    if not line:
        raise RuntimeError(f"the cells ended early: {done.stderr[-500:]}")
    rows = json.loads(line)
    for row, (cell, printed) in zip(rows, cells, strict=True):
        row |= {"cell": cell.strip(), "printed": printed}
        row["same"] = "".join(printed.split()) == "".join(row["now"].split())
    return rows


def main() -> dict:
    rows = {name: in_one_process(cells) for name, cells in notebooks().items()}
    for name, cells in rows.items():
        for row in cells:
            last = row["cell"].splitlines()[-1]
            print(f"{name}: {last}")
            for key in ("printed", "now", "error"):
                if row[key]:
                    print(f"    {key:8}{' '.join(row[key].split())[:100]}")
            for warning in row["warned"]:
                print(f"    warned  {warning[:100]}")
    return {"rows": rows}


def derive(results: dict) -> dict:
    """How many cells that printed something print the same now; last lines of others."""
    cells = [row for rows in results["rows"].values() for row in rows]
    told = [row for row in cells if row["printed"]]
    return {
        "printed_then": len(told),
        "the_same": sum(row["same"] for row in told),
        "other": [row["cell"].splitlines()[-1] for row in told if not row["same"]],
        "failed": [row["cell"].splitlines()[-1] for row in cells if row["error"]],
        "warned": [row["cell"].splitlines()[-1] for row in cells if row["warned"]],
    }


if __name__ == "__main__":
    main()
