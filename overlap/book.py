"""The whole: snippets, what they gave on which machine, the pages' claims, and what is wrong with any of it."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from overlap import OverlapError, figure, machine, page, recording
from overlap.ceiling import ceilings
from overlap.claim import Chapter, Claim, Data, Undecided, Verdict, evaluate, show
from overlap.runner import RunFailed, Runner
from overlap.snippet import Snippet, discover


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

    While a site is built, `page` is the page being rendered, `published` the addresses of generated files, and
    `false_live` the claims that what this machine itself ran contradicts.
    """

    def __init__(self, root: Path, execute: str = "auto"):
        if execute not in ("auto", "never", "always"):
            raise OverlapError(f"execute is auto, never or always, not {execute!r}")
        self.root, self.execute = root, execute
        self.page, self.published, self.false_live = "", set(), []
        self.docs, self.recordings, self.cache = root / "docs", root / "docs/recordings", root / ".cache/overlap"
        self.snippets = discover(root)

    def snippet(self, name: str) -> Snippet:
        """The snippet of this name; a wrong name is an error that says why."""
        return self.snippets.get(name) or Snippet.read(self.root, name)

    @cached_property
    def profiles_here(self) -> dict[str, int]:
        """Profiles this machine can be, with their GPU counts; a host of four GPUs can stand for one and two."""
        gpus = machine.here()["gpus"]
        return {machine.profile(gpus[0] if gpus else None, count): count for count in range(len(gpus) + 1)}

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
        return (
            self.cache
            / "runs"
            / f"{snippet.name.replace('/', '-')}-{gpus}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.json"
        )

    def live(self, name: str) -> dict[str, Run]:
        """Runs of this machine that are in its cache."""
        if self.execute == "never":
            return {}
        snippet, found = self.snippets[name], {}
        for profile, gpus in self.profiles_here.items():
            path = self.cache_path(snippet, gpus)
            if gpus in snippet.options["gpus"] and path.exists():
                found[profile] = Run(
                    recording.read(path), path.relative_to(self.root).as_posix(), True, recording.FRESH
                )
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
            failures = runner.run_all(
                wanted,
                lambda snippet, gpus, data: recording.write(self.cache_path(snippet, gpus), recording.dump(data)),
            )
        if failures:
            raise RunFailed("\n\n".join(map(str, failures)))
        return len(wanted)

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

    def value(self, value: page.Value) -> dict[str, str]:
        """A sentence's value as text, per profile."""
        runs = self.runs(self.snippet(value.snippet).name)
        if value.profile:
            runs = {value.profile: runs[value.profile]} if value.profile in runs else {}
        if not runs:
            raise OverlapError(
                f"{value.snippet}: no run on {value.profile or 'any machine'}; record it: overlap record {value.snippet}"
            )
        texts = {}
        for profile, run in runs.items():
            try:
                texts[profile] = show(evaluate(value.expression, self.scope(value.snippet, run)), value.spec)
            except Undecided:
                continue
            except (TypeError, ValueError) as error:
                raise OverlapError(f"`{value.expression}:{value.spec}` on {profile}: {error}") from None
        if not texts:
            raise OverlapError(f"{value.snippet}: `{value.expression}` has no value on any of {', '.join(runs)}")
        return texts

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
        drawn = runner.draw(self.snippets[name], run.result, ceilings(run.data["machine"]), _salt(name, run))
        recording.write(self._plot_path(name, run), json.dumps(drawn))

    def check(self) -> list[str]:
        """Everything that is wrong with the committed book, each with file, reason and remedy."""
        problems, committed = [], Book(self.root, "never")
        for name, snippet in self.snippets.items():
            runs = committed.committed.get(name, {})
            problems += committed._freshness(snippet, runs)
        shown = set()
        for path, parts in committed.pages.items():
            for part in parts:
                problems += committed._part_problems(path, part)
                shown |= {part.snippet} if isinstance(part, page.Block) else set()
        problems += [
            f"{self.snippets[name].path}: no page shows it; add a snippet block to docs/"
            for name in self.snippets
            if name not in shown
        ]
        return problems

    def _freshness(self, snippet: Snippet, runs: dict[str, Run]) -> list[str]:
        problems, excuses = [], {int(count): why for count, why in snippet.options["missing"].items()}
        have = {run.gpus for run in runs.values()}
        for count in snippet.options["gpus"]:
            if count not in have and count not in excuses:
                problems.append(
                    f"{snippet.path}: missing: no recording with {count} GPUs; run `overlap record {snippet.name}` where they are"
                )
            if count in have and count in excuses:
                problems.append(
                    f"{snippet.path}: is recorded with {count} GPUs, so drop `missing.{count}` from its header"
                )
        for run in runs.values():
            if run.grade == recording.CODE:
                problems.append(
                    f"{run.path}: out of date: the code of {snippet.path} or its imports changed; run `overlap record {snippet.name}`"
                )
            if recording.digest(run.data) != run.data["digest"]:
                problems.append(
                    f"{run.path}: edited by hand: its digest does not match; restore it or run `overlap record {snippet.name}`"
                )
        return problems

    def _part_problems(self, path: str, part) -> list[str]:
        problems = []
        try:
            if isinstance(part, page.Block):
                self.snippet(part.snippet).show(list(part.show))
            elif isinstance(part, Claim):
                for verdict in self.verdicts(part):
                    if verdict.holds is False:
                        problems.append(
                            f"docs/{path}:{part.line}: claim is false: {part.text} `{part.expression}`: {verdict.figures}, in {verdict.path}"
                        )
                    elif verdict.holds is None:
                        problems.append(
                            f"docs/{path}:{part.line}: claim cannot be decided in {verdict.path}: {verdict.figures}"
                        )
            elif isinstance(part, page.Text):
                for value in page.values(part.text):
                    self.value(value)
        except OverlapError as error:
            text = str(error)
            problems.append(text if text.startswith("docs/") else f"docs/{path}:{part.line}: {text}")
        return problems


def _salt(name: str, run: Run) -> str:
    return f"{name.replace('/', '-')}-{run.profile}"
