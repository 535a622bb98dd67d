"""Timelines that can be explored: what they say of their data, by pointer and by keyboard."""

import gzip
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from conftest import CHROMIUM, ROOT

from overlap.site.trace import chrome_trace

pytestmark = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="chromium is not installed")
ASSETS = ROOT / "docs/assets"

#: The CPU launches twice; between the two kernels the GPU is idle for 60 µs: the CPU works on a batch.
EVENTS = [
    ["CPU", 0.0, 10.0, "cudaLaunchKernel"],
    ["CPU", 30.0, 40.0, "decode"],
    ["CPU", 72.0, 8.0, "cudaLaunchKernel"],
    ["stream 7", 12.0, 8.0, "multiply"],
    ["stream 7", 80.0, 20.0, "<b>add</b>"],
]
PAGE = """<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="overlap.css">
<body data-md-color-scheme="default" class="md-typeset"><p id="place"></p></body>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The assets, a trace and a page."""
    root = tmp_path_factory.mktemp("explore")
    for name in ("timeline.js", "fault.js", "overlap.css", "vendor"):
        (root / name).symlink_to(ASSETS / name)
    (root / "trace.json").write_text(chrome_trace({"timelines": {"slow": EVENTS, "quick": EVENTS[:1]}}))
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
        await explore(document.getElementById("place"), "trace.json")
    }""")
    return page.locator(".ov-timeline")


def at(drawing, time: float, lane: int) -> dict:
    """Where a time of the first 100 µs is drawn in a lane, in pixels of the page."""
    box = drawing.bounding_box()
    return {"x": 110 + time / 100 * (box["width"] - 110), "y": 22 + 26 * lane + 13}


def told(page) -> str:
    """The sentence below."""
    return page.locator(".ov-explore .ov-told").inner_text()


def test_a_gap_says_how_long_it_is_and_what_the_cpu_did(page):
    drawing = timeline(page)
    drawing.click(position=at(drawing, 50, 1))
    assert told(page) == "60 µs: the GPU is idle; the CPU meanwhile: decode 40 µs, cudaLaunchKernel 8 µs."


def test_a_button_marks_the_longest_gap(page):
    timeline(page)
    page.get_by_role("button", name="Longest gap").click()
    assert told(page).startswith("60 µs: the GPU is idle")
    page.get_by_label("Timeline", exact=True).select_option("quick")
    page.get_by_role("button", name="Longest gap").click()
    assert told(page) == "There is no gap between the GPU's events."


def test_a_bar_says_its_name_as_text(page):
    drawing = timeline(page)
    drawing.click(position=at(drawing, 90, 1))
    assert told(page).startswith("stream 7: <b>add</b>, 20 µs, from 80 µs on.")


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
    assert told(page) == "The recording does not say what belongs to this."


def test_a_timeline_without_launches_says_so(page):
    timeline(page)
    page.get_by_label("Timeline", exact=True).select_option("quick")
    assert told(page).endswith("Which call launched which kernel, this recording does not tell.")


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
        "ArrowRight": "CPU: cudaLaunchKernel, 10 µs, from 0 µs on.",
        "ArrowDown": "stream 7: multiply, 8 µs, from 12 µs on.",
        "g": "60 µs: the GPU is idle",
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
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function("document.querySelector('.ov-timeline g[transform*=scale]')")


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
    assert page.locator(".ov-timeline rect.ov-gpu").count() == 2
    page.get_by_label("Timeline", exact=True).select_option("quick")
    assert page.locator(".ov-timeline rect.ov-gpu").count() == 0
    page.get_by_role("button", name="Close").click()
    assert page.locator(".ov-explore").count() == 0


def test_axe_finds_nothing_serious_in_a_timeline(page):
    package = find_spec("axe_playwright_python") or pytest.skip("axe-playwright-python is not installed")
    page.add_script_tag(path=Path(package.origin).parent / "axe.min.js")
    timeline(page)
    violations = page.evaluate("async () => (await axe.run('.ov-explore')).violations")
    assert [item["id"] for item in violations if item["impact"] in ("serious", "critical")] == []


FAULTS = """<table id="faults"><thead><tr><th>fault</th><th>written</th></tr></thead><tbody>
<tr><td>loader</td><td>no worker</td><td><a href="#transfers">Moving data</a></td></tr>
<tr><td>item</td><td>loss.item()</td></tr></tbody></table>
<table id="steps"><thead><tr><th>out</th><th>ms</th><th>hint</th></tr></thead><tbody>
<tr><td>nothing</td><td>90</td><td></td></tr><tr><td>loader</td><td>50</td><td>the GPU is empty</td></tr>
<tr><td>item</td><td>25</td><td>the CPU waits</td></tr></tbody></table>"""


def test_faults_are_found_in_their_order(page, folder):
    timelines = {"all": EVENTS, "loader": EVENTS[:4], "item": EVENTS[3:]}
    (folder / "faults.json").write_text(chrome_trace({"timelines": timelines}))
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
    bars = page.locator(".ov-timeline rect.ov-gpu, .ov-timeline rect.ov-cpu")
    assert title.inner_text() == "All faults: 90 ms a step" and bars.count() == 5
    drawing = page.locator(".ov-timeline")
    drawing.click(position=at(drawing, 50, 1))
    assert page.locator("#place .ov-told").inner_text().endswith("Here the GPU is idle for longest.")
    page.get_by_role("button", name="item").click()
    assert "another fault was taken out first" in verdict.inner_text() and bars.count() == 5
    page.get_by_role("button", name="loader").click()
    assert verdict.inner_text() == (
        "Yes: loader (no worker). What the trace showed: the GPU is empty. "
        "Without it a step takes 50 ms instead of 90. More in Moving data."
    )
    assert title.inner_text() == "1 of 2 taken out: 50 ms a step" and bars.count() == 4
    page.keyboard.press("Enter")  # the next choice has the focus
    assert title.inner_text() == "2 of 2 taken out: 25 ms a step" and bars.count() == 2
    assert page.locator("#place .ov-tools").last.locator("button").count() == 0


def test_what_is_vendored_is_small_and_names_its_licence():
    scripts = sorted(ASSETS.glob("vendor/*.js"))
    weight = sum(len(gzip.compress(script.read_bytes())) for script in scripts)
    assert scripts and weight <= 25_000
    licences = "".join(file.read_text() for file in ASSETS.glob("vendor/LICENSE-*.txt"))
    for script in scripts:
        name, _, version = script.stem.rpartition("-")
        assert f"{name.replace('-', ' ')} {version}" in licences.lower().replace("-", " ")


def test_every_recorded_timeline_can_be_read(page):
    """Each trace that the book offers has a lane of the CPU or a GPU with events, in the order of time."""
    read = """async trace => {
        const { read } = await import("./timeline.js")
        return read(trace).map(({ lanes }) => lanes.map(({ events }) => events.map(({ start }) => start)))
    }"""
    seen = 0
    for file in sorted(ROOT.glob("docs/recordings/h200/*/*.json")):
        trace = json.loads(chrome_trace(json.loads(file.read_text())["result"]))
        for lanes in page.evaluate(read, trace):
            seen += 1
            assert any(lanes) and all(starts == sorted(starts) for starts in lanes)
    assert seen > 10
