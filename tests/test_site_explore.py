"""Timelines that can be explored: what they say of their data, by pointer and by keyboard."""

import gzip
import json
import random
import re
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")

from conftest import CHROMIUM, ROOT

from overlap.book.book import Book
from overlap.book.statistic import duration, show
from overlap.site.draw import NARROW, SMALL, WIDTHS, placed
from overlap.site.pictures import Pictures
from overlap.site.scales import log_ticks, round_step, round_ticks
from overlap.site.scales import number as axis_number
from overlap.site.timeline import explored
from overlap.site.trace import timelines as recorded_timelines
from snippets.pictures import Axis, Panel, Picture, Spans, timelines

pytestmark = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="chromium is not installed")
ASSETS = ROOT / "docs/assets"

#: The CPU launches twice; between the two kernels the GPU is idle for 60 µs: the CPU works on a batch.
EVENTS: list[list[Any]] = [
    ["CPU", 0.0, 10.0, "cudaLaunchKernel"],
    ["CPU", 30.0, 40.0, "decode"],
    ["CPU", 72.0, 8.0, "cudaLaunchKernel"],
    ["stream 7", 12.0, 8.0, "void at::native::vectorized_elementwise_kernel<4, at::native"],
    ["stream 7", 80.0, 20.0, "<b>add</b>"],
]
#: Where the lanes are drawn, at the width of the page of the tests.
FORM = explored(timelines({"slow": EVENTS}), {})[0]["forms"]["wide"]
PAGE = f"""<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="overlap.css">
<script>overlapNarrow = "{NARROW}", overlapSmall = {SMALL}</script>
<body data-md-color-scheme="default" class="md-typeset"><p id="place"></p></body>"""


def of_parts(parts: dict[str, dict[str, list]]) -> str:
    """A file of timelines: of each part of a picture the panels, by title."""
    return json.dumps({part: explored(timelines(panels), panels) for part, panels in parts.items()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The assets, a trace and a page."""
    root = tmp_path_factory.mktemp("explore")
    for name in ("timeline.js", "fault.js", "words.js", "overlap.css", "vendor"):
        (root / name).symlink_to(ASSETS / name)
    (root / "timelines.json").write_text(of_parts({"": {"slow": EVENTS, "quick": EVENTS[:1]}}))
    (root / "index.html").write_text(PAGE)
    return root


@pytest.fixture(scope="module")
def address(folder):
    """Where they are served."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser, address):
    """The page; an error of a script or a request to another host fails the test."""
    context = browser.new_context(viewport={"width": 900, "height": 700})
    page = context.new_page()
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: request.url.startswith(address) or wrong.append(request.url))
    page.goto(f"{address}/index.html")
    yield page
    context.close()
    assert wrong == []


def timeline(page):
    """Open the timeline and give its drawing."""
    page.evaluate("""async () => {
        const { explore } = await import("./timeline.js")
        await explore(document.getElementById("place"), "timelines.json")
    }""")
    return page.locator(".ov-timeline")


def at(drawing, time: float, lane: int) -> dict:
    """Where a time of the first 100 µs is drawn in a lane, in pixels of the page."""
    scale = drawing.bounding_box()["width"] / WIDTHS["wide"]
    x = FORM["left"] + time / 100 * (FORM["right"] - FORM["left"])
    return {"x": scale * x, "y": scale * FORM["rows"][lane]}


def bars(page):
    """What is drawn in lanes."""
    return page.locator(".ov-bars rect[style]")


def told(page) -> str:
    """The sentence below."""
    return page.locator(".ov-explore .ov-told").inner_text()


@pytest.mark.parametrize(
    ("width", "room", "form"),
    [
        (900, 900, "wide"),
        (390, 390, "narrow"),
        (900, 300, "narrow"),
        (900, SMALL - 1, "narrow"),
        (900, SMALL, "wide"),
    ],
)
def test_a_timeline_begins_as_its_picture(page, width, room, form):
    """The same words at the axis and the lanes, which have the same colours, also beside another one."""
    page.set_viewport_size({"width": width, "height": 700})
    page.add_style_tag(content=f"body {{ max-width: {room}px }}")
    drawing = timeline(page)
    svg = placed(timelines({"": EVENTS}), WIDTHS[form]).svg
    words = drawing.locator(":scope > text, .ov-ticks text").all_text_contents()
    assert sorted(words) == sorted(re.findall(r"<text[^>]*>(.*?)</text>", svg))
    filled = [bar.get_attribute("style").split(";")[0].replace(" ", "") for bar in bars(page).all()]
    assert set(filled) == set(re.findall(r'<path d="[^"]*" style="(.*?)"', svg))
    high = set(bars(page).evaluate_all("bars => bars.map(bar => bar.getAttribute('height'))"))
    assert high == set(re.findall(r'<path d="M[^"]*?v(\d+)h', svg))


def test_a_part_of_an_event_is_drawn_on_it_and_what_ran_nowhere_below(page, folder):
    """Neither has a name. The part says something about the event, as that it was exposed."""
    picture = timelines({"slow": EVENTS})
    marks = picture.panels[0].marks
    kernels = next(mark for mark in marks if isinstance(mark, Spans) and mark.row == "stream 7")
    marks.append(Spans(kernels.row, [(90.0, 10.0), (15.0, 70.0)], "exposed", color="peer"))
    (folder / "parts.json").write_text(json.dumps({"": explored(picture, {})}))
    page.evaluate("""async () => {
        const { explore } = await import("./timeline.js")
        await explore(document.getElementById("place"), "parts.json")
    }""")
    drawn = (
        page.locator(".ov-bars g")
        .nth(1)
        .locator("rect[style]")
        .evaluate_all("bars => bars.map(bar => [bar.style.fill, bar.getAttribute('width')])")
    )
    assert [fill == drawn[0][0] for fill, _ in drawn] == [True, False, False, True]
    assert float(drawn[0][1]) > float(drawn[2][1]) > float(drawn[3][1])


def test_numbers_durations_and_ticks_read_as_in_the_book(page):
    """Of lengths and numbers of all sizes, among them those that a digit more would make the next one."""
    random.seed(0)
    edges = [
        1,
        2,
        5,
        10,
        12.25,
        12.35,
        12.45,
        99.95,
        999.4,
        999.5,
        999.6,
        1000,
        1000.5,
        1001.5,
        1234.5,
        0.0125,
        2.5,
    ]
    numbers = [edge * 10.0**power for edge in edges for power in (-2, -1, 0, 1, 2)]
    numbers += [random.uniform(1, 10) * 10 ** random.uniform(-3, 8) for _ in range(2000)]
    read = page.evaluate(
        """async numbers => {
            const { duration } = await import("./timeline.js")
            const { shown, roundStep, tickText } = window.overlapWords
            return [shown, duration, roundStep, tickText].map(of => numbers.map(of))
        }""",
        numbers,
    )
    assert read[0] == [show(number) for number in numbers]
    for number, text in zip(numbers, read[1], strict=True):  # seconds there: a half may become less
        assert text in {duration(number * 1e-6 * about) for about in (1 - 1e-12, 1, 1 + 1e-12)}
    assert read[2] == pytest.approx([round_step(number) for number in numbers])
    assert read[3] == [axis_number(number) for number in numbers]
    small = [random.uniform(1, 10) * 10.0**power for power in range(-12, -4) for _ in range(20)] + [2e-5, 0]
    assert page.evaluate("numbers => numbers.map(window.overlapWords.tickText)", small) == [
        axis_number(number) for number in small
    ]


def test_scripts_and_pictures_name_the_same_numbers_of_an_axis(page):
    timeline(page)
    drawn = random.Random(11)
    lows = [10.0 ** drawn.uniform(-4, 5) for _ in range(500)]
    ends = [(low, low * 10 ** drawn.uniform(0.05, 9), drawn.randint(2, 8)) for low in lows]
    read = page.evaluate(
        """ends => {
            const { roundTicks, logTicks } = window.overlapWords
            return [roundTicks, logTicks].map(of => ends.map(end => of(...end)))
        }""",
        ends,
    )
    for rule, found in zip((round_ticks, log_ticks), read, strict=True):
        for end, ticks in zip(ends, found, strict=True):
            assert ticks == pytest.approx(rule(*end)), (rule.__name__, end)


def test_a_zoomed_timeline_has_more_ticks_in_the_same_unit(page):
    drawing = timeline(page)
    looks = """ticks => {
        const looks = [...ticks.children].map(({ tagName, style }) => tagName + style.cssText)
        return [...new Set(looks)].sort()
    }"""
    ticks = drawing.locator(".ov-ticks")
    first = ticks.inner_html(), ticks.evaluate(looks)
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function("document.querySelector('.ov-timeline g[transform*=scale]')")
    page.wait_for_function("document.querySelector('.ov-ticks text').textContent === '30'")
    assert drawing.locator(".ov-ticks text").all_text_contents() == ["30", "40", "50", "60", "70"]
    assert ticks.evaluate(looks) == first[1], "copies of what was there"
    page.get_by_role("button", name="Reset").click()
    page.wait_for_function("document.querySelector('.ov-ticks text').textContent === '0'")
    assert ticks.inner_html() == first[0]


def test_a_gap_says_how_long_it_is_and_what_the_cpu_did(page):
    drawing = timeline(page)
    drawing.click(position=at(drawing, 50, 1))
    said = "stream 7 is empty from 20 to 80 µs, for 60 µs: the GPU is idle; the CPU meanwhile: decode 40 µs, "
    said += "cudaLaunchKernel 8 µs; the rest, 12 µs, "
    assert told(page) == said + "is in no recorded call: Python, PyTorch or the loader."


def test_a_gap_names_the_lane_that_is_empty_before_those_that_work(page):
    """In both languages; a stretch that somebody measured is no lane's."""
    events = [*EVENTS, ["stream 8", 20.0, 15.0, "add"]]
    said = page.evaluate(
        """async timeline => {
            const { describe, read } = await import("./timeline.js")
            const { lanes } = read(timeline), lane = lanes.find(({ name }) => name === "stream 7")
            const told = [describe(lanes, 20, 80, lane), describe(lanes, 20, 80)]
            document.documentElement.lang = "zh"
            return [...told, describe(lanes, 2500, 5800, lane)]
        }""",
        explored(timelines({"": events}), {})[0],
    )
    assert said[0].startswith("stream 7 is empty from 20 to 80 µs, for 60 µs: stream 8 is busy for 25%; ")
    assert said[1].startswith("60 µs: stream 8 is busy for 25%; ")
    assert said[2].startswith("stream 7 从 2.5 到 5.8 ms 是空的，共 3.3 ms：GPU 空闲；")


def test_a_button_marks_the_longest_gap(page):
    timeline(page)
    page.get_by_role("button", name="Longest gap").click()
    assert told(page).startswith("60 µs: the GPU is idle")
    page.get_by_label("Timeline", exact=True).select_option("quick")
    assert not page.get_by_role("button", name="Longest gap").is_visible(), "it has none"


def test_a_bar_says_its_name_as_text(page):
    drawing = timeline(page)
    drawing.click(position=at(drawing, 90, 1))
    assert told(page).startswith("stream 7: <b>add</b>, 20 µs, from 80 µs on.")


#: Names as they are recorded, and as they read.
NAMES = {
    "void at::native::vectorized_elementwise_kernel<4, at::native": "elementwise",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy_": "cat",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_ali": "matmul",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nch": "convolution",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsSto": "NCCL all-reduce",
    "triton_poi_fused_addmm_relu_0": "fused: addmm relu",
    "Memcpy HtoD (Pinned -> Device)": "copy to the GPU",
    "void at::native::bitonicSort<int>(int*)": "bitonicSort",
    "aten::add": "add",
    "cudaLaunchKernel": "cudaLaunchKernel",
    "stream 7": "stream 7",
}


def test_a_kernel_has_a_readable_name_and_tells_the_recorded_one(page):
    readable = page.evaluate("async names => names.map((await import('/timeline.js')).readable)", list(NAMES))
    assert readable == list(NAMES.values())
    drawing = timeline(page)
    drawing.click(position=at(drawing, 15, 1))
    assert told(page).startswith("stream 7: elementwise, 8 µs, from 12 µs on.")
    assert told(page).endswith(f"\nRecorded name: {EVENTS[3][3]}…")


def test_the_line_tells_of_the_bar_under_a_mouse_and_then_again_what_it_told(page):
    drawing = timeline(page)
    begin = told(page)
    drawing.hover(position=at(drawing, 15, 1))
    assert told(page).startswith("stream 7: elementwise, 8 µs, from 12 µs on.\nRecorded name: ")
    drawing.hover(position=at(drawing, 50, 0))
    assert told(page).startswith("CPU: decode, 40 µs")
    drawing.hover(position=at(drawing, 50, 1))
    assert told(page) == begin and drawing.locator("title").count() == 0, "a title would come late"
    drawing.click(position=at(drawing, 15, 1))
    drawing.hover(position=at(drawing, 50, 0))
    drawing.hover(position=at(drawing, 50, 1))
    assert told(page).startswith("stream 7: elementwise, 8 µs"), "what was chosen"


def test_a_launch_and_its_kernel_are_linked(page):
    drawing = timeline(page)
    drawing.click(position=at(drawing, 90, 1))
    assert told(page).endswith("Launched by cudaLaunchKernel, 8 µs before.")
    assert drawing.locator(".ov-links line").count() == 1
    page.keyboard.press("l")
    sentence = "CPU: cudaLaunchKernel, 8 µs, from 72 µs on. Launches <b>add</b>, which starts 8 µs later."
    assert told(page) == sentence
    page.keyboard.press("l")
    assert told(page).startswith("stream 7: <b>add</b>")
    drawing.click(position=at(drawing, 50, 0))
    page.keyboard.press("l")
    assert told(page) == "No link between calls and kernels is recorded here."


def test_a_timeline_without_launches_says_so(page):
    timeline(page)
    page.get_by_label("Timeline", exact=True).select_option("quick")
    assert told(page).endswith("This recording does not show which call launched which kernel.")


def test_dragging_with_shift_marks_any_stretch(page):
    drawing = timeline(page)
    box = drawing.bounding_box()
    page.keyboard.down("Shift")
    for time, act in ((0, "down"), (20, "up")):
        place = at(drawing, time, 1)
        page.mouse.move(box["x"] + place["x"], box["y"] + place["y"], steps=5)
        getattr(page.mouse, act)()
    page.keyboard.up("Shift")
    assert told(page).startswith("20 µs: stream 7 is busy for 40%; the CPU meanwhile: cudaLaunchKernel 10 µs")


def test_a_button_lets_a_drag_measure_where_there_is_no_shift_key(page):
    drawing = timeline(page)
    page.get_by_role("button", name="Mark").click()
    box = drawing.bounding_box()
    for time, act in ((0, "down"), (20, "up")):
        place = at(drawing, time, 1)
        page.mouse.move(box["x"] + place["x"], box["y"] + place["y"], steps=5)
        getattr(page.mouse, act)()
    assert told(page).startswith("20 µs: stream 7 is busy for 40%")
    assert drawing.locator("g[transform*=scale]").count() == 0  # nothing moved


def test_all_of_a_timeline_is_reached_by_keyboard(page):
    drawing = timeline(page)
    drawing.focus()
    steps = {
        "ArrowRight": "CPU: cudaLaunchKernel, 10 µs, from 0 s on.",
        "ArrowDown": "stream 7: elementwise, 8 µs, from 12 µs on.",
        "g": "stream 7 is empty from 20 to 80 µs, for 60 µs: the GPU is idle",
    }
    for key, sentence in steps.items():
        page.keyboard.press(key)
        assert told(page).startswith(sentence)
    page.keyboard.press("+")
    moved = drawing.locator("g[transform*=scale]")
    assert "scale(2" in moved.get_attribute("transform")
    page.keyboard.press("0")
    assert "scale(1 " in moved.get_attribute("transform")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") != "ov-timeline"  # no trap


def test_a_wheel_scrolls_the_page_and_zooms_with_control_only(page):
    drawing = timeline(page)
    drawing.hover()
    page.mouse.wheel(0, -200)
    assert drawing.locator("g[transform*=scale]").count() == 0
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)  # a notch or two of a wheel
    page.keyboard.up("Control")
    page.wait_for_function("document.querySelector('.ov-timeline g[transform*=scale]')")
    scale = re.search(r"scale\(([\d.]+)", drawing.locator("g[transform*=scale]").get_attribute("transform"))
    assert 1.2 < float(scale[1]) < 1.5, "d3-zoom's own is sixteenfold"


def test_a_wheel_zooms_where_the_pointer_is(page):
    drawing = timeline(page)
    place, box = at(drawing, 80, 1), drawing.bounding_box()
    page.mouse.move(box["x"] + place["x"], box["y"] + place["y"])
    page.keyboard.down("Control")
    page.mouse.wheel(0, -50)
    page.keyboard.up("Control")
    page.wait_for_function("document.querySelector('.ov-timeline g[transform*=scale]')")
    begins = bars(page).last.bounding_box()["x"]  # at 80 µs
    assert abs(begins - box["x"] - place["x"]) < 3


def test_one_finger_up_or_down_scrolls_the_page_and_across_moves_the_timeline(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 500}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"{address}/index.html")
    page.add_style_tag(content="body { padding-bottom: 2000px }")
    drawing = timeline(page)
    touches = context.new_cdp_session(page)
    box = drawing.bounding_box()
    x, y = box["x"] + 150, box["y"] + 50

    def swipe(fingers: list[tuple[int, int]]) -> None:
        for share in range(8):
            points = [{"x": x + dx * share / 7, "y": y + dy * share / 7} for dx, dy in fingers]
            for place, point in enumerate(points):
                point |= {"id": place, "x": point["x"] + 60 * place}
            kind = "touchMove" if share else "touchStart"
            touches.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        touches.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    moving = "document.querySelector('.ov-timeline g[transform*=scale]')?.getAttribute('transform')"
    swipe([(-50, 0), (50, 0)])
    zoomed = page.evaluate(moving)
    assert "scale(2." in zoomed
    swipe([(-40, 0)])
    assert page.evaluate(moving) != zoomed
    moved = page.evaluate(moving)
    swipe([(0, -150)])
    page.wait_for_function("scrollY > 50")
    assert page.evaluate(moving) == moved
    context.close()


def test_another_timeline_of_the_trace_is_chosen_and_the_explorer_closes(page):
    timeline(page)
    page.get_by_label("Timeline", exact=True).select_option("slow")
    assert bars(page).count() == 5
    page.get_by_label("Timeline", exact=True).select_option("quick")
    assert bars(page).count() == 1
    page.get_by_role("button", name="Close").click()
    assert page.locator(".ov-explore").count() == 0


def test_axe_finds_nothing_serious_in_a_timeline(page):
    package = find_spec("axe_playwright_python") or pytest.skip("axe-playwright-python is not installed")
    page.add_script_tag(path=Path(package.origin).parent / "axe.min.js")
    timeline(page)
    violations = page.evaluate("async () => (await axe.run('.ov-explore')).violations")
    assert [item["id"] for item in violations if item["impact"] in ("serious", "critical")] == []


#: The tables stand in a closed row of evidence.
FAULTS = """<details><table id="faults"><thead><tr><th>fault</th><th>written</th></tr></thead><tbody>
<tr><td><code>loader</code><br>nobody reads</td><td>no worker</td>
<td><a href="#transfers">Moving data</a></td></tr>
<tr><td><code>item</code><br>a number</td><td>loss.item()</td></tr></tbody></table>
<table id="steps"><thead><tr><th>out</th><th>ms</th><th>hint</th></tr></thead><tbody>
<tr><td>nothing</td><td>90</td><td></td></tr><tr><td><code>loader</code><br>nobody reads</td><td>50</td>
<td>the GPU is empty: <strong>data</strong></td></tr>
<tr><td>item</td><td>25</td><td>the CPU waits</td></tr></tbody></table></details>"""


def test_faults_are_found_in_their_order(page, folder):
    stages = {"all": EVENTS, "loader": EVENTS[:4], "item": EVENTS[3:]}
    parts = json.loads(of_parts({"": {"all": EVENTS[:1]}, "faults": stages}))
    parts["faults"][0]["frame"] = [22.0, 50.0]  # all lanes of the GPU are idle
    parts["faults"][1]["frame"] = [30.0, 40.0]  # what the next repair takes away
    parts["faults"][2]["second"] = [30.0, 70.0]
    (folder / "faults.json").write_text(json.dumps(parts))
    page.evaluate(
        """async html => {
        const place = document.getElementById("place")
        place.insertAdjacentHTML("afterend", html)
        const { play } = await import("./fault.js")
        const table = id => document.getElementById(id)
        await play(place, table("faults"), table("steps"), "faults.json")
    }""",
        FAULTS,
    )
    title, verdict = page.locator(".ov-fault-title"), page.locator(".ov-verdict")
    assert title.inner_text() == "All faults: 90 ms a step" and bars(page).count() == 5
    drawing = page.locator(".ov-timeline")
    assert page.locator(".ov-target").count() == 1
    drawing.click(position=at(drawing, 50, 1))
    assert page.locator("#place .ov-told").inner_text().endswith("Here the GPU is idle for longest.")
    ends = "rect => [rect.x.baseVal.value, rect.width.baseVal.value]"
    target, marked = (page.locator(name).evaluate(ends) for name in (".ov-target", ".ov-marked"))
    assert marked == target, "one gap has one length, also where its lane is idle for longer"
    choices = page.locator("#place .ov-tools").last.locator("button")
    assert choices.all_inner_texts() == ["a number", "nobody reads"], "not as they are taken out"
    choices.first.click()
    assert verdict.inner_text().startswith("That fault is there, too: a number. But the dashed")
    place = "() => document.querySelector('.ov-verdict').nextElementSibling.className"
    assert page.evaluate(place) == "ov-fault-title", "at one place, right or wrong"
    assert bars(page).count() == 5
    choices.last.click()
    told = page.locator("#place .ov-told")
    assert "The dashed frame is what the next repair takes away" in told.inner_text()
    assert verdict.inner_text() == (
        "Yes: nobody reads. What was written: no worker. What the trace showed: "
        "the GPU is empty (the limit: data). Repaired, a step takes 50 ms instead of 90. More in Moving data."
    )
    assert told.inner_text().endswith("So look for a fault that adds work.")
    above = "() => document.querySelector('.ov-verdict').nextElementSibling.className"
    assert page.evaluate(above) == "ov-fault-title", "it tells of the trace before"
    assert title.inner_text() == "1 of 2 faults repaired: 50 ms a step" and bars(page).count() == 4
    label = drawing.get_attribute("aria-label")
    assert label.startswith("Timeline 1 of 2 faults repaired") and "loader" not in label
    page.keyboard.press("Enter")  # the next choice has the focus
    profiled = "; 70 in this trace, because a profiler makes launches slower"  # in units of its axis
    assert title.inner_text() == "2 of 2 faults repaired: 25 ms a step" + profiled
    assert bars(page).count() == 2 and page.locator(".ov-second").count() == 1
    assert page.locator(".ov-ticks text").all_text_contents()[-2:] == ["step 1", "step 2"]
    assert page.locator("#place .ov-tools").last.locator("button").count() == 0
    assert (
        page.locator("#place .ov-told")
        .inner_text()
        .endswith(
            "2 faults, with 1 wrong choice. "
            "Without a profiler a step takes 25 ms: what this trace has more is the profiler's."
        )
    )
    assert page.locator(".ov-target").count() == 0
    page.get_by_role("button", name="Start again").click()
    assert title.inner_text() == "All faults: 90 ms a step" and verdict.inner_text() == ""
    assert choices.count() == 2 and not page.get_by_role("button", name="Start again").is_visible()
    choices.last.click()
    drawing.click(position=at(drawing, 50, 0))
    drawing.click(position=at(drawing, 40, 1))
    assert told.inner_text().endswith(("This is in the frame.", "The frame is elsewhere."))


def test_behind_a_wait_the_game_says_how_the_faults_are_written(page, folder):
    """In a frame without a gap, at whose beginning Python waits: also how long Python has after it."""
    for lane, is_told in (("CPU waits", True), ("CPU", False)):
        events = [[lane, *event[1:]] if event[3] == "decode" else event for event in EVENTS]
        parts = json.loads(of_parts({"faults": dict.fromkeys(("all", "loader", "item"), events)}))
        parts["faults"][0]["frame"] = [30.0, 120.0]  # more than the gap
        (folder / "waits.json").write_text(json.dumps(parts))
        page.evaluate(
            """async html => {
            const place = document.getElementById("place")
            document.querySelectorAll("details").forEach(each => each.remove())
            place.insertAdjacentHTML("afterend", html)
            const { play } = await import("./fault.js")
            const table = id => document.getElementById(id)
            await play(place, table("faults"), table("steps"), "waits.json?" + Math.random())
        }""",
            FAULTS,
        )
        choices = page.locator("#place .ov-tools").last.locator("button")
        assert choices.locator("small").all_inner_texts() == (["loss.item()", "no worker"] if is_told else [])
        assert ("10 µs" in page.locator("#place .ov-told").inner_text()) == is_told


def test_a_name_on_stripes_has_a_plain_background(page, folder):
    events = [["CPU waits", 0.0, 90.0, "cudaDeviceSynchronize"], ["stream 7", 0.0, 90.0, "matmul"]]
    (folder / "timelines.json").write_text(of_parts({"": {"one": events}}))
    timeline(page)
    style = "text => [getComputedStyle(text).paintOrder, getComputedStyle(text).strokeWidth]"
    wait, kernel = (
        page.locator(".ov-names text").filter(has_text=word) for word in ("Synchronize", "matmul")
    )
    assert wait.evaluate(style) == ["stroke", "5px"] and kernel.evaluate(style)[0] == "normal"


def test_the_fullest_panel_is_shown_first(page, folder):
    one, all_lanes = EVENTS[:1], EVENTS
    (folder / "panels.json").write_text(of_parts({"": {"one lane": one, "two": all_lanes, "none": one}}))
    page.evaluate("""async () => {
        const { explore } = await import("./timeline.js")
        await explore(document.getElementById("place"), "panels.json")
    }""")
    chosen = page.get_by_label("Timeline", exact=True).evaluate("select => select.selectedOptions[0].text")
    assert chosen == "two" and bars(page).count() == len(EVENTS)
    assert page.locator(".ov-which").inner_text().strip() == "2 of 3", (
        "what is shown is a part of the picture"
    )
    page.get_by_label("Timeline", exact=True).select_option("none")
    assert page.locator(".ov-which").inner_text().strip() == "3 of 3"
    (folder / "panels.json").write_text(
        json.dumps({"": explored(replace(timelines({"two": all_lanes, "last": one}), opens=1), {})})
    )
    page.evaluate("""async () => {
        const { explore } = await import("./timeline.js")
        document.getElementById("place").replaceChildren()
        document.querySelector(".ov-explore").remove()
        await explore(document.getElementById("place"), "panels.json?opens")
    }""")
    assert page.locator(".ov-which").inner_text().strip() == "2 of 2", "a picture may say which one opens"


def test_what_is_vendored_is_small_and_names_its_licence():
    scripts = sorted(ASSETS.glob("vendor/*.js"))
    weight = sum(len(gzip.compress(script.read_bytes())) for script in scripts)
    assert scripts and weight <= 25_000
    licences = "".join(file.read_text() for file in ASSETS.glob("vendor/LICENSE-*.txt"))
    for script in scripts:
        name, _, version = script.stem.rpartition("-")
        assert f"{name.replace('-', ' ')} {version}" in licences.lower().replace("-", " ")


def spans_of(timeline) -> list[list]:
    """All spans of a timeline: [start, length], and where it is known the launch's number."""
    parts = chain.from_iterable(lane["parts"] for lane in timeline["lanes"])
    return [span for part in parts for span in chain.from_iterable(part["spans"].values())]


def test_a_timeline_has_the_lanes_the_colours_the_places_and_the_unit_of_its_picture():
    rows = [[lane, start / 1e3, us / 1e3, name] for lane, start, us, name in EVENTS]
    picture = timelines({"": [["CPU waits", 0.01, 0.02, "cudaDeviceSynchronize"], *rows]}, "ms")
    picture.panels[0].marks.append(Spans("stream 7", [(0.02, 0.06)], "waits", light=True))
    (timeline,) = explored(picture, {"other": EVENTS[:2], "step": EVENTS})
    lanes = timeline["lanes"]
    assert [lane["name"] for lane in lanes] == ["CPU", "stream 7"], "the CPU waits in its own lane"
    assert [lane["cpu"] for lane in lanes] == [True, False]
    assert (timeline["us"], timeline["low"], timeline["high"]) == (1e3, 0, 100)
    works, waits = lanes[1]["parts"]
    assert works["spans"][EVENTS[3][3]] == [[12, 8]] and not (works["light"] or works["waits"])
    assert waits["spans"] == {"": [[20, 60]]} and waits["light"] and waits["waits"]
    spans = [mark for mark in picture.panels[0].marks if isinstance(mark, Spans)]
    picture.panels[0].marks = [mark for mark in spans if not mark.name.endswith("waits")]
    (timeline,) = explored(picture, {})
    for width, (form, drawn) in zip(WIDTHS.values(), timeline["forms"].items(), strict=True):
        still = placed(picture, width).svg
        for kind in (r"<text.*?</text>", r"<line.*?/>"):
            assert re.findall(kind, drawn["svg"]) == re.findall(kind, still), form
        samples = re.findall(r'<rect y="(.*?)" height="(.*?)" style="fill:(.*?);', drawn["svg"])
        bars = re.findall(r'<path d="M\S+?,(.*?)h.*?v(.*?)h.*?style="fill:(.*?)"', still)
        assert [[float(y), float(height), fill] for y, height, fill in samples] == [
            [float(y), float(height), fill] for y, height, fill in bars
        ], form
        assert [float(y) + 7 for y, *_ in samples] == drawn["rows"] and drawn["step"] == 20


def test_a_panel_of_many_has_the_colours_and_the_axis_of_its_picture():
    """Alone, its lanes would have others, and an axis of its own."""
    panels = {"one": [["b", 0.0, 100.0, "x"]], "two": [["a", 0.0, 50.0, "y"], ["b", 0.0, 10.0, "z"]]}
    picture = timelines(panels)
    drawn = [each["forms"]["wide"]["svg"] for each in explored(picture, {})]
    (b,), (a, b_below) = (re.findall(r'<rect y.*?"fill:(.*?);', svg) for svg in drawn)
    still = placed(picture, WIDTHS["wide"]).svg
    assert [b, a, b_below] == re.findall(r'<path d="[^"]*" style="fill:(.*?)"', still) and b == b_below
    assert all(">100</text>" in svg for svg in drawn)
    assert [each["high"] for each in explored(picture, {})] == [100, 100]


def test_a_timeline_knows_launches_where_one_recording_has_all_that_it_shows():
    recorded = {"quick": EVENTS[:1], "slow": EVENTS}
    (timeline,) = explored(timelines({"slow": EVENTS}), recorded)
    calls, kernels = (lane["parts"][0]["spans"] for lane in timeline["lanes"])
    assert [number for _, _, number in calls["cudaLaunchKernel"]] == [0, 2]
    assert {len(span) for span in calls["decode"]} == {2}, "it launched nothing"
    assert [number for ((_, _, number),) in kernels.values()] == [0, 2]
    later = [[lane, start + 1, us, name] for lane, start, us, name in EVENTS]
    (timeline,) = explored(timelines({"slow": later}), recorded)
    assert {len(span) for span in spans_of(timeline)} == {2}, "without a number"


def test_what_has_no_names_or_no_times_is_not_explored():
    named = Spans("row", [(0, 1)], names=["block"])
    assert explored(Picture([Panel([named], Axis("GiB"))]), {}) == []
    assert explored(timelines({"": [["CPU", 0, 1]]}), {}) == []
    assert len(explored(Picture([Panel([named], Axis("ms"))]), {})) == 1


def test_each_recorded_timeline_of_the_book_can_be_explored():
    """Something ran in its first panel, and nothing before its axis begins."""
    pictures = Pictures(Book(ROOT))
    seen = 0
    for name in pictures.book.snippets:
        recording = pictures.book.recordings(name).get("h200")
        if recording and recorded_timelines(recording.result):
            (timeline, *_) = pictures.timelines(recording)[""]
            parts = [part for lane in timeline["lanes"] for part in lane["parts"]]
            assert any(name for part in parts for name in part["spans"]), name
            assert min(start for start, *_ in spans_of(timeline)) >= timeline["low"], name
            seen += 1
    assert seen > 10


def test_in_the_game_a_shorter_step_is_as_wide_as_the_drawing():
    pictures = Pictures(Book(ROOT))
    stages = pictures.timelines(pictures.book.recordings("clinic/six_faults")["h200"])["faults"]
    ends = []
    for stage in stages:
        ends.append(stage["high"] - max(start + length for start, length, *_ in spans_of(stage)))
    assert len(stages) == 7 and all(0 <= end < 1000 for end in ends)
    assert len({stage["high"] for stage in stages}) > 3


def test_a_panel_beside_others_is_explored_over_the_whole_width_and_a_picture_says_which_one_opens():
    (row,) = timelines({"slow": EVENTS}).panels
    alone = explored(Picture([row]), {})[0]["forms"]
    first, second = explored(Picture([row, row], columns=2, opens=1), {})
    assert first["forms"] == second["forms"] == alone
    assert alone["wide"]["right"] - alone["wide"]["left"] > 0.8 * WIDTHS["wide"]
    assert [first["opens"], second["opens"]] == [False, True]
