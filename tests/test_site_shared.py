"""Pictures of several machines on the same axes."""

from types import SimpleNamespace

import pytest

plt = pytest.importorskip("matplotlib.pyplot")

from overlap.site import picture  # noqa: E402
from overlap.site.pictures import Pictures  # noqa: E402
from overlap.site.shared import kinds, share  # noqa: E402


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


def test_axes_reach_as_far_as_those_of_any_machine():
    one = figure([0, 1], [0, 4], xlim=(0, 1), ylim=(0, 4))
    two = figure([0, 3], [-1, 2], xlim=(0, 3), ylim=(-1, 2))
    share(one, [two])
    assert one.axes[0].get_xlim() == (0, 3)
    assert one.axes[0].get_ylim() == (-1, 4)
    assert two.axes[0].get_ylim() == (-1, 2)


def test_an_axis_that_runs_down_still_does_and_an_axis_of_names_is_left_alone():
    one = figure([0, 1], [0, 1], xlim=(0, 1), ylim=(5, 0))
    two = figure([0, 1], [0, 1], xlim=(0, 9), ylim=(7, 1))
    for made in (one, two):
        made.axes[0].set_xticks([0, 1], ["a", "b"])
        made.axes[0].set_xlim(0, 1 if made is one else 9)
    share(one, [two])
    assert one.axes[0].get_xlim() == (0, 1)
    assert one.axes[0].get_ylim() == (7, 0)


def test_equal_numbers_have_equal_colours():
    made = []
    for high in (3, 7):
        drawing, axes = plt.subplots()
        axes.pcolormesh([[1, high]])
        made.append(drawing)
    share(made[0], made[1:])
    assert made[0].axes[0].collections[0].get_clim() == (1, 7)


@pytest.mark.parametrize(
    "other", [{"xlabel": "m"}, {"xscale": "log"}, {"ylabel": "ms"}], ids=["x label", "scale", "y label"]
)
def test_pictures_of_another_kind_share_nothing(other):
    one = figure([1, 2], [1, 2])
    assert kinds(one) == kinds(figure([5, 6], [7, 8]))
    assert kinds(one) != kinds(figure([1, 2], [1, 2], **other))
    assert kinds(one) != kinds(plt.subplots(2)[0])


def drawn(monkeypatch, *most: int) -> list[dict]:
    """The pictures of a snippet with these results, each of another machine."""

    def plot(results, ceilings):
        made, axes = plt.subplots()
        axes.bar([0, 1], [1, results["most"]])
        return made

    monkeypatch.setattr(picture, "_module", lambda path: SimpleNamespace(plot=plot))
    machines = {f"h200-x{number}": ({"most": result}, {}) for number, result in enumerate(most, 1)}
    return list(picture.draw("snippets/a/b.py", "a/b", machines).values())


def test_a_picture_has_one_more_variant_where_there_is_another_machine(monkeypatch):
    (alone,) = drawn(monkeypatch, 4)
    both, other = drawn(monkeypatch, 4, 40)
    assert list(alone["sizes"]) == ["wide", "narrow"]
    assert list(both["sizes"]) == list(other["sizes"]) == ["wide", "narrow", "shared"]
    assert both["wide"] == alone["wide"]
    assert both["tables"] == alone["tables"]
    assert both["shared"] != both["narrow"]
    assert ">40<" in both["shared"] and ">40<" in other["shared"]
    assert ">40<" not in both["narrow"]


def test_only_those_that_are_wanted_are_drawn_and_they_are_the_same(monkeypatch):
    both = drawn(monkeypatch, 4, 40)
    machines = {"h200-x1": ({"most": 4}, {}), "h200-x2": ({"most": 40}, {})}
    for number, profile in enumerate(machines):
        assert picture.draw("snippets/a/b.py", "a/b", machines, [profile]) == {profile: both[number]}


def test_only_gpu_machines_share_axes(small_book, template):
    small_book.snippet("a/number", "def plot(r, c): ...\n\n\ndef main(): ...\n", "gpus = [0, 1, 2]")
    for gpus in (0, 1, 2):
        small_book.commit("a/number", template, {"n": 3}, gpus)
    book = small_book.book("never")
    pictures = Pictures(book)
    comparable = {
        profile: [other.profile for other in pictures.comparable("a/number", recording)]
        for profile, recording in book.recordings("a/number").items()
    }
    shared = ["h200", "h200-x2"]
    assert comparable == {"cpu": ["cpu"], "h200": shared, "h200-x2": shared}
