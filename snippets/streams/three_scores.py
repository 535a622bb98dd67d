# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Three scores in three lines: when do the lines return, and when are the scores there?

After a post by u_16099226 on 51CTO, which names no licence.
"""

import time

import torch

from snippets.streams.one_stream_is_serial import similarity
from snippets.timing.wait_for import wait_for

ROWS, WIDTHS = 4096, (512, 768, 1024)


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(ROWS, 512, device=device)
    mlp, cnn, resnet = (torch.randn(ROWS, width, device=device) for width in WIDTHS)
    similarity(x, mlp)  # the first call is slow
    wait_for()

    start = time.perf_counter()
    score_mlp = similarity(x, mlp)
    score_cnn = similarity(x, cnn)
    score_resnet = similarity(x, resnet)
    returned = time.perf_counter() - start
    wait_for()
    done = time.perf_counter() - start

    print(f"the three lines returned after {1e3 * returned:7.3f} ms")
    print(f"the three scores were there after {1e3 * done:.3f} ms")
    scores = torch.stack([score_mlp, score_cnn, score_resnet]).tolist()
    return {"returned_ms": 1e3 * returned, "done_ms": 1e3 * done, "scores": scores}


if __name__ == "__main__":
    main()
