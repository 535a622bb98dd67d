# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Broken on purpose: three scores on three streams that wait for nobody.

After a post by u_16099226 on 51CTO, which names no licence.
"""

import torch

from snippets.streams.one_stream_is_serial import similarity
from snippets.streams.three_scores import ROWS, WIDTHS


def main() -> dict:
    x = torch.randn(ROWS, 512, device="cuda")
    mlp, cnn, resnet = (torch.randn(ROWS, width, device="cuda") for width in WIDTHS)
    streams = [torch.cuda.Stream() for _ in range(3)]

    with torch.cuda.stream(streams[0]):  # x may not be written yet
        score_mlp = similarity(x, mlp)
    with torch.cuda.stream(streams[1]):
        score_cnn = similarity(x, cnn)
    with torch.cuda.stream(streams[2]):
        score_resnet = similarity(x, resnet)
    torch.cuda.synchronize()  # too late for what the blocks have read

    scores = torch.stack([score_mlp, score_cnn, score_resnet])
    right = torch.stack([similarity(x, features) for features in (mlp, cnn, resnet)])
    wrong = (~torch.isclose(scores, right, rtol=1e-3)).sum().item()
    print(f"wrong scores: {wrong} of 3")
    return {"wrong": wrong}


if __name__ == "__main__":
    main()
