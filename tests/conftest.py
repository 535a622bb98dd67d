"""Fixtures and the `gpu` marker for all tests."""

import json
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items):
    """Skip `@pytest.mark.gpu(n)` tests, with the reason, where fewer than n GPUs are visible."""
    have = torch.cuda.device_count()
    for item in items:
        marker = item.get_closest_marker("gpu")
        need = (marker.args or (1,))[0] if marker else 0
        if need > have:
            item.add_marker(pytest.mark.skip(reason=f"needs {need} GPU(s), this machine has {have}"))


@pytest.fixture(scope="session")
def recorded():
    """`recorded("chapter/snippet")` gives {profile: what main() returned} of all committed recordings; none is a failure."""

    def load(name: str) -> dict[str, dict]:
        results = {
            path.relative_to(ROOT / "docs/recordings").parts[0]: json.loads(path.read_text())["result"]
            for path in sorted(ROOT.glob(f"docs/recordings/*/{name}.json"))
        }
        assert results, f"no recording of {name} under docs/recordings: run `overlap record {name}`"
        return results

    return load
