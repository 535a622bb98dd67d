"""Train with a captured step: each batch is copied into the captured inputs."""


def replayed(graph, loss, inputs, batches):
    for batch in batches:
        for old, new in zip(inputs, batch, strict=True):
            if (new.shape, new.dtype) != (old.shape, old.dtype):
                raise ValueError("a graph has one shape, and copy_ would convert")
            old.copy_(new, non_blocking=True)
        graph.replay()
        yield loss  # the next replay overwrites it
