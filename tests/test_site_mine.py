"""The reader's own machine in the site: a file is dropped, checked, shown beside others, forgotten."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("playwright.sync_api")

from conftest import committed
from test_site_browser import address, paths, pytestmark, shows, site, visit  # noqa: F401 - used by name

from overlap.blocks.pages import Pages
from overlap.commands import mine
from overlap.site import machines
from overlap.site.pictures import Pictures

GPU = "h100-80gb-hbm3"
SHOWN = f"my:{GPU}"


@pytest.fixture(scope="module")
def pages() -> Pages:
    return committed()


@pytest.fixture(scope="module")
def written(pages, tmp_path_factory) -> Path:
    """What a reader's H100 would write that gave what is recorded on the book's, but for one claim."""
    path = tmp_path_factory.mktemp("mine") / mine.NAME
    made = mine.Mine(pages, path)
    for runs in pages.book.committed.values():
        for machine in (GPU, "cpu"):
            if machine in runs:
                data = {key: value for key, value in runs[machine].data.items() if key != "others"}
                made.put(data)
    made.finish(lambda now, machine: machines.shown(now, Pictures(now.book), machine, machines.YOUR))
    return path


@pytest.fixture
def data(written) -> dict:
    return json.loads(written.read_text())


def drop(page, file: Path) -> str:
    """Put a file into the page's place for it; what the page says then."""
    page.goto("check/")
    page.wait_for_selector(".ov-drop button")
    page.set_input_files(".ov-drop input", file)
    page.wait_for_function("/picker|Refused/.test(document.querySelector('.ov-drop .ov-told')?.textContent)")
    return page.inner_text(".ov-drop .ov-told")


def picked(page) -> list[str]:
    return page.evaluate("[...document.querySelectorAll('.ov-picker option')].map(each => each.value)")


def test_a_dropped_file_is_one_more_machine_and_is_not_sent(visit, written, data, pages):  # noqa: F811
    page = visit("check/")
    before = picked(page)
    sent = []
    page.on("request", lambda request: sent.append((request.method, request.post_data)))
    assert "your 1 × H100 (claims: " in drop(page, written)
    assert picked(page) == [*before, "my:cpu", SHOWN]
    assert page.input_value(".ov-picker select") == SHOWN
    page.goto("timing/")
    shows(page, SHOWN)
    texts = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('data[value]')]"
        ".map(each => [each.value, each.textContent]))"
    )
    own = data["machines"][GPU]["values"]
    both = [key for key in texts if key in own]
    assert len(both) > 20
    assert [texts[key] for key in both] == ["".join(own[key][:2]) for key in both]
    assert set(sent) == {("GET", None)}


def test_claims_have_the_readers_verdict(visit, written, data, tmp_path, pages):  # noqa: F811
    claim = next(claim for claim in pages.claims if claim.page == "timing.md" and claim.name)
    data["machines"][GPU]["claims"][claim.key] = ["false", "9 ≥ 10", "try again", ""]
    (tmp_path / "mine.json").write_text(json.dumps(data))
    page = visit("check/")
    drop(page, tmp_path / "mine.json")
    page.goto("timing/")
    shows(page, SHOWN)
    mark = page.locator(f"#{claim.anchor}")
    assert mark.inner_text().endswith("yours ✗") and "on your machine: false" in mark.get_attribute("title")
    mark.click()
    row = page.locator(f"#{claim.anchor}-evidence li[data-machine='{SHOWN}']")
    row.wait_for()
    assert re.sub(r"\s+", " ", row.inner_text()) == "✗ your 1 × H100 false 9 ≥ 10 try again"
    assert "ov-picked" in row.get_attribute("class") and row.locator("a[href]").count() == 0
    page.goto("claims/")
    page.wait_for_selector(".ov-counts th:has-text('your 1 × H100')")
    own = data["machines"][GPU]
    cells = page.locator(f".ov-claims:not(.ov-counts) [data-machine='{SHOWN}'] .ov-cell")
    assert cells.count() == sum(each.key in own["claims"] for each in pages.claims)
    for path, words in (("", own["counts"][""]), ("timing.md", own["counts"]["timing.md"])):
        cell = page.locator(f".ov-counts tr[data-page='{path}'] td[data-machine='{SHOWN}']")
        assert cell.inner_text().split("\n") == [text for _, text in words]


def test_outputs_numbers_and_pictures_are_the_readers(visit, written, data):  # noqa: F811
    page = visit("check/")
    drop(page, written)
    page.goto("machine/")
    shows(page, SHOWN)
    run = page.locator(f".ov-run[data-machine='{SHOWN}']:has(.ov-numbers)").first
    ran = data["machines"][GPU]["snippets"][run.locator(".ov-part").get_attribute("data-name")]
    run.scroll_into_view_if_needed()
    run.locator(".ov-picture svg").wait_for()
    image = run.locator("img")
    assert image.get_attribute("src").startswith("data:image/svg+xml,%3Csvg")
    assert " Measured on your 1 × H100. " in image.get_attribute("alt")
    drawn = re.findall(r"<text[^>]*>([^<]*)<", ran["pictures"][""]["wide"])
    assert run.locator(".ov-picture text").all_text_contents() == drawn != []
    wanted = [row for table in ran["pictures"][""]["tables"] for row in table["rows"]]
    views = page.locator(".ov-views").filter(has=run).first
    views.locator(".ov-choice label", has_text="Numbers").click()
    run.locator(".ov-numbers tbody tr").first.wait_for()
    rows = run.locator(".ov-numbers tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert rows == wanted and len(rows) >= 4
    bare = page.locator(f".ov-run[data-machine='{SHOWN}']:has([data-name='machine/hbm_bandwidth'])").first
    ran = data["machines"][GPU]["snippets"]["machine/hbm_bandwidth"]
    assert bare.locator(".ov-text").first.text_content() == ran["outputs"][0][2]
    assert bare.locator(".ov-provenance summary").text_content() == ran["line"]
    assert bare.locator(".ov-raw").is_hidden()


def test_a_row_of_numbers_has_as_many_cells_as_it_was_given(visit, data, tmp_path):  # noqa: F811
    wanted = [["copies"], ["1", "2", "3"], ["4", "5", "6"]]
    for ran in data["machines"][GPU]["snippets"].values():
        for picture in ran["pictures"].values() if isinstance(ran, dict) else ():
            picture |= {"tables": [{"headings": ["where", "what", "range"], "rows": wanted}], "more": 0}
    (tmp_path / "mine.json").write_text(json.dumps(data))
    page = visit("check/")
    drop(page, tmp_path / "mine.json")
    page.goto("machine/")
    shows(page, SHOWN)
    run = page.locator(f".ov-run[data-machine='{SHOWN}']:has(.ov-numbers)").first
    page.locator(".ov-views").filter(has=run).first.locator(".ov-choice label", has_text="Numbers").click()
    table = run.locator(".ov-numbers table").first
    table.wait_for()
    rows = table.evaluate("table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))")
    assert rows == [["where", "what", "range"], *wanted]
    assert table.locator("th[scope=rowgroup]").get_attribute("colspan") == "3"


def test_what_the_machine_lacks_is_said(visit, data, tmp_path):  # noqa: F811
    name = "timing/wait_for"
    for here in data["machines"].values():
        here["snippets"].pop(name, None)
    data["lacks"] = {name: "needs 9 GPUs"}
    (tmp_path / "mine.json").write_text(json.dumps(data))
    page = visit("check/")
    drop(page, tmp_path / "mine.json")
    page.goto("timing/")
    shows(page, SHOWN)
    note = page.locator(f".ov-run:has([data-name='{name}']) .ov-elsewhere").first.text_content()
    assert " ".join(note.split()) == "Did not run on your 1 × H100 (needs 9 GPUs); shown: 1 × H200."


def test_calculators_begin_with_the_readers_numbers(visit, data, tmp_path, pages):  # noqa: F811
    given = data["machines"][GPU]["blocks"]
    starts = {key: start for key, start in given.items() if isinstance(start, dict)}
    assert starts
    (tmp_path / "mine.json").write_text(json.dumps(data))
    page = visit("check/")
    drop(page, tmp_path / "mine.json")
    shown = 0
    for path in {block.page for block in pages.blocks if block.kind == "calculator"}:
        page.goto(path.replace("index.md", "").replace(".md", "/"))
        page.wait_for_selector(f".ov-picker option[value='{SHOWN}']", state="attached")
        for key, start in starts.items():
            form = page.locator(f".ov-calculator[data-key='{key}']")
            for name in start if form.count() else ():
                assert float(form.locator(f"[name={name}]").input_value()) == pytest.approx(
                    start[name], rel=1e-3
                )
                shown += 1
    assert shown > 2


def test_forgotten_it_is_gone(visit, written):  # noqa: F811
    page = visit("check/")
    before = picked(page)
    drop(page, written)
    with page.expect_navigation():
        page.click("text=Forget my machine")
    page.wait_for_selector(".ov-picker")
    assert picked(page) == before
    assert page.evaluate("Object.values(localStorage).join()").count("H100") == 0
    page.goto("timing/")
    assert page.locator("body [data-machine^='my:']").count() == 0


def test_what_is_no_finished_file_of_this_edition_is_refused(visit, data, tmp_path):  # noqa: F811
    refused = {
        "{": "damaged or cut off",
        "[1]": "no mine.json that",
        json.dumps(data | {"digest": "0" * 10}): "another edition of this book",
        json.dumps(data | {"machines": {}}): "not finished",
        json.dumps(data | {"machines": {"cpu": {"label": "CPU"}}}): "changed or damaged",
        json.dumps(data | {"lacks": []}): "changed or damaged",
    }
    page = visit("check/")
    before = picked(page)
    for text, why in refused.items():
        file = tmp_path / "mine.json"
        file.write_text(text)
        told = drop(page, file)
        assert told.startswith("Refused: ") and why in told
        assert picked(page) == before and page.evaluate("localStorage.getItem('overlap.mine')") is None


def test_what_is_kept_of_an_older_edition_is_not_used(visit, written):  # noqa: F811
    page = visit("check/")
    drop(page, written)
    old = mine.digest_of_book(committed())
    page.evaluate(
        "old => { localStorage['overlap.mine'] = localStorage['overlap.mine'].replace(old, 'old') }", old
    )
    page.goto("timing/")
    page.wait_for_selector(".ov-picker")
    assert not any(each.startswith("my:") for each in picked(page))
    page.goto("check/")
    page.wait_for_selector("text=Forget my machine")
    assert "is not used. The file is of another edition" in page.inner_text(".ov-drop .ov-told")
