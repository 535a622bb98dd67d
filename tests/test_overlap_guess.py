"""Guesses: a question, choices, and data by which just one of them is right."""

import json
import re

import pytest

pytest.importorskip("mkdocs")

from overlap import OverlapError
from overlap.site.notebook import Notebook
from overlap.site.pictures import Pictures

pytestmark = pytest.mark.usefixtures("on_cpu")

GUESS = """```guess a/it
How *large* is `n`?
- small | n < 5
- about ten | 5 <= n < 15
- large | n >= 15
answer: It is {a/it: n}, as measured.
```
"""
SHOWN = "```snippet a/it\n```\n\n"


@pytest.fixture
def measured(small_book, template):
    """A number that is 9 on the book's own CPU and two H200, and 30 on one, which is not the book's own."""
    (small_book.root / "pyproject.toml").write_text("[tool.overlap]\nhome = {cpu = 1, h200-x2 = 1}\n")
    (small_book.root / "mkdocs.yml").write_text("site_name: Small\n")
    small_book.snippet("a/it", options="gpus = [0]")
    small_book.commit("a/it", template, {"n": 9})
    small_book.commit("a/it", template, {"n": 30}, gpus=1)
    small_book.commit("a/it", template, {"n": 9}, gpus=2)
    return small_book


def problems(book, text: str) -> list[str]:
    """What is wrong with a page of this text."""
    book.page("a", SHOWN + text)
    return book.check()


def test_a_guess_of_which_one_choice_is_right_is_in_order(measured):
    assert problems(measured, GUESS) == []


def test_choices_with_an_order_are_numbered_and_keep_it(measured):
    numbered = (
        GUESS.replace("- small", "1. small").replace("- about", "2. about").replace("- large", "3. large")
    )
    assert problems(measured, numbered) == []
    (problem,) = problems(measured, numbered.replace("3. large", "- large"))
    assert "choices are all `-`, or numbered from 1 on" in problem


WRONG = {
    "none": (
        "5 <= n < 15",
        "10 <= n < 15",
        "on cpu not just one choice is right: none; mend the expressions",
    ),
    "two": ("n < 5", "n < 12", "on cpu not just one choice is right: `small`, `about ten`; mend"),
    "nowhere": ("guess a/it", "guess a/it for gpus == 1", "none of the book's own machines decides which"),
    "a value": ("{a/it: n}", "{a/it: m}", "a/it: `m` has no value on"),
}


@pytest.mark.parametrize("name", WRONG)
def test_data_by_which_not_just_one_choice_is_right_stop_the_build(measured, name):
    old, new, expected = WRONG[name]
    found = problems(measured, GUESS.replace(old, new))
    assert [problem for problem in found if expected in problem and problem.startswith("docs/a.md:")], found


def test_one_choice_here_and_another_there_is_a_problem(measured):
    guess = GUESS.replace("n < 5", "gpus == 2").replace("5 <= n < 15", "gpus == 0")
    assert problems(measured, guess) == [
        "docs/a.md:4: one choice is right on cpu and another on h200-x2; add `for` a condition"
    ]
    assert problems(measured, guess.replace("guess a/it", "guess a/it for gpus == 2")) == []


@pytest.mark.parametrize("place", ["How *large*", "- small"])
def test_a_value_before_the_answer_is_reported(measured, place):
    assert GUESS.count(place) == 1
    found = problems(measured, GUESS.replace(place, f"{place} {{a/it: n}}"))
    assert len(found) == 1 and "a value in a question or a choice is not shown; move it to" in found[0]


WORDS = "```guess\nWhich?\n- this\n- [x] that\n- neither\nanswer: Because.\n```\n"
FORMS = {
    "no answer": (GUESS.replace("answer: ", "- "), "is no choice; write the question, then rows of"),
    "two choices": (
        GUESS.replace("- large | n >= 15\n", ""),
        "a question, three to five choices and an answer",
    ),
    "no expression": (GUESS.replace(" | n < 5", ""), "`- small` is no choice; write"),
    "two right ones": (
        WORDS.replace("- this", "- [x] this"),
        "on any machine not just one choice is right",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_guess_that_is_written_otherwise_is_an_error_with_its_place(measured, name):
    text, expected = FORMS[name]
    found = problems(measured, text)
    assert [problem for problem in found if problem.startswith("docs/a.md:4: ") and expected in problem]


def test_a_reader_chooses_and_the_fold_has_the_answer(measured):
    measured.page("a", SHOWN + GUESS)
    article = measured.html(SHOWN + GUESS)
    choices = re.findall(r"<label( class=\"ov-right\")?.*?<b>(\w)</b> <span>(.*?)</span>", article)
    assert choices == [
        ("", "A", "small"),
        (' class="ov-right"', "B", "about ten"),
        ("", "C", "large"),
    ]
    assert "How <em>large</em> is <code" in article and article.count('type="radio" name="ov-guess-4"') == 3
    fold = re.search(r'<details class="question">(.*?)</details>', article, re.S)[1]
    assert "<strong>about ten.</strong> It is" in fold and '<data value="' in fold
    assert 'href="#snippet-a-it">See what was measured</a>' in fold


def test_what_another_machine_gave_does_not_change_which_choice_is_right(measured, template):
    measured.commit("a/it", template, {"n": 3}, gpus=1)
    article = measured.html(GUESS)
    assert re.search(r'<label class="ov-right"[^>]*><input[^>]* name="ov-guess-1"[^>]*> <b>B</b>', article)
    measured.commit("a/it", template, {"n": 3}, gpus=2)
    measured.commit("a/it", template, {"n": 7})
    with pytest.raises(OverlapError, match="not just one choice is right; run `overlap check`"):
        measured.html(GUESS.replace("5 <= n < 15", "n == 9"))


def test_words_need_no_data(measured):
    article = measured.html(WORDS)
    assert "<strong>that.</strong> Because." in article and "See what was measured" not in article


def test_a_notebook_asks_before_it_answers(measured):
    measured.page("a", f"# A\n\n{GUESS}")
    pages = measured.pages("never")
    cells = json.loads(Notebook(pages, Pictures(pages.book)).build(pages.by_path["a.md"]))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    assert texts[1] == "**Guess first.** How *large* is `n`?\n\n- A: small\n- B: about ten\n- C: large"
    assert texts[2] == "**B: about ten.** It is 9, as measured."
