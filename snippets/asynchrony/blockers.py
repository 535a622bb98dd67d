# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Which lines wait for the GPU? Each is run behind a long kernel, and shown to the debug mode."""

import time
import warnings
from statistics import median

import torch

LINES = """
s.item() | if s > 0: pass | str(s) | v.tolist() | v.cpu() | torch.equal(v, w)
torch.nonzero(v) | v[mask] | torch.unique(v) | torch.repeat_interleave(v, n) | v[k] | v[0] = 1.0
torch.tensor(1.0).to('cuda') | host.to('cuda') | pinned.to('cuda')
host.copy_(big) | pinned.copy_(big) | torch.cuda.synchronize() | event.synchronize()
host.to('cuda', non_blocking=True) | host.copy_(big, non_blocking=True) | torch.cuda.empty_cache()
v + w | torch.mm(m, m) | (parameter * v).sum().backward() | v.shape, v.dtype, v.device
torch.empty_like(v) | torch.full((), 1.0, device='cuda') | v[:1] = 1.0 | v[mask] = 1.0
torch.repeat_interleave(v, n, output_size=2048) | side.wait_stream(stream)
event.record() | event.query() | pinned.to('cuda', non_blocking=True)
big.to('cpu', non_blocking=True) | small.to('cuda', non_blocking=True)
"""


def actors() -> dict:
    """What the lines speak of; `big`, `host` and `pinned` have 16 MiB, `small` 4 KiB."""
    v, w = torch.rand(2, 1024, device="cuda")
    s, mask, k = v.sum(), v > 0.5, torch.tensor(3, device="cuda")
    n, big = torch.full((1024,), 2, device="cuda"), torch.rand(2**22, device="cuda")
    m = torch.rand(512, 512, device="cuda")
    host, pinned, small = torch.rand(2**22), torch.rand(2**22).pin_memory(), torch.rand(1024)
    parameter = torch.ones(1, device="cuda", requires_grad=True)
    event, stream = torch.cuda.Event(enable_timing=True), torch.cuda.current_stream()
    side = torch.cuda.Stream()
    return {"torch": torch} | locals()


def blocked(code, names: dict) -> tuple[float, float]:
    """Milliseconds until the line has returned, and how long the kernel before it ran."""
    torch.empty(2**26, dtype=torch.uint8, device="cuda")  # freed at once: for empty_cache
    begin, end = torch.cuda.Event(enable_timing=True), names["event"]
    torch.cuda.synchronize()
    begin.record()
    torch.cuda._sleep(60_000_000)  # cycles, about 30 ms
    end.record()
    start = time.perf_counter()
    exec(code, names)
    returned = time.perf_counter()
    torch.cuda.synchronize()
    return 1e3 * (returned - start), begin.elapsed_time(end)


def warned(code, names: dict) -> int:
    """How often the debug mode warns of this line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        exec(code, names)
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(each.message) for each in caught)


def measured(line: str, names: dict) -> dict:
    """Trials in ms, the share of the kernel's time that the line was blocked, the warnings."""
    code = compile(line, line, "exec")
    trials = [blocked(code, names) for _ in range(6)][1:]  # the first one warms up
    ms, busy_ms = (list(column) for column in zip(*trials, strict=True))
    shares = [one / busy for one, busy in trials]
    row = {"blocked_ms": median(ms), "blocked_ms_trials": ms, "busy_ms_trials": busy_ms}
    return row | {"share": median(shares), "share_trials": shares, "warnings": warned(code, names)}


def main() -> dict:
    names = actors()
    lines = [line.strip() for row in LINES.splitlines() for line in row.split("|") if line.strip()]
    rows = {line: measured(line, names) for line in lines}
    for line, row in rows.items():
        print(f"{line:<48}{row['blocked_ms']:6.2f} ms, warnings: {row['warnings']}")
    waits = [line for line, row in rows.items() if row["share"] >= 0.9]
    returns = [line for line, row in rows.items() if row["share"] <= 0.05]
    missed = [line for line in waits if not rows[line]["warnings"]]
    accused = [line for line in returns if rows[line]["warnings"]]
    print(f"{len(waits)} wait, {len(returns)} do not; no warning for {len(missed)} that wait")
    busy_ms = median(busy for row in rows.values() for busy in row["busy_ms_trials"])
    verdicts = {"waits": waits, "returns": returns, "missed": missed, "accused": accused}
    return verdicts | {"lines": rows, "busy_ms": busy_ms}


if __name__ == "__main__":
    main()
