"""The whole: snippets, what they gave on which machine, the pages' claims, and what is wrong with any of it."""

import hashlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from overlap import OverlapError
from overlap.book import margin, page
from overlap.book.ceiling import ceilings
from overlap.book.claim import Chapter, Claim, Data, Undecided, Verdict, evaluate, show
from overlap.run import machine, recording
from overlap.run.runner import RunFailed, Runner
from overlap.run.snippet import Snippet, discover
from overlap.site import figure

#: The page that explains the syntax; its numbers are examples.
_HOUSE_RULES = "contributing.md"


@dataclass(frozen=True)
class Run:
    """What a snippet gave on one machine, and where that is written down."""

    data: dict
    path: str
    live: bool
    grade: str

    @property
    def profile(self) -> str:
        """Name of the machine."""
        return self.data["profile"]

    @property
    def gpus(self) -> int:
        """How many GPUs the run could see."""
        return len(self.data["machine"]["gpus"])

    @property
    def result(self) -> dict:
        """What `main()` returned."""
        return self.data["result"]


class Book:
    """A checkout of the book. `execute` is `auto`, `never` (committed recordings only) or `always`.

    While a site is built, `page` is the page being rendered, `published` the addresses of generated files,
    `false_live` the claims that what this machine itself ran contradicts, and `serving` whether an author is at work, who
    sees what is wrong instead of being stopped by it.
    """

    def __init__(self, root: Path, execute: str = "auto"):
        if execute not in ("auto", "never", "always"):
            raise OverlapError(f"execute is auto, never or always, not {execute!r}")
        self.root, self.execute = root, execute
        self.page, self.published, self.false_live, self.serving = "", set(), [], False
        self.up = ""  # the way from the page being rendered to the root of the site
        self.docs, self.recordings, self.cache = root / "docs", root / "docs/recordings", root / ".cache/overlap"
        self.snippets = discover(root)

    def snippet(self, name: str) -> Snippet:
        """The snippet of this name; a wrong name is an error that says why."""
        return self.snippets.get(name) or Snippet.read(self.root, name)

    @cached_property
    def profiles_here(self) -> dict[str, int]:
        """Profiles this machine can be, with their GPU counts; a host of four GPUs can stand for one and two."""
        gpus = machine.here()["gpus"]
        return {machine.profile(gpus[:count]): count for count in range(len(gpus) + 1)}

    @cached_property
    def committed(self) -> dict[str, dict[str, Run]]:
        """Committed recordings by snippet and profile."""
        found: dict[str, dict[str, Run]] = {}
        for path in sorted(self.recordings.glob("*/*/*.json")):
            data = recording.read(path)
            where = path.relative_to(self.root).as_posix()
            name, profile = f"{path.parent.name}/{path.stem}", path.parent.parent.name
            if (data["snippet"], data["profile"]) != (name, profile):
                raise OverlapError(f"{where}: says it is {data['snippet']} on {data['profile']}; move or remove it")
            if name in self.snippets:
                grade = recording.grade(data, self.snippets[name], machine.here(), set(self.profiles_here))
                found.setdefault(name, {})[profile] = Run(data, where, False, grade)
            else:
                raise OverlapError(f"{where}: there is no snippets/{name}.py; remove the recording")
        return found

    def cache_path(self, snippet: Snippet, gpus: int) -> Path:
        """Where this machine keeps what a snippet gave: named by source, inputs, versions and devices."""
        here = machine.here()
        key = json.dumps([snippet.hash, snippet.input_hashes, here, gpus], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:20]
        return self.cache / "runs" / f"{snippet.name.replace('/', '-')}-{gpus}-{digest}.json"

    def live(self, name: str) -> dict[str, Run]:
        """Runs of this machine that are in its cache."""
        if self.execute == "never":
            return {}
        snippet, found = self.snippets[name], {}
        for profile, gpus in self.profiles_here.items():
            path = self.cache_path(snippet, gpus)
            if gpus in snippet.options["gpus"] and path.exists():
                where = path.relative_to(self.root).as_posix()
                found[profile] = Run(recording.read(path), where, True, recording.FRESH)
        return found

    def runs(self, name: str) -> dict[str, Run]:
        """Best run per machine: this machine's own, else the committed recording; the CPU first, then by GPU count."""
        merged = self.committed.get(name, {}) | self.live(name)
        return dict(sorted(merged.items(), key=lambda item: machine.order(item[0])))

    def runnable(self, names: list[str] | None = None) -> Iterator[tuple[Snippet, int]]:
        """Snippets with the GPU counts that this machine has and they ask for."""
        for name in names or self.snippets:
            snippet = self.snippet(name)
            yield from ((snippet, gpus) for gpus in self.profiles_here.values() if gpus in snippet.options["gpus"])

    def run(self, names: list[str] | None = None, force: bool = False) -> int:
        """Run into the cache what this machine can and has not run; return how many ran. Failures raise, after all had their turn."""
        if self.execute == "never":
            return 0
        force = force or self.execute == "always"
        wanted = [item for item in self.runnable(names) if force or not self.cache_path(*item).exists()]
        if not wanted:
            return 0
        with Runner(self.root) as runner:
            failures = runner.run_all(wanted, self.keep)
        if failures:
            raise RunFailed("\n\n".join(map(str, failures)))
        return len(wanted)

    def keep(self, snippet: Snippet, gpus: int, data: dict) -> None:
        """Put what a snippet gave into this machine's cache."""
        recording.write(self.cache_path(snippet, gpus), recording.dump(data))

    def machines(self) -> list[dict]:
        """All machines something ran on: profile, label, whether this build ran on it, and which one is shown first."""
        runs = {profile: run for name in self.snippets for profile, run in self.runs(name).items()}
        first = min(runs, key=lambda profile: (runs[profile].gpus == 0, runs[profile].gpus), default=None)
        return [
            {"profile": profile, "label": machine.label(profile), "live": runs[profile].live, "first": profile == first}
            for profile in sorted(runs, key=machine.order)
        ]

    def default(self, name: str) -> str | None:
        """The profile a page shows before a reader picks one: a single GPU, else the fewest GPUs, else the CPU."""
        gpus = {profile: run.gpus for profile, run in self.runs(name).items()}
        return min(gpus, key=lambda profile: (gpus[profile] == 0, gpus[profile]), default=None)

    def scope(self, name: str, run: Run) -> dict:
        """Names an expression over this run can use."""

        def load(other: str) -> dict:
            if other not in self.snippets or run.profile not in self.runs(other):
                raise Undecided(f"no run of {other} on {run.profile}")
            return self.runs(other)[run.profile].result

        chapters = {snippet.chapter: Chapter(load, snippet.chapter) for snippet in self.snippets.values()}
        own = {
            "gpus": run.gpus,
            "cores": run.data["machine"]["cores"],
            "ceiling": Data(ceilings(run.data["machine"]), "ceiling"),
        }
        return chapters | own | dict(Data(run.result, name))

    def numbers(self, value: page.Value) -> dict:
        """What an expression gives on each machine that has data for it; none at all is an error."""
        runs = self.runs(self.snippet(value.snippet).name)
        if value.profile:
            runs = {value.profile: runs[value.profile]} if value.profile in runs else {}
        found, why = {}, f"; run `overlap record {value.snippet}` where that machine is" if not runs else ""
        for profile, run in runs.items():
            try:
                found[profile] = evaluate(value.expression, self.scope(value.snippet, run))
            except Undecided as error:
                why = f" ({error})"
        if not found:
            on = value.profile or ", ".join(runs) or "any machine"
            raise OverlapError(f"{value.snippet}: `{value.expression}` has no value on {on}{why}")
        return found

    def value(self, value: page.Value) -> dict[str, str]:
        """A sentence's value as text, per profile."""
        try:
            return {profile: show(number, value.spec) for profile, number in self.numbers(value).items()}
        except (TypeError, ValueError) as error:
            raise OverlapError(f"{value.snippet}: `{value.expression}:{value.spec}`: {error}") from None

    def verdicts(self, claim: Claim) -> list[Verdict]:
        """What each machine's data say of a claim; it must be decided by at least one."""
        runs = self.runs(self.snippet(claim.snippet).name).values()
        found = [
            claim.verdict(run.profile, self.scope(claim.snippet, run), run.live, run.path)
            for run in runs
            if claim.applies(run.gpus)
        ]
        if all(verdict.holds is None for verdict in found):
            why = "; ".join(verdict.figures for verdict in found) or "no recording with such a GPU count"
            raise OverlapError(f"docs/{claim.page}:{claim.line}: claim {claim.snippet}: no data decide it: {why}")
        return found

    def thin(self, claim: Claim, run: Run) -> Iterator[str]:
        """What may not move by three times its spread without making the claim false there."""
        seen, names = set(), set(re.findall(r"[A-Za-z_]\w*", claim.expression))
        for key, spread in margin.moved(run.result, names):
            if key not in seen and not evaluate(claim.expression, self.scope(claim.snippet, run)):
                seen.add(key)
                where = f"docs/{claim.page}:{claim.line}: claim holds by less than {margin.SPREADS} times the spread of"
                yield f"{where} `{key}` ({spread:.1%}): `{claim.expression}`, in {run.path}; measure longer or claim less"

    @staticmethod
    def falsehood(claim: Claim, verdict: Verdict) -> str:
        """What to say of a false claim: where it stands, what it says, the figures, the recording."""
        where = f"docs/{claim.page}:{claim.line}: claim is false: {claim.text}"
        return f"{where} `{claim.expression}`: {verdict.figures}, in {verdict.path}"

    def diagram(self, name: str) -> Path:
        """Path of a diagram; a wrong name is an error."""
        path = self.docs / f"assets/diagrams/{name}.svg"
        if not re.fullmatch(r"[a-z_]+", name) or not path.is_file():
            there = ", ".join(found.stem for found in sorted(path.parent.glob("*.svg")))
            raise OverlapError(f"no diagram {name!r} in docs/assets/diagrams/; there are {there}")
        return path

    @property
    def pages(self) -> dict[str, list]:
        """Parts of every page by path below docs/."""
        return {
            path.relative_to(self.docs).as_posix(): page.read(path, self.docs)
            for path in sorted(self.docs.glob("**/*.md"))
        }

    @property
    def claims(self) -> list[Claim]:
        """All claims of all pages."""
        return [part for parts in self.pages.values() for part in parts if isinstance(part, Claim)]

    def plot(self, name: str, run: Run) -> dict:
        """Pictures of a run, drawn from its data; drawn once and kept. Empty where the snippet has no `plot`."""
        if "plot" not in self.snippets[name].functions:
            return {}
        path = self._plot_path(name, run)
        if not path.exists():
            self.draw([(name, run)])
        return json.loads(path.read_text())

    def _plot_path(self, name: str, run: Run) -> Path:
        key = json.dumps(
            [self.snippets[name].text, run.result, ceilings(run.data["machine"]), figure.version()], sort_keys=True
        )
        return self.cache / "plots" / f"{_salt(name, run)}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.json"

    def draw(self, wanted: list[tuple[str, Run]] | None = None) -> int:
        """Draw these pictures, by default all that are not in the cache; return how many."""
        if wanted is None:
            runs = [
                (name, run)
                for name in self.snippets
                if "plot" in self.snippets[name].functions
                for run in self.runs(name).values()
            ]
            wanted = [(name, run) for name, run in runs if not self._plot_path(name, run).exists()]
        if wanted:
            with Runner(self.root) as runner, ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda item: self._draw(runner, *item), wanted))
        return len(wanted)

    def _draw(self, runner: Runner, name: str, run: Run) -> None:
        limits = ceilings(run.data["machine"])
        drawn = runner.call(
            "overlap.site.figure:draw", self.snippets[name], results=run.result, ceilings=limits, salt=_salt(name, run)
        )
        recording.write(self._plot_path(name, run), json.dumps(drawn))

    def check(self, margins: bool = True) -> list[str]:
        """Everything that is wrong with the committed book, each with file, reason and remedy; `margins`: thin ones, too."""
        book = Book(self.root, "never")
        parts = [(path, part) for path, parts in book.pages.items() for part in parts]
        problems = [problem for snippet in book.snippets.values() for problem in book._freshness(snippet)]
        problems += [problem for path, part in parts for problem in book._problems(path, part, margins)]
        shown = {part.snippet for _, part in parts if isinstance(part, page.Block)}
        hidden = (snippet for name, snippet in book.snippets.items() if name not in shown)
        return problems + [f"{snippet.path}: no page shows it; add a snippet block to docs/" for snippet in hidden]

    def _freshness(self, snippet: Snippet) -> Iterator[str]:
        runs, excuses = self.committed.get(snippet.name, {}).values(), snippet.options["missing"]
        have, again = {run.gpus for run in runs}, f"run `overlap record {snippet.name}`"
        for count in snippet.options["gpus"]:
            if count in have and str(count) in excuses:
                yield f"{snippet.path}: is recorded with {count} GPUs, so drop `missing.{count}` from its header"
            elif count not in have and str(count) not in excuses:
                yield f"{snippet.path}: {recording.MISSING}: no recording with {count} GPUs; {again} where they are"
        for run in runs:
            if run.grade == recording.CODE:
                yield f"{run.path}: {run.grade}: {snippet.path} or what it imports is not what ran; {again}"
            if recording.digest(run.data) != run.data["digest"]:
                yield f"{run.path}: edited by hand: its digest does not match; restore it or {again}"

    def _problems(self, path: str, part, margins: bool) -> Iterator[str]:
        where = f"docs/{path}:{part.line}"
        if isinstance(part, page.Text) and path != _HOUSE_RULES:
            for offset, number in page.typed_numbers(part.text):
                remedy = "take it from a run as a value, or write {printed: …} if a source printed it"
                yield f"docs/{path}:{part.line + offset}: `{number.strip()}` is typed in by hand; {remedy}"
        try:
            if isinstance(part, page.Block):
                self.snippet(part.snippet).show(list(part.show))
            if isinstance(part, page.Insert) and part.kind == "diagram":
                self.diagram(part.name)
            for verdict in self.verdicts(part) if isinstance(part, Claim) else ():
                if verdict.holds and margins:
                    yield from self.thin(part, self.runs(part.snippet)[verdict.profile])
                elif verdict.holds is False:
                    yield self.falsehood(part, verdict)
                elif verdict.holds is None:
                    yield f"{where}: claim cannot be decided in {verdict.path}: {verdict.figures}"
        except OverlapError as error:
            yield f"{where}: {str(error).removeprefix(f'{where}: ')}"
        found = page.values(part.text) if isinstance(part, page.Text) else ()
        if isinstance(part, page.Insert) and part.kind == "scoreboard":
            found = [(0, value) for row in page.scores(part, path) for value in (row.here, row.limit) if value]
        for offset, value in found:
            try:
                self.value(value)
            except OverlapError as error:
                yield f"docs/{path}:{part.line + offset}: {error}"


def _salt(name: str, run: Run) -> str:
    return f"{name.replace('/', '-')}-{run.profile}"
