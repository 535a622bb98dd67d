"""Train with a captured step: each batch is copied into the captured inputs."""


def replayed(graph, loss, inputs, batches):
    for batch in batches:
        for old, new in zip(inputs, batch, strict=True):
            assert new.shape == old.shape, "a graph has one shape"
            old.copy_(new, non_blocking=True)
        graph.replay()
        yield loss  # the next replay overwrites it
