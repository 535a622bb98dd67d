"""Two machines on the same axes: a picture once more, with limits that hold for all machines.

A reader who compares two machines sees their pictures beside each other. For that each picture has one more
file, whose axes reach as far as those of any GPU machine: so any two machines can be compared, and no pair
needs a file of its own. It is as wide as a narrow picture, and loaded when a reader compares.

Pictures with other panels, scales or labels are not alike, and keep axes of their own; the page says so. So
does the CPU's: where both ran, it is so much slower that nothing could be seen of the GPUs. An axis of names,
such as lanes have, is left as it is.
"""

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from overlap.site.series import words


def alike(figure: Figure, others: list[Figure]) -> list[Figure]:
    """Those of the others that have the panels, scales and labels of this one, as their authors drew them."""
    return [other for other in others if _scales(other) == _scales(figure)]


def share(figure: Figure, others: list[Figure]) -> None:
    """Let each axis of a figure reach as far as the same axis of the others does."""
    for i, axes in enumerate(figure.axes):
        _widen(axes.xaxis, [other.axes[i].xaxis for other in others])
        _widen(axes.yaxis, [other.axes[i].yaxis for other in others])
        _recolor(axes, [other.axes[i] for other in others])


def _scales(figure: Figure) -> list[tuple[str, ...]]:
    scales = []
    for axes in figure.axes:
        scales.append((axes.get_xscale(), axes.get_xlabel(), axes.get_yscale(), axes.get_ylabel()))
    return scales


def _widen(axis: Axis, others: list[Axis]) -> None:
    if any(words(one) for one in [axis, *others]):
        return
    limits = [limit for one in [axis, *others] for limit in one.get_view_interval()]
    first, last = axis.get_view_interval()
    low, high = min(limits), max(limits)
    axis.set_view_interval(*((low, high) if first <= last else (high, low)), ignore=True)


def _recolor(axes: Axes, others: list[Axes]) -> None:
    """Equal numbers have equal colours, too."""
    limits = []
    for one in [axes, *others]:
        for mesh in _meshes(one):
            limits += mesh.get_clim()
    for mesh in _meshes(axes):
        mesh.set_clim(min(limits), max(limits))


def _meshes(axes: Axes) -> list[QuadMesh]:
    return [drawn for drawn in axes.collections if isinstance(drawn, QuadMesh)]
