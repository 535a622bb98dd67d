"""Pictures on the same axes: of twins, and of two machines that a reader compares.

Twins, a broken and a fixed snippet on one machine, stand beside each other, so each has room for both. Two
machines are compared by one more file of each picture, whose axes reach as far as those of any GPU machine:
so any two can be compared, and no pair needs a file of its own. It is as wide as a narrow picture, and loaded
when a reader compares.

Pictures with other panels, scales or labels keep axes of their own; the page says so. So does the CPU's:
where both ran, it is so much slower that nothing could be seen of the GPUs. An axis of names, such as lanes
have, is left as it is.
"""

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from overlap.site.series import words


def kinds(figure: Figure) -> list[tuple[str, ...]]:
    """Scales and labels of each panel. Pictures that have the same can be on the same axes."""
    return [(*_kind(axes.xaxis), *_kind(axes.yaxis)) for axes in figure.axes]


def share(figure: Figure, others: list[Figure]) -> None:
    """Let each axis of a figure reach as far as the same axis of the others does; twins may have fewer."""
    for i, axes in enumerate(figure.axes):
        beside = [other.axes[i] for other in others if i < len(other.axes)]
        _widen(axes.xaxis, [other.xaxis for other in beside])
        _widen(axes.yaxis, [other.yaxis for other in beside])
        _recolor(axes, beside)


def _kind(axis: Axis) -> tuple[str, str]:
    return axis.get_scale(), axis.get_label_text()


def _widen(axis: Axis, others: list[Axis]) -> None:
    same = [axis, *(other for other in others if _kind(other) == _kind(axis))]
    if any(words(one) for one in same):
        return
    limits = [limit for one in same for limit in one.get_view_interval()]
    first, last = axis.get_view_interval()
    if first <= last:
        axis.set_view_interval(min(limits), max(limits), ignore=True)
    else:
        axis.set_view_interval(max(limits), min(limits), ignore=True)


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
