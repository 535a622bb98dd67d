"""A training step as one CUDA graph: a replay is a step on what `inputs` hold by then."""

import torch


def captured(step, *inputs):
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            step(*inputs)  # warms up, and trains on this batch
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(*inputs)
    graph.held = step, inputs  # keeps them: the graph has only addresses
    return graph, loss
