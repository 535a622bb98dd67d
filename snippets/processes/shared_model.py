# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# ///
"""A model in shared memory: which of a child's changes does the parent see?"""

from multiprocessing.reduction import ForkingPickler

import torch
from torch import nn

from snippets.processes.share_memory import child

SIZE = 1000


def in_place(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)


def optimizer_step(model: nn.Module) -> None:
    model(torch.rand(8, SIZE)).square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=1).step()


def load_state(model: nn.Module) -> None:
    model.load_state_dict({name: x + 1 for name, x in model.state_dict().items()})


def forward(model: nn.Module) -> None:
    """In training mode: BatchNorm counts and averages in its buffers."""
    model(torch.rand(8, SIZE))


def backward(model: nn.Module) -> None:
    """The parent had no gradients: these are new tensors of the child's."""
    model.eval()(torch.rand(8, SIZE)).square().sum().backward()


def replaced(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data + 1


def double(model: nn.Module) -> None:
    model.double()


CHANGES = {
    change.__name__: change
    for change in (
        in_place,
        optimizer_step,
        load_state,
        forward,
        backward,
        replaced,
        double,
    )
}


def changed_by_child(connection) -> None:
    """In the child: rebuild each model, change it as named, answer."""
    for payload in iter(connection.recv_bytes, b""):
        name, model = ForkingPickler.loads(payload)
        CHANGES[name](model)
        connection.send(name)


def seen_here(connection, name: str) -> dict:
    """What this process sees of one change of the child's, and the bytes in the pipe."""
    model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.BatchNorm1d(SIZE)).share_memory()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    payload = ForkingPickler.dumps((name, model))
    connection.send_bytes(payload)
    assert connection.recv() == name, "the child changed something else"
    after = model.state_dict()
    changed = [key for key in before if not torch.equal(before[key], after[key])]
    return {
        "changed": changed,
        "gradients": sum(p.grad is not None for p in model.parameters()),
        "payload_bytes": len(payload),
        "model_bytes": sum(x.nbytes for x in before.values()),
    }


def main() -> dict:
    torch.set_num_threads(1)
    with child(changed_by_child) as connection:
        rows = {name: seen_here(connection, name) for name in CHANGES}
    for name, row in rows.items():
        print(f"{name:15} the parent sees: {', '.join(row['changed']) or 'nothing'}")
    row = rows["in_place"]
    print(f"{row['payload_bytes']:,} bytes are sent for {row['model_bytes']:,}")
    return {"rows": rows}


def derive(results: dict) -> dict:
    """The changes of weights, of buffers alone, and of nothing that the parent sees."""
    changed = {name: row["changed"] for name, row in results["rows"].items()}
    weights = [name for name in changed if "0.weight" in changed[name]]
    buffers = [name for name in changed if changed[name] and name not in weights]
    return {
        "weights": sorted(weights),
        "buffers": sorted(buffers),
        "nothing": sorted(name for name in changed if not changed[name]),
    }


if __name__ == "__main__":
    main()
