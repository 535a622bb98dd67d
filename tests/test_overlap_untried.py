"""What a claim reads was tried several times, or its snippet says why not."""

import pytest

from overlap.book import untried

TRIALS = [1.0, 2.0, 3.0]
RESULT = {
    "ms": 2.0,
    "ms_trials": TRIALS,
    "count": 3,
    "bare": 2.5,
    "deep": {"us": 1.0, "us_trials": TRIALS, "bare": 1.5},
    "rows": [{"us": 1.0, "us_trials": TRIALS, "bare": 1.5}, {"us": 1.0, "us_trials": TRIALS, "bare": 2.5}],
    "list": [1.5, 2.5],
}


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        ("ms > 1 and count == 3", ""),
        ("median(ms_trials) > 1", ""),
        ("bare > 1", "a/b.bare"),
        ("deep.us < 2", ""),
        ("deep.bare < 2", "a/b.deep.bare"),
        ("all(row.us > 0 for row in rows)", ""),
        ("all(row.bare > 0 for row in rows)", "a/b.rows[0].bare, a/b.rows[1].bare"),
        ("rows[1].bare > 0", "a/b.rows[1].bare"),
        ("all(k in ('us_trials',) or v > 0 for k, v in deep.items())", "a/b.deep.bare"),
        ("max(list) > 2", "a/b.list"),
        ("a.c.bare > 0", "a/c.bare"),
        ("a.c.ms > 0", ""),
    ],
)
def test_a_number_without_trials_is_named(small_book, template, expression, read):
    small_book.page(
        "a", f"# A\n\n```snippet a/b\n```\n\n```snippet a/c\n```\n\n```claim a/b\n{expression}\nIt is so.\n```\n"
    )
    for name in ("a/b", "a/c"):
        small_book.snippet(name)
        small_book.commit(name, template, RESULT)
    found = [problem for problem in small_book.book().check() if "has no trials" in problem]
    assert [problem.partition("claim reads ")[2].partition(", of which")[0] for problem in found] == [read] * bool(read)


def test_a_header_may_excuse_what_happens_once_and_nothing_else(small_book, template):
    small_book.page("a", "# A\n\n```snippet a/b\n```\n\n```claim a/b\nbare > 1 and deep.bare > 1\nIt is so.\n```\n")
    small_book.snippet("a/b", options='gpus = [0]\nonce = { bare = "it is arithmetic", count = "it is a count" }')
    small_book.commit("a/b", template, RESULT)
    missing, idle = untried.problems(small_book.book())
    assert missing.startswith(
        "docs/a.md:6: claim reads a/b.deep.bare, of which docs/recordings/cpu/a/b.json has no trials"
    )
    assert idle.startswith("snippets/a/b.py: header: once excuses `count`, which needs no excuse")
