"""Pictures of twins have room for both."""

import pytest

plt = pytest.importorskip("matplotlib.pyplot")

from overlap.site.shared import share  # noqa: E402


@pytest.fixture(autouse=True)
def closed():
    """No figure outlives its test."""
    yield
    plt.close("all")


def figure(x: list, y: list, xlabel: str = "n", **look):
    """A line in one panel."""
    made, axes = plt.subplots()
    axes.plot(x, y)
    axes.set(xlabel=xlabel, **look)
    return made


def test_axes_reach_as_far_as_those_of_the_twin():
    one = figure([0, 1], [0, 4], xlim=(0, 1), ylim=(0, 4))
    two = figure([0, 3], [-1, 2], xlim=(0, 3), ylim=(-1, 2))
    share(one, two)
    assert one.axes[0].get_xlim() == (0, 3)
    assert one.axes[0].get_ylim() == (-1, 4)
    assert two.axes[0].get_ylim() == (-1, 2)


def test_an_axis_that_runs_down_still_does_and_an_axis_of_names_is_left_alone():
    one = figure([0, 1], [0, 1], xlim=(0, 1), ylim=(5, 0))
    two = figure([0, 1], [0, 1], xlim=(0, 9), ylim=(7, 1))
    for made in (one, two):
        made.axes[0].set_xticks([0, 1], ["a", "b"])
        made.axes[0].set_xlim(0, 1 if made is one else 9)
    share(one, two)
    assert one.axes[0].get_xlim() == (0, 1)
    assert one.axes[0].get_ylim() == (7, 0)


def test_equal_numbers_have_equal_colours():
    made = []
    for high in (3, 7):
        drawing, axes = plt.subplots()
        axes.pcolormesh([[1, high]])
        made.append(drawing)
    share(*made)
    assert made[0].axes[0].collections[0].get_clim() == (1, 7)


@pytest.mark.parametrize(
    "other", [{"xlabel": "m"}, {"xscale": "log"}], ids=["another label", "another scale"]
)
def test_an_axis_of_another_kind_is_left_as_it_is(other):
    one = figure([1, 2], [1, 2], xlim=(1, 2), ylim=(1, 2))
    share(one, figure([1, 2], [1, 2], xlim=(1, 9), ylim=(1, 9), **other))
    assert one.axes[0].get_xlim() == (1, 2)
    assert one.axes[0].get_ylim() == (1, 9)


def test_a_twin_may_have_fewer_panels():
    one, axes = plt.subplots(2)
    axes[1].set_xlim(0, 2)
    share(one, figure([0, 5], [0, 5], xlabel="", xlim=(0, 5)))
    assert axes[0].get_xlim() == (0, 5) and axes[1].get_xlim() == (0, 2)
