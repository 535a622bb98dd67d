"""What matplotlib draws as an SVG of few elements, whose colours are the page's."""

import base64
import functools
import io
import math
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from matplotlib.backend_bases import FigureCanvasBase, RendererBase
from matplotlib.colors import to_hex
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.transforms import Bbox
from PIL import Image

from overlap.run.text import plain
from overlap.site.svg import themed

_ANCHORS = {"center": "middle", "right": "end"}
_HUNDRED = 100  # coordinates are counted in hundredths of a point


class Canvas(FigureCanvasBase):
    """Lets a figure be measured and drawn by one `Renderer`."""

    def __init__(self, figure):
        super().__init__(figure)
        self._renderer = Renderer()

    def get_renderer(self) -> "Renderer":
        """The renderer; matplotlib asks for it to measure texts."""
        self._renderer.height = self.figure.bbox.height
        return self._renderer

    def svg(self, marks: list[tuple[list[float], str]]) -> str:
        """The figure as it is now, under invisible boxes [x, y, width, height] that tell a text."""
        renderer = self.get_renderer()
        renderer.parts = []
        engine = self.figure.get_layout_engine()
        self.figure.set_layout_engine("none")  # all is in its place
        self.figure.draw(renderer)
        self.figure.set_layout_engine(engine)
        width, height = self.figure.bbox.width, self.figure.bbox.height
        style = "fill:var(--ov-ink);font-size:10px;stroke-linejoin:round;white-space:pre"
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" style="{style}">'
        )
        boxes = "".join(_mark(box, text) for box, text in marks)
        if boxes:
            boxes = f'<g style="fill:transparent">{boxes}</g>'
        return f"{opening}{renderer.written()}{boxes}</svg>"


class Renderer(RendererBase):
    """Writes paths, texts and images. One unit is a point, as figures of the book have 72 dots per inch."""

    def __init__(self):
        super().__init__()
        self.height = 0.0
        self.parts: list[tuple[str, str]] = []  # (style, path data), or (an element, "")

    def written(self) -> str:
        """All elements. Neighbouring paths that look alike are one, unless one is seen through the other."""
        elements, style, data = [], "", []
        for look, path in [*self.parts, ("", "")]:
            if path and look == style and "opacity" not in look:
                data.append(path)
                continue
            if data:
                elements.append(f'<path style="{style}" d="{"".join(data)}"/>')
            style, data = look, [path] if path else []
            if not path:
                elements.append(look)
        return "".join(elements)

    def get_canvas_width_height(self) -> tuple[float, float]:
        """The height is what turns y upside down."""
        return 0.0, self.height

    def get_text_width_height_descent(
        self, s: str, prop: FontProperties, ismath
    ) -> tuple[float, float, float]:
        """The size of a text, measured once."""
        return _measured(plain(s), prop.get_size_in_points(), prop.get_weight(), prop.get_style())

    def draw_path(self, gc, path: Path, transform, rgbFace=None) -> None:
        """A line, an area, or both."""
        style = _style(gc, rgbFace)
        if style:
            data = _data(_clipped(transform.transform_path(path), gc, rgbFace is not None), self.height)
            if data:
                self.parts.append((style, data))

    def draw_markers(self, gc, marker_path: Path, marker_trans, path: Path, trans, rgbFace=None) -> None:
        """Dots are lines without a length but with round ends; other markers are drawn at each place."""
        is_dot = Path.CURVE4 in (marker_path.codes if marker_path.codes is not None else ())
        if not is_dot or rgbFace is None:
            super().draw_markers(gc, marker_path, marker_trans, path, trans, rgbFace)
            return
        places = np.array([vertices[-2:] for vertices, _ in path.iter_segments(trans, simplify=False)])
        size = marker_trans.transform_path(marker_path).get_extents().width + gc.get_linewidth()
        frame = gc.get_clip_rectangle()
        if frame is not None and len(places):
            inside = (places >= frame.min - 1e-6) & (places <= frame.max + 1e-6)
            places = places[inside.all(axis=1)]
        data = "".join(f"M{x / _HUNDRED:g} {y / _HUNDRED:g}h0" for x, y in _counted(places, self.height))
        style = f"fill:none;stroke:{themed(to_hex(rgbFace))};stroke-width:{size:.4g};stroke-linecap:round"
        if len(rgbFace) == 4 and rgbFace[3] != 1:
            style += f";stroke-opacity:{rgbFace[3]:.3g}"
        if data:
            self.parts.append((style, data))

    def draw_image(self, gc, x: float, y: float, im, transform=None) -> None:
        """A table of colours, as a PNG."""
        file = io.BytesIO()
        Image.fromarray(im[::-1]).save(file, "png")
        data = base64.b64encode(file.getvalue()).decode()
        size = f'x="{x:g}" y="{self.height - y - im.shape[0]:g}" width="{im.shape[1]}" height="{im.shape[0]}"'
        self.parts.append((f'<image {size} href="data:image/png;base64,{data}"/>', ""))

    def draw_text(self, gc, x: float, y: float, s: str, prop, angle: float, ismath=False, mtext=None) -> None:
        """A line of text, held where the author held it: the page's letters have other widths than ours."""
        style = []
        if mtext is not None and (angle == 0 or mtext.get_rotation_mode() == "anchor"):
            left, top = mtext.get_transform().transform(mtext.get_unitless_position())
            top = self.height - top
            sin, cos = math.sin(math.radians(angle)), math.cos(math.radians(angle))
            below = sin * (x - left) + cos * (y - top)
            x, y = left + below * sin, top + below * cos
            anchor = _ANCHORS.get(mtext.get_horizontalalignment())
            if anchor:
                style.append(f"text-anchor:{anchor}")
        color = themed(to_hex(gc.get_rgb()))
        if color != "var(--ov-ink)":
            style.append(f"fill:{color}")
        if prop.get_size_in_points() != 10:
            style.append(f"font-size:{prop.get_size_in_points():g}px")
        if prop.get_weight() not in ("normal", "regular", 400):
            style.append(f"font-weight:{prop.get_weight()}")
        place = f'x="{x:.4g}" y="{y:.4g}"'
        if angle:
            place += f' transform="rotate({-angle:g} {x:.4g} {y:.4g})"'
        if style:
            place += f" style={quoteattr(';'.join(style))}"
        self.parts.append((f"<text {place}>{escape(plain(s))}</text>", ""))


def _mark(box: list[float], text: str) -> str:
    x, y, width, height = (f"{side:.1f}".removesuffix(".0") for side in box)
    place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return f'<rect class="ov-point" {place}><title>{escape(text)}</title></rect>'


@functools.lru_cache(20_000)
def _measured(text: str, size: float, weight, slant: str) -> tuple[float, float, float]:
    return RendererBase().get_text_width_height_descent(
        text, FontProperties(size=size, weight=weight, style=slant), False
    )


def _style(gc, face) -> str:
    """The look of a path; empty where nothing of it would be seen."""
    forced = gc.get_alpha() if gc.get_forced_alpha() else None
    style = ["fill:none"]
    if face is not None and (len(face) < 4 or face[3] > 0):
        style = [f"fill:{themed(to_hex(face[:3]))}"]
        opacity = forced if forced is not None else (face[3] if len(face) == 4 else 1)
        if opacity != 1:
            style.append(f"fill-opacity:{opacity:.3g}")
    *color, opacity = (*gc.get_rgb(), 1)[:4]
    width = gc.get_linewidth()
    if width > 0 and opacity > 0:
        style.append(f"stroke:{themed(to_hex(color))};stroke-width:{width:.4g}")
        opacity = forced if forced is not None else opacity
        if opacity != 1:
            style.append(f"stroke-opacity:{opacity:.3g}")
        if gc.get_capstyle() != "butt":
            style.append(f"stroke-linecap:{'square' if gc.get_capstyle() == 'projecting' else 'round'}")
        if gc.get_joinstyle() != "round":
            style.append(f"stroke-linejoin:{gc.get_joinstyle()}")
        offset, dashes = gc.get_dashes()
        if dashes is not None:
            style.append(f"stroke-dasharray:{','.join(f'{dash:.4g}' for dash in dashes)}")
            if offset:
                style.append(f"stroke-dashoffset:{offset:.4g}")
    elif style == ["fill:none"]:
        return ""
    return ";".join(style)


def _clipped(path: Path, gc, is_area: bool) -> Path:
    """What of a path in points lies in the frame of its axes; what has gaps has them still."""
    frame = gc.get_clip_rectangle()
    if frame is None or not len(path.vertices):
        return path
    with np.errstate(invalid="ignore"):
        inside = (path.vertices >= frame.min - 0.01) & (path.vertices <= frame.max + 0.01)
    if inside.all():
        return path
    if is_area:
        return path.clip_to_bbox(Bbox(frame.get_points()))
    return path.cleaned(clip=tuple(frame.extents), remove_nans=True)


def _counted(places, height: float) -> list[list[int]]:
    """Places in hundredths of a point from the top left."""
    places = np.asarray(places, float).reshape(-1, 2) * [1, -1] + [0, height]
    return np.rint(places * _HUNDRED).astype(int).tolist()


def _data(path: Path, height: float) -> str:
    """Path data: each part begins at its place and goes on by distances."""
    path = path.cleaned(remove_nans=True, simplify=path.should_simplify)
    finite = np.nan_to_num(np.clip(path.vertices, -1e5, 1e5))
    parts, x, y, curve = [], 0, 0, []
    for (left, top), code in zip(_counted(finite, height), path.codes, strict=True):
        if code == Path.MOVETO:
            parts.append(f"M{left / _HUNDRED:g} {top / _HUNDRED:g}")
        elif code == Path.LINETO and top == y:
            parts.append(f"h{(left - x) / _HUNDRED:g}")
        elif code == Path.LINETO and left == x:
            parts.append(f"v{(top - y) / _HUNDRED:g}")
        elif code == Path.LINETO:
            parts.append(f"l{(left - x) / _HUNDRED:g} {(top - y) / _HUNDRED:g}")
        elif code in (Path.CURVE3, Path.CURVE4):
            curve.append(f"{(left - x) / _HUNDRED:g} {(top - y) / _HUNDRED:g}")
            if len(curve) < code - 1:
                continue
            parts.append(("q" if code == Path.CURVE3 else "c") + " ".join(curve))
            curve = []
        elif code == Path.CLOSEPOLY:
            parts.append("z")
            continue
        else:
            break
        x, y = left, top
    return "".join(parts)
