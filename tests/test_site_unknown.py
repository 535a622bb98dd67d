"""A GPU that no table knows: recordings are taken, the book is in order, builds, and says what is unknown."""

import json
import re

import pytest

pytest.importorskip("mkdocs")

from conftest import SmallBook
from mkdocs.exceptions import Abort
from test_overlap_site import build, machines

from overlap.cli import main
from overlap.run import recording

pytestmark = [pytest.mark.usefixtures("on_cpu"), pytest.mark.filterwarnings("default")]

MACHINE = "foo-9"
GPU = {"name": "NVIDIA Foo 9", "memory_bytes": 40 * 10**9, "capability": "13.0"}
AT_HOME = "[tool.overlap]\nhome = {h200 = 1}\n"
MAIN = """
def plot(results, ceilings):
    from snippets.pictures import sweep

    limits = {"the ceiling": ceilings["hbm_gb_s"]} if "hbm_gb_s" in ceilings else {}
    return sweep([0, 1], {"copy": [0, results["gb_s"]]}, limits)


def main():
    return {}
"""
PAGE = """# A

```snippet a/copy
caption: How fast a copy is.
```

It copies {a/copy: gb_s:.0f} GB/s, {a/copy: gb_s / ceiling.hbm_gb_s:.0%} of its memory's rate.

```claim a/copy
gb_s >= 3000
It is fast.
```

```claim a/copy
gb_s >= 0.5 * ceiling.hbm_gb_s
It reaches half of the ceiling.
```

```claim a/copy
gb_s > 0
limit: gb_s of ceiling.hbm_gb_s
It copies.
```
"""


def foreign(data: dict, **changes) -> dict:
    """The recording as a GPU would have made it of which nothing is known but its name."""
    here = data["machine"] | {"gpus": [GPU], "host_gpus": 1, "links": [], "host": "0123abcd"}
    here.pop("virtual", None)
    whole = {key: value for key, value in data.items() if key not in ("digest", "others")}
    result = data["result"] | changes
    return recording.sealed(whole | {"machine": here, "profile": MACHINE, "result": result})


def take(book_root, recordings: list[dict], monkeypatch, capsys) -> str:
    """`overlap import` of a bundle; what it prints."""
    bundle = book_root / "bundle.jsonl"
    bundle.write_text("".join(json.dumps(data) + "\n" for data in recordings))
    monkeypatch.chdir(book_root)
    assert main(["import", str(bundle)]) == 0
    return capsys.readouterr().out


@pytest.fixture
def small(tmp_path, template) -> SmallBook:
    """One snippet, recorded on an H200 at home."""
    book = SmallBook(tmp_path)
    book.snippet("a/copy", MAIN, "gpus = [1]")
    gpu = {"name": "NVIDIA H200", "memory_bytes": 150 * 10**9, "capability": "9.0", "memory_clock_mhz": 3201}
    here = template["machine"] | {"gpus": [gpu | {"memory_bus_bits": 6016}], "host_gpus": 1}
    book.commit("a/copy", template, {"gb_s": 4000.0}, gpus=1, machine=here)
    pages = {
        "index": "# Small\n",
        "claims": "# Claims\n\n```claims\n```\n",
        "glossary": "# Glossary\n",
    }
    for path, text in (pages | {"a": PAGE}).items():
        book.page(path, text)
    (tmp_path / "pyproject.toml").write_text(AT_HOME)
    return book


def test_an_unknown_gpu_in_a_small_book(small, monkeypatch, capsys):
    said = take(
        small.root, [foreign(recording.read(small.path("a/copy", "h200")), gb_s=900.0)], monkeypatch, capsys
    )
    assert f"new: a/copy on {MACHINE}" in said and "1 imported, 0 refused" in said
    assert f"docs/a.md:9 on {MACHINE}: new: false" in said and "1 × FOO 9 is new: 1 claim holds" in said
    assert main(["check"]) == 0, capsys.readouterr().out

    site = build(small, "never")
    claims, chapter = ((site / path).read_text() for path in ("claims/index.html", "a/index.html"))
    known = [(each["name"], each["label"], each["reference"], each["first"]) for each in machines(site)]
    assert known == [
        ("foo-9", "1 × FOO 9", False, False),
        ("h200", "1 × H200", True, True),
    ]
    shown = json.loads((site / "generated/machines/foo-9.json").read_text())
    assert list(shown["values"].values()) == [["900", "", "a/copy on 1 × FOO 9"]], "of the other it has none"
    folds = (site / "generated/folds/a.html").read_text()
    keys = re.findall(r'class="ov-evidence [^>]* data-key="(\w+)"', folds)
    states = [shown["claims"][key] for key in keys]
    assert [state for state, *_ in states] == ["false", "open", "holds"]
    assert "no 'hbm_gb_s'" in states[1][1] and "of a ceiling that is not known" in states[2][1]
    tallies = re.findall(r'<p class="ov-tally">(.*?)</p>', folds)
    assert tallies == [
        "holds on 1 of 2 machines; not on 1 × FOO 9",
        "holds on 1 of 1 machine; open on 1 × FOO 9",
        "holds on 2 of 2 machines",
    ]
    heads = re.findall(r'<th scope="col" data-machine="(.*?)"', claims)
    assert heads == ["foo-9", "h200"]
    cells = re.findall(r'ov-cell ov-(false|open|holds)"><', claims)
    assert cells == ["false", "holds", "open", "holds", "holds", "holds"]
    assert "1 × FOO 9<small>not one of the book’s own</small>" in claims
    words = "2 of 3 claims hold on every machine that decides them; 1 is false on one or more; 1 is open"
    assert words in chapter
    pictures = [
        (site / f"generated/pictures/{each}/a/copy-wide.svg").read_text() for each in ("foo-9", "h200")
    ]
    assert ["the ceiling" in picture for picture in pictures] == [False, True]


def test_a_false_claim_at_home_stops_the_build_all_the_same(small, monkeypatch, capsys):
    take(small.root, [foreign(recording.read(small.path("a/copy", "h200")))], monkeypatch, capsys)
    path = small.path("a/copy", "h200")
    path.write_text(path.read_text().replace("4000.0", "2000.0"))
    with pytest.raises(Abort, match=r"docs/a\.md:9: claim is false: It is fast\. `gb_s >= 3000`"):
        build(small, "never")
