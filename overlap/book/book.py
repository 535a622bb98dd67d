"""The book as read: snippets, what they gave on which machine, pages, values, verdicts; each read or decided once."""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from overlap import OverlapError
from overlap.book import margin
from overlap.book.blocks import Block, Claim, SnippetBlock
from overlap.book.ceiling import ceilings
from overlap.book.check import problems, unread
from overlap.book.expression import Chapter, Data, Undecided, evaluate, names, wrap
from overlap.book.page import Page
from overlap.book.select import home, shown_first
from overlap.book.statistic import Statistic, counted, show
from overlap.book.value import Value
from overlap.book.verdict import State, Verdict
from overlap.run import machine, recording
from overlap.run.memo import Memo
from overlap.run.runner import RunFailed, Runner
from overlap.run.snippet import Snippet, discover


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
        """What `main()` returned in the run that is shown whole."""
        return self.data["result"]

    @property
    def all(self) -> list[dict]:
        """Every run of this code on such machines: `machine`, `software`, `result` …; the one that is shown whole is the first."""
        return [self.data, *(self.data.get("others") or [])]

    @cached_property
    def known(self) -> dict:
        """What a condition knows of the machine."""
        return machine_scope(self.profile, self.data["machine"])

    @property
    def hosts(self) -> int:
        """On how many hosts these runs ran."""
        return hosts(self.all)

    @property
    def day(self) -> str:
        """When it ran."""
        return self.data["run"]["started"][:10]

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.data["run"]["seconds"]

    @property
    def freshness(self) -> str:
        """The grade, in the words of the index."""
        return "this build" if self.live else recording.FRESH if self.grade == recording.OTHER else self.grade

    @property
    def provenance(self) -> str:
        """One line: which machine, which software, when, how long."""
        here, software = self.data["machine"], self.data["software"]
        virtual = ", virtual machine" if here.get("virtual") else ""
        device = f"{here['cpu']}, {here['cores']} cores{virtual}"
        if here["gpus"]:
            names = dict.fromkeys(gpu["name"] for gpu in here["gpus"])
            host = f" (of {here['host_gpus']} in the host)" if here["host_gpus"] > self.gpus else ""
            device = f"{self.gpus} × {' and '.join(names)}{host}, driver {here['driver']} · {device}"
        torch = f"torch {software['torch']}, Python {software['python']}"
        when = f"{'run by this build' if self.live else 'recorded'} {self.day} in {self.seconds:.1f} s"
        if len(self.all) > 1:
            when += f", one of {counted(len(self.all), self.hosts)}"
        badge = "" if self.grade in (recording.FRESH, recording.OTHER) else f" · {self.grade}"
        return f"{device} · {torch} · {when}{badge}{self._busy}"

    @property
    def _busy(self) -> str:
        """How busy a disturbed host was."""
        noise = self.data["run"].get("noise")
        if not noise or not noise["disturbed"]:
            return ""
        before, after = (show(us) for us in noise["dispatch_us"])
        return f" · host disturbed: a small call cost {before} µs before and {after} µs after, {show(noise['least_us'])} µs at best"


def hosts(runs: list[dict]) -> int:
    """How many hosts these runs name; those that name none count as one."""
    return len({run["machine"]["host"] for run in runs if run["machine"].get("host")}) or 1


#: Where this machine keeps what it ran and made, in the project's folder.
CACHE = ".cache/overlap"
_RESERVED = {"profile", "gpus", "capability", "cores", "ceiling"}


class Said(NamedTuple):
    """A value in a sentence: its text, whether there is one, the range of its runs where that is wide, and what it comes from."""

    text: str
    known: bool
    range: str
    note: str


def _say(figure: Statistic, spec: str) -> Said:
    if not figure.values:
        return Said("–", False, "", figure.why)
    text, span = show(figure.middle, spec), figure.range(spec)
    note = ", ".join(filter(None, [span, figure.origin]))
    return Said(text, True, span if figure.wide else "", note)


def machine_scope(profile: str, here: dict) -> dict:
    """What an expression or a condition knows of a machine: `profile`, `model`, `gpus`, `capability`, `cores`, `ceiling`."""
    gpus = here["gpus"]
    names = dict.fromkeys(gpu["name"] for gpu in gpus)
    return {
        "profile": profile,
        "model": machine.profile(list(names)[:1]),
        "gpus": len(gpus),
        "capability": float(gpus[0]["capability"]) if gpus else 0.0,
        "cores": here["cores"],
        "ceiling": Data(ceilings(here), f"ceiling of {next(iter(names), 'the CPU')}"),
    }


@cache
def _code() -> str:
    """Hash of what decides values and verdicts."""
    files = (path for path in sorted(Path(__file__).parent.rglob("*")) if path.suffix in (".py", ".toml"))
    sources = [path.read_bytes() for path in files]
    return hashlib.sha256(b"".join(sources)).hexdigest()


class Book:
    """A checkout of the book, as it is on disk when it is first asked. `execute` is `auto`, `never` (committed recordings only) or
    `always`; `runner` is one that is running already, `memo` one that is read already.
    """

    def __init__(
        self, root: Path, execute: str = "auto", runner: Runner | None = None, memo: Memo | None = None
    ):
        if execute not in ("auto", "never", "always"):
            raise OverlapError(
                f"execute is auto, never or always, not {execute!r}; mend OVERLAP_EXECUTE or mkdocs.yml"
            )
        self.root, self.execute, self.runner = root, execute, runner
        self.docs, self.recordings, self.cache = root / "docs", root / "docs/recordings", root / CACHE
        self.memo = memo or Memo(self.cache / "memo.json")
        self.snippets = discover(root, self.memo)
        self._measures: dict[str, bool] = {}
        self._forget()

    def _forget(self) -> None:
        self._runs, self._scopes, self._values, self._verdicts = {}, {}, {}, {}

    @cached_property
    def as_committed(self) -> "Book":
        """The same book without what this machine ran itself."""
        if self.execute == "never":
            return self
        self._read_recordings, self._read_pages  # noqa: B018 - read once, for both
        other = copy.copy(self)
        other.execute = "never"
        other._forget()
        return other

    @cached_property
    def home(self) -> dict[str, int] | None:
        """Runs wanted on each of the book's own machines; None where pyproject.toml names none: then all are."""
        return home(self.root)

    def at_home(self, profile: str) -> bool:
        """Whether a false claim on this machine stops the build; elsewhere it is a finding."""
        return self.home is None or profile in self.home

    def runs_wanted(self, name: str, profile: str) -> int:
        """How many runs of a snippet should be recorded on this machine."""
        return (self.home or {}).get(profile, 1) if self.measures(name) else 1

    def measures(self, name: str) -> bool:
        """Whether a snippet is a measurement: what has no trials says the same each time. One that never ran may be."""
        if name not in self._measures:
            runs = self.committed.get(name, {}).values()
            self._measures[name] = not runs or any(margin.has_trials(run.result) for run in runs)
        return self._measures[name]

    # Snippets and their runs

    def snippet(self, name: str) -> Snippet:
        """The snippet of this name; a wrong name is an error that says why."""
        return self.snippets.get(name) or Snippet.read(self.root, name, self.memo)

    @cached_property
    def profiles_here(self) -> dict[str, int]:
        """Profiles this machine can be, with their GPU counts; a host of four GPUs can stand for one and two."""
        gpus = machine.here()["gpus"]
        return {machine.profile(gpus[:count]): count for count in range(len(gpus) + 1)}

    @cached_property
    def committed(self) -> dict[str, dict[str, Run]]:
        """Committed recordings by snippet and profile."""
        return _all_read(*self._read_recordings)

    @cached_property
    def _read_recordings(self) -> tuple[dict[str, dict[str, Run]], list[str]]:
        """The committed recordings that can be read, and what is wrong with the others."""
        found: dict[str, dict[str, Run]] = {}
        problems = []
        for path in sorted(self.recordings.glob("*/*/*.json")):
            try:
                run = self._committed(path)
                found.setdefault(run.data["snippet"], {})[run.profile] = run
            except OverlapError as error:
                problems.append(str(error))
        return found, problems

    def _committed(self, path: Path) -> Run:
        data = recording.read(path, self.memo)
        where = path.relative_to(self.root).as_posix()
        name, profile = f"{path.parent.name}/{path.stem}", path.parent.parent.name
        if (data["snippet"], data["profile"]) != (name, profile):
            raise OverlapError(
                f"{where}: says it is {data['snippet']} on {data['profile']}; move or remove it"
            )
        if name not in self.snippets:
            raise OverlapError(f"{where}: there is no snippets/{name}.py; remove the recording")
        grade = recording.grade(data, self.snippets[name], machine.here(), set(self.profiles_here))
        return Run(data, where, False, grade)

    def cache_path(self, snippet: Snippet, gpus: int) -> Path:
        """Where this machine keeps what a snippet gave: named by source, inputs, versions and devices."""
        key = json.dumps(
            [snippet.hash, snippet.input_hashes, machine.here(), gpus, snippet.options["ranks"]],
            sort_keys=True,
        )
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
                found[profile] = Run(recording.read(path, self.memo), where, True, recording.FRESH)
        return found

    def runs(self, name: str) -> dict[str, Run]:
        """Best run per machine: this machine's own, else the committed recording, which may be the same; the CPU first, then by GPU count."""
        if name not in self._runs:
            committed, live = self.committed.get(name, {}), self.live(name)
            new = {
                p: run for p, run in live.items() if p not in committed or not committed[p].data.has(run.data)
            }
            self._runs[name] = dict(
                sorted((committed | new).items(), key=lambda item: machine.order(item[0]))
            )
        return self._runs[name]

    def runnable(self, names: list[str] | None = None) -> Iterator[tuple[Snippet, int]]:
        """Snippets with the GPU counts that this machine has and they ask for."""
        for name in names or self.snippets:
            snippet = self.snippet(name)
            yield from (
                (snippet, gpus) for gpus in self.profiles_here.values() if gpus in snippet.options["gpus"]
            )

    def wanted(self, names: list[str] | None = None, force: bool = False) -> list[tuple[Snippet, int]]:
        """What this machine can run and has not run yet."""
        if self.execute == "never":
            return []
        force = force or self.execute == "always"
        return [item for item in self.runnable(names) if force or not self.cache_path(*item).exists()]

    def keep(self, snippet: Snippet, gpus: int, data: dict) -> None:
        """Put a recording into this machine's cache."""
        recording.write(self.cache_path(snippet, gpus), recording.dump(data))
        self._forget()

    def run(self, names: list[str] | None = None, force: bool = False) -> int:
        """Run into the cache what this machine can and has not run; return how many ran. Failures raise, after all had their turn."""
        wanted = self.wanted(names, force)
        if not wanted:
            return 0
        runner = self.runner or Runner(self.root)
        try:
            failures = runner.run_all(wanted, self.keep)
        finally:
            if not self.runner:
                runner.close()
        if failures:
            raise RunFailed("\n\n".join(map(str, failures)))
        return len(wanted)

    def machines(self) -> list[dict]:
        """All machines something ran on: profile, label, whether this build ran on it, and which one is shown first."""
        runs = {profile: run for name in self.snippets for profile, run in self.runs(name).items()}
        first = shown_first({profile: run.gpus for profile, run in runs.items()}, self.home)
        return [
            {
                "profile": profile,
                "label": machine.label(profile),
                "live": runs[profile].live,
                "first": profile == first,
                "home": self.at_home(profile),
            }
            for profile in sorted(runs, key=machine.order)
        ]

    def default(self, name: str) -> str | None:
        """The profile a page shows before a reader picks one: one of the book's own; four GPUs of such a model where the snippet
        is for that many, else a single GPU, else the fewest, else the CPU."""
        best = 4 if 4 in self.snippets[name].options["gpus"] else 1
        return shown_first({profile: run.gpus for profile, run in self.runs(name).items()}, self.home, best)

    def first(self, found: dict, name: str) -> str:
        """Of the machines that have a value of a snippet, the one that is shown first."""
        default = self.default(name)
        return default if default in found else next(iter(found))

    # Pages and what they say of the data

    @cached_property
    def pages(self) -> dict[str, Page]:
        """Every page by its path below docs/."""
        return _all_read(*self._read_pages)

    @cached_property
    def _read_pages(self) -> tuple[dict[str, Page], list[str]]:
        """The pages that can be read, and what is wrong with the others."""
        found, problems = {}, []
        for path in sorted(self.docs.glob("**/*.md")):
            try:
                page = Page.read(path, self.docs)
                found[page.path] = page
            except OverlapError as error:
                problems.append(str(error))
        return found, problems

    @property
    def blocks(self) -> Iterator[Block]:
        """All blocks of all pages."""
        for page in self.pages.values():
            yield from page.blocks

    @cached_property
    def places(self) -> dict[str, Block]:
        """By snippet, the first block that shows its output, or else the first one."""
        found: dict[str, Block] = {}
        for page in self.pages.values():
            with suppress(OverlapError):
                for block in (block for block in page.blocks if isinstance(block, SnippetBlock)):
                    if not found.setdefault(block.snippet, block).output and block.output:
                        found[block.snippet] = block
        return found

    @property
    def claims(self) -> list[Claim]:
        """All claims of all pages."""
        return [block for block in self.blocks if isinstance(block, Claim)]

    def scope(self, name: str, run: Run, number: int = 0) -> dict:
        """Names an expression over this run can use; `number` counts the runs of a recording, 0 is the one shown whole.

        Another snippet's result is that of the same host where there is one.
        """
        key = (name, run.path, number)
        if key not in self._scopes:
            self._scopes[key] = self._scope(name, run, run.all[number])
        return self._scopes[key]

    def _scope(self, name: str, run: Run, this: dict) -> dict:
        def load(other: str) -> dict:
            if other not in self.snippets or run.profile not in self.runs(other):
                raise Undecided(f"no run of {other} on {run.profile}")
            near, host = self.runs(other)[run.profile].all, this["machine"].get("host")
            return next((each for each in near if each["machine"].get("host") == host), near[0])["result"]

        chapters = {snippet.chapter: Chapter(snippet.chapter, load) for snippet in self.snippets.values()}
        own = machine_scope(run.profile, this["machine"])
        if why := self.mistaken(this["result"]):
            raise OverlapError(f"{run.path}: {why}; let main() of snippets/{name}.py call it otherwise")
        return chapters | own | {key: wrap(value, f"{name}.{key}") for key, value in this["result"].items()}

    def mistaken(self, result: dict) -> str:
        """What of a result a page would mistake for something of the machine, or for another snippet's result; empty where there is nothing."""
        if taken := sorted(_RESERVED & result.keys()):
            return f"its result has {', '.join(taken)}, which pages know as something of the machine"
        for chapter in sorted(self._by_chapter.keys() & result.keys()):
            inside = result[chapter].keys() if isinstance(result[chapter], dict) else ()
            if taken := sorted(self._by_chapter[chapter] & set(inside)):
                return f"its result has {chapter}.{taken[0]}, which pages know as the result of {chapter}/{taken[0]}"
        return ""

    def scopes(self, name: str, run: Run) -> list[dict]:
        """What expressions see in each run of a recording."""
        return [self.scope(name, run, number) for number in range(len(run.all))]

    def reads(self, expression: str) -> set[str]:
        """Other snippets whose results an expression names."""
        words = names(expression)
        chapters = words & self._by_chapter.keys()
        return {f"{chapter}/{name}" for chapter in chapters for name in words & self._by_chapter[chapter]}

    @cached_property
    def _by_chapter(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name in self.snippets:
            chapter, _, rest = name.partition("/")
            found.setdefault(chapter, set()).add(rest)
        return found

    def numbers(self, value: Value) -> dict:
        """What an expression gives on each machine that has data for it, the median of its runs; none at all is an error."""
        return {profile: figure.middle for profile, figure in self.figures(value).items() if figure.values}

    def figures(self, value: Value) -> dict[str, Statistic]:
        """What an expression gives in all runs of each machine, or why it gives nothing there; nothing anywhere is an error."""
        if value not in self._values:
            self._values[value] = self._figures(value)
        return self._values[value]

    def _figures(self, value: Value) -> dict[str, Statistic]:
        runs = self.runs(self.snippet(value.snippet).name)
        if value.profile:
            runs = {value.profile: runs[value.profile]} if value.profile in runs else {}
        found, why = {}, f"; run `overlap record {value.snippet}` where that machine is" if not runs else ""
        for profile, run in runs.items():
            given, where, reasons = [], [], []
            for number, each in enumerate(run.all):
                try:
                    given.append(evaluate(value.expression, self.scope(value.snippet, run, number)))
                    where.append(each)
                except Undecided as error:
                    reasons.append(str(error))
                except OverlapError as error:
                    if self.at_home(profile) or value.profile:
                        raise OverlapError(f"{error}, in {run.path}; mend the expression") from None
                    reasons.append(str(error))  # such as the median of what another machine never saw
            found[profile] = Statistic(tuple(given), hosts(where), "" if given else reasons[0])
            why = f" ({reasons[0]})" if reasons else why
        if not any(figure.values for figure in found.values()):
            on = value.profile or ", ".join(runs) or "any machine"
            remedy = "; mend the expression" if runs else ""
            raise OverlapError(f"{value.snippet}: `{value.expression}` has no value on {on}{why}{remedy}")
        return found

    def value(self, value: Value) -> dict[str, str]:
        """A sentence's value as text, per profile that has one."""
        return {profile: said.text for profile, said in self.said(value).items() if said.known}

    def said(self, value: Value) -> dict[str, Said]:
        """A sentence's value as text per profile, with its range and runs; or a dash and why there is none."""

        def compute() -> dict[str, list]:
            try:
                return {
                    profile: list(_say(figure, value.spec)) for profile, figure in self.figures(value).items()
                }
            except (TypeError, ValueError, OverflowError) as error:
                why = f"`{value.expression}:{value.spec}`: {error}"
                raise OverlapError(f"{value.snippet}: {why}; mend the format, or the expression") from None

        asked = [value.snippet, value.expression, value.spec, value.profile]
        found = self._remembered("value", {value.snippet} | self.reads(value.expression), asked, compute)
        return {profile: Said(*each) for profile, each in found.items()}

    def _remembered(self, kind: str, snippets: set[str], said: list, compute: Callable):
        """What was once computed from these snippets' recordings, as long as they and this code are the same."""
        runs = [run for name in sorted(snippets & self.snippets.keys()) for run in self.runs(name).values()]
        if not all(run.data.intact for run in runs):
            return compute()  # edited by hand: its digest does not stand for what it says
        key = json.dumps(
            [
                _code(),
                sorted(self.home or []),
                said,
                [(run.data["snippet"], run.profile, run.data["digest"]) for run in runs],
            ]
        )
        return self.memo.get(kind, hashlib.sha256(key.encode()).hexdigest(), compute)

    def verdicts(self, claim: Claim) -> list[Verdict]:
        """What each machine's data say of a claim; it must be decided by at least one."""
        if claim not in self._verdicts:
            runs = self.runs(self.snippet(claim.snippet).name)

            def compute() -> list[list[str]]:
                decided = [self._verdict(claim, run) for run in runs.values()]
                return [
                    [v.profile, v.state.name, v.figures, v.true, v.runs, v.margin]
                    for v in filter(None, decided)
                ]

            found = [
                Verdict(
                    profile,
                    State[state],
                    figures,
                    runs[profile].live,
                    runs[profile].path,
                    true,
                    count,
                    margin,
                )
                for profile, state, figures, true, count, margin in self._remembered(
                    "verdict", claim.snippets(self), [claim.snippet, *claim.expressions], compute
                )
            ]
            if all(verdict.state is State.OPEN for verdict in found):
                why = (
                    "; ".join(verdict.figures for verdict in found)
                    or "it speaks of no machine that has a recording"
                )
                raise OverlapError(
                    f"{claim.where}: claim {claim.snippet}: no data decide it: {why}; mend its names or its condition, or record it"
                )
            self._verdicts[claim] = found
        return self._verdicts[claim]

    def _verdict(self, claim: Claim, run: Run) -> Verdict | None:
        try:
            return claim.verdict(self.scopes(claim.snippet, run), run)
        except OverlapError as error:
            if self.at_home(run.profile):
                raise
            return Verdict(run.profile, State.OPEN, str(error.__context__ or error), run.live, run.path)

    def check(self, margins: bool = True) -> list[str]:
        """Everything that is wrong with the committed book, each with file, reason and remedy; `margins`: thin ones, too.

        What cannot be read hides no other problem.
        """
        book = copy.copy(self.as_committed)
        vars(book)["pages"], lost = book._read_pages
        if spoilt := book._read_recordings[1]:
            return [*spoilt, *lost, *unread(book.pages.values())]
        return [*lost, *problems(book, margins, all_pages=not lost)]


def _all_read(found: dict, problems: list[str]) -> dict:
    if problems:
        raise OverlapError("\n".join(problems))
    return found
