"""What the branches return, a tensor each; branch i, which must not raise, is on stream i."""

import torch


def side_by_side(branches, streams):
    main, results = torch.cuda.current_stream(), []
    pairs = list(zip(branches, streams, strict=True))  # fails before any work
    for branch, stream in pairs:
        stream.wait_stream(main)  # fork: its inputs are written on main
        with torch.cuda.stream(stream):
            results.append(branch())
    for result, stream in zip(results, streams, strict=True):
        main.wait_stream(stream)  # join: main reads the result next
        result.record_stream(main)  # its memory is kept until then
    return results
