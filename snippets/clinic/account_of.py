# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["account_of"]
# ///
"""Where does the time of a step go? Its profile and its account, in one call."""

from collections.abc import Callable

import torch
from torch import nn

from snippets.clinic.where_time_goes import account, without_closing_waits
from snippets.timing.lanes import lanes


def account_of(work: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of what `work` does: kernels, copies, all-reduces, the CPU's waits.

    Give work that may run twice, such as two steps of a training: the second call
    counts. What runs at the same time counts once in each sum, and the sums overlap:
    together they are more than the time of the call, or less where nothing runs, so
    time the call, too. Without a GPU all are 0.

    Keys: "compute" (all on the GPU but what follows; also copies and fills within it),
    "all_reduce" (all kernels of NCCL), "exposed" (all_reduce beside no compute),
    "copies" (to and from the host); of the CPU "CPU_waits", "CPU_copies" (in the call
    that copies), "launches" and "calls" (all others of CUDA). "kernel_count" is how
    many pieces of work compute has, no time.

    For a process that uses one GPU, as each rank of a job does. In one that uses more,
    all GPUs count together, and the profile's wait for each but the first counts as
    one of `work`: nothing says so. Calls of CUDA are told by their names, which begin
    with "cu": an operator of your own whose namespace does so is among the calls.
    """
    return account(without_closing_waits(lanes(work)))


def main() -> dict:
    net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)]).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batch = torch.randn(8192, 1024)  # in pageable memory

    def step() -> torch.Tensor:
        loss = net(batch.to("cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    works = {"as it is": step, "reads its loss": lambda: step().item()}
    found = {name: account_of(work) for name, work in works.items()}
    for name, ms in found.items():
        print(f"{name:15}kernels {ms['compute']:6.2f} ms,", end=" ")
        print(f"copies {ms['copies']:6.2f} ms;", end=" ")
        print(f"the CPU waits for {ms['CPU_waits']:6.2f} ms")
    return found


if __name__ == "__main__":
    main()
