# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""Is CUDA there? If not, let PyTorch say why."""

import torch


def why_not() -> str:
    """Why PyTorch cannot use CUDA, in its own words; empty if it can."""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return str(error)
    return ""


def main() -> dict:
    result = {"available": torch.cuda.is_available(), "why_not": why_not()}
    result["built_for_cuda"] = torch.backends.cuda.is_built()
    result["visible_gpus"] = torch.cuda.device_count()
    for name, value in result.items():
        print(f"{name:16}{value}")
    return result


if __name__ == "__main__":
    main()
