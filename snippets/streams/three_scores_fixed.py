# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: fork before the three blocks, join after them, keep the scores' memory.

After a post by u_16099226 on 51CTO, which names no licence.
"""

import torch

from snippets.streams.one_stream_is_serial import similarity
from snippets.streams.three_scores import ROWS, WIDTHS


def main() -> dict:
    x = torch.randn(ROWS, 512, device="cuda")
    mlp, cnn, resnet = (torch.randn(ROWS, width, device="cuda") for width in WIDTHS)
    streams = [torch.cuda.Stream() for _ in range(3)]

    current = torch.cuda.current_stream()
    for stream in streams:
        stream.wait_stream(current)  # fork: the inputs are written on this stream
    with torch.cuda.stream(streams[0]):
        score_mlp = similarity(x, mlp)
    with torch.cuda.stream(streams[1]):
        score_cnn = similarity(x, cnn)
    with torch.cuda.stream(streams[2]):
        score_resnet = similarity(x, resnet)
    for stream in streams:
        current.wait_stream(stream)  # join: the scores are read on this stream
    for score in (score_mlp, score_cnn, score_resnet):
        score.record_stream(current)  # and their memory is kept until then

    scores = torch.stack([score_mlp, score_cnn, score_resnet])
    right = torch.stack([similarity(x, features) for features in (mlp, cnn, resnet)])
    wrong = (~torch.isclose(scores, right, rtol=1e-3)).sum().item()
    print(f"wrong scores: {wrong} of 3")
    return {"wrong": wrong}


if __name__ == "__main__":
    main()
