"""Colours stand in one table, and everywhere else by their names."""

import colorsys
import json
import re
from pathlib import Path

import pytest

from overlap.site import draw, svg
from overlap.site.colors import COLORS, DARK, LANES, LIGHT, stylesheet
from snippets.clinic import six_faults

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "overlap/site/colors.py"
STYLE = ROOT / "docs/assets/overlap.css"
DIAGRAMS = sorted((ROOT / "docs/assets/diagrams").rglob("*.svg"))
TYPED = re.compile(
    r"(?<![&\w])#(?:[0-9a-f]{3,4}){1,2}\b|\b(?:rgb|hsl)a?\(|: *(?:black|white|gr[ae]y)\b", re.I
)
HUES = re.compile(
    r"\b(?:red|orange|ochre|yellow|brown|green|teal|blue|purple|violet|pink)\b(?! contexts?\b)"
    r"|[红橙黄赭棕褐绿青蓝紫粉]色"
)
CHINESE = {"黄色": "yellow", "绿色": "green", "粉色": "pink", "蓝色": "blue"}
#: The hue, in degrees, of what a word calls a colour; what a sentence speaks of that names a lane's colour.
CALLED = {"yellow": (30, 50), "green": (120, 175), "pink": (300, 345), "blue": (190, 225)}
MEANT = {
    "python": "Python",
    "data": "data|batch|cop(?:y|ies)|数据|拷贝",
    "peer": "another GPU|all-reduces?|gradients|全归约|梯度",
    "gpu": "kernels|the GPU computes|GPU that works|核函数",
}
USED = re.compile(r"--ov-[a-z-]*(?:[a-z]|-\d)\b(?!-)")


def sources() -> list[Path]:
    """All that says how the site looks."""
    files = [*ROOT.glob("docs/assets/*.css"), *ROOT.glob("docs/assets/*.js"), ROOT / "snippets/pictures.py"]
    for suffix in ("py", "html"):
        files += ROOT.glob(f"overlap/**/*.{suffix}")
    return sorted(set(files) - {TABLE})


def test_no_colour_is_typed_outside_the_table():
    typed = []
    for path in sources():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            typed += [f"{path.relative_to(ROOT)}:{number}: {found}" for found in TYPED.findall(line)]
    assert not typed


def test_names_that_are_used_and_names_of_the_table_are_the_same():
    text = "".join(path.read_text(encoding="utf-8") for path in [*sources(), *DIAGRAMS])
    used = set(USED.findall(text)) | set(re.findall(r"var\((--ov-[\w-]+)", stylesheet()))
    used |= {f"--ov-series-{number}" for number in range(1, draw.COLORS + 1)}
    assert used == set(COLORS)


@pytest.mark.parametrize("path", DIAGRAMS, ids=lambda path: path.stem)
def test_a_diagram_names_colours_and_by_itself_has_the_light_ones(path):
    text = path.read_text(encoding="utf-8")
    names = re.findall(r"var\((--ov-[\w-]+)\)", text)
    assert names and set(names) <= set(COLORS) and not TYPED.search(text)
    alone = svg.by_itself(text)
    assert "var(" not in alone and all(alone.count(LIGHT[name]) >= names.count(name) for name in names)


def test_what_shows_lanes_calls_them_by_what_they_are():
    """Not by a colour's number: another one in the table is another one everywhere."""
    waits = [line for line in STYLE.read_text(encoding="utf-8").splitlines() if ".ov-waits li" in line]
    drawn = [path.read_text(encoding="utf-8") for path in DIAGRAMS]
    drawn = [text for text in drawn if "--ov-lane-" in text]
    assert len(drawn) >= 9 and len(waits) >= 4
    numbers = "|".join(str(number) for number, _ in LANES.values())
    assert not [text for text in [*drawn, *waits] if re.search(rf"--ov-series-(?:{numbers})\b", text)]


def test_the_lanes_of_the_clinics_step_follow_the_table(monkeypatch):
    recording = json.loads((ROOT / "docs/recordings/h200-x2/clinic/six_faults.json").read_text())
    picture, parts = six_faults.plot(recording["result"], {})
    drawings = [picture, *(other for name, other in parts.items() if name != "steps")]
    before = "".join(draw.placed(each, 504).svg for each in drawings)
    assert {int(number) for number in re.findall(r"--ov-series-(\d)", before)} == {1, 3, 4, 5, 6}
    for lane in LANES:
        monkeypatch.setitem(LANES, lane, (2, ""))
    after = "".join(draw.placed(each, 504).svg for each in drawings)
    assert {int(number) for number in re.findall(r"--ov-series-(\d)", after)} == {2, 6}


def test_sentences_call_no_lane_by_another_colour():
    """A sentence that names a colour speaks of the lane that has it, so no two lanes can change theirs."""
    lanes = {word: lane for lane, (_, word) in LANES.items()}
    other, seen = [], set()
    for path in sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/zh/*.md")]):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            line = re.sub("green.context|绿色上下文", "", line, flags=re.I)  # what CUDA calls them
            for word in set(HUES.findall(line)):
                lane = lanes.get(CHINESE.get(word, word))
                seen.add(lane)
                if not lane or not re.search(MEANT[lane], line):
                    what = f"and names nothing of the lane {lane!r}" if lane else "which is no lane's colour"
                    other.append(f"{path.relative_to(ROOT)}:{number}: says {word}, {what}")
    assert not other
    assert seen == set(LANES)


def test_the_word_for_a_lanes_colour_is_one_for_its_hue():
    for number, word in LANES.values():
        for color in COLORS[f"--ov-series-{number}"]:
            red, green, blue = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
            low, high = CALLED[word]
            assert low <= 360 * colorsys.rgb_to_hsv(red, green, blue)[0] <= high, (word, color)


def _luminance(rgb: list[float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


@pytest.mark.parametrize("behind", ["--ov-paper", "--ov-pale"])
@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_what_is_pale_stands_out_from_the_page(colors, behind):
    names = [*(f"--ov-series-{number}" for number in range(1, draw.COLORS + 1)), "--ov-ceiling"]
    rgb = {
        name: [int(colors[name][place : place + 2], 16) / 255 for place in (1, 3, 5)]
        for name in (*names, "--ov-paper", "--ov-pale")
    }
    paper = _luminance(rgb["--ov-paper"])
    for name in names:
        fill = draw._fill(f"var({name})", True, f"var({behind})")
        share = int(re.search(r"(\d+)%", fill)[1]) / 100
        pale = _luminance(
            [share * own + (1 - share) * other for own, other in zip(rgb[name], rgb[behind], strict=True)]
        )
        dark, bright = sorted((paper, pale))
        assert (bright + 0.05) / (dark + 0.05) >= 1.3, name


def test_the_dark_colours_are_for_screens_alone():
    light, dark = stylesheet().split("@media screen{")
    assert "--ov-ink:#1f2328" in light and "--md-default-fg-color:var(--ov-ink)" in light
    assert '[data-md-color-scheme="slate"]{' in dark and "--ov-ink:#e3e7eb" in dark and "--md-" not in dark


def test_no_drawing_has_an_href_of_svg():
    """The theme sets `href` of all that has one; in SVG that is an error, and the search stops."""
    assert [path.name for path in DIAGRAMS if re.search(r"<use[^>]*\shref=", path.read_text())] == []


def test_each_colour_that_the_first_page_names_stands_before_its_word():
    page = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r'<span class="ov-lane ov-lane-(\w+)">(?:dark )?(\w+)</span>', page))
    assert shown == {lane: word for lane, (_, word) in LANES.items()} | {"wait": "striped"}
    rules = STYLE.read_text(encoding="utf-8")
    for lane in LANES:  # a GPU's is the one that the others replace
        of = ".ov-lane" if lane == "gpu" else f".ov-lane-{lane}"
        assert f"{of} {{ --own: var(--ov-lane-{lane});" in rules
