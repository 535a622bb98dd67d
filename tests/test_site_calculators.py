"""Calculators in a browser: they compute what the book computes, and say what is wrong with a number."""

import itertools
import json
import random
import re

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("playwright.sync_api")

from conftest import committed
from test_site_browser import address, paths, pytestmark, site, visit  # noqa: F401 - used by name

from overlap.blocks.calculator import Calculator, Input
from overlap.book.expression import ARITHMETIC, COMPARISONS, as_json, evaluate
from overlap.book.statistic import show

#: What a form says of a text in its first field.
TYPED = """(form, text) => {
  const input = form.querySelector("[type=number]")
  input.value = text
  input.dispatchEvent(new Event("input", { bubbles: true }))
  const told = input.closest(".ov-input").querySelector(".ov-amiss").innerText
  return [told, form.querySelector(".ov-result").innerText]
}"""
#: What a form shows with each of these sets of numbers.
RESULTS = """(form, rows) => rows.map(numbers => {
  for (const [name, number] of Object.entries(numbers)) form.elements[name].value = number
  form.dispatchEvent(new Event("input"))
  return form.querySelector("output").textContent
})"""


def calculators() -> list[Calculator]:
    return committed().of_kind(Calculator)


def drawn(item: Input, is_whole: bool) -> float:
    """One of the numbers that a field takes; the bounds, too."""
    number = random.choice([*item.stops(), item.low, item.high])
    return round(number) if is_whole else number


def read(text: str) -> float:
    """`1,000` and `1e+03` are one number."""
    return float(text.replace(",", ""))


def form_of(visit, block: Calculator, **options):  # noqa: F811
    page = visit(block.page.replace("index.md", "").replace(".md", "/"), **options)
    return page.locator(f".ov-calculator[data-key='{block.key}']").element_handle()


def test_a_page_computes_what_the_book_does(visit):  # noqa: F811
    random.seed(0)
    book = committed().book
    for block in calculators():
        start = next(iter(block.starts(book).values()))
        rows = []
        for _ in range(50):
            rows.append({item.name: drawn(item, item.step(start[item.name]) == 1) for item in block.inputs})
        form = form_of(visit, block, rows=False)
        texts = form.evaluate(RESULTS, rows)
        for numbers, text in zip(rows, texts, strict=True):
            result = block.result(numbers)
            either = {
                show(result),
                show(result * (1 + 1e-12)),
            }  # a half: up, or to even
            assert read(text) in map(read, either), (block.label, numbers)
        form.owner_frame().page.close()


#: Of each operation of a formula what Python and JavaScript give differently, if nothing is done about it.
OPERATIONS = """
1 + 2 * 3 - 10 / 4; 2 ** 0.5; -2 ** 2; -7 // 2; 7 // -2; -7 % 3; 7 % -3; 7.5 % 2; abs(-3); abs(2 - 5.5)
max(3, 10, 2); min(-3, 10, -20); round(0.5); round(1.5); round(2.5); round(-2.5); round(-1.5); round(-1.4)
round(2.4999); 5 if 2 > 1 else 6; 5 if 1 >= 1 else 6; 5 if 1 < 1 else 6; 5 if 2 <= 1 else 6
5 if 1 == 1.0 else 6; 5 if 0.1 + 0.2 == 0.3 else 6; 5 if 1 != 1.0 else 6; 5 if 0 else 6
3 - (1 if 2 - 2 else 9)
"""


def test_each_operation_gives_the_same_in_python_and_on_a_page(crossover):
    formulas = [formula.strip() for formula in OPERATIONS.replace("\n", ";").split(";") if formula.strip()]
    used = set(re.findall(r'\["([^"]+)"', json.dumps(list(map(as_json, formulas)))))
    assert used == {*ARITHMETIC.values(), *COMPARISONS.values(), "if", "abs", "max", "min", "round"}
    for formula in formulas:
        crossover.evaluate("(form, terms) => { form.dataset.formula = terms }", json.dumps(as_json(formula)))
        (text,) = crossover.evaluate(RESULTS, [{}])
        assert read(text) == read(show(evaluate(formula, {}))), formula


@pytest.fixture
def crossover(visit):  # noqa: F811
    """A calculator whose first field is a whole number of kernels, and the second µs."""
    (block,) = (block for block in calculators() if block.label.startswith("ms a step"))
    return form_of(visit, block)


def test_what_is_wrong_is_said_and_the_last_result_stays(crossover):
    before = crossover.evaluate("form => form.querySelector('output').innerText")
    for text, why in {
        "": "This field is empty.",
        "-5": "-5 is too small.",
        "0": "0 is too small.",
        "2.5": "2.5 is not a whole number.",
        "100001": "100001 is too large.",
    }.items():
        told, result = crossover.evaluate(TYPED, text)
        assert told == f"{why} Enter a whole number from 1 to 100,000."
        assert result.startswith(before) and result.endswith("(for the last numbers that were allowed)")
    told, result = crossover.evaluate(TYPED, "100000")
    assert told == "" and "last" not in result and not result.startswith(before)


def test_what_is_no_number_is_said_as_it_is_typed(crossover):
    field = crossover.query_selector("[type=number] >> nth=1")
    field.fill("")
    field.type("--")
    told = crossover.query_selector(".ov-amiss >> nth=1").inner_text()
    assert told == "This is not a number. Enter a number from 0.5 to 1,000."
    assert field.get_attribute("aria-invalid") == "true"
    field.fill("2000")
    told = crossover.query_selector(".ov-amiss >> nth=1").inner_text()
    assert told.startswith("2000 µs is too large.")


def test_each_field_has_a_name_a_unit_and_a_slider_that_moves_it(crossover):
    field, slider = (crossover.query_selector(f"[type={kind}] >> nth=1") for kind in ("number", "range"))
    assert crossover.evaluate("form => form.elements.kernel.labels[0].innerText") == "one kernel (kernel)"
    assert crossover.query_selector(".ov-unit >> nth=1").inner_text() == "µs"
    (block,) = (block for block in calculators() if block.label.startswith("ms a step"))
    stops = block.inputs[1].stops()
    slider.focus()
    slider.press("End")
    assert float(field.input_value()) == stops[-1] == 1000
    slider.press("ArrowLeft")
    assert float(field.input_value()) == stops[-2]
    points = crossover.query_selector("polyline").get_attribute("points").split()
    dot = crossover.query_selector(".ov-dot")
    assert f"{dot.get_attribute('cx')},{dot.get_attribute('cy')}" == points[-2]


#: The numbers of a curve's upright axis and their heights, what it says of its point, and its words.
DRAWN = """form => {
  const rows = [...form.querySelectorAll(".ov-ticks text[x='45']")]
  return {
    ticks: rows.map(row => [row.textContent, Number(row.getAttribute("y"))]),
    here: form.querySelector(".ov-yours").textContent,
    axes: [...form.querySelectorAll(".ov-axis")].map(text => text.textContent),
    limit: form.querySelector(".ov-limit")?.innerText ?? "",
  }
}"""


@pytest.fixture
def loader(visit):  # noqa: F811
    """How many cores the images of a second need."""
    (block,) = (block for block in calculators() if block.page == "loader.md")
    return form_of(visit, block)


def test_a_curve_has_axes_and_says_where_the_reader_is(loader):
    loader.evaluate(RESULTS, [{"rate": 2000, "image": 10, "have": 16, "share": 100}])
    drawn = loader.evaluate(DRAWN)
    assert drawn["here"] == "20"
    assert drawn["axes"] == ["cores needed (upper bound)", "images that your GPUs train on, a second"]
    texts, heights = zip(*drawn["ticks"], strict=True)
    numbers = [read(text) for text in texts]
    assert len(numbers) >= 3 and len({round(b / a, 6) for a, b in itertools.pairwise(numbers)}) == 1
    gaps = [a - b for a, b in itertools.pairwise(heights)]
    assert max(gaps) - min(gaps) < 0.3 and min(gaps) > 10, "equal factors are equally high"


def test_a_curve_says_where_it_meets_the_limit(loader):
    loader.evaluate(RESULTS, [{"rate": 2000, "image": 10, "have": 16, "share": 100}])
    said = loader.evaluate(DRAWN)["limit"]
    assert said == "Dashed line: the cores that you have, 16. The curve reaches it at rate = 1,600 a second."
    loader.evaluate(RESULTS, [{"rate": 2000, "image": 0.1, "have": 16}])
    assert loader.evaluate(DRAWN)["limit"].endswith("The curve does not reach it.")
    loader.evaluate(RESULTS, [{"rate": 2000, "image": 200, "have": 1}])
    assert loader.evaluate(DRAWN)["limit"].endswith("The whole curve is above it.")


#: Words of a form's curve that are not within the form, and marks without a place.
ASTRAY = """form => {
  const box = form.getBoundingClientRect(), svg = form.querySelector("svg")
  const shown = text => text.textContent && text.getClientRects().length
  const words = [...svg.querySelectorAll("text")].filter(shown)
  const outside = words.filter(text => {
    const { left, right, top, bottom } = text.getBoundingClientRect()
    return left < box.left || right > box.right || top < box.top || bottom > box.bottom
  })
  const marks = [...svg.querySelectorAll("[points], [d], [cy]")].map(mark => mark.outerHTML)
  return [...outside.map(text => text.textContent), ...marks.filter(mark => /NaN|Infinity/.test(mark))]
}"""


def test_a_curves_words_stay_within_their_form_at_every_bound(visit):  # noqa: F811
    for block in calculators():
        start = next(iter(block.starts(committed().book).values()))
        form = form_of(visit, block, width=390)
        bounds = [{item.name: bound} for item in block.inputs for bound in (item.low, item.high)]
        for numbers in [{}, *bounds]:
            form.evaluate(RESULTS, [start | numbers])
            assert form.evaluate(ASTRAY) == [], (block.label, numbers)
        form.owner_frame().page.close()


def test_a_verdict_is_of_the_numbers_typed_in_and_says_what_is_wrong_with_one(loader):
    verdict = "form => form.querySelector('.ov-verdict').textContent"
    loader.evaluate(RESULTS, [{"rate": 2000, "image": 4, "have": 4, "share": 80}])
    assert loader.evaluate(verdict).startswith("The loader is the limit: your cores load about 800 images")
    loader.evaluate(RESULTS, [{"have": 16}])
    assert "begin with num_workers=8." in loader.evaluate(verdict)
    loader.evaluate(RESULTS, [{"have": 0}])
    assert (
        loader.evaluate(verdict) == "No verdict: have: 0 is too small. Enter a whole number from 1 to 1,000."
    )


def test_a_choice_is_a_number_of_the_formula(visit):  # noqa: F811
    fsdp, block = sorted(
        (block for block in calculators() if any(item.choices for item in block.inputs)),
        key=lambda block: len(block.says),
    )
    form = form_of(visit, block)
    assert "Not confirmed" not in form.query_selector(".ov-verdict").text_content()
    form.query_selector("select").select_option("bf16 weights and moments")
    start = next(iter(block.starts(committed().book).values())) | {"format": 2}
    assert form.evaluate("form => form.elements.format.value") == "2"
    assert read(form.query_selector("output").text_content()) == read(show(block.result(start)))
    assert "Not confirmed by a run here" in form.query_selector(".ov-verdict").text_content()
    form, start = form_of(visit, fsdp), next(iter(fsdp.starts(committed().book).values()))
    plain = read(form.query_selector("output").text_content())
    assert start["twice"] == 0 and plain == read(show(fsdp.result(start))), "it begins without checkpointing"
    form.query_selector("select").select_option("on")
    twice = read(form.query_selector("output").text_content())
    assert twice == read(show(fsdp.result(start | {"twice": 1}))) < plain


@pytest.mark.parametrize("width", [1440, 390])
def test_the_result_is_in_view_with_the_first_field_and_the_last(visit, width):  # noqa: F811
    block = max(calculators(), key=lambda each: len(each.inputs))
    form = form_of(visit, block, width=width)
    form.owner_frame().page.set_viewport_size({"width": width, "height": 520})  # as with a keyboard on it
    shows = """([form, at]) => {
        const fields = form.querySelectorAll(".ov-input"), field = fields[at ? fields.length - 1 : 0]
        field.scrollIntoView({ behavior: "instant", block: at ? "end" : "start" })
        scrollBy({ top: at ? 120 : -120, behavior: "instant" })
        const result = form.querySelector("output").getBoundingClientRect()
        const place = field.getBoundingClientRect()
        const bar = document.querySelector(".md-header").getBoundingClientRect().bottom
        return [result, place].every(({ top, bottom }) => top >= bar && bottom <= innerHeight)
            && (result.left >= place.right || result.top >= place.bottom)
    }"""
    for at in (0, 1):
        assert form.evaluate(f"form => ({shows})([form, {at}])")
