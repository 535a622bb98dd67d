"""The built site in a browser: what a reader sees, picks, reaches by keyboard, prints and finds.

`OVERLAP_SITE=folder` tests a site that is already built; otherwise the real book is built once, from its
recordings.
"""

import ast
import getpass
import gzip
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from functools import cache, partial
from html import unescape
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

pytest.importorskip("mkdocs")
playwright = pytest.importorskip("playwright.sync_api")

from conftest import CHROMIUM, ROOT, all_snippets  # noqa: E402

from overlap.blocks.paste import Paste  # noqa: E402
from overlap.site import search as search_of_theme  # noqa: E402
from overlap.site.squeeze import squeezed  # noqa: E402

pytestmark = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="chromium is not installed")

#: Pages with values, claims and runs on several machines; and one page of every kind.
NOTEBOOKS = "generated/notebooks/"
CHAPTERS = ("asynchrony/", "devices/", "training/")
KINDS = ("", *CHAPTERS, "claims/", "snippets/", "glossary/", f"{NOTEBOOKS}first_steps/")


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """Folder of the site."""
    if built := os.environ.get("OVERLAP_SITE"):
        return Path(built)
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {
        "OVERLAP_EXECUTE": "never",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def paths(site) -> list[str]:
    """Addresses of all pages, below the root of the site; what a page fetches is no page."""
    found = sorted(file.parent.relative_to(site).as_posix() for file in site.rglob("index.html"))
    return [f"{path}/".removeprefix("./") for path in found if not path.startswith("generated/folds")]


@pytest.fixture(scope="session")
def chapters(site, paths) -> list[str]:
    """Addresses of the pages that show what snippets gave."""
    return [path for path in paths if 'class="ov-head"' in (site / path / "index.html").read_text()]


@pytest.fixture(scope="session")
def address(site, paths):
    """Where the site is served. The map of the site names this address, as `site_url` does when published."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_GET(self):
            if self.path != "/sitemap.xml":
                return super().do_GET()
            urls = "".join(f"<url><loc>http://{self.headers['Host']}/{path}</loc></url>" for path in paths)
            content = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


#: Opens the rows of evidence.
ROWS = "() => document.querySelectorAll('.ov-row').forEach(row => { row.open = true })"


#: Whether each open row has come.
NOTHING_LATER = "() => !document.querySelector('.ov-row[open] .ov-later')"


#: With this nothing comes that nobody asks for.
SAVES_DATA = "Object.defineProperty(navigator, 'connection', { value: { saveData: true } })"
#: Where the site has no page: nothing runs there, and its storage is the site's.
NOWHERE = "nowhere/"


@pytest.fixture
def visit(browser, address, contexts):
    """`visit(path, width, scheme, **options)` opens a page of the site as a new reader.

    The rows of evidence are opened, unless `rows=False`; the index of the search comes to who turns to it,
    unless `idle=True`. A context whose pages are closed is taken again, with nothing in its storage.
    """

    def reader(options: dict):
        alike = contexts.setdefault(f"{address} {options}", [])
        for context in alike:
            if len(context.pages) == 1:
                context.pages[0].evaluate("localStorage.clear()")
                return context
        alike.append(browser.new_context(base_url=address, **options))
        alike[-1].set_default_timeout(30_000)
        alike[-1].new_page().goto(NOWHERE)
        return alike[-1]

    def visit(
        path: str, width: int = 1280, scheme: str = "light", rows: bool = True, idle: bool = False, **options
    ):
        page = reader(options).new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        if rows:
            page.add_init_script(f"addEventListener('DOMContentLoaded', {ROWS})")
        if not idle:
            page.add_init_script(SAVES_DATA)
        page.goto(path, wait_until="load")
        if options.get("java_script_enabled", True):
            page.wait_for_function("document.documentElement.dataset.machine")
            page.wait_for_function(NOTHING_LATER)
        return page

    yield visit
    for context in itertools.chain(*contexts.values()):
        context.unroute_all()
        for page in context.pages[1:]:
            page.close()


# The machine picker

#: What follows the picked machine: values, outputs and rows of evidence.
FOLLOWERS = """() => {
  const squeezed = text => text.replace(/\\s+/g, " ").trim()
  const keyOf = value => value.value ?? value.dataset.key
  const values = [...document.querySelectorAll(".md-content :is(data, .ov-value)")].map(value => ({
    key: keyOf(value).replace(/^@.*/, ""), pinned: keyOf(value).startsWith("@"), text: value.textContent,
    note: value.dataset.note, on: value.dataset.on ?? "",
    machine: /^@(.*)/.exec(keyOf(value))?.[1] ?? value.dataset.machine
      ?? document.querySelector(".ov-head")?.dataset.first ?? "",
  }))
  const boxes = [...document.querySelectorAll(".ov-outputs")]
  const outputs = boxes.map(({ firstElementChild: run, childElementCount: runs }) => ({
    names: [...run.querySelectorAll(".ov-part")].map(part => part.dataset.name), runs,
    machine: run.dataset.machine, has: run.dataset.machines.split(" "),
    printed: [...run.querySelectorAll(".ov-text")].map(output => output.textContent),
    rows: [...run.querySelectorAll(".ov-numbers tbody tr")]
      .map(row => [...row.cells].map(cell => cell.textContent)),
    lines: [...run.querySelectorAll(".ov-provenance summary")].map(line => line.textContent),
    pictures: [...run.querySelectorAll("img")].map(image => [image.src, image.alt]),
    note: squeezed(run.querySelector(".ov-elsewhere")?.textContent ?? ""),
  }))
  const announced = [...document.querySelectorAll(".ov-switch > span, .ov-lent > span")]
    .filter(part => part.getClientRects().length)
  return {
    values, outputs,
    text: squeezed(document.querySelector(".md-content").innerText),
    announced: squeezed(announced.map(part => part.textContent).join(" ")),
  }
}"""


#: Whether one element stands below another.
BELOW = "() => document.querySelector('{}').compareDocumentPosition(document.querySelector('{}')) === 4"


def picker(page):
    """The one control of that name."""
    return page.get_by_role("combobox", name="Machine")


def pick(page, machine: str) -> None:
    """Pick a machine, and wait until the page shows it."""
    picker(page).select_option(machine)
    shows(page, machine)


def shows(page, machine: str) -> None:
    """Wait until a page shows this machine."""
    page.wait_for_function("machine => document.documentElement.dataset.machine === machine", arg=machine)


def options(page) -> dict[str, str]:
    """Machines that can be picked: label by name."""
    return dict(picker(page).locator("option").evaluate_all("all => all.map(o => [o.value, o.label])"))


@pytest.fixture(scope="session")
def shown(site):
    """`shown(name)` is what the site knows of a machine."""
    return cache(lambda name: json.loads((site / f"generated/machines/{name}.json").read_text()))


#: Chooses the numbers of each picture; whether they are there.
NUMBERS = "() => document.querySelectorAll('.ov-choice [value=numbers]').forEach(choice => choice.click())"
NUMBERED = """() => [...document.querySelectorAll(".ov-outputs .ov-numbers")]
  .every(box => box.querySelector("tr"))"""


#: Points at each value; whether each has told where it is from.
POINT = """() => document.querySelectorAll(":is(data, .ov-value)")
  .forEach(value => value.dispatchEvent(new Event("pointerover", { bubbles: true })))"""
#: Points again at what has come since: a machine's numbers may be late.
NOTED = """() => {
  const bare = document.querySelectorAll(":is(data, .ov-value):not([data-note])");
  bare.forEach(value => value.dispatchEvent(new Event("pointerover", { bubbles: true })));
  return !bare.length; }"""


def check_follows(page, machine: str, shown) -> dict:
    """Everything on the page is what this machine gave, or what stands there says whose it is."""
    page.wait_for_function(NOTHING_LATER)
    page.evaluate(NUMBERS)
    page.wait_for_function(NUMBERED)
    page.evaluate(POINT)
    page.wait_for_function(NOTED)
    found, data = page.evaluate(FOLLOWERS), shown(machine)
    for value in found["values"]:
        if value["key"] in data["values"]:
            text, wide_range, note, *_ = data["values"][value["key"]]
            assert (value["text"], value["note"]) == (text + wide_range, note)
    for output in found["outputs"]:
        runs = [data["snippets"].get(name) for name in output["names"]]
        source = runs[0] if isinstance(runs[0], str) else machine
        # a step of several GPUs is not drawn from one, though the program ran there
        lacks = None in runs or source not in output["has"]
        assert output["runs"] == 1 and bool(output["note"]) == lacks, output
        if lacks:
            reason = "Did not run on" if None in runs else "None on"
            head = page.locator(".ov-head")  # of a chapter; the first page has none
            if head.count() and machine != head.get_attribute("data-first"):
                near = data["nearest"].get(output["names"][0], output["machine"])
                assert output["machine"] == near or near not in output["has"], output
            labels = shown(machine)["label"], shown(output["machine"])["label"]
            assert output["note"] == "{} {}; shown: {}.".format(reason, *labels)
            continue
        assert output["machine"] == source
        lent = [shown(source)["snippets"][name] for name in output["names"]]
        if output["lines"]:
            assert output["lines"] == [run["line"] for run in lent]
            assert output["printed"] == [text for run in lent for _, _, text in run["outputs"]]
        for (address, alt), run in zip(
            output["pictures"], (run for run in lent if run["pictures"]), strict=False
        ):
            assert f"/pictures/{source}/" in address
            assert alt in [drawn["alt"] for drawn in run["pictures"].values()]
        if output["rows"]:
            tables = [table for run in lent for table in run["pictures"][""]["tables"]]
            assert output["rows"] == [row for table in tables for row in table["rows"]]
    return found


@pytest.mark.parametrize("path", ("", *CHAPTERS))
def test_everything_follows_the_machine_picker(visit, shown, path):
    """And goes back to what was built when the page's machine is picked again."""
    page = visit(path)
    first = picker(page).input_value()
    before = check_follows(page, first, shown)
    texts = set()
    for machine in [*options(page), first]:
        pick(page, machine)
        found = check_follows(page, machine, shown)
        texts.add(found["text"])
    assert len(texts) > 2
    for kind in ("values", "outputs"):
        assert found[kind] == before[kind] != []


def test_a_page_says_so_when_it_is_shown_on_another_machine(visit):
    """Before a machine is picked, and at the evidence where part did not run on it; else no word."""

    def elsewhere() -> str:
        found = page.evaluate(FOLLOWERS)
        others = sum(bool(item["note"]) for item in found["outputs"])
        outputs = len(found["outputs"])
        lent = {item["machine"] for item in found["outputs"] if item["note"]}
        if len(lent) == 1:
            label = options(page)[lent.pop()]
            counted = "One of the {} outputs on this page comes"
            if others > 1:
                counted = f"{others} of the {{}} outputs on this page come"
            told = f"{counted.format(outputs)} from {label}."
            notes = page.locator(".ov-elsewhere").filter(visible=True).all_inner_texts()
            assert set(notes) <= {label}  # the rest is said once
        else:
            told = f"{others} of the {outputs} outputs on this page come from other machines, "
            told += "and each names its own."
        few = page.locator(".ov-few").filter(visible=True).all_inner_texts()
        assert found["announced"] == " ".join([*few, told] if others else [])
        return found["announced"]

    page = visit("asynchrony/")
    assert not elsewhere()
    page = visit("devices/")
    opened = page.evaluate(FOLLOWERS)["announced"]
    assert opened.startswith("Most numbers here are from 2 × H200. At the top you can choose another ")
    pick(page, "h200")
    pick(page, "h200-x2")
    told = elsewhere()
    assert told and opened.endswith(told)
    assert page.locator(".ov-lent").is_visible() and page.locator(".ov-switch").is_hidden()
    assert page.evaluate(BELOW.format("#evidence", ".ov-lent"))
    pick(page, "h100-80gb-hbm3")
    assert elsewhere()


@pytest.mark.parametrize(
    ("path", "machine", "called"),
    [("streams/", "cpu", "a CPU"), ("training/", "h200-x8", "8 × H200")],
)
def test_a_machine_that_ran_little_is_the_pages_and_its_numbers_carry_no_name(
    visit, shown, path, machine, called
):
    """What it has not run names another machine; the line below the title says how little it ran."""
    page = visit(path)
    first = page.locator(".ov-head").get_attribute("data-first")
    pick(page, machine)
    page.wait_for_function(NOTHING_LATER)
    names = {name for output in page.evaluate(FOLLOWERS)["outputs"] for name in output["names"]}
    ran = len(names & shown(machine)["snippets"].keys())
    assert 0 < ran < len(names) / 2
    label = options(page)[machine]
    assert page.locator(".ov-here").inner_text() == label
    told = page.locator(".ov-switch").inner_text()
    assert told == (
        f"Only {ran} of {len(names)} programs ran on {called}: a number from another machine names it."
    )
    named = page.locator(".md-content [data-on]").evaluate_all("all => all.map(each => each.dataset.on)")
    assert named and not any(label in each.split(", ") for each in named)
    pick(page, first)
    assert page.locator(".ov-few").is_hidden()


@pytest.mark.parametrize(
    ("path", "lent"),
    [("memory", {"1 × H200", "CPU"}), ("loader", {"1 × H200", "4 × H100", "CPU"})],
)
@pytest.mark.parametrize("machine", ["h200-x8", "h200-x4"])
def test_who_picks_gpus_is_shown_gpus(visit, path, lent, machine):
    """Those nearest to the picked ones; a CPU only for what ran on no GPU."""
    page = visit(f"{path}/?machine={machine}")
    page.wait_for_function(NOTHING_LATER)
    assert page.locator(".ov-here").inner_text() == "1 × H200"
    picked, *_ = found = page.locator(".ov-absent span").all_inner_texts()
    assert picked == options(page)[machine]
    assert found[1].startswith("1 × H200") and {*found[1].split(", ")} == lent
    for output in page.evaluate(FOLLOWERS)["outputs"]:
        assert output["machine"] != "cpu" or output["has"] == ["cpu"]


def test_the_build_says_what_the_script_says(visit, chapters):
    """Below the title, of the machine that a page opens on: so nothing moves when the script has come."""
    lines = "document.querySelectorAll('.ov-head, .ov-switch, .ov-lent')"
    said = f"() => [...{lines}].map(line => line.innerText)"
    for path in chapters:
        plain = visit(path, rows=False, java_script_enabled=False)
        built = plain.evaluate(said)
        plain.close()
        page = visit(path, rows=False)
        assert page.evaluate(said) == built, path
        page.close()


def test_a_value_of_another_machine_names_it_unless_its_sentence_does(visit):
    page = visit("devices/?machine=h100-80gb-hbm3")
    named = page.evaluate(
        """() => [...document.querySelectorAll(".md-content p > data")].map(value => ({
          pinned: value.value.startsWith("@"), mark: value.dataset.on ?? "",
          shown: getComputedStyle(value, "::before").content,
          told: value.parentElement.textContent.includes("H200")}))"""
    )
    assert {value["mark"] for value in named if value["pinned"] and value["told"]} == {""}
    marks = {value["mark"] for value in named if not value["told"]}
    assert {"2 × H200", ""} <= marks
    assert any(value["mark"] for value in named if value["pinned"])
    assert all(value["mark"] in value["shown"] for value in named)


@pytest.mark.parametrize("machine", ["h200", "h200-x8", "cpu"])
@pytest.mark.parametrize("path", ["", "clinic/", "sharding/", "loader/"])
def test_each_number_of_another_machine_than_the_pages_names_it(visit, path, machine):
    """By one rule: each of a sentence, of a cell or card, and of a chart."""
    page = visit(f"{path}?machine={machine}")
    page.evaluate(POINT)
    page.wait_for_function(NOTED)
    label = options(page)[machine]
    usual = page.locator(".ov-here").text_content() if page.locator(".ov-here").count() else label
    values = page.evaluate(
        """() => [...document.querySelectorAll(".md-content data:not([value^='@'])")].map(value => [
          value.dataset.note.match(/ on ((?:\\d × )?\\w+)/)[1], value.dataset.on ?? "",
          value.closest("td, th, .ov-chapters p")?.dataset.on ?? "",
          value.closest("table")?.querySelector("thead [data-on]")?.dataset.on ?? ""])"""
    )
    assert len(values) > 8
    for source, mark, of_cell, of_head in values:
        if source == usual:
            assert mark == "", "its own machine is not named"
        else:
            assert source in (mark, of_head) or source in of_cell.split(", ")
    for run in page.locator(".ov-outputs > .ov-run").all():
        of_run = options(page)[run.get_attribute("data-machine")]
        named = run.locator(".ov-elsewhere").count() or run.get_attribute("data-on") == of_run
        assert bool(named) == (of_run != usual) or run.locator(".ov-elsewhere").count()


def test_in_a_cell_and_on_a_card_the_number_stands_before_its_machine(visit):
    page = visit("?machine=h100-80gb-hbm3")
    named = page.locator(":is(td, .ov-chapters p)[data-on]")
    assert named.count() >= 4 and page.locator(":is(td, .ov-chapters p) data[data-on]").count() == 0
    look = "cell => getComputedStyle(cell, '::after').content"
    assert "2 × H200" in named.first.evaluate(look)


def test_a_value_in_a_sentence_follows_the_machine_picker(visit, shown):
    page = visit("processes/")
    both = shown("cpu")["values"].keys() & shown("h200")["values"].keys()
    keys = page.locator(":is(p, li) data").evaluate_all("all => all.map(data => data.value)")
    key = next(
        key for key in keys if key in both and shown("cpu")["values"][key] != shown("h200")["values"][key]
    )
    seen = {}
    for machine in ("cpu", "h200"):
        pick(page, machine)
        seen[machine] = page.locator(f"data[value='{key}']").first.inner_text()
    assert seen == {machine: "".join(shown(machine)["values"][key][:2]) for machine in seen}


def test_the_picker_works_by_keyboard(visit, shown):
    page = visit("streams/")
    labels = list(options(page))
    for _ in range(20):
        page.keyboard.press("Tab")
        if picker(page).evaluate("select => select === document.activeElement"):
            break
    before = picker(page).input_value()
    page.keyboard.press("ArrowDown")
    after = picker(page).input_value()
    assert labels.index(after) == labels.index(before) + 1
    shows(page, after)
    check_follows(page, after, shown)


def test_the_picked_machine_stays(visit, shown):
    """Over a change of page without a reload, back again, a reload, and a new tab."""
    page = visit("devices/")
    picked = "h100-80gb-hbm3"

    def follows(title, where=page):
        # A page that is replaced has its address before its text.
        playwright.expect(where.get_by_role("heading", level=1)).to_contain_text(title)
        # Shown is 1 × H100, or else the line below says how little of the page ran on it.
        lines = "[...document.querySelectorAll('.ov-head, .ov-switch')]"
        where.wait_for_function(f"() => {lines}.some(line => line.innerText.includes('1 × H100'))")
        check_follows(where, picked, shown)
        assert picker(where).input_value() == picked

    pick(page, picked)
    page.evaluate("window.notReloaded = true")
    for title, path in (("Data parallel training", "training/"), ("Asynchrony", "asynchrony/")):
        page.get_by_role("navigation", name="Navigation").get_by_role("link", name=title).click()
        page.wait_for_url(f"**/{path}")
        follows(title)
        assert page.evaluate("window.notReloaded")
    page.go_back()
    page.wait_for_url("**/training/")
    follows("Data parallel training")
    page.reload()
    follows("Data parallel training")
    other = page.context.new_page()
    other.goto("devices/")
    follows("Many GPUs", other)


def test_an_address_can_name_the_machine(visit, shown):
    page = visit("devices/?machine=h100-80gb-hbm3")
    assert picker(page).input_value() == "h100-80gb-hbm3"
    check_follows(page, "h100-80gb-hbm3", shown)
    pick(page, "h200")
    assert page.url.endswith("?machine=h200")
    assert picker(visit("devices/?machine=abacus")).input_value() == "h200-x2"  # what the page is about
    assert picker(visit("streams/")).input_value() == "h200"


def test_an_output_can_move_the_picker_and_stays_in_its_place(visit, shown):
    page = visit("streams/")
    choice = page.get_by_role("combobox", name="shown on").nth(2)
    choice.scroll_into_view_if_needed()
    before = choice.bounding_box()["y"]
    choice.select_option("h100-80gb-hbm3")
    shows(page, "h100-80gb-hbm3")
    assert picker(page).input_value() == "h100-80gb-hbm3" == choice.input_value()
    check_follows(page, "h100-80gb-hbm3", shown)
    playwright.expect(choice).to_be_in_viewport()
    assert abs(choice.bounding_box()["y"] - before) < 2


def test_a_comparison_says_what_a_reader_could_take_wrongly(visit):
    """Equal pictures look as if it had failed. Axes may differ; a caption has one machine's numbers."""
    page = visit("memory/")
    answer = page.locator(".md-content .ov-outputs:not(.ov-summary *)").first
    choices = page.get_by_role("combobox", name="compare with")
    choices.first.scroll_into_view_if_needed()
    choices.first.select_option("h100-80gb-hbm3")
    playwright.expect(answer.locator(".ov-compared")).to_have_text(
        re.compile("do not differ"), timeout=30_000
    )
    page.goto("timing/", wait_until="load")
    choices.first.scroll_into_view_if_needed()
    choices.first.select_option("h100-80gb-hbm3")
    playwright.expect(page.locator(".ov-two .ov-run")).to_have_count(2)
    page.wait_for_timeout(300)
    assert page.locator(".ov-compared").count() == 0, "axes are the same, and the caption has no number"
    page.goto("training/", wait_until="load")
    choices.first.scroll_into_view_if_needed()
    choices.first.select_option("h200-x4")
    told = "different axes: .* The numbers in the caption are those of 2 × H200"
    playwright.expect(page.locator(".ov-compared").first).to_have_text(re.compile(told), timeout=30_000)


@pytest.mark.parametrize("width", [1440, 390])
def test_two_machines_beside_each_other(visit, shown, width):
    """Or, on a phone, below each other; it stays where another machine is picked."""
    page = visit("streams/", width=width)
    measured = page.locator(".ov-snippet:has(.ov-provenance):has(.ov-figure)")
    choice = measured.get_by_role("combobox", name="compare with").first
    box = choice.locator("xpath=ancestor::div[contains(@class, 'ov-snippet')]").locator(".ov-outputs")
    figures, runs = box.locator(".ov-figure:visible"), box.locator(".ov-run")
    choice.scroll_into_view_if_needed()
    assert figures.count() == 1
    choice.select_option("h100-80gb-hbm3")
    playwright.expect(figures).to_have_count(2)
    assert [run.get_attribute("data-label") for run in runs.all()] == ["1 × H200", "1 × H100"]
    name = runs.first.locator(".ov-part").get_attribute("data-name")
    lines = box.locator(".ov-provenance summary").all_text_contents()
    assert lines == [shown(machine)["snippets"][name]["line"] for machine in ("h200", "h100-80gb-hbm3")]
    boxes = [figures.nth(i).bounding_box() for i in range(2)]
    assert len({each["x"] for each in boxes}) == (2 if width > 1000 else 1)
    assert max(each["x"] + each["width"] for each in boxes) <= width
    drawn = "runs => runs.map(run => run.querySelector('img').src.split('/').pop())"
    assert name == "streams/one_stream_is_serial", "on 1 × H100 it takes longer"
    assert runs.evaluate_all(drawn) == [f"{name[8:]}-wide{end}.svg" for end in ("-compared", "")]
    pick(page, "h200-x2")
    assert figures.count() == 2
    choice.select_option("")
    playwright.expect(figures).to_have_count(1)
    assert runs.evaluate_all(drawn) == [f"{name[8:]}-wide.svg"]


def test_where_no_file_can_be_read_a_page_shows_its_machine(visit, site, browser):
    """As from a disk: the picker says why, and nothing fails."""
    page = visit("streams/")
    before = page.evaluate(FOLLOWERS)
    page.route("**/generated/machines/*.json", lambda route: route.abort())
    picker(page).select_option("h100-80gb-hbm3")
    playwright.expect(picker(page)).to_have_value("h200")
    assert "Other machines cannot be shown" in page.locator(".ov-picker").get_attribute("title")
    after = page.evaluate(FOLLOWERS)
    assert after["values"] == before["values"] and after["outputs"] == before["outputs"]
    context, errors = browser.new_context(), []
    alone = context.new_page()
    alone.on("pageerror", lambda error: errors.append(str(error)))
    alone.goto(f"{(site / 'streams/index.html').as_uri()}?machine=h100-80gb-hbm3")
    shows(alone, "h200")
    context.close()
    assert errors == []


# Claims


def test_claims_are_filtered_and_the_address_remembers(visit):
    """By words, a machine and verdicts; chapters stay open. Without scripts all are there, folded."""
    page = visit("claims/")
    rows = page.locator(".ov-claims:not(.ov-counts) tbody tr")
    seen, said = (
        page.locator(".ov-claims:not(.ov-counts) tbody tr:visible"),
        page.locator(".ov-filters output"),
    )
    count = rows.count()
    assert said.inner_text() == f"{count} of {count} claims" and count > 100 and seen.count() == 0
    page.get_by_role("searchbox", name="Words").fill("many gpus launch")
    page.get_by_role("combobox", name="On", exact=True).select_option("h200-x2")
    page.locator(".ov-filters .ov-chip", has_text="holds").click()
    assert "words=many+gpus+launch&on=h200-x2&verdict=holds" in page.url
    assert 0 < seen.count() < count and said.inner_text() == f"{seen.count()} of {count} claims"
    head = page.locator(".ov-claims:not(.ov-counts) th[data-machine=h200-x2]").first
    cells = seen.locator(f"td:nth-child({head.evaluate('head => head.cellIndex') + 1}) > .ov-cell")
    assert cells.count() == seen.count()
    assert cells.first.get_attribute("data-note") is None
    cells.first.hover()
    playwright.expect(cells.first).to_have_attribute("data-note", re.compile("^2 × H200: "))
    chapters = page.locator(".md-content h2:has(+ .ov-chapter):visible").all_inner_texts()
    assert chapters and chapters[0].startswith("Many GPUs")
    some = seen.count()
    page.reload()
    page.wait_for_function("document.querySelector('.ov-filters')")
    assert (
        seen.count() == some
        and page.get_by_role("searchbox", name="Words").input_value() == "many gpus launch"
    )
    page.get_by_role("combobox", name="On", exact=True).select_option("")
    for words in ("devices", "devices/launch", "sharding", "models larger than a gpu"):
        page.get_by_role("searchbox", name="Words").fill(words)
        assert 0 < seen.count() < count, words
    plain = visit("claims/", java_script_enabled=False)
    folds = plain.locator(".ov-chapter")
    folds.first.locator("summary").click()
    assert plain.locator(".ov-claims:not(.ov-counts) tbody tr").count() == count
    assert plain.locator(".ov-claims:not(.ov-counts) tbody tr:visible").count() > 1 and folds.count() > 10


def test_the_page_of_claims_leaves_figures_to_the_files_of_machines(site):
    """It has a sign for each verdict; the figures were a third of its bytes."""
    page = site / "claims/index.html"
    assert not re.search(r'"ov-cell[^>]*data-note', page.read_text()) and page.stat().st_size < 600_000


@pytest.mark.parametrize("width", [1440, 390])
def test_each_calculator_is_one_click_from_their_list_and_has_a_scale(visit, width):
    page = visit("snippets/", width=width, rows=False)
    links = page.locator(".ov-calculators a")
    places = links.evaluate_all("all => all.map(({ pathname, hash }) => pathname.slice(1) + hash)")
    assert len(set(places)) == len(places) >= 11
    links.filter(has_text="transformer").click()
    page.wait_for_url("**/memory/#calculator-*")
    form = page.locator(page.evaluate("location.hash"))
    playwright.expect(form).to_be_in_viewport()
    ticks = form.locator(".ov-ticks text[x='45']").all_text_contents()
    scale = [float(tick.replace(",", "")) for tick in ticks]
    assert len(scale) >= 2 and scale == sorted(set(scale)) and scale[-1] > 0


def test_snippets_that_run_on_a_laptop_are_chosen(visit):
    page = visit("snippets/")
    rows, seen = page.locator(".ov-snippets tbody tr"), page.locator(".ov-snippets tbody tr:visible")
    count = rows.count()
    assert seen.count() == count > 100
    page.locator(".ov-filters .ov-chip", has_text="runs on a laptop").click()
    assert 10 < seen.count() < count
    assert {row.count("runs on a laptop") for row in seen.all_inner_texts()} == {1}


def test_a_link_to_a_claim_opens_it(visit):
    page = visit("claims/")
    page.locator(".ov-chapter summary").first.click()
    link = page.locator(".ov-claims tbody a:visible").first
    target = "#" + link.get_attribute("href").partition("#")[2]
    link.click()
    page.wait_for_function(
        "target => document.querySelector(`${target}-evidence`)?.matches(':popover-open')", arg=target
    )
    evidence = page.locator(f"{target}-evidence")
    assert evidence.locator("li code").first.is_visible()
    assert (
        evidence.locator("li a[href$='.json']").count()
        and evidence.get_by_text("How it was measured").count() == 1
    )


def test_opened_evidence_has_a_row_for_each_machine(visit, shown, site):
    """The file of the page's evidence has one; where those of the machines cannot be read this one stays."""
    page = visit("streams/?machine=h100-80gb-hbm3")
    here, marks = shown("h100-80gb-hbm3")["claims"], page.locator(".ov-mark:visible").all()
    keys = {mark.get_attribute("href").partition("#")[2]: mark for mark in marks}
    key, mark = next((key, mark) for key, mark in keys.items() if key in here)
    evidence = page.locator(f"#{mark.get_attribute('id')}-evidence")
    rows = evidence.locator("li")
    assert rows.count() == 0
    mark.click()
    machines = [machine for machine in options(page) if key in shown(machine)["claims"]]
    playwright.expect(rows).to_have_count(len(machines))
    for row, machine in zip(rows.all(), machines, strict=True):
        state, figures, advice, raw = shown(machine)["claims"][key]
        sign = {"holds": "✓", "false": "✗", "open": "–"}[state]
        said = " ".join(filter(None, [sign, shown(machine)["label"], state, figures, advice]))
        assert re.sub(r"\s+", " ", row.inner_text()).strip() == said
        assert f"ov-{state}" in row.get_attribute("class") and row.get_attribute("data-machine") == machine
        address = urljoin(page.url, row.locator("a").get_attribute("href"))
        assert address.endswith(raw) and (site / raw).is_file()
    assert evidence.locator(".ov-picked").get_attribute("data-machine") == "h100-80gb-hbm3"
    page = visit("streams/")
    page.route("**/generated/machines/*.json", lambda route: route.abort())
    page.locator(".ov-mark").first.click()
    playwright.expect(page.locator(".ov-picker")).to_have_attribute(
        "title", re.compile("cannot be read here")
    )
    page.locator(".ov-mark").first.click()
    playwright.expect(page.locator(".ov-evidence:popover-open")).to_have_count(0)  # a second click closes it
    page.locator(".ov-mark").first.click()
    assert page.locator(".ov-evidence:popover-open li").count() == 1


def test_rows_of_evidence_are_closed_until_a_link_leads_into_them(visit):
    page = visit("timing/", rows=False)
    rows = page.locator(".ov-row")
    assert rows.count() >= 10 and page.locator(".ov-row[open]").count() == 0
    page.get_by_role("link", name="a constant", exact=True).click()
    playwright.expect(page.locator("#short-kernels")).to_be_in_viewport()
    assert page.locator(".ov-row[open]").count() == 1
    page = visit("timing/#taking-turns", rows=False)
    playwright.expect(page.locator("#snippet-timing-take_turns")).to_be_visible()
    page.get_by_role("button", name="Open all").click()
    assert page.locator(".ov-row:not([open])").count() == 0
    page.get_by_role("button", name="Close all").click()
    assert page.locator(".ov-row[open]").count() == 0


@pytest.mark.parametrize("path", ["streams/", "sharding/"])
def test_a_row_of_evidence_opens_on_what_its_program_gave(visit, path):
    """Its picture, or else its output; not on a link to its file."""
    page = visit(path)
    choices = page.locator(".ov-views > .ov-choice")
    first, chosen = choices.locator("label:first-child"), choices.locator("input:checked")
    shown = chosen.evaluate_all("all => all.map(({ value }) => value)")
    assert set(shown) == {"picture", "output"}
    assert shown == first.evaluate_all("all => all.map(label => label.querySelector('input').value)")


def test_code_and_outputs_of_a_row_come_when_it_opens(visit, shown):
    page = visit("timing/?machine=h100-80gb-hbm3", rows=False)
    said = page.locator(".ov-switch").inner_text()
    rows = page.locator(".ov-row")
    later = page.locator(".ov-later")
    assert later.count() > 10 and rows.locator(".ov-views").count() == 0
    row = page.locator(".ov-row", has=page.locator("#taking-turns"))
    row.locator("summary").first.click()
    views = row.locator(".ov-views").first
    playwright.expect(views.locator(".ov-machines").first).to_be_visible()
    assert row.locator(".ov-later").count() == 0 and row.locator(".md-code__button").count() > 0
    playwright.expect(views.locator(".ov-run")).to_have_attribute("data-machine", "h100-80gb-hbm3")
    assert later.count() > 0
    page.keyboard.press("Control+f")  # what the browser finds has to be there
    playwright.expect(later).to_have_count(0)
    playwright.expect(page.locator(".ov-switch")).to_have_text(said, use_inner_text=True)
    check_follows(page, "h100-80gb-hbm3", shown)


def test_a_link_to_code_in_a_closed_row_leads_to_it(visit):
    page = visit("timing/#snippet-timing-take_turns", rows=False)
    code = page.locator("#snippet-timing-take_turns")
    playwright.expect(code.locator("pre").first).to_be_visible()
    playwright.expect(code).to_be_in_viewport()


def test_paper_has_the_rows_that_are_open(visit):
    page = visit("timing/#taking-turns", rows=False)
    page.emulate_media(media="print")
    assert page.locator("#taking-turns").is_visible() and page.locator("#take-this").is_visible()
    assert not page.locator("#first-call").is_visible() and not page.locator(".ov-open-all").is_visible()


@pytest.mark.parametrize(
    "path",
    ["timing/", "asynchrony/", "graphs/", "collectives/", "training/", "memory/", "streams/", "machine/"],
)
def test_each_mark_that_is_seen_opens_what_is_seen(visit, path):
    page = visit(path, rows=False)
    marks = [mark for mark in page.locator(".ov-mark").all() if mark.is_visible()]
    assert marks
    for mark in marks:
        mark.click()
        playwright.expect(page.locator(f"#{mark.get_attribute('id')}-evidence")).to_be_visible()
        page.keyboard.press("Escape")


def test_boxes_give_the_reader_the_lines_that_are_tested(visit, site, paths):
    copied = {}
    for path in paths:
        if "ov-paste" not in (site / path / "index.html").read_text():
            continue
        page = visit(path)
        for box in page.locator(".ov-paste").all():
            text = box.locator("code").inner_text().strip()
            copied[text] = path
        page.close()
    assert set(copied) == {
        Paste("", 0, file.stem, "").code(ROOT) for file in ROOT.glob("snippets/pastes/*.py")
    }


@pytest.mark.parametrize("width", [390, 1280])
def test_a_mark_opens_its_evidence(visit, width):
    """In the window, where it can be read whole and closed again."""
    page = visit("streams/", width=width)
    mark = page.locator("#claim-small-kernels-need-a-graph")
    evidence = page.locator(f"#{mark.get_attribute('id')}-evidence")
    assert evidence.count() == 0
    assert mark.get_attribute("title") == "on how many machines this holds"
    mark.click()
    evidence.wait_for()
    box = evidence.bounding_box()
    assert evidence.is_visible() and box["x"] >= 0 and box["x"] + box["width"] <= width
    assert box["y"] >= 0 and box["y"] + box["height"] <= 900
    assert evidence.locator("li code").first.is_visible()
    said, checked = (evidence.locator("p").nth(i).inner_text() for i in (0, 1))
    assert said.startswith("In the text: ") and checked.startswith("Checked: ")
    around = mark.locator("xpath=ancestor::*[self::p or self::li or self::td][1]").inner_text()
    words = re.findall(r"[a-z]{4,}", said.removeprefix("In the text: "))
    assert words and set(words) < set(re.findall(r"[a-z]{4,}", around)), "no more than its sentence"
    tested = evidence.locator("details.ov-tested")
    assert not tested.locator("code").is_visible()
    tested.locator("summary").click()
    assert tested.locator("code").is_visible()
    for strip in evidence.locator(".ov-strip").all():
        drawn = strip.bounding_box()
        assert box["x"] <= drawn["x"] and drawn["x"] + drawn["width"] <= box["x"] + box["width"]
        told = [dot.text_content() for dot in strip.locator("circle title").all()]
        assert told and strip.get_attribute("aria-label").endswith(f". {'; '.join(told)}.")
    legend = evidence.get_by_role("link", name="what the mark says")
    assert legend.get_attribute("href").endswith("/#marks")
    evidence.evaluate("part => part.scrollTop = part.scrollHeight")
    close = evidence.get_by_role("button", name="Close")
    at = close.bounding_box()
    assert evidence.bounding_box()["y"] <= at["y"] <= evidence.bounding_box()["y"] + 24, "at the top"
    assert at["height"] >= 24 and at["x"] + at["width"] <= box["x"] + box["width"]
    close.click()
    assert not evidence.is_visible()
    assert mark.inner_text().startswith("✓")


def test_without_scripts_a_mark_and_a_fold_of_code_lead_to_what_they_open(visit):
    page = visit("streams/", java_script_enabled=False)
    mark = page.locator(".ov-mark:visible").nth(3)
    target, place = mark.get_attribute("href").partition("#")[2], mark.get_attribute("id")
    mark.click()
    page.wait_for_url(f"**/generated/folds/streams.html#{target}")
    evidence = page.locator(f"[id='{target}']")
    assert evidence.locator("li code").first.is_visible()
    evidence.locator(".headerlink").click()
    page.wait_for_url(f"**/streams/#{place}")
    row = page.locator(".ov-row:has(.ov-later)").first
    row.locator("summary").first.click()
    row.locator(".ov-later a").first.click()
    page.wait_for_url("**/generated/folds/streams.html#code-*")
    assert page.locator(":target .highlight").first.is_visible()
    fold = page.locator(".ov-rest").first
    fold.locator("summary").click()
    fold.locator("a").click()
    assert page.locator(":target .highlight").is_visible()


def test_the_rest_of_code_and_what_a_run_was_made_by_come_when_they_are_opened(visit, shown):
    page = visit("streams/")
    fold = page.locator(".ov-rest").first
    fold.locator("summary").click()
    lines = fold.locator(".highlight code").inner_text().split("\n")
    assert fold.locator("summary").inner_text() == f"{sum(map(bool, map(str.strip, lines)))} more lines"
    run = page.locator(".ov-run:has(.ov-provenance)").first
    run.locator(".ov-provenance summary").click()
    name = run.locator(".ov-part").get_attribute("data-name")
    told = shown(run.get_attribute("data-machine"))["snippets"][name]["provenance"]
    playwright.expect(run.locator(".ov-provenance p")).to_contain_text(f"{told} · raw recording")


def test_a_link_to_the_same_page_closes_the_evidence(visit):
    page = visit("")
    page.locator(".ov-mark").first.click()
    evidence = page.locator(".ov-evidence:popover-open")
    evidence.get_by_role("link", name="what the mark says").click()
    page.wait_for_url("**/#marks")
    playwright.expect(evidence).to_have_count(0)


@pytest.mark.parametrize("width", [360, 1280])
def test_a_value_tells_what_it_comes_from(visit, width):
    page = visit("streams/", width=width)
    value = page.locator(".md-content :is(p, li) data:visible").first
    told = "element => getComputedStyle(element, '::after').content"
    assert value.evaluate(told) == "none"
    value.click()
    playwright.expect(value).to_have_attribute("data-note", re.compile("^streams/"))
    note = value.get_attribute("data-note")
    assert value.evaluate(told) == f'"{note}"'
    assert page.evaluate("document.documentElement.scrollWidth") <= width


# Every page: console, network, width, links


#: Every picture has been in view once.
ALL_IN_VIEW = """() => {
  const waiting = [...document.querySelectorAll("picture")].filter(picture => picture.getClientRects().length)
  waiting[0]?.scrollIntoView()
  return !waiting.length
}"""

#: What is open before anybody has opened it; and, with all that folds opened, text that ends at the edge of
#: its box.
OPEN = """() => [...document.querySelectorAll(":popover-open, details[open]")]
  .map(each => each.outerHTML.slice(0, 100))"""
CUT = """() => {
  for (const fold of document.querySelectorAll(".md-content details")) fold.open = true
  const texts = ".ov-text:not(.ov-columns), :not(.language-python) > pre > code"
  const parts = `:is(${texts}, table:not([class]), .ov-cards)`
  return [...document.querySelectorAll(`.md-content ${parts}`)]
    .filter(box => box.clientWidth && box.scrollWidth > box.clientWidth + 1)
    .map(box => box.outerHTML.slice(0, 150))
}"""

#: Words of drawings, pictures and calculators that lie on each other, or leave their picture.
ON_EACH_OTHER = """() => [...document.querySelectorAll(".md-content svg")].flatMap(svg => {
  const frame = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")]
    .map(text => [text.textContent.trim(), text.getBoundingClientRect()])
    .filter(([words, box]) => words && box.width && box.height)
  return texts.flatMap(([words, box], place) => [
    ...(box.right > frame.right + 3 || box.left < frame.left - 3 ? [`${words} leaves its picture`] : []),
    ...texts.slice(place + 1).filter(([, other]) =>
      Math.min(box.right, other.right) - Math.max(box.left, other.left) > 2
      && Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top) > 4
    ).map(([others]) => `${words} lies on ${others}`),
  ])
})"""

#: Opens the sections for a second reading.
DEEPER = "() => document.querySelectorAll('.ov-deeper, .ov-row').forEach(fold => { fold.open = true })"

#: The width of what the page shows, for each machine.
WIDTHS = """async () => {
  const select = document.querySelector(".ov-picker select"), widths = {}
  for (const { value } of select.options) {
    select.value = value
    select.dispatchEvent(new Event("change"))
    const arrived = () => document.documentElement.dataset.machine === value
    for (let i = 0; i < 500 && !arrived(); i++) await new Promise(done => setTimeout(done, 20))
    widths[value] = arrived() ? document.documentElement.scrollWidth : Infinity
  }
  return widths
}"""


@pytest.fixture(scope="session")
def visits(browser, address, paths) -> dict[str, dict]:
    """What happens when each page is opened on a narrow screen, by path."""
    found = {}
    context = browser.new_context(base_url=address, viewport={"width": 360, "height": 800})
    context.new_page().goto(NOWHERE)  # its process stays
    for path in paths:
        messages, elsewhere, failed = [], [], []
        page = context.new_page()
        page.on(
            "console", lambda message, to=messages: to.append(message.text) if message.type != "log" else None
        )
        page.on("pageerror", lambda error, to=messages: to.append(str(error)))
        page.on("request", lambda request, to=elsewhere: to.append(request.url))
        page.on(
            "response",
            lambda response, to=failed: to.append(response.url) if response.status >= 400 else None,
        )
        page.goto(path, wait_until="load")
        page.wait_for_function("document.documentElement.dataset.machine")
        is_open = page.evaluate(OPEN)
        page.evaluate(DEEPER)
        page.wait_for_function(ALL_IN_VIEW)
        widths = page.evaluate(WIDTHS)
        cut = page.evaluate(CUT) if not path.startswith(NOTEBOOKS) else []
        page.wait_for_function(ALL_IN_VIEW)  # what CUT has opened
        asked = list(elsewhere)
        elsewhere = [url for url in elsewhere if not url.startswith((address, "data:", "blob:"))]
        found[path] = {
            "messages": messages,
            "asked": asked,
            "elsewhere": elsewhere,
            "failed": failed,
            "widths": widths,
            "open": is_open,
            "cut": cut,
            "on_each_other": page.evaluate(ON_EACH_OTHER),
        }
        page.close()
    context.close()
    return found


def test_no_page_complains(visits):
    assert {path: seen["messages"] for path, seen in visits.items() if seen["messages"]} == {}
    assert {path: seen["failed"] for path, seen in visits.items() if seen["failed"]} == {}


def test_no_page_asks_another_host(visits):
    assert {path: seen["elsewhere"] for path, seen in visits.items() if seen["elsewhere"]} == {}


def test_no_page_is_wider_than_a_narrow_screen(visits):
    assert {path: seen["widths"] for path, seen in visits.items() if max(seen["widths"].values()) > 360} == {}


def test_nothing_is_open_that_nobody_opened(visits):
    assert {path: seen["open"] for path, seen in visits.items() if seen["open"]} == {}


def test_no_output_code_or_table_is_cut_on_a_narrow_screen(visits):
    assert {path: seen["cut"] for path, seen in visits.items() if seen["cut"]} == {}


def test_no_words_of_a_picture_lie_on_each_other(visits):
    assert {path: seen["on_each_other"] for path, seen in visits.items() if seen["on_each_other"]} == {}


class Document(HTMLParser):
    """Ids and links of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links |= {
            attributes[key] for key in ("href", "src", "srcset", "xlink:href") if attributes.get(key)
        }


@pytest.fixture(scope="session")
def documents(site, paths) -> dict[str, Document]:
    """All pages, taken apart."""
    return {path: Document((site / path / "index.html").read_text()) for path in paths}


def test_a_picture_is_what_an_output_shows_first(site, paths):
    files = [site / path / "index.html" for path in paths] + sorted(site.glob("generated/folds/*.html"))
    choices = [each for file in files for each in file.read_text().split('class="ov-choice"')[1:]]
    buttons = [
        re.findall(r'name="ov-view-.*?value="(\w+)"( checked)?', each.split("</div>")[0]) for each in choices
    ]
    drawn = [dict(each) for each in buttons if "picture" in dict(each)]
    assert len(drawn) > 50 and all(each["picture"] for each in drawn)


def links(site: Path, path: str, document: Document) -> Iterator[str]:
    """The links of a page, and of what its closed rows fetch, which are relative to the page."""
    yield from document.links
    fetched = site / "generated/folds" / f"{path.strip('/')}.html"
    if fetched.is_file():
        yield from Document(fetched.read_text()).links


def test_no_link_is_broken(site, documents):
    broken, linked = [], set()
    for path, document in documents.items():
        for link in links(site, path, document):
            if link.startswith(("http:", "https:", "data:", "mailto:")):
                continue
            target, anchor = urldefrag(urljoin(f"/{path}", link))
            target = unquote(target).lstrip("/")
            file = site / target / "index.html" if target in documents else site / target
            linked.add(file)
            if not file.is_file() or not file.stat().st_size:
                broken.append(f"{path}: {link}: there is no such file")
            elif anchor and target in documents and unquote(anchor) not in {*documents[target].ids, "__top"}:
                broken.append(f"{path}: {link}: there is no such anchor")
    assert broken == [], "\n".join(broken)
    for file in linked:
        if file.suffix in (".json", ".ipynb"):
            json.loads(file.read_text())
    kinds = {str(Path(*file.relative_to(site).parts[:2])) for file in linked}
    assert {f"generated/{kind}" for kind in ("downloads", "notebooks", "pictures", "traces")} <= kinds


def test_no_id_is_given_twice(documents):
    twice = {path: {i for i in page.ids if page.ids.count(i) > 1} for path, page in documents.items()}
    assert {path: ids for path, ids in twice.items() if ids} == {}


# Accessibility


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core."""
    package = find_spec("axe_playwright_python") or pytest.skip("axe-playwright-python is not installed")
    return (Path(package.origin).parent / "axe.min.js").read_text()


def violations(
    page, axe: str, impacts: set[str], options: str = "{resultTypes: ['violations']}"
) -> list[str]:
    """What axe finds of these impacts."""
    page.evaluate(DEEPER)
    page.evaluate(axe)
    found = page.evaluate(f"axe.run(document, {options})")["violations"]
    lines = []
    for item in found:
        if item["impact"] not in impacts:
            continue
        nodes = []
        for node in item["nodes"][:5]:
            reason = node["any"][:1] and node["any"][0]["message"]
            nodes.append(f"{node['html'][:200]}{reason}")
        lines.append(f"{item['id']}: {item['help']}: {nodes} of {len(item['nodes'])}")
    return lines


@pytest.mark.parametrize(
    ("path", "width", "scheme"),
    [(path, 1280, "light") for path in ("", "devices/", "claims/")]
    + [(path, 390, "dark") for path in ("", "training/", "snippets/", "glossary/")],
)
def test_axe_finds_nothing_serious(visit, axe, path, width, scheme):
    """And on a chapter nothing moderate; all pages in all ways are a slow test."""
    impacts = {"serious", "critical"} | ({"moderate"} if path in CHAPTERS else set())
    assert violations(visit(path, width=width, scheme=scheme), axe, impacts) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "scheme"), [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
)
def test_axe_finds_nothing_serious_on_any_page(visit, axe, paths, chapters, width, scheme):
    """And on no chapter anything moderate."""
    found = {}
    for path in paths:
        impacts = {"serious", "critical"} | (
            {"moderate"} if path in chapters and "notebooks" not in path else set()
        )
        page = visit(path, width=width, scheme=scheme)
        found[path] = violations(page, axe, impacts)
        page.close()
    assert not any(found.values()), found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_printed_can_be_read(visit, axe, scheme):
    page = visit("streams/", scheme=scheme)
    page.emulate_media(media="print")
    page.wait_for_timeout(500)  # the theme fades colours
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert violations(page, axe, {"serious", "critical"}, "{runOnly: ['color-contrast']}") == []


# Weight, no script


def test_the_longest_chapters_are_light(browser, address, site, chapters):
    """At most 150 kB of HTML, and 180 kB over the wire, apart from fonts; the index of the search waits."""
    sizes = {path: (site / path / "index.html").stat().st_size for path in chapters}
    assert max(sizes.values()) < 150_000, sizes
    for path in sorted(sizes, key=sizes.get)[-3:]:
        context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 900})
        page, responses = context.new_page(), []
        page.on("response", lambda response, to=responses: to.append(response))
        page.goto(path, wait_until="load")
        page.wait_for_function("document.documentElement.dataset.machine")
        weights = {}
        for response in responses:
            if not response.url.endswith(".woff2"):
                weights[response.url.removeprefix(address)] = len(gzip.compress(response.body()))
        context.close()
        assert sum(weights.values()) <= 180_000, (path, weights)


#: Lists in lists, paragraphs before what ends them and what does not, a table, code.
WHOLE = """<div><p>a <b>b</b></p>
  <ul><li>c<ul><li>d</li></ul></li><li><p>e</p></li></ul><p>f</p><span>g</span><p>h</p><details><summary>i</summary>
  <p>j</p></details><table><thead><tr><th>k</th><th></th></tr></thead>
  <tbody><tr><td>l</td><td></td></tr><tr><td colspan="2"><p>m</p></td></tr></tbody></table><p>n</p>o
  <p><code>&lt;/p&gt;</code></p><pre><code></li><li>
    p</code></pre><a><p>q</p></a><a class="md-nav__link" href="#r"><span class="md-ellipsis">r</span></a>
  <svg><text>s</text>
  <text>t</text></svg></div>"""


def test_a_browser_adds_what_is_left_out_of_a_page(visit):
    page = visit("timing/")
    short = squeezed(WHOLE)
    assert len(short) < 0.8 * len(WHOLE) and "</li><li>\n    p" in short
    read = """text => new DOMParser().parseFromString(text, "text/html").body.innerHTML"""
    bodies = [page.evaluate(read, each) for each in (WHOLE, short)]
    whole, made = (re.sub(r"(?<=>)\s+|\s+(?=<)", "", body) for body in bodies)
    assert made == whole


def test_code_keeps_its_text_and_the_marks_that_have_a_colour():
    marked = '<pre><code><span class="kn">import</span><span class="w"> </span><span class="n">a</span>'
    assert squeezed(marked) == '<pre><code><span class="kn">import</span> a'


def test_a_chapter_can_be_read_before_any_script_runs(visit, chapters):
    shown = {}
    for path in chapters:
        page = visit(path, java_script_enabled=False)
        # evaluate() works all the same: what is off is the page's own script
        found = page.evaluate(FOLLOWERS)
        shown[path] = len(found["outputs"])  # outputs of closed rows are fetched
        assert all(output["runs"] == 1 for output in found["outputs"]), path
        assert all(value["text"] for value in found["values"])
        code = page.locator(".md-content pre > code").evaluate_all(
            "all => all.filter(code => !code.closest('details')).map(code => code.clientHeight)"
        )
        assert code and min(code) > 10
        page.close()
    assert sum(bool(outputs) for outputs in shown.values()) > len(shown) / 2


# Print


def test_the_clinic_prints_no_sentence_on_the_game_that_paper_lacks(visit):
    page = visit("clinic/")
    sentence = page.get_by_text("Find its six faults in the traces")
    assert sentence.is_visible()
    page.emulate_media(media="print")
    assert not sentence.is_visible() and not page.locator(".ov-find-fault").is_visible()


@pytest.mark.parametrize("path", ["machine/", "streams/"])
def test_a_chapter_prints_whole(visit, path):
    page = visit(path, width=718)  # A4 without its margins
    page.emulate_media(media="print")
    hidden = page.locator(".md-header, .md-sidebar, .md-footer, .md-code__nav, .ov-picker").all()
    assert hidden and not any(element.is_visible() for element in hidden)
    cut = page.evaluate(
        """() => [...document.querySelectorAll(
          ".md-content pre, .md-content pre > code, .md-content table, .ov-figure, .ov-numbers")]
          .filter(box => box.getClientRects().length)
          .filter(box => box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1)
          .map(box => box.outerHTML.slice(0, 200))"""
    )
    assert cut == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    assert len(page.pdf(format="A4")) > 50_000


# Plots


def test_marks_of_a_plot_tell_their_value(visit):
    """To a pointer and to the keyboard, at once, by a line under the picture that screen readers speak."""
    page = visit("devices/")
    figure = page.locator(".ov-figure:visible").first
    figure.scroll_into_view_if_needed()
    group = figure.locator(".ov-picture")
    assert group.get_attribute("role") == "group" and group.get_attribute("aria-label")
    marks = group.locator("rect.ov-point")
    titles = marks.all_text_contents()
    assert len(titles) > 1 and all(titles) and marks.locator("title").count() == 0, "a title would come late"
    box = marks.first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    told = figure.locator("[aria-live=polite]")
    assert told.is_visible() and told.inner_text() == titles[0], "also that of the first picture"
    page.mouse.move(0, 0)
    assert told.inner_text() == ""
    group.focus()
    page.keyboard.press("ArrowRight")
    assert told.inner_text() == titles[0]
    page.keyboard.press("ArrowRight")
    assert told.inner_text() == titles[1]
    page.keyboard.press("End")
    assert told.inner_text() == titles[-1]
    page.keyboard.press("ArrowLeft")
    assert told.inner_text() == titles[-2]
    assert figure.locator(".ov-point.ov-at").count() == 1
    page.keyboard.press("Tab")
    assert told.inner_text() == "" and figure.locator(".ov-point.ov-at").count() == 0


def test_the_keyboard_opens_the_drawer_of_a_narrow_page_and_goes_through_no_closed_one(visit):
    page = visit("timing/", width=390)
    beside = """() => {
      const { left, right } = document.activeElement.getBoundingClientRect()
      return document.activeElement !== document.body && (right <= 0 || left >= innerWidth)
    }"""
    for _ in range(20):
        page.keyboard.press("Tab")
        assert not page.evaluate(beside), page.evaluate("document.activeElement.outerHTML")
        assert not page.evaluate("document.activeElement.matches('.md-search__scrollwrap')")
    toggle, button = page.locator("#__drawer"), page.locator(".md-header__button[for=__drawer]")
    for key in ("Enter", "Space"):
        button.focus()
        page.keyboard.press(key)
        assert toggle.is_checked()
        assert page.evaluate("document.activeElement.closest('.md-sidebar--primary') !== null")
        page.keyboard.press("Escape")
        assert not toggle.is_checked()
        assert button.evaluate("button => button === document.activeElement")


def test_what_a_mark_of_a_claim_opens_begins_with_words(site):
    """The formula stands in the fold that says how it is tested; it names a strip only beside others."""
    folds = [file.read_text() for file in (site / "generated/folds").glob("*.html")]
    names = [name for text in folds for name in re.findall(r'class="ov-strip-of">([^<]*)', text)]
    assert len(names) > 100 and [name for name in names if re.search(r"[\[(]", name)] == []
    opened = [part for text in folds for part in text.split('<div class="ov-evidence')[1:]]
    several = [part for part in opened if part.count('class="ov-strip"') > 1]
    assert several and {part.count('"ov-strip-of"') - part.count('"ov-strip"') for part in several} == {0}


def test_a_box_to_paste_is_read_whole_on_a_phone_and_copied_as_it_is_written(visit):
    page = visit("transfers/", width=390)
    code = page.locator(".ov-paste pre > code").first
    written = code.text_content()
    assert code.evaluate("code => code.scrollWidth <= code.clientWidth")
    assert max(map(len, written.splitlines())) > 70
    copied = code.evaluate(
        """code => { getSelection().selectAllChildren(code); return getSelection().toString() }"""
    )
    assert copied.strip() == written.strip() and compile(copied, "box", "exec")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".ov-paste .md-code__button").first.click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text.length > 0)")
    assert page.evaluate("navigator.clipboard.readText()") == written.rstrip()


@pytest.mark.parametrize("path, kind", [("transfers/", "paste"), ("pycuda/", "paste"), ("pycuda/", "wraps")])
def test_a_line_to_paste_that_wraps_goes_on_further_in(visit, path, kind):
    """So that no reader takes its rest for a line of Python, also within a text of several lines."""
    page = visit(path, width=390)
    lines = (
        page.locator(f".ov-{kind} pre:visible")
        .locator(".ov-line")
        .evaluate_all(
            """lines => lines.map(line => {
          const words = document.createTreeWalker(line, NodeFilter.SHOW_TEXT), range = document.createRange()
          range.selectNodeContents(line)
          range.setStart(words.nextNode(), line.textContent.search(/\\S|$/))
          return [...range.getClientRects()].map(({ left, top }) => [Math.round(top), left])
        })"""
        )
    )
    wrapped = 0
    for places in filter(None, lines):
        begin = {top: min(left for at, left in places if at == top) for top, _ in places}
        first, *rest = (begin[top] for top in sorted(begin))
        wrapped += len(rest)
        assert all(left > first + 10 for left in rest)
    assert len(lines) > 15 and wrapped > 3


def test_a_comment_that_has_no_room_begins_a_line(visit):
    page = visit("transfers/", width=390)
    comments = page.locator(".ov-paste pre:visible .c1")
    heights = comments.evaluate_all("comments => comments.map(each => each.offsetHeight)")
    line = page.locator(".ov-paste .ov-line").first.evaluate("line => line.offsetHeight")
    assert len(heights) >= 2 and max(heights) < 1.5 * line


@pytest.mark.parametrize("path", ["asynchrony/", "transfers/"])
def test_what_a_mark_tells_covers_no_axis_and_moves_nothing(visit, path):
    page = visit(path, width=1440)
    step = page.locator(".ov-step")
    step.scroll_into_view_if_needed()
    step.locator(".ov-picture .ov-point").first.wait_for(state="attached")
    high = step.evaluate("step => step.offsetHeight")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        step.locator(".ov-picture .ov-point").first.wait_for(state="attached")
        step.locator(".ov-picture").focus()
        page.keyboard.press("Home")
        page.keyboard.press("End")
        told = step.locator(".ov-told")
        assert told.inner_text()
        top = told.bounding_box()["y"]
        texts = [text.bounding_box() for text in step.locator(".ov-picture text").all()]
        assert max(box["y"] + box["height"] for box in texts) <= top + 0.5  # of a pixel that is rounded
        if width == 1440:
            assert step.evaluate("step => step.offsetHeight") == high


@pytest.mark.parametrize(
    ("path", "lanes"),
    [
        ("streams/", "one_stream_is_serial"),
        ("training/", "dataparallel_by_hand"),
        ("clinic/", "six_faults"),
        ("timing/", "lanes"),
    ],
)
def test_a_timeline_opens_below_its_picture_in_place_of_the_button_and_closes(visit, path, lanes):
    page = visit(path)
    page.evaluate("for (const fold of document.querySelectorAll('.ov-deeper')) fold.open = true")
    figure = page.locator(f".ov-figure[data-timelines$='/{lanes}.json']:visible").first
    still, button = figure.locator(":is(picture, .ov-picture):visible"), figure.locator(".ov-explorable")
    button.scroll_into_view_if_needed()
    figure.locator(".ov-picture").wait_for()
    high = still.evaluate("still => still.offsetHeight")
    button.get_by_role("button", name="Explore this timeline").click()
    figure.locator(".ov-timeline").wait_for()
    assert page.evaluate("document.activeElement.classList.contains('ov-timeline')")
    page.keyboard.press("ArrowRight")
    assert re.search(r", from [\d.]+ [µm]?s on\.", figure.locator(".ov-explore .ov-told").inner_text())
    assert still.count() == 1 and still.evaluate("still => still.offsetHeight") == high
    assert not button.is_visible(), "the tools stand there"
    below = figure.locator(".ov-explore").bounding_box()
    above = still.bounding_box()
    assert 0 <= below["y"] - above["y"] - above["height"] <= 30
    figure.get_by_role("button", name="Mark").click()
    assert figure.locator(".ov-explore .ov-told").inner_text().startswith("Now drag across")
    figure.get_by_role("button", name="Close").click()
    assert still.count() == 1 and button.is_visible()
    assert page.evaluate("document.activeElement.innerText") == "Explore this timeline"


@pytest.mark.parametrize("width", [1440, 390])
def test_a_timeline_opens_where_the_reader_looks_and_closes_to_where_he_was(visit, width):
    page = visit("streams/", width=width, rows=False)
    figure = page.locator(".ov-summary .ov-figure[data-timelines]").first
    figure.scroll_into_view_if_needed()
    explore = figure.get_by_role("button", name="Explore this timeline")
    explore.evaluate("button => scrollBy(0, button.getBoundingClientRect().top - 600)")
    before = page.evaluate("scrollY")
    explore.click()
    figure.locator(".ov-timeline").wait_for()
    page.wait_for_timeout(300)
    header = page.locator(".md-header").bounding_box()
    tools, canvas = (
        figure.locator(f".ov-explore {part}").first.bounding_box() for part in (".ov-tools", ".ov-timeline")
    )
    assert header["y"] + header["height"] <= tools["y"] < canvas["y"], "not under the header"
    assert canvas["y"] + canvas["height"] <= 900
    figure.get_by_role("button", name="Close").click()
    page.wait_for_timeout(300)
    assert abs(page.evaluate("scrollY") - before) <= 2


def test_what_explores_timelines_is_fetched_for_the_game_or_where_a_reader_asks(visits):
    parts = ("timeline.js", "fault.js", "vendor/")
    for path, seen in visits.items():
        asked = [url for url in seen["asked"] if any(part in url for part in parts)]
        assert path == "clinic/" or asked == [], path


SEEN = """() => {
  Object.assign(window, { shift: 0, longest: 0 })
  const see = (type, act) => new PerformanceObserver(list => list.getEntries().forEach(act)).observe({ type })
  see("layout-shift", ({ value, hadRecentInput }) => { if (!hadRecentInput) window.shift += value })
  see("longtask", ({ duration }) => { window.longest = Math.max(window.longest, duration) })
}"""


def test_evidence_stays_within_the_text_beside_the_contents(visit):
    page = visit("timing/", width=1440)
    text = page.locator("article").bounding_box()
    for mark in page.locator("article .ov-mark[href]:visible").all()[:12]:
        mark.click()
        shown = page.locator(".ov-evidence:popover-open")
        shown.wait_for()
        box = shown.bounding_box()
        assert text["x"] - 1 <= box["x"] and box["x"] + box["width"] <= text["x"] + text["width"] + 1
        page.keyboard.press("Escape")


@pytest.mark.parametrize("width", [1440, 390])
def test_the_game_begins_in_view_and_moves_nothing(visit, width):
    page = visit("check/", width=width, rows=False)
    page.add_init_script(f"({SEEN})()")
    page.goto("clinic/", wait_until="load")
    game = page.locator(".ov-find-fault")
    game.scroll_into_view_if_needed()
    game.locator(".ov-timeline").wait_for()
    page.wait_for_timeout(300)
    assert page.evaluate("window.shift") <= 0.02 and page.evaluate("window.longest") <= 1000
    lanes = game.locator("text[text-anchor=end]").all_text_contents()
    assert lanes[0] == "Python" and "GPU" in lanes, "as in the chapter's drawings"


@pytest.mark.parametrize("width", [1440, 390])
def test_scripts_that_come_after_the_first_paint_move_nothing(visit, width):
    """What they put in has its room before."""

    def late(route):
        time.sleep(0.3)
        route.continue_()

    page = visit("check/", width=width, rows=False)
    page.add_init_script(f"({SEEN})()")
    page.route("**/*.js", late)
    for path in ("first_steps/", "sharding/"):
        page.goto(path, wait_until="load")
        page.locator(".ov-picture").first.wait_for()
        page.wait_for_timeout(300)
        assert page.evaluate("window.shift") <= 0.02, path


@pytest.mark.parametrize("width", [1440, 390])
def test_after_a_right_choice_the_game_says_so_below_the_header(visit, width):
    page = visit("clinic/#find-the-fault", width=width, rows=False)
    page.locator(".ov-find-fault .ov-timeline").wait_for()
    page.locator(".ov-find-fault button", has_text="nobody reads ahead").click()
    header = page.locator(".md-header").bounding_box()
    verdict = page.locator(".ov-find-fault .ov-verdict").bounding_box()
    assert verdict["y"] >= header["y"] + header["height"]
    assert verdict["y"] + verdict["height"] <= page.viewport_size["height"]


def test_an_answer_keeps_its_labels_until_a_reader_explores_its_timeline(visit):
    page = visit("first_steps/", rows=False)
    figure = page.locator(".ov-summary .ov-figure")
    figure.scroll_into_view_if_needed()
    figure.locator(".ov-picture").wait_for()
    assert "ResNet" in figure.locator(".ov-picture").text_content()
    figure.get_by_role("button", name="Explore this timeline").click()
    figure.locator(".ov-timeline").wait_for()
    assert figure.get_by_role("button", name="Longest gap").count() == 0, "its gaps are too short"


def test_the_names_of_several_timelines_fit_a_phone(visit):
    page = visit("streams/", width=390, rows=False)
    figure = page.locator(".ov-summary .ov-figure").first
    figure.scroll_into_view_if_needed()
    figure.get_by_role("button", name="Explore this timeline").click()
    figure.get_by_label("Timeline", exact=True).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_scripts_an_answer_has_the_picture_of_its_timeline(visit):
    page = visit("streams/", java_script_enabled=False)
    figure = page.locator(".ov-summary .ov-figure")
    assert figure.locator("img").is_visible() and not figure.locator(".ov-explorable").is_visible()
    assert not visit("clinic/", java_script_enabled=False).locator(".ov-find-fault").is_visible()


def test_the_choices_of_the_game_do_not_stand_in_the_order_of_their_repair(visit):
    page = visit("clinic/", rows=False)
    page.locator(".ov-find-fault").scroll_into_view_if_needed()
    page.locator(".ov-find-fault .ov-timeline").wait_for()
    choices = page.locator(".ov-find-fault .ov-tools").last.locator("button")
    words = choices.all_inner_texts()
    assert len(words) == 6 and words == sorted(words)
    cells = page.locator(".ov-faults tbody tr td:first-child").evaluate_all(
        "cells => cells.map(cell => cell.textContent.replace(cell.querySelector('code').textContent, ''))"
    )
    assert sorted(cells) == words != cells


#: What is seen of the first snippet with a picture.
VIEWS = """() => {
  const views = document.querySelector(".ov-views:has(.ov-figure)")
  const seen = part => [...views.querySelectorAll(part)].some(element => element.getClientRects().length)
  const parts = ["picture, .ov-picture", ".ov-printout", ".ov-numbers tr", ".ov-numbers a", ".ov-file"]
  return parts.filter(seen)
}"""


@pytest.mark.parametrize("scripts", [True, False])
def test_a_row_of_views_chooses_picture_output_numbers_or_file(visit, scripts):
    """Without the site's scripts, too, but for numbers; on paper stand picture and output."""
    numbers = ".ov-numbers tr" if scripts else ".ov-numbers a"
    page = visit("devices/", java_script_enabled=scripts)
    views = page.locator(".ov-views:has(.ov-figure)").first
    if not scripts:  # else `visit` has opened its row, and it has come
        page.goto("generated/folds/devices.html")
    assert page.evaluate(VIEWS) == ["picture, .ov-picture"]
    for name, part in (("Output", ".ov-printout"), ("Numbers", numbers), ("File", ".ov-file")):
        views.locator(".ov-choice label", has_text=name).click()
        views.locator(part).first.wait_for()
        assert page.evaluate(VIEWS) == [part]
    page.emulate_media(media="print")
    assert page.evaluate(VIEWS) == ["picture, .ov-picture", ".ov-printout"]
    page.emulate_media(media="screen")
    views.get_by_role("radio", name="File").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(VIEWS) == [numbers]


def test_a_link_into_a_closed_row_opens_it(visit, site):
    page = visit("streams/", rows=False)
    section = page.locator("#how-many-streams-are-there")
    row = page.locator(".ov-row", has=section)
    assert row.get_attribute("open") is None and section.is_visible()
    page.locator(".md-nav--secondary a:visible", has_text="32 streams, eight queues").last.click()
    playwright.expect(row).to_have_attribute("open", "")
    playwright.expect(section).to_be_in_viewport()
    page = visit("streams/#claim-pool-of-32")
    playwright.expect(page.locator("#claim-pool-of-32-evidence")).to_be_visible()
    page = visit("symptoms/")
    page.locator('a[href$="streams/#how-many-streams-are-there"]').first.click()
    playwright.expect(page.locator("#how-many-streams-are-there")).to_be_in_viewport()
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    places = {entry["location"] for entry in entries}
    assert "streams/#how-many-streams-are-there" in places and "streams/#deeper" not in places


def test_rows_open_without_scripts(visit):
    page = visit("streams/", java_script_enabled=False)
    assert page.get_by_text("Without scripts a number in a closed row").is_visible()
    row = page.locator(".ov-row", has=page.locator("#how-many-streams-are-there"))
    text = row.locator("p").first
    assert not text.is_visible()
    row.locator("summary").first.click()
    assert text.is_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_guess_marks_what_was_chosen_and_opens_its_answer(visit, axe, width):
    page = visit("streams/", width=width)
    guess = page.locator(".ov-guess").first
    answer, wrong = guess.locator("details"), guess.locator("label:not(.ov-right)").first
    look = "(label, part) => getComputedStyle(label, '::after').content"
    assert answer.get_attribute("open") is None and guess.locator(".ov-right").evaluate(look) == "none"
    wrong.click()
    assert answer.get_attribute("open") is not None and answer.locator("p").last.is_visible()
    assert guess.locator(".ov-right").evaluate(look) == '"✓"' and wrong.evaluate(look) == '"✗"'
    page.keyboard.press("ArrowDown")
    assert guess.locator("input:checked").count() == 1
    assert violations(page, axe, {"serious", "critical", "moderate"}) == []
    answer.get_by_role("link", name="See what was measured").click()
    assert page.url.endswith("#snippet-streams-race_broken")


#: How high a chapter's part of the step is, and where the chapter's evidence begins, in pixels.
STEP = """() => ({ high: document.querySelector(".ov-step")?.offsetHeight ?? 0,
  evidence: document.querySelector("#evidence").getBoundingClientRect().y + scrollY })"""


@pytest.mark.parametrize(("width", "most"), [(1440, 225), (390, 295)])
def test_a_chapter_has_a_low_step_and_its_answer_is_not_long(visit, chapters, width, most):
    steps = []
    for path in chapters:
        page = visit(path, width=width, rows=False)
        if not page.locator("#evidence").count():
            page.close()
            continue
        if page.locator(".ov-step").count():
            steps.append(path)
            assert page.locator(".ov-step img").get_attribute("alt")
        found = page.evaluate(STEP)
        assert found["high"] <= most, path
        assert found["evidence"] <= 6000 or width == 390, path
        page.close()
    assert len(steps) == 9


def test_a_step_of_several_gpus_is_never_that_of_one(visit):
    """Where one GPU is picked: that of the same GPUs, two of them, which it names."""
    page = visit("collectives/?machine=h200", rows=False)
    step = page.locator(".ov-step")
    step.locator(".ov-run[data-machine=h200-x2]").wait_for()
    assert "/h200-x2/" in step.locator("img").get_attribute("src")
    told = step.inner_text()
    values = step.locator("data").evaluate_all("values => values.map(value => value.dataset.on)")
    # the values of its words name the machine, where it has some, or else the title does
    named = None if page.locator(".ov-here").inner_text() == "2 × H200" else "2 × H200"
    assert {*values} == {named} if values else "2 × H200" in told
    assert "Did not run on" not in told


CHOICES = """() => [...document.querySelectorAll(".ov-guess")[0].querySelectorAll("label")]
  .map(label => [label.querySelector("b").textContent, label.querySelector("span").textContent])"""


def test_the_choices_of_a_guess_are_shuffled_and_their_letters_are_not(visit):
    written = visit("memory/", java_script_enabled=False).evaluate(CHOICES)
    page = visit("check/")
    page.add_init_script("Math.random = () => 0")  # the first choice comes last
    page.goto("memory/", wait_until="load")
    page.locator(".ov-guess [data-shuffled]").first.wait_for()
    shuffled = page.evaluate(CHOICES)
    texts = [text for _, text in written]
    assert [letter for letter, _ in shuffled] == [letter for letter, _ in written] == ["A", "B", "C"]
    assert [text for _, text in shuffled] == [*texts[1:], texts[0]]
    assert page.locator(".ov-guess .ov-right b").first.inner_text() == "B"
    page.goto("streams/", wait_until="load")
    page.wait_for_timeout(300)
    assert [text for _, text in page.evaluate(CHOICES)] == ["in none", "in some", "in all"], (
        "they have an order"
    )


def test_guesses_are_counted_by_their_first_choice_until_the_page_is_left(visit):
    page = visit("streams/")
    score, guesses = page.locator(".ov-score"), page.locator(".ov-guess")
    assert guesses.count() == 4 and score.count() == 0
    guesses.nth(0).locator(".ov-right").click()
    assert score.all_inner_texts() == ["1 of 1 guessed right; 3 more in this chapter."] * 2
    guesses.nth(1).locator("label:not(.ov-right)").first.click()
    guesses.nth(1).locator(".ov-right").click()
    assert score.first.inner_text() == "1 of 2 guessed right; 2 more in this chapter."
    for place in (2, 3):
        guesses.nth(place).locator(".ov-right").click()
    assert score.last.inner_text() == "3 of 4 guessed right."
    page.reload(wait_until="load")
    assert score.count() == 0


def test_a_guess_has_its_answer_in_a_fold_without_scripts(visit):
    page = visit("streams/", java_script_enabled=False)
    guess = page.locator(".ov-guess").first
    guess.locator("summary").click()
    assert guess.locator("details p").last.is_visible()


@pytest.mark.parametrize("path", ["clinic/", "timing/"])
def test_how_a_figure_was_measured_leads_to_what_the_snippet_printed(visit, path):
    page = visit(path, rows=False)
    link = page.locator(".ov-how").first
    views = page.locator(f"#{link.get_attribute('href').rpartition('#')[2]} + .ov-views")
    link.click()
    views.locator(".ov-printout").first.wait_for()
    assert views.locator("[value=output]").is_checked()


def test_a_row_above_a_figure_is_there_only_where_it_has_controls(visit):
    page = visit("processes/", rows=False)
    high = page.locator(".ov-choice:empty").evaluate_all("rows => rows.map(row => row.offsetHeight)")
    assert high and set(high) == {0}
    assert page.locator(".ov-choice:has(select)").count()


LINES = """() => [...document.querySelectorAll(".md-content code")]
  .filter(code => !code.closest("pre") && code.offsetHeight)
  .filter(({ textContent: text }) => text.length <= 24 && text.includes("-"))
  .map(code => [code.textContent, code.getClientRects().length])"""


@pytest.mark.parametrize("path", ["rebuild/", "symptoms/", "claims/", "loader/"])
def test_short_code_with_a_hyphen_is_never_broken_on_a_phone(visit, path):
    page = visit(path, width=390)
    found = page.evaluate(LINES)
    assert len(found) > 4 and [text for text, lines in found if lines != 1] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_python_keeps_its_columns_on_a_phone(visit):
    page = visit("streams/", width=390)
    # A box to paste wraps: it is read whole.
    code = page.locator(".language-python:not(.ov-paste *) pre > code, .ov-columns")
    looks = code.evaluate_all("all => all.map(code => getComputedStyle(code).whiteSpace)")
    assert len(looks) > 5 and set(looks) == {"pre"}
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_under_a_finger_a_mark_is_larger_than_it_looks(visit):
    page = visit("asynchrony/", width=390)
    mark = page.locator(".ov-mark").first
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    reached = """({x, y, width, height}) => {
      const around = [[x - 4, y], [x + width + 4, y], [x, y - 6], [x, y + height + 6]]
      return around.map(place => document.elementFromPoint(...place)?.className ?? "")
    }"""
    assert all("ov-mark" in name for name in page.evaluate(reached, box))


@pytest.mark.parametrize("path", ["", "symptoms/", "clinic/", "snippets/"])
def test_under_a_finger_what_stands_alone_is_high_enough(visit, path):
    """24 pixels; a link within a sentence is as high as its line."""
    page = visit(path, width=390, has_touch=True)
    low = page.evaluate(
        """() => [...document.querySelectorAll(".md-content :is(a, input[type=range])")].filter(part => {
          const block = part.closest("p, li, td, h2, h3")
          const alone = part.matches("input") || block?.textContent.trim() === part.textContent.trim()
          const { width, height } = part.getBoundingClientRect()
          return alone && width && height < 24
        }).map(part => part.outerHTML)"""
    )
    assert low == []


@pytest.mark.parametrize("path", ["clinic/", "transfers/"])
def test_under_a_finger_what_is_pressed_is_40_pixels_high(visit, path):
    page = visit(path, width=390, has_touch=True)
    page.locator(".ov-explorable button, .ov-find-fault button").first.wait_for()
    page.locator(".ov-paste .md-code__button").first.scroll_into_view_if_needed()
    pressed = ".ov-guess :is(label, summary), .ov-machines select, :is(.ov-explorable, .ov-find-fault) button"
    heights = page.locator(pressed).evaluate_all(
        "parts => parts.map(part => part.getBoundingClientRect().height).filter(height => height)"
    )
    assert len(heights) > 8 and min(heights) >= 39.5
    box = page.locator(".ov-paste .md-code__button").first.bounding_box()
    reached = "({x, y, width, height}) => document.elementFromPoint(x + width / 2, y + height + 6).className"
    assert "md-code__button" in page.evaluate(reached, box)


def test_the_menu_begins_at_its_top_where_a_window_has_room(visit):
    page = visit("sharding/")
    page.wait_for_timeout(500)  # the theme scrolls it to the current page
    menu = page.locator(".md-sidebar--primary .md-sidebar__scrollwrap")
    assert menu.evaluate("menu => menu.scrollTop") == 0


def test_on_a_phone_the_copy_button_covers_no_code(visit):
    page = visit("asynchrony/", width=390)
    block = page.locator(".language-python:has(> .filename)").first
    block.scroll_into_view_if_needed()
    button = block.locator(".md-code__nav")
    button.wait_for()
    button, code = button.bounding_box(), block.locator("pre > code").bounding_box()
    assert button["y"] + button["height"] <= code["y"] + 1


def test_on_a_phone_each_cell_of_a_table_says_its_column(visit):
    """The first one is the card's name: what its column is called stands above the cards."""
    page = visit("asynchrony/", width=390)
    told = "cell => getComputedStyle(cell, '::before').content"
    assert page.locator("td[data-label='does not wait']").first.evaluate(told) == '"does not wait: "'
    assert page.locator("td[data-label='waits']").first.evaluate(told) == "none"
    assert page.locator("th:text-is('waits')").is_visible()


def test_nothing_that_is_shown_is_addressed_to_a_linter(site, paths):
    shown = [path for path in paths if not path.startswith(NOTEBOOKS) and path != "contributing/"]
    assert not [path for path in shown if "# noqa" in (site / path / "index.html").read_text()]


# Taking things home


def test_the_copy_button_copies_the_code(visit):
    page = visit("devices/", permissions=["clipboard-read", "clipboard-write"])
    every = page.locator(".md-content .highlight:has(pre > code)")
    assert page.locator(".md-content .highlight button[data-md-type=copy]").count() == every.count() > 1
    blocks = page.locator(".md-content .highlight:has(pre > code):not([data-copy] *)")
    blocks.first.scroll_into_view_if_needed()
    blocks.first.hover()
    blocks.first.get_by_role("button").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == blocks.first.locator("code").text_content().strip()


#: What the copy buttons of the blocks to take home give: the code that is shown, or what it stands for.
COPIED = """() => [...document.querySelectorAll(".ov-take .highlight:has(pre > code)")]
  .map(block => block.closest("[data-copy]")?.dataset.copy ?? block.querySelector("code").textContent)"""


def test_what_is_copied_is_whole_functions(visit, chapters):
    page = visit("devices/", permissions=["clipboard-read", "clipboard-write"])
    block = page.locator("[data-copy] .highlight:has(pre > code):visible").first
    block.scroll_into_view_if_needed()
    block.hover()
    block.get_by_role("button").click()
    wanted = block.evaluate("block => block.closest('[data-copy]').dataset.copy")
    assert page.evaluate("navigator.clipboard.readText()").strip() == wanted.strip()
    for chapter in chapters:
        page.goto(chapter, wait_until="domcontentloaded")
        for code in page.evaluate(COPIED):
            ast.parse(code.strip())


def test_the_whole_file_is_fetched_when_it_is_opened(visit, site):
    page = visit("devices/")
    views = page.locator(".ov-views:not(.ov-pair)").first
    file = views.locator(".ov-file")
    assert file.locator("pre").count() == 0
    views.locator(".ov-choice label", has_text="File").click()
    text = (site / "devices" / file.get_attribute("data-source")).read_text()
    assert "  # type: ignore" in text, "what a checker of types is told stands in the file alone"
    text = text.replace("  # type: ignore", "")
    playwright.expect(file.locator("pre")).to_have_text(text, use_inner_text=False)
    assert file.locator("pre").text_content() == text and "def main" in text
    assert "def" in file.locator("pre .k").all_inner_texts() and file.locator("pre .s2").count() > 1


#: It says that it is ready after a while, as Perfetto does, and keeps what it is given.
PERFETTO = """<script>
addEventListener("message", event => {
  if (event.data === "PING") {
    window.asked = (window.asked ?? 0) + 1
    if (asked > 2) event.source.postMessage("PONG", event.origin)
  } else {
    const { title, buffer } = event.data.perfetto
    window.given = { title, text: new TextDecoder().decode(buffer) }
  }
})
</script>"""


@pytest.mark.parametrize("width", [1280, 390])
def test_twins_stand_beside_each_other_or_one_above_the_other(visit, axe, width):
    page = visit("timing/", width=width)
    pair = page.locator(".ov-pair").first
    twins = pair.locator(".ov-twin:visible")
    broken, fixed = (twins.nth(number).bounding_box() for number in (0, 1))
    assert (broken["y"] == fixed["y"]) == (width > 1000) == (broken["x"] < fixed["x"])
    assert twins.locator(".ov-figure").count() == 2 and twins.locator(".ov-printout:visible").count() == 0
    pair.locator(".ov-choice label", has_text="Output").click()
    assert twins.locator(".ov-printout:visible").count() == 2
    pair.locator(".ov-choice label", has_text="File").click()
    playwright.expect(pair.locator(".ov-file pre")).to_have_count(2)
    for number, name in enumerate(("unwaited_broken.py", "unwaited_fixed.py")):
        assert name in pair.locator(".ov-file p").nth(number).inner_text()
    code = page.locator(".ov-diff").first
    assert code.locator("ins").all_inner_texts() == ["    torch.cuda.synchronize()\n"]
    assert code.locator("del").count() == 0
    assert page.locator("#snippet-timing-unwaited_broken").count() == 1
    assert page.locator("#snippet-timing-unwaited_fixed").count() == 1
    assert violations(page, axe, {"serious", "critical", "moderate"}) == []


def test_twins_have_a_timeline_each(visit):
    race = visit("streams/").locator(".ov-pair").first
    assert race.get_by_role("button", name="Explore this timeline").count() == 2


def test_a_trace_opens_in_perfetto(visit, site):
    page = visit("streams/")
    page.context.route(
        "https://ui.perfetto.dev/**", lambda route: route.fulfill(content_type="text/html", body=PERFETTO)
    )
    fold = page.locator(".ov-run:visible .ov-fold:has(.ov-perfetto)").first
    fold.locator("summary").click()
    button = fold.get_by_role("button", name="open in Perfetto")
    name, trace = button.evaluate(
        "button => [button.parentElement.dataset.title, button.parentElement.dataset.trace]"
    )
    with page.expect_popup() as opened:
        button.click()
    opened.value.wait_for_function("window.given")
    given = opened.value.evaluate("window.given")
    assert given["title"] == name and given["text"] == (site / "streams" / trace).read_text()


def test_downloads_arrive(visit, site):
    page = visit("devices/")
    views = page.locator(".ov-views:not(.ov-pair)").first
    views.locator(".ov-choice label", has_text="File").click()
    link = views.locator(".ov-file a[download][href$='.py']")
    with page.expect_download() as download:
        link.click()
    name = download.value.suggested_filename
    taken = Path(download.value.path()).read_text()
    assert (
        taken.startswith("# /// script")
        and taken == (site / f"generated/downloads/devices/{name}").read_text()
    )


def test_a_notebook_page_leads_back_to_its_chapter(visit):
    page = visit(f"{NOTEBOOKS}first_steps/")
    page.get_by_role("link", name="Back to the chapter").click()
    page.wait_for_url("**/first_steps/")
    assert NOTEBOOKS not in page.url and page.locator("h1").inner_text().startswith("First steps")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_notebook_page_follows_the_scheme(visit, scheme):
    page = visit(f"{NOTEBOOKS}first_steps/", scheme=scheme)
    colours = page.evaluate(
        """() => Object.fromEntries([".md-content p", ".jp-InputArea pre", ".jp-OutputArea pre"].map(part => {
          const element = document.querySelector(part)
          let behind = element
          const clear = "rgba(0, 0, 0, 0)"
          while (getComputedStyle(behind).backgroundColor === clear) behind = behind.parentElement
          return [part, [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(
            colour => colour.match(/[\\d.]+/g).slice(0, 3).reduce((sum, n) => sum + Number(n) / 765, 0))]
        }))"""
    )
    for part, (text, behind) in colours.items():
        dark, bright = (text, behind) if scheme == "light" else (behind, text)
        assert dark < 0.4 and bright > 0.6, (part, colours)


# Search


def test_functions_to_take_home_are_listed_with_their_files(site):
    index = (site / "snippets/index.html").read_text()
    offered = [
        f"generated/downloads/{name}/{function}.py"
        for name, snippet in all_snippets().items()
        for function in snippet.options["take"]
    ]
    assert len(offered) > 40
    assert [path for path in offered if f'href="../{path}"' not in index or not (site / path).is_file()] == []


def test_each_symptom_is_a_place_to_link_to_and_an_entry_of_the_search(site, documents):
    sections = tomllib.loads((ROOT / "docs/symptoms.toml").read_text())
    symptoms = [name for section in sections.values() for name in section]
    index = json.loads((site / "search/search_index.json").read_text())["docs"]
    locations = {doc["location"] for doc in index}
    entries = {
        location.partition("?entry=")[2] for location in locations if location.startswith("symptoms/?")
    }
    places = re.findall(r'<h3 [^>]*id="([^"]+)"', (site / "symptoms/index.html").read_text())
    assert sorted(places) == sorted(symptoms) and len(symptoms) > 100
    assert set(places) <= entries & set(documents["symptoms/"].ids)


def test_the_first_page_says_in_one_look_what_it_is_and_where_to_start(visit):
    """The four answers and the three doors; behind it comes the first chapter."""
    page = visit("")
    for part in (".ov-waits li", ".ov-doors li"):
        for item in page.locator(part).all():
            playwright.expect(item).to_be_in_viewport(ratio=1)
    assert page.locator(".md-footer__link--next").evaluate("link => link.pathname") == "/first_steps/"


@pytest.mark.parametrize("width", [1440, 390])
def test_the_first_page_shows_a_newcomer_where_to_begin(visit, width):
    """Cards stand in groups, of which the first looks different; on a phone, too, each answers in words."""
    page = visit("", width=width)
    groups = page.locator(".ov-chapters > ul")
    first = groups.first.locator("li a:visible")
    assert [link.evaluate("link => link.pathname") for link in first.all()][:1] == ["/first_steps/"]
    assert page.locator(".ov-chapters > h3").first.inner_text().startswith("Begin here")
    colors = groups.evaluate_all("all => all.map(list => getComputedStyle(list.children[0]).backgroundColor)")
    assert len(colors) == 3 and colors[0] not in colors[1:]
    for card in page.locator(".ov-chapters li").all():
        playwright.expect(card.locator("p")).to_have_count(2)
        answer = card.locator("p").last
        playwright.expect(answer).to_be_visible()
        assert answer.inner_text()[0].isalpha() and answer.locator("data").count() <= 1


@pytest.mark.parametrize("width", [1280, 390])
def test_a_symptom_is_a_link_to_the_section_that_shows_why(visit, width):
    """The first page's door leads here; a symptom's other words are found, and not shown."""
    assert visit("").locator(".ov-doors a").first.evaluate("link => link.pathname") == "/symptoms/"
    page = visit("symptoms/", width=width)
    symptom = page.locator(".ov-symptom h3", has_text="GPU 利用率低")
    assert symptom.inner_text().startswith("Why is my GPU idle?") and "·" not in symptom.inner_text()
    links = page.locator(".ov-symptom p a:not(:has(code))")
    assert len(set(links.evaluate_all("all => all.map(link => getComputedStyle(link).color)"))) == 1
    symptom.locator("a").first.click()
    page.wait_for_url("**/loader/#and-if-loading-is-what-is-slow")
    playwright.expect(page.locator("#and-if-loading-is-what-is-slow")).to_be_in_viewport()


@pytest.mark.parametrize("page", ["sources/", "zh/"])
def test_each_item_of_the_articles_is_a_place_to_link_to_and_an_entry_of_the_search(site, page):
    rows = re.findall(r"^\| ([A-E]\d+) \|", (ROOT / f"docs/{page[:-1]}.md").read_text(), re.M)
    index = json.loads((site / "search/search_index.json").read_text())["docs"]
    titles = {doc["location"].removeprefix(f"{page}#"): doc["title"] for doc in index}
    assert len(rows) > 50
    for item in rows:
        assert titles[item.lower()].startswith(f"{item} · ")


#: What the articles show, by its row: the snippet that has it, and words of its code.
EXAMPLES = {
    "a8": ("asynchrony/ten_squares_broken", "torch.mm(a, a)"),
    "a11": ("asynchrony/dependency_trace", "* y"),
    "b1": ("graphs/imperative_symbolic", "fancy_func"),
    "b5": ("graphs/hybridize_now", "torch.compile("),
    "c4": ("streams/three_scores", "similarity("),
    "c5": ("streams/three_blocks_broken", "torch.cuda.stream("),
    "d1": ("machine/is_cuda_there", "torch.cuda.is_available()"),
    "d3": ("machine/about_cuda_devices", "class AboutCudaDevices"),
    "d4": ("first_steps/three_memory_calls", "memory_allocated("),
    "d7": ("first_steps/choose_a_gpu", "set_device("),
    "d9": ("first_steps/tensors_on_devices", "is_cuda"),
    "d13": ("streams/race_broken", "sum("),
    "d15": ("training/dataparallel_by_hand", "parallel_apply("),
    "d18": ("processes/queue_and_array", "context.Queue()"),
    "d19": ("processes/pool_and_process", "Pool("),
    "d20": ("collectives/two_nodes", "init_process_group("),
    "e4": ("devices/auto_parallel_original", "run("),
}


#: Whether code with these words stands at a place or soon below it.
SHOWS = """(place, words) => [...document.querySelectorAll("pre")].some(code => {
  const below = code.getBoundingClientRect().top - place.getBoundingClientRect().top
  return code.checkVisibility() && code.textContent.includes(words) && below > -10 && below < 2000
})"""


@pytest.mark.parametrize("path", ["sources/", "zh/"])
def test_the_code_of_each_example_of_the_articles_is_two_clicks_away(visit, path):
    """A link of its row leads to the code that the chapter shows, one more click to the whole file."""
    page = visit(path, width=1440)
    far = {}
    for row, (name, words) in EXAMPLES.items():
        anchor = f"snippet-{name.replace('/', '-')}"
        page.goto(path)
        page.locator(f".ov-symptom:has(#{row}) a[href$='#{anchor}']").first.click()
        page.wait_for_url(f"**#{anchor}")
        place = page.locator(f"#{anchor}")
        playwright.expect(place).to_be_in_viewport(timeout=20_000)
        if place.evaluate(SHOWS, words):
            continue
        views = page.locator(f".ov-views#{anchor}, #{anchor} ~ .ov-views").first
        views.locator(".ov-choice label", has_text="File").first.click()
        try:
            page.wait_for_function(
                f"words => ({SHOWS})(document.getElementById('{anchor}'), words)", arg=words
            )
        except playwright.TimeoutError:
            far[row] = name
    assert far == {}


def test_a_verdict_on_a_source_begins_with_a_mark(visit):
    chips = visit("sources/").locator("[data-label=verdict] .ov-chip")
    assert chips.count() > 80
    assert set(chips.all_inner_texts()) == {"holds", "holds with limits", "dated", "wrong"}


CAPTURING = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
TRIED_TO_ALLOCATE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.11 GiB of which 1.25 GiB is free."
)
TIMED_OUT = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, "
    "Timeout(ms)=600000) ran for 600029 milliseconds before timing out"
)
#: What a person types: the section that stands among the first two; several words for one that is on two
#: pages.
SEARCHED = {
    "does not fit on one GPU": "symptoms/#does-a-7b-model symptoms/#tensor-parallel",
    "why does resuming use more GPU memory": "memory/#resume symptoms/#training-fits",
    "how does a paged KV cache work": "language_model/#serving symptoms/#the-key-value-cache",
    "when should I use vLLM instead of my own loop": "language_model/#serving symptoms/#how-do-i-get-more",
    "GPU idle between epochs": "symptoms/#the-first-batch-of-each-epoch",
    "GPU utilization drops to 0 between epochs": "symptoms/#the-first-batch-of-each-epoch",
    "out of memory after hours": "symptoms/#memory-grows",
    "multi node nccl timeout": "symptoms/#watchdog-caught",
    "is my GPU healthy": "check/ symptoms/#is-my-gpu-fast",
    "is my GPU broken": "check/ symptoms/#is-my-gpu-fast",
    "is my GPU slow": "check/ symptoms/#is-my-gpu-fast",
    "CUDA out of memory but memory is free": "symptoms/#cuda-out-of-memory",
    "CUDA graphs": "graphs/ glossary/#cuda-graph",
    "pycuda": "pycuda/",
    "install pycuda": "pycuda/ symptoms/#no-module-named-pycuda",
    "pycuda with pytorch": "pycuda/ symptoms/#how-do-i-use-both",
    "pycuda 和 pytorch": "pycuda/ symptoms/#how-do-i-use-both",
    "pycuda 上下文": "symptoms/#how-do-i-use-both",
    "pycuda 多线程": "pycuda/ symptoms/#how-do-i-use-both",
    "several GPUs pycuda": "pycuda/ symptoms/#how-do-i-use-both",
    "share stream with pytorch": "symptoms/#how-do-i-use-both",
    "pinned pycuda": "symptoms/#pycuda-copies-numpy pycuda/",
    "pinned memory pycuda": "symptoms/#pycuda-copies-numpy",
    "pycuda 锁页内存": "symptoms/#pycuda-copies-numpy",
    "custom kernel in PyTorch": "symptoms/#how-do-i-run-my-own",
    "load_inline": "symptoms/#how-do-i-run-my-own pycuda/#gains",
    "自己写 CUDA 核函数": "symptoms/#how-do-i-run-my-own",
    "GPUArray to tensor": "symptoms/#a-gpuarray symptoms/#from_dlpack",
    "cannot pop non-current context": "symptoms/#pycuda-contextpop-failed",
    "cuCtxPopCurrent failed: invalid device context": "symptoms/#pycuda-contextpop-failed",
    "context is destroyed": "symptoms/#pycuda-cumemalloc-failed",
    "pycuda._driver.LogicError: cuMemHostAlloc failed: context is destroyed": "symptoms/#pycuda-cumemalloc",
    "context::detach failed": "symptoms/#pycuda-contextdetach",
    "cuMemFree failed: invalid device context": "symptoms/#pycuda-warning-a-clean-up",
    "cuMemFree failed: initialization error": "symptoms/#pycuda-warning-a-clean-up",
    "pycuda._driver.LaunchError: cuLaunchKernel failed: too many resources requested for launch": (
        "symptoms/#pycuda-cufuncsetblockshape"
    ),
    "cuFuncSetBlockShape failed: invalid device context": "symptoms/#pycuda-cufuncsetblockshape",
    "nvcc fatal : Cannot find compiler 'cl.exe' in PATH": "symptoms/#nvcc-fatal",
    "dCKA": "sources/#c4 zh/#c4",
    "try_gpu": "sources/#a6 zh/#a6",
    "fancy_func": "sources/#b1",
    "memory_cached": "sources/#d4",
    "get_device_name": "first_steps/#choose-a-gpu sources/#d7",
    "torch.cuda.FloatTensor": "sources/#d6",
    "清除缓存": "symptoms/#empty_cache",
    "autoinit": "pycuda/",
    "SourceModule": "pycuda/ glossary/#pycuda",
    "DataParallel vs DistributedDataParallel": "symptoms/#dataparallel-or-ddp",
    "does not have a deterministic implementation": "symptoms/#does-not-have-a-deterministic",
    "resumed training differs": "symptoms/#training-that-i-resume",
    "CUBLAS_WORKSPACE_CONFIG": "symptoms/#deterministic-behavior",
    "different results each run": "symptoms/#results-differ",
    "cudnn.benchmark slower": "symptoms/#cudnnbenchmark",
    "conv2d precision GPU CPU differs": "symptoms/#a-float32-convolution",
    "结果不可复现": "symptoms/#results-differ",
    "first token is slow": "symptoms/#the-first-token",
    "tokens per second with batch": "symptoms/#how-do-i-get-more-tokens",
    "FP8 faster than bf16": "symptoms/#is-fp8",
    "grouped-query attention": "symptoms/#the-key-value-cache language_model/#grouped-query",
    "reduce-overhead new shape slow": "symptoms/#with-modereduce-overhead-each",
    "首字延迟": "symptoms/#the-first-token",
    "unable to allocate shared memory(shm) for file": "symptoms/#unable-to-allocate",
    "received 0 items of ancdata": "symptoms/#too-many-open-files",
    "same random numbers in every worker": "symptoms/#augmentation-is-the-same",
    "共享内存不足": "symptoms/#unable-to-allocate",
    "Expected to have finished reduction in the prior iteration": "symptoms/#expected-to-have-finished",
    "mark a variable ready only once": "symptoms/#expected-to-mark",
    "DDP uneven inputs hang": "symptoms/#one-rank-has-fewer",
    "collective mismatch in your code": "symptoms/#received-data-size",
    "DDP 验证 卡住 timeout": "symptoms/#the-other-ranks-hang",
    "unfreeze layers DDP": "symptoms/#layers-that-i-unfroze",
    "first batch slow": "symptoms/#the-first-cuda-call-is-slow symptoms/#the-first-batch-of-each",
    "first batch of every epoch slow": "symptoms/#the-first-batch-of-each-epoch",
    "not reproducible": "symptoms/#results-differ-from-run-to-run",
    "Error 802: system not yet initialized": "symptoms/#error-802",
    "allocated in private pools": "symptoms/#cuda-out-of-memory memory/",
    "NCCL_P2P_DISABLE": "symptoms/#all-ranks-are-alive",
    "fork_join": "streams/#",
    "time cuda kernel": "symptoms/#how-do-i-time",
    "does non_blocking help": "symptoms/#non_blocking",
    "garbage after a copy": "symptoms/#",
    CAPTURING: "symptoms/#operation-not",
    "Expected all tensors to be on the same device": "symptoms/#expected-all",
    "non_blocking does nothing": "symptoms/#non_blocking",
    "empty_cache": "symptoms/#empty_cache memory/#empty_cache",
    "CUDA out of memory": "memory/ symptoms/#cuda-out-of-memory",
    "record_stream": "streams/#record_stream symptoms/#record_stream",
    "why is my GPU idle": "symptoms/#why-is-my-gpu-idle",
    "DataParallel slow": "symptoms/#dataparallel-is-slow",
    "cudaMemcpyAsync pinned": "symptoms/#cudamemcpyasync",
    "torch.compile slower": "symptoms/#torchcompile-made",
    "GPU utilization": "symptoms/#gpu-utilization symptoms/#why-is-my-gpu-idle",
    "How do I time GPU code?": "timing/ symptoms/#how-do-i-time",
    "my streams don't overlap": "symptoms/#cuda-streams",
    "with torch.cuda.stream(s1)": "streams/#three-blocks",
    "what is matmul": "glossary/#matmul",
    "GEMM": "glossary/#matmul",
    "MFU": "glossary/#mfu",
    "nsys": "glossary/#nsight-systems",
    "A100": "check/",
    "OOM": "glossary/#out-of-memory symptoms/#cuda-out-of-memory",
    "H2D": "glossary/#host-to-device",
    "GIL": "glossary/#interpreter-lock",
    "is my GPU as fast as it should be": "check/ symptoms/#is-my-gpu-fast",
    "is_available returns False": "symptoms/#torchcudais_available-is-false",
    "two GPUs are not faster than one": "symptoms/#two-gpus",
    "DDP hangs": "symptoms/#a-job-with-ddp symptoms/#a-distributed-job-hangs",
    "nvidia-smi shows more memory than my tensors": "symptoms/#nvidia-smi-shows",
    "CUDA_VISIBLE_DEVICES has no effect": "symptoms/#cuda_visible_devices",
    "why is .item() slow": "symptoms/#item-is-slow",
    "profile shows cudaStreamSynchronize": "symptoms/#item-is-slow",
    "pin_memory makes it slower": "symptoms/#pin_memory",
    "DataLoader num_workers": "symptoms/#the-gpu-waits-for-the-dataloader",
    "Cannot re-initialize CUDA in forked subprocess": "symptoms/#cannot-re-initialize",
    "device-side assert triggered": "symptoms/#device-side-assert",
    "what is a CUDA graph": "graphs/ glossary/#cuda-graph",
    "FSDP or DDP": "sharding/#fsdp glossary/#fsdp symptoms/#fsdp",
    "PyTorch uses Python's own scheduler": "sources/",
    "next(model.parameters()).is_cuda": "sources/#d9 first_steps/",
    "replicate scatter parallel_apply gather": "training/#dataparallel-by-hand sources/#d15",
    "这表明，PyTorch能有效地实现在不同设备上自动并行计算": "zh/ sources/",
    "aboutCudaDevices": "sources/",
    "异步": "glossary/#asynchronous",
    "谁在等谁": "zh/asynchrony/",
    "流的高优先级": "zh/streams/",
    "数据并行": "glossary/#ddp",
    "多进程": "symptoms/#several-processes-on-one-gpu symptoms/#cannot-re-initialize",
    "进程池": "symptoms/#poolmap",
    "寄存器": "zh/#terms",
    "浮点": "zh/#terms",
    "原子操作": "zh/#terms",
    "竞争条件": "symptoms/#results-differ-from-run-to-run_1",
    "基准测试": "symptoms/#how-do-i-time",
    "纹理": "symptoms/#pycuda-surface pycuda/",
    "半精度": "glossary/#mixed-precision",
    "计算图": "glossary/#computational-graph",
    "爆显存": "symptoms/#cuda-out-of-memory",
    "驱动版本": "symptoms/#the-nvidia-driver",
    "性能瓶颈": "symptoms/#my-training-step-is-slow",
    "编译慢": "symptoms/#torchcompile-of-a-deep symptoms/#torchcompile-is-slow",
    "推理慢": "symptoms/#how-do-i-get-more-tokens",
    "显存池": "glossary/#caching-allocator",
    "DoubleTensor": "symptoms/#mat1-and-mat2",
    "model.cuda()": "symptoms/#where-is-my-model",
    "is_cuda": "symptoms/#where-is-my-model sources/#d9",
    "GPUArray": "symptoms/#a-gpuarray pycuda/",
    "显存不足": "symptoms/#cuda-out-of-memory symptoms/#memory",
    "set_device": "first_steps/#choose-a-gpu",
    "is torch.compile worth it": "symptoms/#is-torchcompile-worth-it",
    "dataloader slow": "symptoms/#the-gpu-waits-for-the-dataloader loader/#and-if",
    "DataParallel or DDP": "symptoms/#dataparallel-or-ddp training/",
    "who holds my GPU memory": "symptoms/#who-holds",
    "0.2989": "sources/#e6 sources/#headline",
    "6.78 s": "sources/",
    "1,048,576 bytes": "sources/ first_steps/ memory/",
    "torch.cuda.is_available": "symptoms/#torchcudais_available first_steps/",
    "锁页内存": "symptoms/#pin_memory glossary/#pinned-memory",
    "混合精度": "glossary/#mixed-precision",
    "how to time a CUDA operation properly": "symptoms/#how-do-i-time",
    "measure time CUDA": "symptoms/#how-do-i-time",
    "DP or DDP": "training/ symptoms/#dataparallel-or-ddp",
    "DP vs DDP": "training/ symptoms/#dataparallel-or-ddp",
    "what does DDP cost": "symptoms/#dataparallel-or-ddp",
    "GPU utilization 40%": "symptoms/#why-is-my-gpu-idle",
    "should I use torch.compile or CUDA graphs": "symptoms/#torchcompile-or-cuda-graphs",
    "batch 1 decode": "symptoms/#generating-token-by-token language_model/#a-decode-step",
    "inference batch size 1": "symptoms/#generating-token-by-token language_model/#a-decode-step",
    "benchmark my GPU": "check/",
    "choose another GPU": "glossary/#machine-picker",
    "change the machine": "glossary/#machine-picker",
    "what does ✓ 3/3 mean": "glossary/#claim",
    "✓": "glossary/#claim",
    "how do I read a mark": "glossary/#claim",
    "do two streams run in parallel": "symptoms/#cuda-streams",
    "how do I profile": "symptoms/#how-do-i-find-out glossary/#profiler-trace",
    "memory leak": "symptoms/#memory-grows",
    "why is my first iteration slow": "symptoms/#the-first-cuda-call",
    "tensor parallel or pipeline parallel": "symptoms/#tensor-parallel glossary/#tensor-parallel",
    "bf16 vs fp16": "symptoms/#why-is-bf16 language_model/#precisions glossary/#mixed-precision",
    "non blocking": "symptoms/#non_blocking glossary/#non_blocking",
    "pin memory": "symptoms/#pin_memory",
    "cuda graph": "glossary/#cuda-graph graphs/",
    "loss is nan": "symptoms/#the-loss-becomes-nan symptoms/#nans",
    "which layer makes NaN": "symptoms/#the-loss-becomes-nan asynchrony/#nan",
    "Function 'LogBackward0' returned nan values in its 0th output": "symptoms/#function-sqrtbackward0",
    "梯度 NaN": "symptoms/#the-loss-becomes-nan",
    "t >= 0 && t < n_classes": "symptoms/#assertion-t",
    "srcIndex < srcSelectDimSize": "symptoms/#assertion-srcindex",
    "probability tensor contains either inf, nan or element < 0": "symptoms/#probability-tensor",
    "an illegal memory access was encountered": "symptoms/#cuda-error-an-illegal symptoms/#an-illegal",
    "unspecified launch failure": "symptoms/#cuda-error-unspecified",
    "CUBLAS_STATUS_NOT_INITIALIZED": "symptoms/#cublas_status",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR": "symptoms/#cudnn-error",
    "uncorrectable ECC error": "symptoms/#uncorrectable-ecc",
    "GPU has fallen off the bus": "symptoms/#nvrm-xid",
    "compute-sanitizer memcheck": "asynchrony/#memcheck symptoms/#cuda-error",
    "DCGM SM activity": "timing/#gpu-at-full symptoms/#gpu-utilization-is-100",
    "标签 越界": "symptoms/#assertion-t",
    "multi gpu": "symptoms/#two-gpus-take-twice devices/",
    "all reduce slow": "symptoms/#all-reduces-of-small symptoms/#one-all-reduce",
    "h100 vs h200": "check/#rates",
    "num workers": "symptoms/#the-gpu-waits-for-the-dataloader",
    "CUDA error: device-side assert triggered": "symptoms/#device-side-assert",
    TRIED_TO_ALLOCATE: "symptoms/#cuda-out-of-memory-tried",
    TIMED_OUT: "symptoms/#watchdog",
    "GPU利用率低": "symptoms/#why-is-my-gpu-idle",
    "流": "glossary/#stream",
    "3/3": "glossary/#claim",
    "what does the check mark mean": "glossary/#claim",
    "what is a stream": "streams/",
    "gpu not fully utilized": "symptoms/#why-is-my-gpu-idle",
    "slow training loop": "symptoms/#my-training-step",
    "dataloader bottleneck": "symptoms/#the-gpu-waits-for-the-dataloader",
    "torch compile recompiles": "symptoms/#a-compiled-job",
    "torch.compile slow first time": "symptoms/#torchcompile-is-slow-at-first",
    "nccl hang": "symptoms/#a-distributed-job-hangs",
    "gpu memory not released": "symptoms/#nvidia-smi-shows",
    "how much memory does my model need": "symptoms/#where-does-the-memory",
    "copy not overlapping compute": "symptoms/#the-copy-does-not-overlap",
    "run without gpu": "symptoms/#i-have-no-gpu",
    "download code": "snippets/",
    "contribute": "contributing/",
    "pdf": "#marks",
    "tensor cores": "glossary/#tensor-core",
    "two gpus slower than one": "symptoms/#two-gpus-take",
    "pytorch not using gpu": "symptoms/#torchcudais_available",
    "why is .to(device) slow": "symptoms/#cudamemcpyasync",
    "分布式训练": "symptoms/#dataparallel-or-ddp",
    "hangs at all_reduce": "symptoms/#a-distributed-job-hangs",
    "all_reduce hangs": "symptoms/#a-distributed-job-hangs",
    "training stuck at all_reduce": "symptoms/#a-distributed-job-hangs",
    "deadlock": "symptoms/#a-distributed-job-hangs",
    "training freezes": "symptoms/#a-distributed-job-hangs",
    "torch.compile small model": "symptoms/#is-torchcompile-worth-it",
    "does torch.compile help small model": "symptoms/#is-torchcompile-worth-it",
    "time GPU code": "symptoms/#how-do-i-time timing/",
    "how much memory will my model need": "symptoms/#where-does-the-memory-of memory/",
    "first iteration slow": "symptoms/#the-first-cuda-call",
    "cudagraph": "symptoms/#my-training-step-makes glossary/#cuda-graph",
    "use several streams": "streams/",
    "multiple streams": "streams/",
    "use multi streams": "streams/",
    "train with two GPUs is slower than one": "symptoms/#two-gpus-take",
    "is training on multiple GPUs slower than one": "symptoms/#two-gpus-take",
    "how do I use two GPUs": "symptoms/#dataparallel-or-ddp devices/",
    "why is the first iteration slow": "symptoms/#the-first-cuda-call",
    "why do I need a warmup": "symptoms/#the-first-cuda-call timing/#the-first-call",
    "non_blocking worth it": "symptoms/#what-do-non_blocking",
    "should I use non_blocking=True": "symptoms/#what-do-non_blocking",
    "is pin_memory worth it": "symptoms/#what-do-non_blocking",
    "what does pin_memory gain": "symptoms/#what-do-non_blocking",
    "how many workers for the DataLoader": "symptoms/#the-gpu-waits-for-the-dataloader",
    "when to use CUDA graphs": "symptoms/#torchcompile-or-cuda-graphs graphs/",
    "are CUDA graphs worth it": "symptoms/#torchcompile-or-cuda-graphs graphs/",
    "too many kernel launches": "symptoms/#my-training-step-makes",
    "many small kernels": "symptoms/#my-training-step-makes",
    "how to avoid synchronization": "symptoms/#which-operations-synchronize",
    "what uses my GPU memory": "symptoms/#who-holds",
    "copy and compute at the same time": "symptoms/#the-copy-does-not-overlap",
    "pinmemory": "symptoms/#pin_memory",
    "license": "#marks",
    "cudaMallocAsync": "glossary/#caching-allocator",
    "fsdp2": "glossary/#fsdp",
    "fully_shard": "symptoms/#out-of-memory-before-or-in-the-first-fully_shard glossary/#fsdp",
    "why is ddp slow": "symptoms/#ddp-scales-badly",
    "tensor.cpu() slow": "symptoms/#item-is-slow",
    "torch.nonzero slow": "symptoms/#which-operations",
    "spawn slow": "symptoms/#workers-take",
    "gpu starvation": "symptoms/#why-is-my-gpu-idle",
    "small batch gpu slow": "symptoms/#the-gpu-is-slower-than-the-cpu",
    "double buffering": "symptoms/#a-prefetcher",
    "non deterministic results": "symptoms/#results-differ",
    "install pytorch cuda": "symptoms/#torch-not-compiled",
    "python overhead": "symptoms/#my-training-step-makes",
    "jupyter notebook": "symptoms/#i-have-no-gpu",
    "amd rocm": "#marks",
    "torch profiler": "symptoms/#how-do-i-find-out",
    "CUDA error: invalid device ordinal": "symptoms/#cuda-error-invalid",
    "gpu 0 uses more memory": "symptoms/#dataparallel-is-slow",
    "one rank slower": "symptoms/#one-all-reduce",
    "first epoch slow": "symptoms/#the-first- timing/#the-first-call",
    "compile time long": "symptoms/#torchcompile-of-a-deep",
    "train on 2 gpus": "training/ devices/",
    "nvlink vs pcie": "symptoms/#gpu-to-gpu glossary/#nvlink",
    "gradient checkpointing": "symptoms/#how-much-slower-does-activation memory/#activations-twice",
    "ddp bucket size": "training/#bucket-sizes",
    "memory after del": "symptoms/#nvidia-smi-shows",
    "gpu util 100% but slow": "symptoms/#gpu-utilization-is-100",
    "llm inference slow": "symptoms/#generating-token-by-token",
    "kv cache static": "language_model/#static-cache glossary/#kv-cache",
    "h100 hbm bandwidth": "symptoms/#how-fast-is-my-gpus-memory",
    "find synchronizing lines": "symptoms/#which-operations-synchronize",
    "all-reduce bus bandwidth": "symptoms/#how-fast-should-an-all-reduce-be",
    "nccl hang which rank": "symptoms/#a-distributed-job-hangs",
    "does autograd use both GPUs": "symptoms/#does-backward-run",
    "what bounds decoding": "symptoms/#generating-token-by-token",
    "pcie bandwidth test": "glossary/#pcie transfers/#how-wide-is-the-door",
    "tflops": "glossary/#mfu",
    "is my GPU normal": "check/",
    "is my GPU OK": "check/",
    "gpu slower than expected": "check/ symptoms/#is-my-gpu-fast",
    "GPU performance normal": "check/",
    "streams not overlapping": "symptoms/#cuda-streams",
    "learning rate more gpus": "symptoms/#which-batch-size",
    "multi node torchrun": "collectives/#more-than-one-machine",
    "model memory estimate": "symptoms/#where-does-the-memory",
    "DataLoader is the bottleneck": "symptoms/#the-gpu-waits-for-the-dataloader loader/#and-if",
    "torch.compile": "symptoms/#is-torchcompile-worth-it",
    "DDP slower than single GPU": "symptoms/#ddp-scales-badly",
    "FSDP out of memory when loading": "symptoms/#out-of-memory-before-or-in-the-first-fully_shard",
    "torch.compile slow first step": "symptoms/#torchcompile-is-slow-at-first",
    "low gpu utilization dataloader": "symptoms/#why-is-my-gpu-idle",
    "GPU 利用率忽高忽低": "symptoms/#why-is-my-gpu-idle",
    "mixed precision slower fp32": "symptoms/#why-is-bf16",
    "two processes same gpu slower": "symptoms/#several-processes-on-one-gpu",
    "inference time without synchronize": "symptoms/#the-model-takes-no-time",
    "cpu().numpy() 很慢": "symptoms/#item-is-slow",
    "streams run sequentially": "symptoms/#cuda-streams",
    "多流 并行 没有加速": "symptoms/#cuda-streams",
    "non_blocking wrong data pinned": "symptoms/#with-non_blockingtrue",
    "pinned memory twice as much": "symptoms/#pinned-memory-takes transfers/#pinned-rounding",
    "锁页内存 占用": "symptoms/#pinned-memory-takes",
    "gradient accumulation memory": "symptoms/#how-much-memory-does-gradient memory/#in-parts",
    "resume map_location mmap": "symptoms/#training-fits memory/#resume",
    "推理 显存不足": "symptoms/#inference-is-out-of-memory",
    "multiple processes one GPU MPS": "symptoms/#several-processes-on-one-gpu processes/#one-gpu",
    "多进程 单卡": "symptoms/#several-processes-on-one-gpu",
    "reserved memory grows variable length": "symptoms/#reserved-memory-grows",
    "变长 序列 显存": "symptoms/#reserved-memory-grows",
    "显存 没有释放": "symptoms/#after-ctrl-c",
    "all ranks on GPU 0": "symptoms/#every-rank-also-takes-memory",
    "DataLoader worker bus error shared memory": "symptoms/#dataloader-worker-is-killed",
    "num_workers memory keeps increasing": "symptoms/#the-hosts-memory-grows",
    "DataLoader hangs num_workers opencv": "symptoms/#a-dataloader-with-workers-hangs",
    "too many open files dataloader": "symptoms/#too-many-open-files",
    "OOM half of memory unused": "symptoms/#cuda-out-of-memory",
    "gpu memory not released after ctrl-c": "symptoms/#after-ctrl-c",
    "out of memory resume checkpoint": "symptoms/#training-fits",
    "extra processes on GPU 0": "symptoms/#every-rank-also-takes-memory",
    "显存 随 epoch 增加": "symptoms/#memory-grows",
    "out of memory inference batch 1": "symptoms/#inference-is-out-of-memory",
    "vllm out of memory gpu_memory_utilization": "symptoms/#vllm",
    "reduce-overhead memory grows": "symptoms/#cuda-out-of-memory_1",
    "hit recompile_limit": "symptoms/#a-compiled-job",
    "多卡 比 单卡 慢": "symptoms/#two-gpus-take symptoms/#ddp-scales-badly",
    "GPU 利用率 2%": "symptoms/#why-is-my-gpu-idle",
    "several GPUs slow loader": "symptoms/#with-several-gpus-the-dataloader",
    "multi gpu dataloader bottleneck": "symptoms/#with-several-gpus-the-dataloader",
    "多卡 数据加载慢": "symptoms/#with-several-gpus-the-dataloader",
    "is my loader the limit": "loader/",
    "NCCL_DEBUG": "symptoms/#what-does-the-log-of-nccl_debug collectives/#nccl-debug",
    "how to read NCCL_DEBUG=INFO": "symptoms/#what-does-the-log-of-nccl_debug collectives/#nccl-debug",
    "via P2P/CUMEM": "symptoms/#what-does-the-log-of-nccl_debug collectives/#nccl-debug",
    "NCCL 日志 怎么看": "symptoms/#what-does-the-log-of-nccl_debug",
    "which network interface does NCCL use": "symptoms/#what-does-the-log-of-nccl_debug",
    "stream is capturing second GPU": "symptoms/#operation-not",
    "autocast amp no speedup": "symptoms/#why-is-bf16",
    "no_grad memory": "symptoms/#inference-is-out-of-memory",
    "DataLoader CUDA forked subprocess": "symptoms/#cannot-re-initialize",
    "DataParallel imbalanced memory": "symptoms/#dataparallel-is-slow",
    "Expected to have finished reduction": "symptoms/#expected-to-have-finished",
    "NCCL hang P2P PCIe": "symptoms/#all-ranks-are-alive",
    "NCCL unhandled system error": "symptoms/#nccl-unhandled-system-error",
    "FSDP same memory as DDP": "symptoms/#fsdp-needs-as-much-memory",
    "FSDP slower than DDP": "symptoms/#fsdp-is-slower-than-ddp",
    "FSDP hangs saving model": "symptoms/#fsdp-hangs-while-rank-0-saves",
    "reproducible training seed": "symptoms/#results-differ",
    "gpu usage goes up and down": "symptoms/#why-is-my-gpu-idle",
    "model.to(device) takes forever first time": "symptoms/#the-first-cuda-call",
    "how to check if my gpu is slow": "check/",
    "cuda memory keeps growing during training": "symptoms/#memory-grows",
    "how to free gpu memory pytorch": "first_steps/#three-memory-calls",
    "what batch size should I use for DDP": "symptoms/#which-batch-size",
    "train model larger than gpu memory": "sharding/ symptoms/#tensor-parallel",
    "how to use multiple gpus pytorch": "symptoms/#dataparallel-or-ddp",
    "profiler shows gaps between kernels": "symptoms/#my-training-step-makes timing/#a-first-trace",
    "data loading takes longer than training": "loader/#and-if symptoms/#the-gpu-waits-for-the-dataloader",
    "is float16 faster than float32": "symptoms/#why-is-bf16",
    "program hangs with no error ddp": "symptoms/#a-distributed-job-hangs",
    "validation accuracy different each run": "symptoms/#results-differ",
    "cuda graph with dynamic shapes": "symptoms/#a-captured-step-refuses",
    "pytorch multiprocessing share tensor": "symptoms/#sending-arrays processes/#",
    "why does print slow down training": "symptoms/#printtensor",
    "loss nan after cuda graph": "symptoms/#a-cuda-graph-returns",
    "how big a batch fits": "symptoms/#how-do-i-find-the-max-batch-size",
    "第一次 很慢": "symptoms/#the-first-cuda-call",
    "如何 计时": "symptoms/#how-do-i-time",
    "程序卡住不动": "symptoms/#a-distributed-job-hangs",
    "显存泄漏 怎么 排查": "symptoms/#memory-grows",
    "多卡训练 加速比 低": "symptoms/#ddp-scales-badly",
    "多卡比单卡慢": "symptoms/#ddp-scales-badly",
    "num_workers 设多少": "symptoms/#the-gpu-waits-for-the-dataloader",
    "4090 no nvlink": "symptoms/#ddp-is-slower-than-one-gpu-over-pcie collectives/#without-nvlink",
    "RTX 4090": "symptoms/#is-my-gpu-fast-enough symptoms/#ddp-is-slower-than-one-gpu-over-pcie check/",
    "FSDP 显存没有减少": "symptoms/#fsdp-needs-as-much-memory",
    "混合精度 没有 加速": "symptoms/#why-is-bf16",
    "模型太大 放不下": "symptoms/#tensor-parallel",
    "ImageNet training GPU almost idle": "symptoms/#why-is-my-gpu-idle",
    "GPU memory full after stopping program": "symptoms/#after-ctrl-c",
    "two small matmuls two streams not parallel": "symptoms/#cuda-streams",
    "error line is correct but device assert": "symptoms/#device-side-assert",
    "results not same every time with seed": "symptoms/#results-differ",
    "多进程 共享 张量": "symptoms/#sending-arrays",
    "显存满了 利用率低": "symptoms/#why-is-my-gpu-idle",
    "显存一直增长": "symptoms/#memory-grows",
    "FSDP no memory reduction": "symptoms/#fsdp-needs-as-much-memory",
    "FSDP slow small batch": "symptoms/#fsdp-is-slower-than-ddp",
    "vllm CUDA out of memory other process": "symptoms/#vllm",
    "first inference fast later slow": "symptoms/#the-first-inference-is-fast",
    "多线程 推理 没有加速": "symptoms/#cuda-streams",
    "two models in parallel on one GPU no speedup": "symptoms/#several-processes-on-one-gpu",
    "tensor.cpu() 耗时 很长": "symptoms/#item-is-slow",
    "no process but memory used": "symptoms/#after-ctrl-c",
    "CUDA error: initialization error DataLoader worker": "symptoms/#cuda-error-initialization-error",
    "dataset on the GPU num_workers": "symptoms/#cuda-error-initialization-error symptoms/#cannot-re-init",
    "数据集 在 GPU 上 多进程": "symptoms/#cuda-error-initialization-error",
    "cudnn.deterministic not reproducible": "symptoms/#results-differ machine/#chosen-algorithms",
    "DDP with CUDA graph": "symptoms/#how-do-i-put-a-step-with-ddp",
    "DDP CUDA 图": "symptoms/#how-do-i-put-a-step-with-ddp",
    "ranks still running after killing torchrun": "symptoms/#after-ctrl-c",
    "杀死进程 显存 不释放": "symptoms/#after-ctrl-c",
    "CUDA graph empty second GPU": "symptoms/#the-cuda-graph-is-empty",
    "四卡 训练 慢": "symptoms/#two-gpus-take symptoms/#ddp-scales-badly",
    "nvidia-smi full memory tensors small": "symptoms/#nvidia-smi-shows",
    "which lines make my CPU wait": "symptoms/#which-operations",
    "OOM resume checkpoint": "symptoms/#training-fits",
    "overlap copy of next batch with the work": "symptoms/#the-copy-does-not-overlap",
    "accessing tensor output of CUDAGraphs that has been overwritten": "symptoms/#to-prevent-overwriting",
    "different outputs depending on batch size": "symptoms/#outputs-depend-on-the-batch-size",
    "garbage collection GC ranks gc.collect torchtitan": "symptoms/#does-pythons-garbage-collector",
    "NCCL_SOCKET_IFNAME wrong interface used": "symptoms/#nccl-sends-over-another-port",
    "device_map auto slow": "symptoms/#device_mapauto",
    "8 张 A100 推理 比单卡慢 device_map": "symptoms/#device_mapauto",
    "显存 只增不减 没有清理": "symptoms/#nvidia-smi-shows-more",
    "CUDA_VISIBLE_DEVICES=7 只识别 0 号显卡": "symptoms/#with-cuda_visible_devices7",
    "gradient accumulation DDP loss worse": "symptoms/#with-ddp-and-gradient-accumulation",
    "Event device type CUDA does not match blocking stream's device type CPU": "symptoms/#event-device-type",
    "FSDP2 higher memory than FSDP1 record_stream": "symptoms/#fsdp2-needs-more",
    "CUDA IPC tensor memory not freed sender": "symptoms/#the-senders-gpu-memory",
    "pipeline parallelism hangs microbatches fewer than stages": "symptoms/#a-pipeline-hangs",
    "FSDP saving model out of memory": "symptoms/#a-sharded-model-takes",
    "FSDP every process loads model CPU memory": "symptoms/#every-process-loads",
    "copy stream default stream reads old data": "symptoms/#results-differ-from-run-to-run_1",
    "双卡 没快多少": "symptoms/#ddp-is-slower-than-one-gpu-over-pcie",
    "why two torch.cuda.synchronize speed test": "symptoms/#how-do-i-time",
    "modified by an inplace operation": "symptoms/#one-of-the-variables",
    "in-place operation backward error": "symptoms/#one-of-the-variables",
    "killed by signal: Killed": "symptoms/#dataloader-worker-pid",
    "DataLoader worker OOM killer": "symptoms/#dataloader-worker-pid",
    "DataLoader worker is killed by signal: Bus error": "symptoms/#dataloader-worker-is",
    "memory grows every iteration": "symptoms/#memory-grows-from-step-to-step",
    "first inference fast then slow": "symptoms/#the-first-inference-is-fast",
    "vram": "memory/ symptoms/#memory-grows symptoms/#nvidia-smi symptoms/#cuda-out-of-memory",
    "PYTORCH_CUDA_ALLOC_CONF": "memory/ symptoms/#cuda-out-of-memory_2",
    "PYTORCH_ALLOC_CONF": "memory/ symptoms/#cuda-out-of-memory_2",
}

#: The words of public questions (titles, pasted errors): places beside the symptom, and the symptom.
ASKED = {
    "PyTorch/LibTorch中间隔执行GPU模型推理时耗时显著增加": (
        "",
        "inference-is-slow-after",
    ),
    "GPU memory consumption and inference time is higher for first inference": (
        "timing/#the-first-call",
        "the-first-cuda-call",
    ),
    "torch.cuda.empty_cache() after processing each batch": (
        "memory/#in-a-loop",
        "empty_cache-in-the-loop",
    ),
    "GPU training speed is slower - same as my CPU": (
        "",
        "the-gpu-is-slower-than",
    ),
    "loss.backward() takes 10 times the time of network.forward()": (
        "",
        "lossbackward-takes",
    ),
    "DDP Learning-Rate": (
        "training/#before-you",
        "which-batch-size",
    ),
    "When loading a small model (64M storage) during testing, it takes up a lot of GPU (870M GPU)": (
        "",
        "nvidia-smi-shows",
    ),
    "gather Python objects across GPUs all_gather_object GPU to CPU overhead": (
        "",
        "all_gather_object",
    ),
    "The current CUDA stream is not honored by some operations": (
        "streams/#fork streams/#the-race",
        "results-differ-from-run-to-run_1",
    ),
    "Some NCCL operations have failed or timed out. Due to the asynchronous nature of "
    "CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.": (
        "",
        "watchdog-caught",
    ),
    "训练时GPU利用率忽高忽低": (
        "",
        "why-is-my-gpu-idle",
    ),
    "LogicError: cuMemHostAlloc failed: context is destroyed": (
        "",
        "pycuda-cumemalloc",
    ),
    "Pycuda interoperability: from GPUArray back to a Tensor without copying the data": (
        "pycuda/",
        "from_dlpack",
    ),
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library (such as too "
    "many async ops, too many collectives at once, mixing streams in a group, etc).": (
        "",
        "ncclinvalidusage",
    ),
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
    "local network address. The server socket has failed to bind to [::]:29500 (errno: 98 "
    "- Address already in use).": (
        "",
        "the-server-socket",
    ),
    "RuntimeError: cuda runtime error (101) : invalid device ordinal at "
    "/pytorch/torch/csrc/cuda/Module.cpp:59咋处理？": (
        "",
        "cuda-error-invalid-device",
    ),
    "How to cache the compilation result?": (
        "graphs/#what-compiling",
        "torchcompile-is-slow-at-first",
    ),
    "AssertionError: daemonic processes are not allowed to have children": (
        "",
        "daemonic",
    ),
    "FSDP very slow on multi-node training": (
        "sharding/#slow",
        "fsdp-is-slower",
    ),
    "RuntimeError: Offset increment outside graph capture encountered unexpectedly.": (
        "",
        "operation-failed-due",
    ),
    "CUDA Streams & Gradient Manipulation": (
        "streams/#fork",
        "after-a-forward-pass",
    ),
    "DataLoader with num_workers>0 and multiple epochs": (
        "loader/#short-epochs",
        "the-first-batch-of-each-epoch",
    ),
    "How is explicit pin_memory different from just calling .to and let CUDA handle it?": (
        "transfers/#pinning-made",
        "pin_memory-made-it-slower",
    ),
    "two processes are generated and occupy gpu 0 unexpectedly": (
        "memory/#contexts",
        "every-rank-also-takes",
    ),
    "Strange behavior in data loader with workers": (
        "loader/#short-epochs",
        "the-gpu-waits-for-the-dataloader",
    ),
    "Training performance degrades with DistributedDataParallel": (
        "training/#before-you",
        "with-ddp-the-accuracy",
    ),
    "Why does PyTorch GPU matmul give correct results without torch.cuda.synchronize()?": (
        "asynchrony/#a-queue",
        "why-are-results-right",
    ),
    "How can l run two blocks in parallel?": (
        "streams/#when-streams",
        "cuda-streams-do-not-run",
    ),
    "Error Code 1: Cask (Cask convolution execution)": (
        "pycuda/#pycuda-beside",
        "invalid-resource-handle-with",
    ),
    "RuntimeError: module must have its parameters and buffers on device cuda:1 "
    "(device_ids[0]) but found one of them on device: cuda:2": (
        "",
        "module-must-have",
    ),
    "用独立进程做推理会把显存都耗完": (
        "memory/#kept-outputs",
        "inference-is-out-of-memory",
    ),
    "多卡训练时gpu占用率拉满，但是模型卡住了": (
        "",
        "training-hangs-at-some-step",
    ),
    "Grad strides do not match bucket view strides": (
        "",
        "grad-strides",
    ),
    "同一随机数种子运行结果不同": (
        "training/#other-bits",
        "results-differ-from-run-to-run",
    ),
    "Unexpected difference torch.multiprocessing.manager.queue and torch.multiprocessing.queue": (
        "",
        "attempted-to-send",
    ),
    "RuntimeError: CUDA error: device not ready": (
        "",
        "cuda-error-device-not-ready",
    ),
    "skipping cudagraphs due to mutated inputs (2 instances)": (
        "",
        "modereduce-overhead-warns",
    ),
    "ncclRemoteError: A call failed possibly due to a network error or a remote process "
    "exiting prematurely.": (
        "",
        "ncclremoteerror",
    ),
    "pycuda cuFuncSetBlockShape failed: invalid resource handle": (
        "pycuda/#pycuda-beside",
        "invalid-resource-handle-with",
    ),
    "optimizer tensor size mismatch when resuming from ckpt with different number of workers using fsdp": (
        "sharding/#checkpoints",
        "a-resumed-optimizer",
    ),
    "Parameter not updating when FSDP2 model is used before optimizer creation": (
        "sharding/#optimizer-after",
        "parameters-are-not-updated",
    ),
    "optimizer created after forward FSDP2 parameters not updated": (
        "sharding/#optimizer-after",
        "parameters-are-not-updated",
    ),
    "PyTorch Profiler produces large trace files (~1GB) causing TensorBoard to crash": (
        "timing/#a-first-trace",
        "the-profilers-trace",
    ),
    'Unexpected key(s) in state_dict: "_orig_mod."': (
        "graphs/#what-compiling",
        "unexpected-keys",
    ),
    "prefix '_orig_mod.' gives an error while resuming the training": (
        "",
        "unexpected-keys",
    ),
    "Sudden decrease in performance after N numbers of consecutive calls to forward": (
        "asynchrony/#how-far",
        "the-first-inference-is-fast",
    ),
    "NCCL all_reduce_perf slower if P2P via PCIe is enabled": (
        "",
        "an-all-reduce-is-slower-with-p2p",
    ),
    "Capture cuda graph failed: CUDA error: capturing stream has unjoined work": (
        "",
        "capturing-stream-has",
    ),
    "RuntimeError: Pin memory thread exited unexpectedly": (
        "",
        "pin-memory-thread",
    ),
    "how to run pycuda in work thread": (
        "pycuda/#threads",
        "pycuda-explicit_context",
    ),
    "Free Memory after CUDA out of memory error": (
        "memory/#a-snapshot",
        "the-memory-is-not-free",
    ),
    "Using torch.compile, batch training step time takes long to converge when adding a LR Scheduler": (
        "",
        "a-compiled-optimizerstep",
    ),
    "Will the sequence of send and recv cause a deadlock?": (
        "",
        "both-ranks-call-send",
    ),
    "Using torch.distributed.barrier() makes the whole code hang": (
        "training/#evaluation",
        "the-other-ranks-hang",
    ),
    "NCCL WARN Bootstrap : no socket interface found": (
        "",
        "nccl-warn-bootstrap",
    ),
    "first forward takes 0.05 s, the following 0.43 s": (
        "",
        "the-first-inference-is-fast",
    ),
    "every rank uses 700 MB on GPU 0": (
        "memory/#contexts",
        "every-rank-also-takes",
    ),
    "cache_size_limit": (
        "",
        "a-compiled-job-gets-slow",
    ),
}


def test_the_words_of_a_drawing_are_within_it(visit):
    """On a phone they are as large as elsewhere, and the shapes are not."""
    pages = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if "```diagram" in path.read_text())
    assert "machine" in pages
    outside = {}
    for name in pages:
        drawings = visit(f"{name}/", width=390, idle=True).locator(".ov-diagram svg")
        outside[name] = drawings.evaluate_all("""drawings => drawings.flatMap(drawing => {
            const { x, y, width, height } = drawing.viewBox.baseVal
            return [...drawing.querySelectorAll("text")].filter(text => {
                const box = text.getBBox(), [right, bottom] = [box.x + box.width, box.y + box.height]
                return box.width && (box.x < x - 1 || right > x + width + 1 || bottom > y + height + 2)
            }).map(text => text.textContent)
        })""")
    assert {name: words for name, words in outside.items() if words} == {}


def test_a_phones_menu_shows_all_groups_at_once(visit):
    page = visit("transfers/", width=390)
    page.locator(".md-header__button[for=__drawer]").click()
    for title in ("First steps", "Streams", "Collectives", "Glossary"):
        playwright.expect(page.locator(".md-nav--primary a", has_text=title).first).to_be_visible()
    playwright.expect(page.locator(".md-nav--primary a", has_text="Symptoms")).to_be_in_viewport(ratio=1)
    page.locator(".md-nav--primary a", has_text="Collectives").click()
    page.wait_for_url("**/collectives/")


def test_the_language_and_its_menu_follow_the_page(visit, address):
    page = visit("asynchrony/", width=1440)
    page.evaluate("window.isKept = true")
    links = page.locator(".md-select__link")

    def told():
        urls = links.evaluate_all("links => links.map(link => link.href)")
        contents = page.locator(".md-sidebar--secondary .md-nav__title").text_content().strip()
        language = page.evaluate("document.documentElement.lang")
        return language, [url.removeprefix(address) for url in urls], contents

    assert told() == ("en", ["asynchrony/", "zh/asynchrony/"], "Table of contents")
    menu, footer = page.locator(".md-select__list"), page.locator(".md-footer__link--next")
    for link, path, *others in (
        (menu.get_by_text("中文"), "zh/asynchrony/", "zh", ["asynchrony/", "zh/asynchrony/"], "目录"),
        (footer, "zh/streams/", "zh", ["streams/", "zh/streams/"], "目录"),
        (
            page.locator(".md-nav--primary").get_by_role("link", name="CUDA graphs", exact=True),
            "graphs/",
            "en",
            ["graphs/", "zh/"],
            "Table of contents",
        ),
        (menu.get_by_text("中文"), "zh/", "zh", ["", "zh/"], "目录"),
    ):
        if link is not footer:
            page.locator(".md-select").hover()
        link.click()
        page.wait_for_url(f"{address}{path}")
        page.wait_for_function(f"document.documentElement.lang === {others[0]!r}")
        playwright.expect(links.last).to_have_attribute("href", re.compile(f"(^|/){others[1][1]}$"))
        assert list(told()) == others
    assert page.evaluate("window.isKept"), "each page was loaded anew"
    assert not re.search("[\u4e00-\u9fff]", page.locator(".md-nav--primary").text_content())
    page = visit("zh/streams/", java_script_enabled=False)
    assert page.locator("html").get_attribute("lang") == "zh"


#: What stays in a picture on a Chinese page: names of functions, models and devices.
NAMES = re.compile(r"CUDA|CPU|GPU|Python|MLP|CNN|ResNet|all-reduce|NCCL|log|[KMG]iB|[µm]s")


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("name", ["first_steps", "asynchrony", "streams", "devices"])
def test_pictures_on_a_chinese_page_speak_chinese(visit, name, width):
    page = visit(f"zh/{name}/", width=width)
    figures = page.locator(".ov-figure:has(picture)")
    assert figures.count()
    for i in range(figures.count()):
        figures.nth(i).scroll_into_view_if_needed()
        figures.nth(i).locator(".ov-picture svg").wait_for()
    texts = page.locator(".ov-picture svg text").all_text_contents()
    assert [text for text in texts if re.search("[A-Za-z]{3}", NAMES.sub("", text))] == []
    point = page.locator(".ov-picture .ov-point").first
    point.hover(force=True)
    told = page.locator(".ov-picture + .ov-told").first.text_content()
    assert re.search("[\u4e00-\u9fff–]", told), told
    english = visit(f"{name}/", width=1440)
    english.locator(".ov-figure .ov-picture svg").first.wait_for()
    assert not re.search("[\u4e00-\u9fff]", english.locator(".ov-picture svg").first.text_content())


@pytest.mark.parametrize("name", ["first_steps", "asynchrony", "streams", "devices"])
def test_who_does_not_see_a_chinese_page_is_told_its_data_in_chinese(visit, name):
    """Alternative texts of pictures and notes of values: the numbers of the English page, and no English."""
    notes = """values => values.map(value => {
        value.dispatchEvent(new Event("pointerover", { bubbles: true })); return value })
        .map(value => value.dataset.note ?? "")"""
    told = {}
    for path in (f"{name}/", f"zh/{name}/"):
        page = visit(path)
        last = page.locator(".md-content :is(data, .ov-value)").last
        page.locator(".md-content :is(data, .ov-value)").evaluate_all(notes)
        page.wait_for_function("value => value.dataset.note", arg=last.element_handle())
        answer = "value => !value.closest('details.ov-row')"
        key = "value => (value.value ?? value.dataset.key).replace(/^@.*/, '')"
        values = [
            each for each in page.locator(".md-content :is(data, .ov-value)").all() if each.evaluate(answer)
        ]
        kept = {each.evaluate(key) or each.text_content(): each for each in values}
        told[path] = (
            page.locator(".ov-figure img").evaluate_all("images => images.map(image => image.alt)"),
            {key: each.get_attribute("data-note") for key, each in kept.items()},
        )
    (english, english_notes), (chinese, chinese_notes) = told.values()
    assert chinese and chinese_notes
    for alt in chinese:
        assert re.search("[\u4e00-\u9fff]", alt) and not re.search("[A-Za-z]{3}", NAMES.sub("", alt)), alt
        in_alt = set(re.findall(r"\d+(?:[.,]\d+)*", alt))
        told_beside = [each.partition("Measured on")[2] for each in english]
        others = [set(re.findall(r"\d+(?:[.,]\d+)*", each)) for each in told_beside]
        # of many words the end is cut off, in English sooner
        assert any(in_alt <= other or other <= in_alt for other in others if len(other) > 3), alt
    for key, note in chinese_notes.items():
        words = note.partition("，")[2]
        assert "上测得" in note and not re.search("[a-z]{2}", words.replace("ms", "")), note
        numbers = [sorted(re.findall(r"\d+(?:[.,]\d+)*", text)) for text in (note, english_notes[key])]
        assert numbers[0] == numbers[1], note


def test_pictures_on_chinese_pages_speak_chinese_without_scripts(visit, site):
    pages = [f"zh/{path.stem}/" for path in (ROOT / "docs/zh").glob("*.md")]
    pictures = 0
    for path in pages:
        folder = site / path
        html = (folder / "index.html").read_text()
        for source, alt in re.findall(r'<img src="([^"]*)"[^>]* alt="([^"]+)"', html):
            pictures += 1
            assert unescape(alt).startswith("图中的数值，")
            drawn = (folder / source).resolve().read_text(encoding="utf-8")
            assert source.endswith("-wide.zh.svg") and re.search("[\u4e00-\u9fff]", drawn), source
    assert pictures > 5
    page = visit("zh/streams/", java_script_enabled=False)
    image = page.locator(".ov-figure img").first
    playwright.expect(image).to_have_attribute("src", re.compile(r"/h200/.*\.zh\.svg$"))


def test_another_machine_speaks_chinese_on_a_chinese_page(visit):
    """Pictures, alternative texts, notes and timelines of a picked machine, and of one beside it."""
    page = visit("zh/streams/", width=1440)
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url.partition("#")[0]))
    page.get_by_role("combobox", name="机器").select_option("h100-80gb-hbm3")
    box = page.locator(".ov-snippet").first
    image = box.locator(".ov-figure img").first
    playwright.expect(image).to_have_attribute("src", re.compile(r"/h100-80gb-hbm3/.*-wide\.zh\.svg$"))
    playwright.expect(image).to_have_attribute("alt", re.compile("^图中的数值，在 1 × H100 上测得。"))
    svg = box.locator(".ov-picture svg")
    svg.first.wait_for()
    assert "由 Python 启动" in svg.first.text_content()
    figure = box.locator(".ov-figure").first
    playwright.expect(figure).to_have_attribute("data-timelines", re.compile(r"/h100.*\.zh\.json$"))
    value = page.locator(".md-content data:not([value^='@'])").first
    value.hover()
    playwright.expect(value).to_have_attribute("data-note", re.compile("在 1 × H100 上测得"))
    box = page.locator(".ov-snippet:has(.ov-machines):not(.ov-step *)").first
    box.scroll_into_view_if_needed()
    svg = box.locator(".ov-picture svg")
    box.get_by_role("combobox", name="对比").select_option("h200")
    playwright.expect(box.locator(".ov-run")).to_have_count(2)
    playwright.expect(svg).to_have_count(2)
    told = [unescape(each.get_attribute("alt")) for each in box.locator(".ov-figure img").all()]
    assert [re.match("图中的数值，在 (.*?) 上测得。", each)[1] for each in told] == ["1 × H100", "1 × H200"]
    for each in svg.all():
        texts = each.locator("text").all_text_contents()
        assert [text for text in texts if re.search("[A-Za-z]{3}", NAMES.sub("", text))] == []
    files = [url for url in fetched if "/generated/" in url and url.endswith(".json")]
    assert files and len(files) == len(set(files))


def test_a_chinese_page_says_in_chinese_that_a_machine_has_not_what_is_shown(visit):
    note = visit("zh/asynchrony/?machine=cpu").locator(".ov-step .ov-elsewhere")
    playwright.expect(note).to_have_text("没有运行：CPU；这里显示 1 × H200。")


def test_a_term_on_a_chinese_page_shows_its_meaning_in_chinese(site):
    files = [site / "zh/index.html", *sorted(site.glob("zh/*/index.html"))]
    links = [
        link
        for file in files
        for link in re.findall(r'<a href="[^"]*glossary/#[^>]*translate[^>]*>', file.read_text())
    ]
    titles = [re.search('title="([^"]*)"', link) for link in links]
    assert len(links) > 5 and all(titles)
    assert [title[1] for title in titles if not re.search("[\u4e00-\u9fff]", title[1])] == []


def test_what_scripts_write_is_in_the_language_of_the_page(visit):
    page = visit("zh/streams/", width=1440)
    title = page.locator(".ov-picker-name")
    playwright.expect(title).to_have_text("机器")
    copy = page.locator(".md-code__button[data-md-type=copy]").first
    copy.wait_for(state="attached")
    playwright.expect(copy).to_have_attribute("title", "复制到剪贴板")
    explore = page.get_by_role("button", name="放大查看时间线").first
    explore.click()
    tools = page.locator(".ov-explore").first
    told = tools.locator(".ov-told")
    playwright.expect(told).to_contain_text("点击色条看名称")
    buttons = tools.locator("button").all_text_contents()
    assert [text for text in buttons if re.search("[A-Za-z]", text)] == []
    page.keyboard.press("ArrowRight")
    playwright.expect(told).to_contain_text("持续")
    page.keyboard.press("g")
    playwright.expect(told).to_contain_text("。")
    page.locator(".md-nav--primary").get_by_role("link", name="CUDA graphs", exact=True).click()
    page.wait_for_url("**/graphs/")
    playwright.expect(title).to_have_text("Machine")


def search(page, words):
    """Put the words into the search field, all at once, and wait for results."""
    field = page.locator(".md-search__input")
    field.click()
    field.fill("")
    results = page.locator(".md-search-result__item > a:first-child")
    playwright.expect(results).to_have_count(0)
    page.keyboard.insert_text(words)
    results.first.wait_for(timeout=60_000)
    return results


def test_the_search_speaks_the_language_of_the_page(visit):
    page = visit("zh/streams/", width=1440)
    field, told = page.get_by_role("textbox", name="搜索"), page.locator(".md-search-result__meta")
    assert field.get_attribute("placeholder") == "搜索"
    search(page, "锁页内存")
    playwright.expect(told).to_have_text(re.compile(r"^找到 \d+ 条结果$"))
    search(page, "stream wait")
    texts = page.locator(".md-search-result__more summary div").all_text_contents()
    assert texts and all(re.match(r"这一页还有 \d+ 条结果$", text) for text in texts), texts
    assert not page.locator(".md-search-result__terms:visible").count()
    field.fill("zqxzqx")
    playwright.expect(told).to_have_text("没有找到相符的内容")
    field.fill("")
    playwright.expect(told).to_have_text("输入文字，开始搜索")
    page.keyboard.press("Escape")
    page.locator(".md-nav--primary").get_by_role("link", name="CUDA graphs", exact=True).click()
    page.wait_for_url("**/graphs/")
    field = page.get_by_role("textbox", name="Search")
    playwright.expect(field).to_have_attribute("placeholder", "Search")
    playwright.expect(told).to_have_text("Type to start searching")
    search(page, "matmul")
    playwright.expect(told).to_have_text(re.compile(r"^\d+ matching documents$"))


def test_the_first_row_for_a_plain_question_is_the_one_that_says_it(visit):
    """In the box and in the search: not one with the same common words, or with the opposite."""
    page, symptoms = visit(""), visit("symptoms/", rows=False)
    box = symptoms.get_by_role("searchbox", name="Words of what you see")
    for words, row in {
        "use several streams": "cuda-streams-do-not-run-concurrently",
        "train with two GPUs is slower than one": "two-gpus-take-twice-as-long-as-one",
        "two GPUs slower than one": "two-gpus-take-twice-as-long-as-one",
        "ddp hangs": "a-distributed-job-hangs-without-an-error",
        "why is the first iteration slow": "the-first-cuda-call-is-slow",
        "is non_blocking worth it": "what-do-non_blocking",
        "GPU utilisation low": "why-is-my-gpu-idle",
        "GPU utilization low": "why-is-my-gpu-idle",
        "gpu not busy": "why-is-my-gpu-idle",
        "torch.compile no speedup": "is-torchcompile-worth-it",
        "gradient through my own CUDA kernel": "my-own-cuda-kernel-has-no-gradient",
        "bf16 not faster": "why-is-bf16",
        "oom after some epochs": "memory-grows-from-step-to-step",
        "two gpus same speed": "ddp-scales-badly",
    }.items():
        box.fill(words)
        assert symptoms.locator(".ov-symptom h3:visible").first.get_attribute("id").startswith(row), words
        search(page, words)
        found = page.locator(".md-search-result__item > a[href*='symptoms/?entry=']").first
        assert f"entry={row}" in found.get_attribute("href"), words


def test_search_finds(visit):
    """A function, a question, an error message as it is pasted: the section is among the first two."""
    page = visit("")
    lost = {}
    for words, places in SEARCHED.items():
        search(page, words)
        links = page.locator(".md-search-result__item").evaluate_all(
            """items => items.map(item => [...item.children].filter(part => part.matches("a")).at(-1))
              .map(link => new URL(link.href))
              .map(url => [url.pathname.slice(1), url.hash || (url.searchParams.get("entry") ?? "")])
              .map(([path, place]) => path + (place && (place[0] === "#" ? place : "#" + place)))"""
        )
        if not any(link.startswith(tuple(places.split())) for link in links[:2]):
            lost[words] = links[:4]
        assert not [link for link in links if link.startswith(NOTEBOOKS)]
    assert lost == {}


def quoted_errors() -> dict[str, set[str]]:
    """What rows of symptoms quote, of three words or more, and which rows; below their titles, too."""
    rows = {}
    for section in tomllib.loads((ROOT / "docs/symptoms.toml").read_text()).values():
        for name, row in section.items():
            for text in [row["symptom"], *row.get("also", [])]:
                for error in re.findall("`([^`]+)`", text):
                    if len(error.split()) >= 3:
                        rows.setdefault(error, set()).add(name)
    return rows


def test_each_error_that_a_row_quotes_leads_to_the_row_when_it_is_pasted(visit):
    page = visit("")
    errors = quoted_errors()
    assert len(errors) > 150
    lost = {}
    for error, rows in errors.items():
        search(page, error)
        links = page.locator(".md-search-result__item").evaluate_all(
            """items => items.slice(0, 2)
              .map(item => [...item.children].filter(part => part.matches("a")).at(-1))
              .map(link => new URL(link.href).searchParams.get("entry"))"""
        )
        if not rows & set(links):
            lost[error] = links
    assert lost == {}


@pytest.mark.parametrize("width", [1440, 390])
def test_the_words_of_public_questions_find_a_right_place_in_the_box(visit, width):
    page = visit("symptoms/", width=width, rows=False)
    box = page.get_by_role("searchbox", name="Words of what you see")
    lost = {}
    for words, (_, row) in ASKED.items():
        box.fill(words)
        rows = page.locator(".ov-symptom h3:visible").evaluate_all(
            "all => all.slice(0, 3).map(row => row.id)"
        )
        if not any(name.startswith(row) for name in rows):
            lost[words] = rows
    assert lost == {}


def test_the_words_of_public_questions_find_a_right_place_in_the_search(visit):
    page = visit("")
    lost = {}
    for words, (places, row) in ASKED.items():
        search(page, words)
        links = page.locator(".md-search-result__item").evaluate_all(
            """items => items.slice(0, 3)
              .flatMap(item => [...item.children].filter(part => part.matches("a")))
              .map(link => new URL(link.href))
              .map(url => url.pathname.slice(1) + (url.hash || `#${url.searchParams.get("entry")}`))"""
        )
        if not any(link.startswith((*places.split(), f"symptoms/#{row}")) for link in links):
            lost[words] = links
    assert lost == {}


def test_a_title_that_is_typed_is_the_first_that_is_found(visit):
    page = visit("")
    for words, place in {
        "The GPU is slower than the CPU": "the-gpu-is-slower-than-the-cpu",
        "Two floats take megabytes": "two-floats-take-megabytes",
        "Memory grows from step to step": "memory-grows-from-step-to-step",
    }.items():
        assert f"entry={place}" in search(page, words).first.get_attribute("href")


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("my training is slow", "my-training-step-is-slow"),
        ("my step is slow", "my-training-step-is-slow"),
        ("ddp not faster", "ddp-scales-badly"),
        ("time a kernel", "how-do-i-time-gpu-code"),
        ("What does FSDP save, and what does it cost?", "what-does-fsdp-save"),
        ("How do I start DDP (torchrun)?", "how-do-i-start-ddp"),
        ("start ddp", "how-do-i-start-ddp"),
        ("How do I run a pycuda kernel on a torch tensor?", "how-do-i-run-a-pycuda-kernel"),
        ("run pycuda kernel on torch tensor", "how-do-i-run-a-pycuda-kernel"),
        ("what does non_blocking gain", "what-do-non_blockingtrue-and-pin_memory-gain"),
        ("non_blocking does nothing", "non_blockingtrue-does-nothing"),
        ("copy to gpu async", "the-copy-does-not-overlap"),
        ("multiprocessing cuda", "cannot-re-initialize"),
        ("LoRA", "does-a-7b-model-fit"),
        ("QLoRA 7B 24 GB", "does-a-7b-model-fit"),
        ("memory grows every iteration", "memory-grows-from-step-to-step"),
        ("my GPU is slower with a larger batch", "my-gpu-is-slower-with-a-larger-batch"),
        ("increasing batch size slower", "my-gpu-is-slower-with-a-larger-batch"),
        ("training gets slower over time", "training-gets-slower-over-time"),
        ("each epoch is slower than the last", "training-gets-slower-over-time"),
        ("each step takes longer than the one before", "training-gets-slower-over-time"),
        ("first inference fast then slow", "the-first-inference-is-fast"),
        ("DataLoader worker is killed by signal: Killed", "dataloader-worker-pid-is-killed"),
        ("modified by an inplace operation", "one-of-the-variables-needed"),
        ("compile keeps recompiling", "a-compiled-job-gets-slow"),
        ("recompilation every step", "a-compiled-job-gets-slow"),
        ("cudaMemcpyAsync takes long", "cudamemcpyasync-blocks"),
        ("vllm tensor parallel slow", "tensor-parallel"),
        ("gpu memory leak", "memory-grows-from-step-to-step"),
        ("pin_memory non_blocking wrong values", "with-non_blockingtrue-the-gpu-gets"),
        (
            "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported "
            "at some other API call, so the stacktrace below might be incorrect.",
            "device-side-assert-triggered",
        ),
        (
            'Traceback (most recent call last):\n  File "/home/me/proj/train.py", line 87, in <module>\n'
            "    loss.backward()\nRuntimeError: CUDA error: operation not permitted when stream is capturing",
            "operation-not-permitted-when-stream",
        ),
        (
            'Traceback (most recent call last):\n  File "/home/me/train.py", line 8, in <module>\n'
            "    out = net(x)\nStopIteration: Caught StopIteration in replica 0 on device 0.",
            "stopiteration",
        ),
        ('the model "freeze"(stuck) when using 4 or more GPUs, NCCL_P2P_DISABLE=1', "all-ranks-are-alive"),
        ("watchdog got stuck for 480 seconds", "processgroupnccls-watchdog"),
        ("Trying to backward through the graph a second time", "trying-to-backward-through"),
        ("retain_graph=True slow", "trying-to-backward-through"),
        ("pin_memory thread cpu 100%", "pin_memorytrue-in-a-dataloader-makes"),
        ("CUDA error: misaligned address", "cuda-error-misaligned-address"),
        ("illegal memory access", "cuda-error-an-illegal-memory-access"),
        ("nan loss after autocast", "the-loss-becomes-nan"),
        ("no kernel image is available", "no-kernel-image-is-available"),
        ("driver version is insufficient for CUDA runtime version", "the-nvidia-driver-on-your-system"),
        ("all CUDA-capable devices are busy or unavailable", "all-cuda-capable-devices-are-busy"),
        ("CUDA error: invalid device function", "no-kernel-image-is-available"),
        ("element 0 of tensors does not require grad", "activation-checkpointing-saves-no-memory"),
        ("ChildFailedError exitcode -9", "dataloader-worker-pid-is-killed"),
        (
            "CUDA error: CUDA kernel errors might be asynchronously reported at some other API call",
            "cuda-kernel-errors-might-be",
        ),
    ],
)
def test_one_row_fits_and_is_the_first_that_is_found(visit, words, place):
    assert f"entry={place}" in search(visit(""), words).first.get_attribute("href")


def test_search_and_the_box_of_symptoms_have_one_order(visit):
    words = "my training is slow"
    page = visit("symptoms/", rows=False)
    page.get_by_role("searchbox", name="Words of what you see").fill(words)
    in_box = page.locator(".ov-symptom h3:visible").evaluate_all("all => all.map(({ id }) => id)")
    found = search(page, words).evaluate_all(
        "all => all.map(({ href }) => new URL(href).searchParams.get('entry'))"
    )
    both = [row for row in found if row in in_box]
    assert both[:3] == in_box[:3]  # behind them several have one score


def test_search_hears_what_is_pasted_without_a_key(visit):
    page = visit("")
    page.locator(".md-search__input").focus()
    page.keyboard.insert_text("device-side assert triggered")
    playwright.expect(page.locator(".md-search-result__item").first).to_be_visible(timeout=15_000)


def test_the_index_of_the_search_has_no_machinery(site):
    texts = [
        document["text"] for document in json.loads((site / "search/search_index.json").read_text())["docs"]
    ]
    assert not [text for text in texts if "do this:" in text or "✓holds" in text]


CHINESE = {
    "训练慢": "my-training-step-is-slow",
    "卡住": "a-distributed-job-hangs",
    "死锁": "a-distributed-job-hangs",
    "内存泄漏": "memory-grows-from-step-to-step",
    "記憶體洩漏": "memory-grows-from-step-to-step",
    "显存不足": "cuda-out-of-memory",
    "顯存不足": "cuda-out-of-memory",
    "数据加载慢": "the-gpu-is-idle-between-batches",
    "单机多卡": "two-gpus-take-twice-as-long",
    "多流": "cuda-streams-do-not-run",
    "总线错误": "dataloader-worker-is-killed-by-signal-bus-error",
    "打开的文件过多": "too-many-open-files",
    "每个 epoch 开始 很慢": "the-first-batch-of-each-epoch",
    "固定内存 两倍": "pinned-memory-takes-up-to-twice",
    "私有池": "cuda-out-of-memory_1",
    "分组查询注意力": "the-key-value-cache",
    "几个 worker 合适": "the-gpu-waits-for-the-dataloader",
    "首个 token 慢": "the-first-token-takes-long",
    "什么时候 用 vLLM": "how-do-i-get-more-tokens-per-second",
    "冻结 参数 DDP": "expected-to-have-finished-reduction",
}


def test_search_does_not_list_what_has_few_of_the_words(visit):
    """The first result has all of them; what has less than half is no answer."""
    page = visit("")
    words = "device assert triggered"
    search(page, words)
    missed = page.locator(".md-search-result__item").evaluate_all(
        "items => items.map(item => item.querySelectorAll(':scope > a:last-of-type del').length)"
    )
    assert len(missed) > 1 and missed[0] == 0
    assert max(missed) <= len(words.split()) / 2


@pytest.mark.parametrize(
    ("words", "meant"), [("lodaer", "loader"), ("perfeto", "perfetto"), ("grpah", "graph")]
)
def test_search_forgives_a_letter_in_a_word_that_the_book_has_not(visit, words, meant):
    page = visit("")
    search(page, words)
    found = page.locator(".md-search-result__item mark").all_text_contents()
    assert found and all(word.lower().startswith(meant) for word in found)


def test_search_takes_a_name_as_one_word(visit):
    """And where the book does not have it, its parts elsewhere are no answer."""
    page = visit("")
    search(page, "pin_memory")
    for item in page.locator(".md-search-result__item").all():
        assert re.search("pin.?memory", item.text_content(), re.IGNORECASE)
    search(page, "blocking")
    assert page.locator(".md-search-result__item").first.locator("mark", has_text="blocking").count()
    page.get_by_role("textbox", name="Search").fill("channels_first")
    playwright.expect(page.locator(".md-search-result__meta")).to_have_text("No matching documents")


def test_search_understands_chinese_in_both_scripts(visit):
    page = visit("")
    for words, row in CHINESE.items():
        found = search(page, words).evaluate_all("all => all.slice(0, 2).map(link => link.href)")
        assert any(f"symptoms/?entry={row}" in link for link in found), (words, found)


def test_a_result_shows_no_words_of_another_script(visit):
    page = visit("")
    search(page, "显存不足")
    text = page.locator(".md-search-result__list").inner_text()
    assert "显存" in text and "視訊" not in text and "顯" not in text


def test_a_found_symptom_is_the_row_that_is_shown(visit):
    page = visit("symptoms/?entry=printtensor-is-slow&h=print")
    page.wait_for_function("location.hash === '#printtensor-is-slow' || location.hash.startsWith('#print')")
    assert "entry=" not in page.url
    found = search(page, "cuda out of memory")
    rows = [link for link in found.evaluate_all("all => all.map(link => link.href)") if "entry=" in link]
    assert len(rows) >= 4  # each is a result of its own
    found.first.click()
    page.wait_for_function("location.hash.startsWith('#cuda-out')")
    playwright.expect(page.locator(".ov-symptom.ov-sought")).to_be_in_viewport()


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize(
    "path", ["symptoms/?entry=printtensor-is-slow&h=print", "symptoms/#printtensor-is-slow"]
)
def test_a_symptom_that_an_address_names_is_the_first_below_the_box(visit, path, width):
    page = visit(path, width=width)
    row = page.locator(".ov-symptom:has(#printtensor-is-slow)")
    page.wait_for_function("location.hash === '#printtensor-is-slow'")
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(500)
    bottom, top = (
        page.locator(".ov-narrow").bounding_box()["y"] + page.locator(".ov-narrow").bounding_box()["height"],
        row.bounding_box()["y"],
    )
    assert bottom <= top < bottom + 40


#: What a reader puts into the box of the symptoms, and the row that comes first.
PASTED = {
    "CUDA out of memory. Tried to allocate 20.00 MiB": "cuda-out-of-memory-tried-to-allocate",
    "RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously "
    "reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider "
    "passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.": (
        "device-side-assert-triggered"
    ),
    'Traceback (most recent call last):\n  File "/home/me/memory/slow_copy.py", line 12, in <module>\n'
    "    step()\nRuntimeError: Expected all tensors to be on the same device, but found at least two "
    "devices, cuda:0 and cpu!": "expected-all-tensors",
    "Error 802: system not yet initialized": "error-802",
    "a job hangs": "a-distributed-job-hangs",
    "显存不足": "cuda-out-of-memory",
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
    "operation: [torch.cuda.FloatTensor [64, 10]], which is output 0 of AsStridedBackward0, is at version 2; "
    "expected version 1 instead.": "one-of-the-variables-needed",
    "RuntimeError: DataLoader worker (pid 4312) is killed by signal: Killed.": "dataloader-worker-pid",
    "RuntimeError: DataLoader worker (pid 4312) is killed by signal: Bus error. It is possible that "
    "dataloader's workers are out of shared memory.": "dataloader-worker-is-killed-by-signal-bus-error",
    "PYTORCH_CUDA_ALLOC_CONF": "cuda-out-of-memory_2",
    "why is my GPU slower with a larger batch size": "my-gpu-is-slower-with-a-larger-batch",
    "training slows down after each epoch": "training-gets-slower-over-time",
    "训练越来越慢": "training-gets-slower-over-time",
}

#: Errors of which the book has no row; some of their words are in rows.
UNKNOWN = [
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)",
    "RuntimeError: Error(s) in loading state_dict for ResNet: size mismatch for fc.weight: copying a param "
    "with shape torch.Size([1000, 2048]) from checkpoint, the shape in current model is torch.Size([10]).",
    "TypeError: forward() missing 1 required positional argument: 'mask'",
    "IndexError: list index out of range",
    "ValueError: Expected input batch_size (32) to match target batch_size (64).",
    "AttributeError: 'NoneType' object has no attribute 'shape'",
    "KeyError: 'labels'",
    "my loss does not converge",
]


@pytest.mark.parametrize("width", [1440, 390])
def test_a_whole_error_message_finds_its_symptom(visit, width):
    page = visit("symptoms/", width=width, rows=False)
    box = page.get_by_role("searchbox", name="Words of what you see")
    for words, row in PASTED.items():
        box.fill(words)
        first = page.locator(".ov-symptom h3:visible").first
        assert first.get_attribute("id").startswith(row), words
        assert first.evaluate("row => !row.closest('details')"), "no group has to be opened"
        assert page.locator(".ov-narrow output").inner_text().endswith("the nearest first"), words


@pytest.mark.parametrize("width", [1440, 390])
def test_an_error_that_the_book_does_not_know_is_said_to_be_unknown(visit, width):
    page = visit("symptoms/", width=width, rows=False)
    box = page.get_by_role("searchbox", name="Words of what you see")
    for words in UNKNOWN:
        box.fill(words)
        said = page.locator(".ov-narrow output").inner_text()
        assert said == "No symptom has these words. The nearest, perhaps not yours:", words
        assert 1 <= page.locator(".ov-symptom:visible").count() <= 3
        assert page.get_by_role("button", name="Search the book for it").is_visible()


def test_the_symptoms_are_narrowed_by_words(visit):
    page = visit("symptoms/")
    rows, contents = page.locator(".ov-symptom:visible"), page.locator(".md-sidebar--secondary a:visible")
    everything, order = rows.count(), rows.all_inner_texts()
    assert contents.count()
    box = page.get_by_role("searchbox", name="Words of what you see")
    box.fill("pin_memory")
    assert 0 < rows.count() < 20 and all("pin" in row.inner_text() for row in rows.all())
    assert page.locator("h2:visible").count() == contents.count() == 0
    box.fill("hang")
    texts = [row.text_content().lower() for row in rows.all()]
    assert all(re.search(r"(?<![a-z\d])hang", text) for text in texts), "and not in changes or exchange"
    titles = [bool(re.search(r"\bhang", row.locator("h3").text_content())) for row in rows.all()]
    assert any(titles) and titles == sorted(titles, reverse=True)
    box.fill("显存不足")
    assert 0 < rows.count() < 5
    page.evaluate("location.hash = 'why-is-my-gpu-idle-gpu-utilization-is-low'")
    playwright.expect(box).to_have_value("")
    playwright.expect(page.locator("#why-is-my-gpu-idle-gpu-utilization-is-low")).to_be_in_viewport()
    assert rows.count() == everything > 100 and rows.all_inner_texts() == order and contents.count()


@pytest.mark.parametrize("width", [1440, 390])
def test_what_no_symptom_has_is_looked_for_in_the_book(visit, width):
    page = visit("symptoms/", width=width, rows=False)
    box = page.get_by_role("searchbox", name="Words of what you see")
    offer = page.get_by_role("button", name="Search the book for it")
    box.fill("out of memory")
    assert offer.is_hidden()
    box.fill("curandom")
    playwright.expect(page.locator(".ov-narrow output")).to_have_text("No symptom has these words.")
    assert page.locator(".ov-symptom:visible").count() == 0
    offer.click()
    playwright.expect(page.locator(".md-search__input")).to_have_value("curandom")
    playwright.expect(page.locator(".md-search-result__item").first).to_be_visible(timeout=60_000)


def test_on_a_phone_groups_of_symptoms_open_by_a_click_words_and_links(visit):
    page = visit("symptoms/", width=390, rows=False)
    groups, rows = page.locator("article details.ov-row"), page.locator(".ov-symptom:visible")
    assert groups.count() == 14 and rows.count() == 0
    page.locator("#streams").click()
    assert rows.count() == page.locator("details:has(#streams) .ov-symptom").count() > 3
    box = page.get_by_role("searchbox", name="Words of what you see")
    box.fill("pin_memory")
    assert 0 < rows.count() < 20 and groups.filter(visible=True).count() == 0
    box.fill("")
    assert rows.count() == 0
    page.goto("symptoms/#memory")
    playwright.expect(page.locator("#memory")).to_be_in_viewport()
    page.wait_for_timeout(500)
    box = page.locator(".ov-narrow").bounding_box()
    assert page.locator("#memory").bounding_box()["y"] >= box["y"] + box["height"], "it lies under the box"
    page.goto("symptoms/?entry=is-my-gpu-fast-enough")
    playwright.expect(page.locator("#is-my-gpu-fast-enough")).to_be_in_viewport()
    assert page.locator("details[open] #is-my-gpu-fast-enough").count() == 1


def test_the_worker_of_the_search_is_mended(site):
    (worker,) = site.glob("assets/javascripts/workers/search.*.js")
    text = worker.read_text()
    for wrong, right in search_of_theme.MENDED:
        assert right in text and wrong not in text.replace(right, "")


#: When the index was asked for, behind the end of loading.
INDEX_AT = """() => performance.getEntriesByType("resource")
  .filter(({ name }) => name.endsWith("search_index.json"))
  .map(({ startTime }) => startTime - performance.getEntriesByType("navigation")[0].loadEventEnd)"""


def test_the_index_of_the_search_comes_when_a_page_has_nothing_else_to_do(visit):
    page = visit("streams/", idle=True)
    page.wait_for_function(f"({INDEX_AT})().length")
    (later,) = page.evaluate(INDEX_AT)
    assert later >= 1_900


@pytest.mark.parametrize("way", ["/", "pointer", "phone", "?q=matmul", "another page"])
def test_the_index_of_the_search_is_fetched_when_somebody_turns_to_it(visit, way):
    """And then the search finds, what was typed before the index arrived included."""
    width = 1280
    path = "streams/"
    if way == "phone":
        width = 390
    if way == "?q=matmul":
        path += way
    page = visit(path, width=width)
    assert bool(page.evaluate(INDEX_AT)) == (way == "?q=matmul")
    if way == "another page":
        page.locator(".md-footer__link--next").click()
        page.wait_for_url("**/transfers/")
    if way == "phone":
        page.locator(".md-header__button[for=__search]").click()
    elif way == "/":
        page.keyboard.press("/")
    elif way != "?q=matmul":
        page.get_by_role("textbox", name="Search").click()
    if way != "?q=matmul":
        page.keyboard.type("matmul")
    page.locator(".md-search-result__item").first.wait_for(timeout=60_000)


@pytest.mark.parametrize(
    ("words", "title"),
    [("数据加载慢", "The GPU is idle between batches"), ("显存碎片", "CUDA out of memory, with much")],
)
def test_search_shows_no_words_that_are_there_to_be_found_by(visit, words, title):
    page = visit("zh/")
    search(page, words)
    titles = page.locator(".md-search-result__item > a :is(h1, h2)").all_text_contents()
    assert [text for text in titles if text.startswith(title)], titles
    assert not [text for text in titles if text.startswith(title) and re.search("[\u4e00-\u9fff·]", text)]


def test_search_shows_the_row_of_a_table_and_the_whole_of_a_meaning(visit):
    page = visit("")
    search(page, "h100 vs h200")
    first = page.locator(".md-search-result__item").first.locator("> a article p")
    assert first.all_inner_texts()[0].startswith("measured | CPU | 1 × H100 | ")
    search(page, "nvlink")
    meaning = first.first.inner_text()
    assert meaning.startswith("A direct link between GPUs")
    assert "Other words: " in meaning


@pytest.mark.parametrize("path", ["symptoms/", "glossary/", "sources/"])
def test_chinese_words_in_headings_say_so_and_are_not_in_the_contents(visit, path):
    page = visit(path)
    han = re.compile("[\u4e00-\u9fff]")
    assert not han.search(page.locator(".md-nav--secondary").first.text_content())
    for heading in page.locator(".md-content :is(h2, h3)").all():
        told = heading.locator("[lang=zh]").all_text_contents()
        assert bool(told) == bool(han.search(heading.text_content())) or path == "sources/"


def told_by_this_machine() -> set[bytes]:
    """Paths and names that only this machine has."""
    places = {ROOT, Path.home(), Path(sys.prefix), Path(sys.executable).parent, Path(tempfile.gettempdir())}
    names = {
        socket.gethostname(),
        os.uname().nodename,
        f"{getpass.getuser()}@",
        *(os.environ.get(key, "") for key in ("USER", "LOGNAME")),
    }
    words = {f"{place}/" for place in places} | {name for name in names if len(name) > 4}
    return {word.encode() for word in words} - {b"/"}


def test_no_published_file_tells_of_the_machine_it_was_built_on(site):
    files = [path for path in site.rglob("*") if path.is_file()]
    assert len(files) > 300
    sources = b"".join(
        path.read_bytes()
        for folder in ("docs", "snippets")
        for path in (ROOT / folder).rglob("*.*")
        if path.is_file() and path.suffix != ".pyc"
    )
    telling = {word for word in told_by_this_machine() if word not in sources}
    assert f"{ROOT}/".encode() in telling
    for path in files:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if path.suffix == ".gz" else raw
        assert not [word for word in telling if word in text], path
        assert path.suffix not in (".py", ".pyc", ".log", ".tmp") or "downloads" in path.parts, path
