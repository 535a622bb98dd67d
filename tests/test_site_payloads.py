"""Whatever is recorded, written in a header or drawn is text on every kind of page, tried in a browser.

Each payload stands in every text field of a recording that the schema lets through, in the header, in the
labels of a picture, in a value, a claim and what was printed.
"""

import itertools
import json
import re
import xml.etree.ElementTree as etree
from xml.sax.saxutils import escape

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("playwright.sync_api")

from conftest import ROOT, SmallBook, no_gpu
from test_overlap_site import build
from test_site_browser import address, paths, search, visit  # noqa: F401 - used by name
from test_site_browser import pytestmark as needs_chromium

from overlap.commands import mine
from overlap.run import recording
from overlap.run.hardware import name_of
from overlap.run.snippet import Snippet
from overlap.run.text import plain

pytestmark = [needs_chromium, pytest.mark.usefixtures("on_cpu"), pytest.mark.filterwarnings("default")]

#: What a payload would do if it were not text, in ways that a page, Markdown, a template, an SVG, a notebook
#: or a terminal could be led to.
DO = "pwned()"
PAYLOADS = [
    f"<img src=x onerror={DO}>",
    f"'><svg onload={DO}>",
    f'"><details open ontoggle={DO}>',
    f"</title></textarea><script>{DO}</script>",
    f"</code></pre></td></tr></table><script>{DO}</script>",
    f"--><script>{DO}</script><!--",
    f"]]></text></svg><script>{DO}</script>",
    f"javascript:{DO}",
    f"{{{{{DO}}}}}{{% raw %}}{{{{ self.__init__ }}}}",
    f"[x](javascript:{DO})",
    f"![x](x){{ onload={DO} }}",
    f"[x]: javascript:{DO}",
    f"# <img src=x onerror={DO}>",
    f"```\n<img src=x onerror={DO}>\n```",
    f"`<img src=x onerror={DO}>`",
    f"| <img src=x onerror={DO}> | b |\n|---|---|",
    f"*[abbr]: <img src=x onerror={DO}>",
    f'!!! note "<img src=x onerror={DO}>"',
    "{ #snippet-a-b onclick=pwned() }",
    "{x/p_000: said}",
    "\n```\n\n```snippet x/p_000\n```\n",
    "<base href=//evil.invalid/>",
    "<meta http-equiv=refresh content=0;url=//evil.invalid/>",
    "<iframe src=javascript:pwned()></iframe>",
    '"}]</script><script>pwned()</script>',
    "\\u003cscript\\u003epwned()\\u003c/script\\u003e",
    "&lt;script&gt;pwned()&lt;/script&gt;&#60;img src=x onerror=pwned()&#62;",
    "\x02wzxhzdk:0\x03\x02klzzwxh:0001\x03",
    "\x00\x01\x08\x0b\x0c\x1f\x7f\x80\x9f",
    "\x1b]8;;javascript:pwned()\x1b\\link\x1b]8;;\x1b\\\x1b[31mred\x1b[0m",
    "\u2028\u202e\u2066<img src=x onerror=pwned()>\u2069",
    "<svg><script>pwned()</script><foreignObject><img src=x onerror=pwned()></foreignObject></svg>",
    "<math><mtext><script>pwned()</script></mtext></math>",
    "$\\href{javascript:pwned()}{x}$",
    "x" * 300 + "<b>",
]
HEADER = """# /// script
# [tool.overlap]
# gpus = {counts}
# missing = {{ 2 = {missing} }}
# ///
{docstring}

def main():
    return {{}}
"""
#: One picture has the payloads of several.
DRAWN = 6
PLOT = """from snippets.pictures import Axis, Bars, Line, Note, Panel, Picture


def plot(results, ceilings):
    panels = []
    for said in results["drawn"]:
        marks = [Line([0, 1], [0, 1], said), Note(0, 0, said)]
        panels.append(Panel(marks, Axis(said, ticks={0: said}), Axis(said), said))
        panels.append(Panel([Bars({said: 1.0, "other": 2.0}, "b" + said)], Axis(said), title=said))
    return Picture(panels)


"""
PAGE = """## {name}

The value is {{{name}: said}} and {{{name}: deep}}.

```snippet {name}
```

```claim {name}
said != "" and deep.said != 3 and rows[0].said == said
It says something.
```
"""


def tainted(data: dict, payload: str, keep: tuple[str, ...]) -> dict:
    """A recording whose every text is the payload, as far as the schema allows.

    `keep` are paths whose text has a form of its own.
    """

    def taint(item, path: str):
        if isinstance(item, dict):
            return {key: taint(value, f"{path}.{key}".lstrip(".")) for key, value in item.items()}
        if isinstance(item, list):
            return [taint(value, path) for value in item]
        return payload if (isinstance(item, str) or item is None) and not path.startswith(keep) else item

    return taint(data, "")


def readable(payload: str) -> str:
    """What of a payload the schema lets through in a name or a version."""
    return "".join(c if c.isprintable() else " " for c in payload).strip() or "x"


KEEP = (
    "schema",
    "snippet",
    "profile",
    "digest",
    "source",
    "inputs",
    "run.started",
    "outputs",
    "result",
    "machine.gpus",
    "machine.host",
)


@pytest.fixture(scope="session")
def site(template, tmp_path_factory):
    """A site of all payloads, ten on a page."""
    with no_gpu():
        return made(SmallBook(tmp_path_factory.mktemp("payloads")), template)


def made(book: SmallBook, template: dict):
    pages = {}
    for number, payload in enumerate(PAYLOADS):
        chapter = f"c_{number // 10:02d}"
        name, text = f"{chapter}/p_{number:03d}", readable(payload)
        counts = [1, 0] if number % 5 == 0 else [1]
        header = HEADER.format(
            counts=[*counts, 2], missing=json.dumps(text, ensure_ascii=False), docstring=repr(text)
        )
        path = book.root / "snippets" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            header.replace("def main", PLOT + "def main") if number % DRAWN == 0 else header, encoding="utf-8"
        )
        said = {
            "drawn": PAYLOADS[number : number + DRAWN],
            "said": payload,
            "deep": {"said": payload, payload[:200]: payload},
            "rows": [{"said": payload}],
        }
        outputs = [
            {"output_type": "stream", "name": stream, "text": [payload, "\n", payload], "rank": rank}
            for stream in ("stdout", "stderr")
            for rank in (0, 1)
        ]
        gpu = f"NVIDIA {re.sub('[^ -~]', '', text)[:60]} g{number}"
        for gpus in counts:
            data = template | {"result": said, "outputs": outputs}
            data = tainted(data, text[:150], KEEP)
            data["machine"] |= {"cores": 2, "host_gpus": gpus, "system": text[:150]}
            data["machine"]["gpus"] = [{"name": gpu, "memory_bytes": 10**11, "capability": "9.0"}] * gpus
            data["software"]["cudnn"] = None
            snippet = Snippet.read(book.root, name)
            data |= {"snippet": name, "profile": name_of([gpu] * gpus), "inputs": {}}
            data["source"] = {"path": snippet.path, "sha256": snippet.digest}
            recording.write(book.path(name, data["profile"]), recording.dump(recording.sealed(data)))
        pages.setdefault(chapter, []).append(PAGE.format(name=name))
    for chapter, parts in pages.items():
        book.page(chapter, f"# {chapter}\n\n" + "\n".join(parts))
    book.page("index", "# Index\n\n" + "\n".join(f"[{chapter}]({chapter}.md)" for chapter in pages))
    book.page("claims", "# Claims\n\n```claims\n```\n")
    book.page("snippets", "# Snippets\n\n```snippets\n```\n")
    book.page("a", '# A\n\n<div class="ov-drop"></div>\n')
    book.page("glossary", "# Glossary\n")
    assert book.check(remarks=False) == []
    (book.root / "docs/assets").mkdir()
    for script in (ROOT / "docs/assets").glob("*.js"):
        (book.root / "docs/assets" / script.name).write_text(script.read_text())
    nav = ", ".join(f"{name}.md" for name in ["index", *pages, "claims", "snippets", "a", "glossary"])
    extra = (
        "extra_javascript: [generated/machines.js, assets/words.js, assets/machines.js, assets/rank.js, "
        "assets/overlap.js]\n"
        f"nav: [{nav}]\n"
    )
    return build(book, "never", extra=extra, notebook_page="c_00")


SPY = """
window.did = []
window.pwned = () => window.did.push(document.currentScript ? "script" : "event")
"""
#: What no payload may have made: elements and attributes that this book's pages have none of.
STRANGE = """() => {
  const found = []
  for (const element of document.querySelectorAll("*")) {
    for (const { name, value } of element.attributes) {
      const address = /href|src|action|data$/.test(name)
      const script = address && /^\\s*javascript:/i.test(value)
      if (name.startsWith("on") || script) found.push(`${element.tagName} ${name}=${value}`)
    }
  }
  const tags = "iframe, object, embed, base, video, math, foreignObject, animate"
  const never = `${tags}, form[action], meta[http-equiv], img[src=x]`
  for (const element of document.querySelectorAll(never)) {
    if (!element.matches(".md-search *")) found.push(element.outerHTML.slice(0, 200))
  }
  return found
}"""


def test_no_payload_acts_on_any_page(site, paths, visit):  # noqa: F811
    """Chapters, notebooks, index, claims, snippets; every picture is taken into the page.

    Every machine is picked once.
    """
    assert len([path for path in paths if path.startswith("c_")]) == len(PAYLOADS) // 10 + bool(
        len(PAYLOADS) % 10
    )
    found, asked, page = {}, [], visit("")
    page.add_init_script(SPY)
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url) if "evil.invalid" in request.url else None)
    page.on("pageerror", lambda error: asked.append(str(error)))
    for path in paths:
        page.goto(path)
        for picture in page.query_selector_all(".ov-figure"):
            picture.scroll_into_view_if_needed() if picture.is_visible() else None
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        page.wait_for_timeout(100)
        asked += page.evaluate("window.did") + page.evaluate(STRANGE)
        if page.title().strip() in ("", "pwned") or asked:
            found[path] = list(asked)
        asked.clear()
    assert found == {}


def svg(payload: str) -> str:
    """A picture that would act in ways of its own, and has a payload where it may stand as it is."""
    return f"""<svg xmlns="http://www.w3.org/2000/svg" xmlns:h="http://www.w3.org/1999/xhtml"
 viewBox="0 0 9 9" onload="pwned()"><script>pwned()</script><h:script>pwned()</h:script>
 <style>@import url(//evil.invalid/);*{{background:url(//evil.invalid/)}}</style>
 <foreignObject><h:img src="x" onerror="pwned()"/></foreignObject><image href="//evil.invalid/x"/>
 <a href="javascript:pwned()"><text>go</text></a><use href="//evil.invalid/x#y"/>
 <rect class="ov-point" width="9" height="9" style="fill:url(//evil.invalid/#x)" onclick="pwned()"/>
 <animate attributeName="href" to="javascript:pwned()"/><set attributeName="onload" to="pwned()"/>
 <text>{escape(plain(payload))}</text></svg>"""


def readers_file(site) -> dict:
    """A file of the reader's whose every text is a payload, for all that the pages ask for."""
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted(site.rglob("*.html")))
    texts = itertools.cycle(payload[-300:] for payload in PAYLOADS)
    values = set(re.findall(r'<data value="(\w+)"|class="ov-value" data-key="(\w+)"', pages))
    values = {key for keys in values for key in keys if key}
    claims = set(re.findall(r'class="ov-mark[^>]* href="[^"]*#(\w+)"', pages, re.S))
    names = set(re.findall(r'data-name="([\w/]+)"', pages))
    assert min(map(len, (values, claims, names))) >= len(PAYLOADS)
    machines = {}
    for number in range(8):
        table = {"headings": [next(texts), next(texts)], "rows": [[next(texts)], [next(texts), "1"]]}
        picture = {"alt": next(texts), "sizes": {"wide": [9, 9], "narrow": ["9", next(texts)]}, "more": 3}
        picture |= {"tables": [table] * (number % 2), "wide": svg(next(texts)), "narrow": next(texts)}
        picture["zh"] = picture | {"alt": next(texts)}
        ran = {
            "line": next(texts),
            "runs": next(texts),
            "outputs": [["", "", next(texts)], [next(texts)[:20], next(texts), next(texts)]],
            "pictures": {"": picture},
            "raw": "javascript:pwned()",
            "trace": "javascript:pwned()",
            "timelines": "javascript:pwned()",
        }
        machines[f"gpu-{number}"] = {
            "label": next(texts)[:100],
            "short": next(texts)[:100],
            "tally": next(texts),
            "counts": {"": [["false", next(texts)]]},
            "values": {key: [next(texts), next(texts)[:100], next(texts)] for key in values},
            "zh": {key: next(texts) for key in values},
            "claims": {key: ["false", next(texts), next(texts), "javascript:pwned()"] for key in claims},
            "blocks": {},
            "snippets": {name: ran | {"provenance": next(texts)} for name in names},
        }
    digest = (site / "generated/machines.js").read_text().splitlines()[1].partition(" = ")[2]
    lacks = dict.fromkeys(names, next(texts))
    return {"overlap": mine.FORM, "digest": json.loads(digest), "machines": machines, "lacks": lacks}


def test_no_payload_in_a_readers_file_acts(site, paths, visit, tmp_path):  # noqa: F811
    """It is dropped and taken; then every page shows it, each time on another of its machines."""
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(readers_file(site)))
    page, asked, found = visit("a/"), [], {}
    page.add_init_script(SPY)
    page.on("request", lambda request: asked.append(request.url) if "evil.invalid" in request.url else None)
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.goto("a/")
    page.wait_for_selector(".ov-drop button")
    with page.expect_navigation():
        page.set_input_files(".ov-drop input", file)
    page.wait_for_selector("text=Forget my machine")
    for number, path in enumerate(paths):
        page.evaluate(f"localStorage['overlap.machine'] = 'my:gpu-{number % 8}'")
        page.goto(path)
        if path.startswith("c_"):
            page.wait_for_function(f"document.documentElement.dataset.machine === 'my:gpu-{number % 8}'")
            assert page.locator(".ov-run[data-machine^='my:']").count() >= 1
            page.locator(".ov-mark").first.click()
            page.wait_for_selector(".ov-evidence:popover-open li[data-machine^='my:']")
            for picture in page.query_selector_all(".ov-figure"):
                picture.scroll_into_view_if_needed()
                page.wait_for_selector(".ov-picture svg")
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        page.wait_for_timeout(100)
        asked += page.evaluate("window.did") + page.evaluate(STRANGE)
        if asked:
            found[path] = list(asked)
        asked.clear()
    assert found == {}


def test_what_a_reader_searches_for_is_shown_as_text(visit):  # noqa: F811
    page = visit("")
    page.add_init_script(SPY)
    for words in ("onerror", "script", "payload It says something", "javascript"):
        page.goto("")
        search(page, words)
        page.wait_for_timeout(200)
        assert page.evaluate("window.did") == [] and page.evaluate(STRANGE) == [], words


@pytest.mark.parametrize("number", range(0, len(PAYLOADS), 7))
def test_the_payload_can_be_read(site, number):
    """It is not dropped either: output, value, provenance and index show it, with its controls replaced."""
    import html

    page = html.unescape((site / f"c_{number // 10:02d}/index.html").read_text(encoding="utf-8"))
    text = readable(PAYLOADS[number])
    assert text[:60] in page
    printed = plain(re.sub(r"\x1b(\[[0-9;]*m|\][^\x07\x1b]*(\x07|\x1b\\))", "", PAYLOADS[number])).replace(
        "\ufffd", ""
    )
    assert printed.strip().rpartition("\n")[2][:40] in page.replace("\ufffd", "").replace("\xa0", " ")


def test_every_file_that_is_published_is_well_formed(site):
    pictures = sorted(site.rglob("generated/pictures/**/*.svg"))
    assert len(pictures) == 2 * sum(1 + (number % 5 == 0) for number in range(0, len(PAYLOADS), DRAWN))
    for picture in pictures:
        names = {element.tag.rpartition("}")[2] for element in etree.parse(picture).iter()}
        assert not names & {"script", "foreignObject", "image", "a", "animate", "iframe"}, picture
    notebooks = sorted(site.glob("generated/downloads/*.ipynb"))
    assert len(notebooks) == len(PAYLOADS) // 10 + bool(len(PAYLOADS) % 10)
    for notebook in notebooks:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                source = "".join(cell["source"])
                assert not re.search(r"<\w|\]\(javascript|\$", source), source


def test_the_terminal_gets_text(site, monkeypatch, capsys):
    from overlap.cli import main

    monkeypatch.chdir(site.parent)
    for command in ("list", "check"):
        main([command])
        said = "".join(capsys.readouterr())
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", said) and len(said) > 30
