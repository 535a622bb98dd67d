# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""One product and one copy have nothing to overlap with. Cut them into pieces: how many?"""

from statistics import median

import torch
from torch import Tensor

from snippets.timing.benchmark import measure

ROWS, N = 16384, 8192  # bf16 (ROWS, N) times (N, N): a result of 256 MiB
PIECES = (1, 2, 4, 8, 16, 32, 64)


def in_pieces(x: Tensor, w: Tensor, gpu: Tensor, host: Tensor, pieces: int, copying) -> None:
    """x @ w into `gpu` and on to pinned `host`: while one piece is copied, compute the next."""
    multiplying = torch.cuda.current_stream()
    cut = (whole.chunk(pieces) for whole in (x, gpu, host))
    for rows, result, landing in zip(*cut, strict=True):
        torch.mm(rows, w, out=result)
        copying.wait_stream(multiplying)
        with torch.cuda.stream(copying):
            landing.copy_(result, non_blocking=True)
    multiplying.wait_stream(copying)  # nobody writes into `gpu` again before it is copied


def check(x: Tensor, w: Tensor, gpu: Tensor, host: Tensor, pieces: int, copying) -> None:
    """Nothing is copied before it is computed: some rows of each piece, in float32."""
    gpu.zero_()
    host.zero_()
    in_pieces(x, w, gpu, host, pieces, copying)
    torch.cuda.synchronize()
    some = slice(None, None, len(x) // 128)
    expected = (x[some].float() @ w.float()).cpu()
    torch.testing.assert_close(host[some].float(), expected, rtol=2e-2, atol=2.0)


def main() -> dict:
    x, w = (torch.randn(rows, N, device="cuda", dtype=torch.bfloat16) for rows in (ROWS, N))
    gpu, copying = torch.mm(x, w), torch.cuda.Stream()
    host = torch.zeros(ROWS, N, dtype=torch.bfloat16, pin_memory=True)
    product = measure(lambda: torch.mm(x, w, out=gpu)).ms()
    transfer = measure(lambda: host.copy_(gpu, non_blocking=True)).ms()
    leg_ms, trials = {"product": median(product), "transfer": median(transfer)}, []
    print(*(f"{leg:<10}{ms:7.2f} ms" for leg, ms in leg_ms.items()), sep="\n")
    for pieces in PIECES:
        check(x, w, gpu, host, pieces, copying)
        trials.append(measure(lambda n=pieces: in_pieces(x, w, gpu, host, n, copying)).ms())
        print(f"in {pieces:>2}{median(trials[-1]):12.2f} ms")
    result = {"bytes": host.nbytes, "flop": 2 * ROWS * N**2, "pieces": list(PIECES)}
    result |= {"ms": [median(ms) for ms in trials], "ms_trials": trials}
    return result | {"leg_ms": leg_ms, "leg_ms_trials": {"product": product, "transfer": transfer}}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    pieces, legs = results["pieces"], results["leg_ms"].values()
    ax.plot(pieces, results["ms"], marker="o", label="measured")
    rule = [max(legs) + min(legs) / n for n in pieces]
    ax.plot(pieces, rule, label="longer leg + a piece of the shorter")
    ax.axhline(max(legs), color="gray", linestyle="--", label="the longer leg")
    ax.set(xscale="log", xlabel="pieces", ylabel="ms", ylim=(0, None))
    ax.set_xticks(pieces, labels=[str(n) for n in pieces])
    ax.minorticks_off()
    ax.legend(loc="lower left")
    return figure


if __name__ == "__main__":
    main()
