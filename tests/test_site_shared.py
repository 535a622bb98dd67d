"""Pictures of several machines on the same axes."""

from types import SimpleNamespace

import pytest

plt = pytest.importorskip("matplotlib.pyplot")

from overlap.site import picture  # noqa: E402
from overlap.site.pictures import Pictures  # noqa: E402
from overlap.site.shared import alike, share  # noqa: E402


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
    one, same = figure([1, 2], [1, 2]), figure([5, 6], [7, 8])
    assert alike(one, [figure([1, 2], [1, 2], **other), same]) == [same]
    assert alike(one, [plt.subplots(2)[0]]) == []


def drawn(monkeypatch, others: list[dict]) -> dict:
    """The picture of a snippet whose result is 4, beside machines with other results."""

    def plot(results, ceilings):
        made, axes = plt.subplots()
        axes.bar([0, 1], [1, results["most"]])
        return made

    monkeypatch.setattr(picture, "_module", lambda path: SimpleNamespace(plot=plot))
    pairs = [(other, {}) for other in others]
    return picture.draw("snippets/a/b.py", {"most": 4}, {}, "a/b", others=pairs)


def test_a_picture_has_one_more_variant_where_there_is_another_machine(monkeypatch):
    alone, both = drawn(monkeypatch, []), drawn(monkeypatch, [{"most": 40}])
    assert list(alone["sizes"]) == ["wide", "narrow"]
    assert list(both["sizes"]) == ["wide", "narrow", "shared"]
    assert both["wide"] == alone["wide"]
    assert both["tables"] == alone["tables"]
    assert both["shared"] != both["narrow"]
    assert ">40<" in both["shared"]
    assert ">40<" not in both["narrow"]


def test_only_gpu_machines_share_axes(small_book, template):
    small_book.snippet("a/number", "def plot(r, c): ...\n\n\ndef main(): ...\n", "gpus = [0, 1, 2]")
    for gpus in (0, 1, 2):
        small_book.commit("a/number", template, {"n": 3}, gpus)
    book = small_book.book("never")
    runs = book.recordings("a/number")
    assert list(runs) == ["cpu", "h200", "h200-x2"]
    pictures = Pictures(book)
    others = {
        profile: [other.profile for other in pictures.others("a/number", runs[profile])] for profile in runs
    }
    assert others == {"cpu": [], "h200": ["h200-x2"], "h200-x2": ["h200"]}
