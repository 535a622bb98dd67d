"""An author at work: hundreds of saves under `mkdocs serve`, valid and broken. Each valid one shows, each broken one tells its reason, what is
shown is never of an older save, and memory does not grow.

`OVERLAP_SAVES=500 OVERLAP_SEED=1 python -m pytest -n 0 -m slow -s tests/test_overlap_serving.py` says how long they took. `OVERLAP_PATIENCE=10`
lets all limits of time be ten times as long, where the machine has other work.
"""

import os
import random
import re
import statistics
import time
import urllib.request

import pytest
from slow.kills import Trial

SAVES, SEED = int(os.environ.get("OVERLAP_SAVES", "500")), int(os.environ.get("OVERLAP_SEED", "1"))
PATIENCE = float(os.environ.get("OVERLAP_PATIENCE", "1"))
#: Seconds until a valid save shows: of a page; of a snippet, beside what it runs.
PAGE_S, SNIPPET_S, GROWTH = 2.0, 3.0, 1.05

#: What is broken in a page or a snippet, and what the author must be told: where, and why.
BROKEN_PAGE = {
    "{a/none: ms}": r"docs/a\.md.*a/none",
    "{a/draws: nothing}": r"docs/a\.md.*nothing",
    "{a/draws: ms +}": r"docs/a\.md.*ms \+",
    "{a/draws: ().__class__}": r"docs/a\.md.*__class__",
    "```snippet a/none\n```": r"docs/a\.md.*a/none",
    "```snippet a/draws\nshow: nothing\n```": r"docs/a\.md.*nothing",
    "```snippet a/draws\nshoe: main\n```": r"docs/a\.md.*shoe",
    "```claim a/draws\nms > 1e9\nname: wrong\nIt is long.\n```": r"docs/a\.md.*ms > 1e9|ms = ",
    "```claim a/draws\nms >\nname: wrong\nIt is.\n```": r"docs/a\.md.*",
    "```diagram nothing\n```": r"docs/a\.md.*nothing",
    "```scoreboard\na | b\n```": r"docs/a\.md.*",
    "```calculator a/draws\nx\n```": r"docs/a\.md.*",
}
BROKEN_SNIPPET = {
    "def main(:\n": r"snippets/a/draws\.py.*",
    "def main():\n    raise ValueError('mark')\n": r"(?s)snippets/a/draws\.py.*ValueError: mark",
    "import no_such_module\n\n\ndef main():\n    return {}\n": r"(?s)snippets/a/draws\.py.*no_such_module",
    "def main():\n    return [1]\n": r"snippets/a/draws\.py.*no dict",
    "def main():\n    return {'ms': float('nan')}\n": r"(?s)snippets/a/draws\.py.*NaN",
    "def main():\n    import os; os.kill(os.getpid(), 9)\n": r"snippets/a/draws\.py.*killed by signal 9",
    "def main():\n    import time; time.sleep(9)\n": r"snippets/a/draws\.py.*still ran after 1 s",
    "def main():\n    import sys; sys.exit('mark')\n": r"(?s)snippets/a/draws\.py.*mark",
    "n = 1\n": r"snippets/a/draws\.py.*main",
}


class Author:
    """Saves files of a small book that is being served, and looks at what is shown and said."""

    def __init__(self, trial: Trial):
        self.trial, self.page, self.snippet = trial, trial.root / "docs/a.md", trial.root / "snippets/a/draws.py"
        self.text, self.code = (
            self.page.read_text(),
            self.snippet.read_text().replace("gpus = [0]", "gpus = [0]\n# timeout = 1"),
        )
        self.log, self.seen = trial.log, 0

    def shown(self) -> str:
        """The page as it is served now."""
        try:
            return urllib.request.urlopen(f"http://{self.trial.address}/a/", timeout=30).read().decode()
        except OSError:
            return ""

    def news(self) -> str:
        """What was said since the last look."""
        return self.log.read_bytes()[self.seen :].decode("utf-8", "replace")

    def wait(self, there, limit: float) -> float | None:
        """Seconds until it is there; None where it did not come in time."""
        started = time.monotonic()
        while time.monotonic() - started < limit:
            if there():
                return time.monotonic() - started
            time.sleep(0.02)
        return None

    def save(self, page: str | None = None, snippet: str | None = None) -> None:
        """Save one file."""
        self.seen = self.log.stat().st_size if self.log.exists() else 0
        if page is not None:
            self.page.write_text(page)
        if snippet is not None:
            self.snippet.write_text(snippet)

    def memory(self) -> int:
        """Kilobytes of the processes that last, the server and the one that forks runs, together."""
        found = 0
        for pid in self.lasting:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                found += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        return found


@pytest.mark.slow
def test_saves(tmp_path, capsys):
    trial, chance, problems = Trial(tmp_path), random.Random(SEED), []
    author = Author(trial)
    author.save(snippet=author.code)
    server = trial.start("serve", OVERLAP_EXECUTE="auto")
    times, memory, told = {"page": [], "snippet": []}, [], 0
    broken = ""
    try:
        assert author.wait(lambda: "drawn from here" in author.shown(), 120), trial.text()
        author.lasting = [server.pid]
        for turn in range(SAVES):
            mark, kind = f"mark{turn:04}x", chance.choice(("page", "page", "snippet", "bad page", "bad snippet"))
            if broken:  # what is broken is mended before the other file is saved
                kind = broken if chance.random() < 0.7 else f"bad {broken}"
            if kind == "page":
                author.save(page=f"{author.text}\n{mark}\n")
            elif kind == "snippet":
                author.save(snippet=author.code.replace("drawn from here", f"drawn from here {mark}"))
            elif kind == "bad page":
                text = chance.choice(list(BROKEN_PAGE))
                author.save(page=f"{author.text}\n{text}\n\n{mark}\n")
                why = BROKEN_PAGE[text]
            else:
                text = chance.choice(list(BROKEN_SNIPPET))
                author.save(
                    snippet=author.code.partition("import time")[0]
                    + text.replace("mark", mark)
                    + f"# {mark}\nn = '{mark}'\n"
                )
                why = BROKEN_SNIPPET[text].replace("mark", mark)
            if kind in times:
                limit = 1.0 + PATIENCE * (PAGE_S if kind == "page" else SNIPPET_S)
                took = author.wait(lambda mark=mark: mark in author.shown(), 5 * limit)
                broken = ""
                if took is None:
                    problems.append(f"{turn}: a valid {kind} did not show: {author.news()[-1500:]}")
                else:
                    times[kind].append(took)
                    old = set(
                        re.findall(
                            r"drawn from here (mark\d+x)" if kind == "snippet" else r"<p>(mark\d+x)", author.shown()
                        )
                    ) - {mark}
                    problems += [f"{turn}: {mark} shows {old}"] if old else []
            else:
                broken = kind.removeprefix("bad ")
                if author.wait(lambda why=why: re.search(why, author.news()), 15 * PATIENCE) is None:
                    problems.append(f"{turn}: a {kind} told no reason ({text!r}): {author.news()[-1500:]}")
                else:
                    told += 1
                if "Traceback" in re.sub(
                    r"(?m)^    .*", "", author.news()
                ):  # lines of a snippet's own output are set in
                    problems.append(f"{turn}: traceback for {text!r}: {author.news()[-3000:]}")
            memory.append(author.memory())
            for each in problems[-1:]:
                if each.startswith(f"{turn}:"):
                    print(each, flush=True)
    finally:
        server.terminate()
        server.wait(60)
    grown = statistics.median(memory[-20:]) / statistics.median(memory[50:70]) if SAVES > 90 else 1
    late = {
        kind: sum(took > PATIENCE * limit for took in times[kind])
        for kind, limit in (("page", PAGE_S), ("snippet", SNIPPET_S + 0.3))
    }
    with capsys.disabled():
        for kind, seconds in times.items():
            print(
                f"\n{len(seconds)} valid saves of a {kind}: median {statistics.median(seconds):.2f} s, at most {max(seconds):.2f} s, late {late[kind]}"
            )
        print(
            f"{told} broken saves told their reason; memory {memory[min(50, SAVES - 1)] >> 10} MB, at the end {memory[-1] >> 10} MB: x {grown:.3f}; {len(problems)} problems"
        )
    assert problems == []
    assert late == {"page": 0, "snippet": 0}
    assert grown < GROWTH
    assert trial.left() == []
