"""The command line; see `overlap --help`. It needs torch and numpy, not MkDocs."""

import sys

try:
    import argparse
    import contextlib
    import difflib
    import json
    import os
    import re
    import signal
    import tempfile
    from pathlib import Path

    from overlap import OverlapError, find_root
    from overlap.book.book import Book
    from overlap.book.compare import INSIDE, OUTSIDE, UNKNOWN, beside, held
    from overlap.book.verdict import State
    from overlap.book.verify import as_text, is_off, verify
    from overlap.run import bundle as bundles
    from overlap.run import machine, recording
    from overlap.run.bundle import Bundle
    from overlap.run.runner import Runner
    from overlap.run.snippet import Snippet
    from overlap.run.text import plain
except KeyboardInterrupt:
    sys.exit(130)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            if before[number] != signal.SIG_IGN:
                signal.signal(number, _stop)
        if sys.stdout is None:  # closed by whoever started this
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        sys.stdout.reconfigure(errors="replace")
        options = _parser().parse_args(arguments)
        book = Book(find_root())
        code = options.command(book, options)
        sys.stdout.flush()
        return code
    except OverlapError as error:
        print(plain(f"overlap: {error}"), file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read this has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        print(
            plain(
                f"overlap: {error.filename or 'this folder or its output'}: {error.strerror}; mend this and try again"
            ),
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt as stop:
        return 128 + (stop.args or (signal.SIGINT,))[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame) -> None:
    for again in (signal.SIGINT, signal.SIGTERM):
        signal.signal(again, signal.SIG_IGN)  # let the first one tidy up
    raise KeyboardInterrupt(number)


def _say(*lines: str) -> None:
    """Print text that may come from recordings or snippets."""
    for line in lines:
        print(plain(line))


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with arguments without handing their control characters to the terminal."""

    def error(self, message: str) -> None:
        super().error(plain(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="overlap", description="Run the book's snippets and keep what they gave.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command, text: str, names: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        if names:
            sub.add_argument("names", nargs="*", metavar="NAME", help="chapter/snippet, or a chapter; default: all")
        sub.set_defaults(command=command)
        return sub

    add("list", _list, "what there is, what it needs, how fresh each recording is")
    add("run", _run, "run what this machine can into its cache; with names, even what is cached")
    record = add("record", _record, "run and write recordings; without names, what is not fresh for this machine")
    text = "append the recordings to one portable file instead of docs/recordings, but not what it has already"
    record.add_argument("--bundle", metavar="FILE", type=Path, help=text)
    record.add_argument("--gpus", metavar="N,N", type=_counts, help="only these GPU counts; 0 is the CPU")
    text = "let each measurement have this many runs; default: what pyproject.toml wants of this machine; with names and no --bundle one more"
    record.add_argument("--runs", metavar="N", type=_runs, help=text)
    taking = add("import", _import, "take the recordings of a bundle into docs/recordings", names=False)
    taking.add_argument("file", type=Path)
    text = "run, draw and write what pages lead to, for a builder other than MkDocs, as `zensical build`"
    add("build", _build, text, names=False)
    add("check", _check, "freshness and claims of the committed book; non-zero with reasons", names=False)
    comparing = add("compare", _compare, "this machine's numbers beside the recorded ones, with ratios")
    text = "run again, and exit with 1 where a number lies outside of what this machine's recordings say"
    comparing.add_argument("--check", action="store_true", help=text)
    text = "check the runs of this file instead of running"
    comparing.add_argument("--bundle", metavar="FILE", type=Path, help=text)
    text = "measure now, and say what is low on this machine, which claims hold here, and what explains it"
    check = add("verify", _verify, text)
    check.add_argument("--quick", action="store_true", help="headline rates only, in less than a minute")
    check.add_argument("--json", action="store_true", help="all of it as JSON; overlap/book/verify.py says which keys")
    check.add_argument(
        "--strict", action="store_true", help="exit with 1 if a rate is LOW, a claim false, or a run failed"
    )
    return parser


def _counts(text: str) -> set[int]:
    have = len(machine.here()["gpus"])
    counts = set(map(int, text.split(","))) if re.fullmatch(r"\d{1,4}(,\d{1,4})*", text, re.A) else {have + 1}
    if max(counts) > have:
        why = f"{text[:40]!r} is not a list of GPU counts from 0 to {have}, as in 0,1; GPUs here: {machine.described()}"
        raise argparse.ArgumentTypeError(why)
    return counts


def _runs(text: str) -> int:
    if not (re.fullmatch(r"\d{1,4}", text, re.A) and 0 < int(text) <= recording.KEPT):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of runs from 1 to {recording.KEPT}")
    return int(text)


def _names(book: Book, typed: list[str]) -> list[str] | None:
    """Snippet names for what was typed; a chapter stands for all its snippets."""
    found, chapters = [], {name.split("/")[0] for name in book.snippets}
    for given in typed:
        name = given.removeprefix("snippets/").removesuffix(".py").strip("/")
        if name not in chapters | book.snippets.keys():
            near = difflib.get_close_matches(name.lower(), [*sorted(chapters), *book.snippets], 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise OverlapError(f"{given[:200]}: no such chapter or snippet; {hint}`overlap list` shows what there is")
        found += [n for n in book.snippets if name in (n, n.split("/")[0])]
    return list(dict.fromkeys(found)) or None


def _lacking(book: Book, names: list[str]) -> str:
    """What these snippets need that this machine has not."""
    needs = {}
    for name in names:
        counts = " or ".join(map(str, book.snippets[name].options["gpus"]))
        needs.setdefault(f"{counts} GPU{'s' * (counts != '1')}", []).append(name)
    some = {
        need: ", ".join(found[:5])
        + (f" and {len(found) - 5} more need" if found[5:] else " need" + "s" * (len(found) == 1))
        for need, found in needs.items()
    }
    return "; ".join(f"{found} {need}" for need, found in some.items()) + f"; this machine has {machine.described()}"


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        why = f"{folder}: cannot be written ({error.strerror})"
        raise OverlapError(f"{why}; make it a folder you may write to, or move away what is in its place") from None


def _list(book: Book, options) -> int:
    rows = [("SNIPPET", "GPUS", "RECORDED", "SUMMARY")]
    for name in _names(book, options.names) or book.snippets:
        snippet, runs = book.snippets[name], book.committed.get(name, {})
        grades = ", ".join(f"{profile} ({runs[profile].grade})" for profile in sorted(runs, key=machine.order))
        rows.append((name, ",".join(map(str, snippet.options["gpus"])), grades or "nothing", snippet.summary))
    _print_table(rows)
    return 0


def _runnable(book: Book, typed: list[str]) -> list[str] | None:
    """The names that were typed, of which this machine can run some, into a cache that can be written."""
    names = _names(book, typed)
    able = list(book.runnable(names))
    if names and not able:
        raise OverlapError(_lacking(book, names))
    for item in able[:1]:
        _check_writable(book.cache_path(*item).parent)
    return names


def _run(book: Book, options) -> int:
    names = _runnable(book, options.names)
    ran = book.run(names, force=bool(names))
    print(f"{ran} run{'s' * (ran != 1)}" + ("" if names else "; what had run before was left alone"))
    for name in names or ():
        for run in book.live(name).values():
            text = "".join(line for output in run.data["outputs"] for line in output["text"])
            _say("", f"{name} on {machine.label(run.profile)}", text.removesuffix("\n"))
    return 0


def _build(book: Book, options) -> int:
    try:
        from overlap.site.build import prepare
    except ImportError as error:
        raise OverlapError(f"build: {error.name} is not installed; run `pip install -e .` in this folder") from None
    execute = os.environ.get("OVERLAP_EXECUTE") or "auto"
    ran, drawn = prepare(Book(book.root, execute))
    print(f"{ran} runs, {drawn} pictures made; now run a builder, as `zensical build`")
    return 0


def _record(book: Book, options) -> int:
    names, written, failures = _names(book, options.names), [], []
    able = [item for item in book.runnable(names) if options.gpus is None or item[1] in options.gpus]
    unable = [name for name in names or book.snippets if name not in {snippet.name for snippet, _ in able}]
    if not able:
        raise OverlapError(_lacking(book, unable) + (" and --gpus leaves out the rest" if options.gpus else ""))
    if names and unable:
        _say(_lacking(book, unable))
    bundle = Bundle(options.bundle) if options.bundle else None

    lacking = {item: _lacking_runs(book, bundle, *item, options.runs, bool(names)) for item in able}
    wanted = [item for turn in range(max(lacking.values())) for item in able if lacking[item] > turn]
    for item in wanted[:1]:
        _check_writable(book.cache_path(*item).parent)
        _check_writable(options.bundle.absolute().parent if bundle else book.recordings)

    def keep(snippet, gpus, data) -> None:
        if bundle:
            bundle.add(data)
        else:
            _, data = recording.add(book.recordings / data["profile"] / f"{snippet.name}.json", data)
        book.keep(snippet, gpus, data)
        count, busy = len(data.get("others") or []) + 1, (data["run"].get("noise") or {}).get("disturbed")
        said = f", run {count}" * (count > 1) + ", the host was disturbed" * bool(busy)
        written.append(f"{snippet.name} on {data['profile']}: {data['run']['seconds']:.1f} s{said}")

    try:
        with Runner(book.root, watchful=True) as runner:
            runner.run_all(wanted, keep, "recording", failures)
    finally:
        _say(*filter(None, [bundle and bundle.mended]), *written, *map(str, failures))
        left, missed = sum(not count for count in lacking.values()), len(wanted) - len(written) - len(failures)
        why = f" (fresh{f', or in {bundle.path} already' if bundle else ''})" if left else ""
        _say(
            f"{len(written)} recorded, {len(failures)} failed, {left} left as they were{why}"
            + (f", {missed} not run" if missed > 0 else "")
        )
    return int(bool(failures))


def _lacking_runs(book: Book, bundle: Bundle | None, snippet: Snippet, gpus: int, runs: int | None, named: bool) -> int:
    """How many more runs of a snippet `record` should make: up to `runs` of a measurement, or what pyproject.toml wants; one more of what was named,
    but into a bundle as many as that, whatever is recorded.
    """
    if named and not bundle and runs is None:
        return 1
    profile = machine.profile(machine.here()["gpus"][:gpus])
    run = book.committed.get(snippet.name, {}).get(profile)
    known = recording.run_digests(run.data) if run is not None and run.grade == recording.FRESH else set()
    added = bundle.runs(snippet, profile) - known if bundle else set()
    have = len(added if named and bundle else added | known)
    wanted = book.runs_wanted(snippet.name, profile)
    if runs is not None and book.measures(snippet.name):
        wanted = runs
    return max(0, wanted - have)


def _import(book: Book, options) -> int:
    lines = bundles.lines(options.file)
    before, taken, problems = _verdicts(book.root), [], []
    for where, line in lines:
        try:
            taken.append(_take(book, line, where))
        except OverlapError as error:
            problems.append(f"{where}: {str(error).removeprefix(f'{where}: ')}")
        except OSError as error:
            problems.append(f"{where}: {error.filename} cannot be written ({error.strerror}); mend this")
    turned, after = [], _verdicts(book.root)
    for key, (state, text) in (before | after).items():
        then, now = before.get(key, (State.HOLDS, text))[0], state if key in after else State.OPEN
        turned += [f"{' on '.join(key)}: {then.word} -> {now.word}: {text}"] if then != now else []
    _say(*taken, *turned, *problems, f"{len(taken)} imported, {len(problems)} refused")
    return int(bool(problems) or not taken)


def _fitting(book: Book, line: bytes, where: str) -> recording.Recording:
    """The recording of one line, if it is whole and of the code in this checkout."""
    data = recording.parse(line, where, "record it again")
    snippet = book.snippet(data["snippet"])
    if recording.digest(data) != data["digest"]:
        raise OverlapError("its digest does not match its content; record it again")
    if recording.grade(data, snippet, machine.here(), set()) == recording.CODE:
        raise OverlapError(f"{snippet.path} has changed since it was recorded; record it again")
    if machine.profile([gpu["name"] for gpu in data["machine"]["gpus"]]) != data["profile"]:
        raise OverlapError(f"{data['profile']!r} is not the machine it describes; record it again")
    if not data["result"]:
        raise OverlapError("its result is empty; let main() return what it measured, and record it again")
    recorded = [set(run.result) for run in book.committed.get(snippet.name, {}).values()]
    lacking = set.intersection(*recorded) - set(data["result"]) if recorded else set()
    if lacking:
        raise OverlapError(f"its result has no {', '.join(sorted(lacking))}, as recorded runs have; record it again")
    if why := book.mistaken(data["result"]):
        raise OverlapError(f"{why}; let main() of {snippet.path} call it otherwise, and record it again")
    return data


def _take(book: Book, line: bytes, where: str) -> str:
    """Write the recording of one line to where it belongs, and say what it is."""
    data = _fitting(book, line, where)
    snippet = book.snippet(data["snippet"])
    path = book.recordings / data["profile"] / f"{snippet.name}.json"
    existed = path.exists()
    then, data = recording.add(path, data)
    kind = "replaced" if existed else "new"
    if then:
        more = len(data.get("others") or []) - len(then.get("others") or [])
        kind = "unchanged" if data["digest"] == then["digest"] else "another run" if more > 0 else "replaced"
        kind += f" ({then['run']['started']} before)" if kind == "replaced" else ""
    count = len(data.get("others") or []) + 1
    return f"{kind}: {snippet.name} on {data['profile']}, {data['run']['started']}" + f", {count} runs" * (count > 1)


def _verdicts(root: Path) -> dict[tuple[str, str], tuple[State, str]]:
    """The verdict on each claim, and its text, by where it stands and profile; without what cannot be told."""
    found = {}
    with contextlib.suppress(OverlapError):
        book = Book(root, "never")
        for claim in book.claims:
            with contextlib.suppress(OverlapError):
                for verdict in book.verdicts(claim):
                    found[f"docs/{claim.page}:{claim.line}", verdict.profile] = (verdict.state, claim.text)
    return found


def _check(book: Book, options) -> int:
    problems = book.check()
    _say(*problems or [f"{len(book.snippets)} snippets, {len(book.claims)} claims: all in order"])
    return int(bool(problems))


def _compare(book: Book, options) -> int:
    if options.check or options.bundle:
        return _hold(book, options)
    names = _names(book, options.names)
    book.run(names)
    rows = [("SNIPPET", "VALUE", "HERE", "RECORDED", "RATIO")]
    for name, profile, other, key, mine, theirs in beside(book, names):
        ratio = f"{mine / theirs:.2f}" if theirs else "–"
        rows.append((f"{name} ({profile} : {other})", key, f"{mine:.4g}", f"{theirs:.4g}", ratio))
    if len(rows) == 1:
        raise OverlapError("nothing to compare: no recording has as many GPUs as a run of this machine")
    _print_table(rows)
    return 0


def _hold(book: Book, options) -> int:
    """Make recordings again, or take those of a bundle, and hold them against the committed ones."""
    problems, found = [], []
    for name, profile, result in _made_again(book, options, problems):
        recorded = book.committed.get(name, {}).get(profile)
        if recorded is None:
            continue
        if recorded.grade == recording.CODE:
            problems.append(f"{recorded.path}: {recording.CODE}; run `overlap record {name}` first")
        else:
            found += held(recorded, result)
    if not found and not problems:
        why = "there is no recording of such a machine; run `overlap record` here"
        if options.bundle:
            why = f"{options.bundle} has no run of these snippets on a recorded machine; name others"
        raise OverlapError(f"nothing to compare: {why}")
    rows = [("SNIPPET", "VALUE", "HERE", "RECORDED", "")]
    for each in found:
        here = "nothing" if each.here is None else f"{each.here:.4g}"
        if each.said != INSIDE:
            label = f"{each.snippet} on {each.profile}"
            rows.append((label, each.key, here, f"{each.low:.4g} to {each.high:.4g}", each.said))
    if len(rows) > 1:
        _print_table(rows)
    counts = {said: sum(each.said == said for each in found) for said in (INSIDE, OUTSIDE, UNKNOWN)}
    _say(*problems, ", ".join(f"{count} {said}" for said, count in counts.items()))
    return int(bool(problems or counts[OUTSIDE]))


def _made_again(book: Book, options, problems: list[str]) -> list[tuple[str, str, dict]]:
    """(snippet, profile, result) of each new run; what could not be made or read is added to the problems."""
    made = []
    if options.bundle:
        names = _names(book, options.names) or book.snippets
        for where, line in bundles.lines(options.bundle):
            try:
                data = _fitting(book, line, where)
                made += [(data["snippet"], data["profile"], run["result"]) for run in data.runs]
            except OverlapError as error:
                problems.append(f"{where}: {str(error).removeprefix(f'{where}: ')}")
        return [each for each in made if each[0] in names]

    def keep(snippet, gpus, data) -> None:
        book.keep(snippet, gpus, data)
        made.append((snippet.name, data["profile"], data["result"]))

    names = _runnable(book, options.names)
    with Runner(book.root, watchful=True) as runner:
        problems += map(str, runner.run_all(list(book.runnable(names)), keep, "recording again"))
    return made


def _verify(book: Book, options) -> int:
    names = _runnable(book, options.names)
    report = verify(book, names, options.quick, lambda text: print(text, file=sys.stderr, flush=True))
    if options.json:
        print(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _say(*as_text(report))
    return int(options.strict and is_off(report))


def _print_table(rows: list[tuple]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        _say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
