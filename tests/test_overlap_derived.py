"""What `derive` adds to results: where it is used, what is wrong with it, and that nothing becomes stale."""

import pytest

from overlap.commands import mine
from overlap.commands.check import check
from overlap.run import download, recording
from overlap.run.snippet import Snippet
from overlap.site import machines
from overlap.site.pictures import Pictures

pytestmark = pytest.mark.usefixtures("on_cpu")

MAIN = """
def main():
    return {"rows": [["GPU", 1, 3]], "n": 3}


"""
DERIVE = """
def derive(results):
    from math import fsum

    added = {"per_row": {"us": fsum([us for _, _, us in results["rows"]])}}
    if "n_trials" in results:
        added["first"] = results["n_trials"][0]
    return added
"""
PAGE = """# A

It takes {a/one: per_row.us:.1f} µs, {a/two: a.one.per_row.us + 1:.0f} and {a/one: first}.

```snippet a/one
```

```snippet a/two
```

```claim a/one
per_row.us >= 1.5
It takes long.
```
"""


@pytest.fixture
def derived(small_book, template):
    """`derived(derive)`: a book whose snippet a/one has such a `derive`, and two runs recorded."""

    def make(derive: str):
        for name in ("one", "two"):
            small_book.snippet(f"a/{name}", MAIN + (derive if name == "one" else ""))
        small_book.page("a", PAGE)
        result = {"rows": [["GPU", 1, 3], ["GPU", 2, 5]], "n": 3, "n_trials": [4, 5]}
        small_book.commit("a/two", template)
        path = small_book.commit("a/one", template, result)
        other = recording.read(path) | {"result": result | {"rows": [["GPU", 1, 7]]}}
        other["run"] = other["run"] | {"started": "2020-01-01T00:00:00+00:00"}
        recording.add(path, recording.sealed(other))
        return small_book.pages("never")

    return make


def test_pages_use_what_is_derived_as_what_was_measured(derived):
    pages = derived(DERIVE)
    book = pages.book
    assert check(pages) == []
    measured = book.recordings("a/one")["cpu"]
    assert [book.scope(measured, number)["per_row"] for number in (0, 1)] == [{"us": 8.0}, {"us": 7.0}]
    (claim,) = pages.claims
    (verdict,) = book.verdicts(claim)
    assert (verdict.true, verdict.runs) == (2, 2)
    shown = machines.shown(pages, Pictures(book), "cpu")
    assert sorted(text for text, *_ in shown["values"].values()) == ["4", "7.5", "9"]
    assert "per_row" not in measured.result


BAD = {
    "fails": ("return {'us': 1 / 0}", "13: derive() fails: ZeroDivisionError: division by zero (on cpu: "),
    "raw": (
        "return {'per_row': {'us': results['n_trials'][0]}}",
        "13: derive() fails: KeyError: 'n_trials' (on cpu: ",
    ),
    "ends": ("raise SystemExit(3)", "13: derive() fails: SystemExit: 3"),
    "no dict": ("return [1]", "12: derive() must return a dict, not list (on cpu: "),
    "twice": ("return {'n': 4, 'rows': 5, 'm': 6}", "12: derive() returns n, rows, which main() has already"),
    "no data": ("return {'us': {'a': [{1}]}}", "12: the result of derive()['us']['a'][0] is no plain data: "),
    "infinite": ("return {'us': float('inf')}", "12: the result of derive()['us'] is no plain data: "),
}


@pytest.mark.parametrize(("code", "message"), BAD.values(), ids=BAD)
def test_a_bad_derive_is_one_message_with_file_line_machine_and_remedy(derived, code, message):
    problems = check(derived(f"def derive(results):\n    {code}\n"))
    assert len(problems) == 1
    (problem,) = problems
    assert problem.startswith(f"snippets/a/one.py:{message}")
    assert "on cpu: docs/recordings/cpu/a/one.json, run " in problem
    assert any(remedy in problem for remedy in ("; mend it; a run", "; return", "; give it another name"))


def test_a_bad_derive_of_a_readers_machine_leaves_claims_open(derived, monkeypatch):
    pages = derived("def derive(results):\n    return {'per_row': 1 / 0}\n")
    book = pages.book
    monkeypatch.setattr(type(book), "is_reference", lambda self, machine: False)
    (claim,) = pages.claims
    said = machines.shown(pages, Pictures(book), "cpu", "your ")["claims"][claim.key]
    assert said[0] == "open" and "derive() fails: ZeroDivisionError" in said[1]


def test_what_derive_changes_in_its_argument_stays_as_it_was_measured(derived):
    book = derived("def derive(results):\n    return {'per_row': {'us': 2, 'm': results.pop('n')}}\n").book
    measured = book.recordings("a/one")["cpu"]
    assert book.scope(measured)["n"] == measured.result["n"] == 3


def test_an_expression_knows_the_versions_of_the_run(derived):
    book = derived("").book
    measured = book.recordings("a/one")["cpu"]
    assert book.scope(measured)["software"]["torch"] == measured.data["software"]["torch"]


def test_derive_is_neither_hashed_nor_in_downloads_but_in_the_edition(small_book):
    small_book.snippet(
        "a/tools", "import json\n\n\ndef summed(rows):\n    return json.dumps(rows)\n\n\n" + MAIN
    )
    bare = "from math import sqrt\n\n\n" + MAIN.replace('"n": 3', '"n": sqrt(9)')
    code = "from zlib import crc32\nfrom snippets.a.tools import summed\n" + bare
    code += "def derive(results):\n    return {'sum': crc32(summed(results).encode())}\n"
    small_book.snippet("a/one", bare)
    without = small_book.pages("never")
    small_book.snippet("a/one", code)
    with_it = small_book.pages("never")
    before, after = (pages.book.snippet("a/one") for pages in (without, with_it))
    assert (before.digest, before.input_digests) == (after.digest, after.input_digests)
    assert download.program(after) == download.program(before)
    assert mine.digest_of_book(without) != mine.digest_of_book(with_it)
    changed = Snippet(small_book.root, "a/one", code.replace("summed(results)", "summed([results])"))
    assert before.derive_digest == "" and changed.derive_digest != after.derive_digest
