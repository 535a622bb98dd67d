"""Each box of lines to paste, run as a reader runs it: alone in a name space."""

import pytest
import torch
from conftest import ROOT

from overlap.blocks.paste import Paste


@pytest.fixture
def pasted():
    """`pasted(name)` runs the lines of a box, as the page shows them, and gives the names that they make."""

    def pasted(name: str) -> dict:
        names: dict = {}
        exec(compile(Paste("", 0, name, "").code(ROOT), name, "exec"), names)
        return names

    return pasted


def spin(milliseconds: float) -> None:
    torch.cuda._sleep(int(milliseconds * 2_000_000))


def test_clock_waits_for_the_gpu(gpu, pasted):
    assert pasted("clock")["seconds"](lambda: spin(3), calls=4) == pytest.approx(3e-3, rel=0.1)


def test_kernel_time_leaves_launches_out(gpu, pasted):
    measured = pasted("kernel_time")["kernel_seconds"](lambda: spin(0.001))
    assert measured == pytest.approx(1e-6, rel=0.5)


def test_kernel_time_refuses_work_that_waits(gpu, pasted):
    with pytest.raises(AssertionError, match="overtook"):
        pasted("kernel_time")["kernel_seconds"](torch.cuda.synchronize)


@pytest.mark.gpu
def test_both_clocks_agree_on_a_long_kernel(pasted):
    x = torch.rand(8192, 8192, device="cuda")
    work = lambda: x @ x  # noqa: E731
    seconds, kernel = pasted("clock")["seconds"](work), pasted("kernel_time")["kernel_seconds"](work)
    assert kernel == pytest.approx(seconds, rel=0.1)


def test_each_box_is_tested_here():
    text = (ROOT / "tests/test_pastes.py").read_text()
    for path in (ROOT / "snippets/pastes").glob("*.py"):
        assert f'pasted("{path.stem}")' in text, f"{path.stem}: write a test that runs it"
