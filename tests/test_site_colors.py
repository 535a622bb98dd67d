"""Colours stand in one table, and everywhere else by their names."""

import re
from pathlib import Path

import pytest

from overlap.site import draw
from overlap.site.colors import COLORS, LIGHT, stylesheet

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "overlap/site/colors.py"
DIAGRAMS = sorted((ROOT / "docs/assets/diagrams").rglob("*.svg"))
TYPED = re.compile(
    r"(?<![&\w])#(?:[0-9a-f]{3,4}){1,2}\b|\b(?:rgb|hsl)a?\(|: *(?:black|white|gr[ae]y)\b", re.I
)
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
def test_a_diagram_by_itself_has_the_light_colours(path):
    text = path.read_text(encoding="utf-8")
    colors = re.findall(r"var\((--ov-[\w-]+), *([^)]+)\)", text)
    assert colors and all(LIGHT[name] == color for name, color in colors)
    assert not TYPED.search(re.sub(r"var\(--ov-[^)]+\)", "", text))


def test_the_dark_colours_are_for_screens_alone():
    light, dark = stylesheet().split("@media screen{")
    assert "--ov-ink:#1f2328" in light and "--md-default-fg-color:var(--ov-ink)" in light
    assert '[data-md-color-scheme="slate"]{' in dark and "--ov-ink:#e3e7eb" in dark and "--md-" not in dark
