# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""In, Out and InOut beside asynchronous copies in three streams: the same kernel."""

import numpy as np

from snippets.machine.kernel_from_source import SOURCE, by_pycuda
from snippets.machine.pycuda_context import torch_context
from snippets.timing.take_turns import recorded, take_turns

SIZE = 2**26  # elements: 256 MiB there, 256 MiB back
CHUNKS = 16
STREAMS = 3


def chunked(driver, kernel, host: np.ndarray, back: np.ndarray, buffers, streams):
    """Copy there, double and copy back chunk by chunk, each chunk in its own stream.

    Both arrays are page-locked; what is in one stream is in order, and streams are not,
    so a chunk's copy back may run beside the next chunk's copy there.
    """
    size = host.size // CHUNKS
    there, result = (int(buffer) for buffer in buffers)
    for i in range(CHUNKS):
        stream, part = streams[i % len(streams)], slice(i * size, (i + 1) * size)
        x, out = there + i * 4 * size, result + i * 4 * size
        driver.memcpy_htod_async(x, host[part], stream)
        arguments = np.uintp(out), np.uintp(x), np.int32(size)
        shape = {"grid": (-(-size // 256), 1), "block": (256, 1, 1)}
        kernel(*arguments, **shape, stream=stream)
        driver.memcpy_dtoh_async(back[part], out, stream)
    for stream in streams:
        stream.synchronize()


def main() -> dict:
    with torch_context() as driver:
        kernel = by_pycuda(SOURCE)
        shape = {"grid": (-(-SIZE // 256), 1), "block": (256, 1, 1)}
        pageable = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)
        pinned = [driver.pagelocked_empty(SIZE, np.float32) for _ in range(2)]
        pinned[0][:] = pageable[0]
        buffers = [driver.mem_alloc(4 * SIZE) for _ in range(2)]
        streams = [driver.Stream() for _ in range(STREAMS)]

        def in_out(host, back) -> None:
            kernel(driver.Out(back), driver.In(host), np.int32(SIZE), **shape)

        def inout(host, back) -> None:
            kernel(driver.InOut(back), driver.InOut(host), np.int32(SIZE), **shape)

        works = {
            "InOut": (lambda: inout(*pinned), pinned[1]),
            "In_Out_pageable": (lambda: in_out(*pageable), pageable[1]),
            "In_Out": (lambda: in_out(*pinned), pinned[1]),
            "async": (
                lambda: chunked(driver, kernel, *pinned, buffers, streams),
                pinned[1],
            ),
        }
        for work, back in works.values():
            back[:] = 0
            work()
            np.testing.assert_equal(back, 2 * pageable[0])
        calls = {name: work for name, (work, _) in works.items()}
        timings = take_turns(calls, warmup=1, trials=9)
        for buffer in buffers:
            buffer.free()
        for array in pinned:
            array.base.free()
    result = {"bytes_each_way": 4 * SIZE, "chunks": CHUNKS} | recorded(timings)
    for name, ms in result["ms"].items():
        print(f"{name:16}{ms:8.2f} ms, {4e-6 * SIZE / ms:5.1f} GB/s each way")
    return result


if __name__ == "__main__":
    main()
