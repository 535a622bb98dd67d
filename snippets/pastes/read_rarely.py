"""Train, and print the mean loss of every hundred steps. `step(batch)` returns its loss, a tensor."""


def train(step, batches, every=100):
    total = 0.0
    for done, batch in enumerate(batches, 1):
        total = total + step(batch).detach().float()  # stays on the GPU
        if done % every == 0:
            print(f"{done}: {total.item() / every:.4f}")  # the only line that waits
            total = 0.0
