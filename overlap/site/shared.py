"""Pictures of twins, a broken and a fixed snippet on one machine: the axes of each have room for both.

An axis with another scale or label is left as it is, and so is one of names, such as lanes have.
"""

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from overlap.site.series import words


def share(figure: Figure, twin: Figure) -> None:
    """Let each axis of a figure reach as far as the same axis of its twin does; the twin may have fewer."""
    for axes, other in zip(figure.axes, twin.axes, strict=False):
        _widen(axes.xaxis, other.xaxis)
        _widen(axes.yaxis, other.yaxis)
        _recolor(axes, other)


def _kind(axis: Axis) -> tuple[str, str]:
    return axis.get_scale(), axis.get_label_text()


def _widen(axis: Axis, other: Axis) -> None:
    if _kind(other) != _kind(axis) or words(axis) or words(other):
        return
    limits = [*axis.get_view_interval(), *other.get_view_interval()]
    first, last = axis.get_view_interval()
    if first <= last:
        axis.set_view_interval(min(limits), max(limits), ignore=True)
    else:
        axis.set_view_interval(max(limits), min(limits), ignore=True)


def _recolor(axes: Axes, other: Axes) -> None:
    """Equal numbers have equal colours, too."""
    limits = [limit for mesh in (*_meshes(axes), *_meshes(other)) for limit in mesh.get_clim()]
    for mesh in _meshes(axes):
        mesh.set_clim(min(limits), max(limits))


def _meshes(axes: Axes) -> list[QuadMesh]:
    return [drawn for drawn in axes.collections if isinstance(drawn, QuadMesh)]
