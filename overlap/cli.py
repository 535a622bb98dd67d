"""The command line; see `overlap --help`. It needs torch and numpy, not MkDocs."""

import argparse
import contextlib
import difflib
import json
import os
import re
import signal
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from overlap import OverlapError, find_root
from overlap.book import compare, record
from overlap.book.book import Book
from overlap.book.statistic import plural
from overlap.book.verify import as_text, is_off, verify
from overlap.run import bundle, machine, recording
from overlap.run.bundle import Bundle
from overlap.run.recording import Recording
from overlap.run.runner import Runner
from overlap.run.text import plain

#: Columns of a terminal that tables fit into.
_WIDTH = 80


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, handler in handlers.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, _stop)
        sys.stdout.reconfigure(errors="replace")
        options = _parser().parse_args(arguments)
        code = options.command(Book(find_root()), options)
        sys.stdout.flush()
        return code
    except OverlapError as error:
        print(plain(f"overlap: {error}"), file=sys.stderr)
        return 1
    except BrokenPipeError:  # `overlap list | head` has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        where = error.filename or "this folder or its output"
        print(plain(f"overlap: {where}: {error.strerror}; mend this and try again"), file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        return 128 + (stop.args or (signal.SIGINT,))[0]
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _stop(number: int, frame) -> None:
    """End a command by a signal as by Ctrl-C; a second one does not disturb its tidying up."""
    for again in (signal.SIGINT, signal.SIGTERM):
        signal.signal(again, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="overlap", description="Run the book's snippets and keep what they gave.")
    parser.add_argument("--version", action="version", version=f"overlap {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    def add(name: str, command: Callable, text: str, names: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        if names:
            text = "chapter/snippet, or a chapter; default: all"
            sub.add_argument("names", nargs="*", metavar="NAME", help=text)
        sub.set_defaults(command=command)
        return sub

    sub = add("list", _list, "what there is, what it needs, how fresh its recordings are")
    sub.add_argument("--here", action="store_true", help="only what this machine can run")

    add("run", _run, "run what this machine can into its cache; with names, even what is cached")

    text = "run and write recordings; without names, what is not fresh for this machine"
    sub = add("record", _record, text)
    text = "append the recordings to one portable file instead, but not what it has already"
    sub.add_argument("--bundle", metavar="FILE", type=Path, help=text)
    sub.add_argument("--gpus", metavar="N,N", type=_counts, help="only these GPU counts; 0 is the CPU")
    text = "let each measurement have this many runs; default: what pyproject.toml wants of this machine; "
    text += "with names and no --bundle one more"
    sub.add_argument("--runs", metavar="N", type=_runs, help=text)

    sub = add("import", _import, "take the recordings of a bundle into docs/recordings", names=False)
    sub.add_argument("file", type=Path)

    text = "run, draw and write what pages lead to, for a builder other than MkDocs, as `zensical build`"
    add("build", _build, text, names=False)

    add("check", _check, "freshness and claims of the committed book; non-zero with reasons", names=False)

    sub = add("compare", _compare, "this machine's numbers beside the recorded ones, with ratios")
    text = "run again, and exit with 1 where a number lies outside of what this machine's recordings say"
    sub.add_argument("--check", action="store_true", help=text)
    text = "check the runs of this file instead of running"
    sub.add_argument("--bundle", metavar="FILE", type=Path, help=text)

    text = "measure now, and say what is low on this machine, which claims hold here, and what explains it"
    sub = add("verify", _verify, text)
    sub.add_argument("--quick", action="store_true", help="headline rates only, in less than a minute")
    text = "all of it as JSON; overlap/book/verify.py says which keys"
    sub.add_argument("--json", action="store_true", help=text)
    text = "exit with 1 if a rate is LOW, a claim false, or a run failed"
    sub.add_argument("--strict", action="store_true", help=text)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        """Say what is wrong with arguments, without control characters that they may have."""
        super().error(plain(message))


def _version() -> str:
    with contextlib.suppress(OSError):  # a checkout that is not installed
        text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        return tomllib.loads(text)["project"]["version"]
    return metadata.version("overlap-book")


def _counts(text: str) -> set[int]:
    most = len(machine.here()["gpus"])
    counts = set()
    if re.fullmatch(r"\d{1,4}(,\d{1,4})*", text, re.ASCII):
        counts = {int(count) for count in text.split(",")}
    if not counts or max(counts) > most:
        why = f"{text[:40]!r} is not a list of GPU counts from 0 to {most}, as in 0,1"
        raise argparse.ArgumentTypeError(f"{why}; GPUs here: {machine.described()}")
    return counts


def _runs(text: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text, re.ASCII) or not 1 <= int(text) <= recording.KEPT:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of runs from 1 to {recording.KEPT}")
    return int(text)


# What several commands share


def _print(*lines: str) -> None:
    """Print text that may come from recordings or snippets."""
    for line in lines:
        print(plain(line))


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        _print("  ".join(cells).rstrip())


def _names(book: Book, typed: list[str]) -> list[str]:
    """Snippet names for what was typed; a chapter stands for all its snippets, nothing for nothing."""
    chapters = sorted({name.split("/")[0] for name in book.snippets})
    names = []
    for text in typed:
        wanted = text.removeprefix("snippets/").removesuffix(".py").strip("/")
        matches = [name for name in book.snippets if wanted in (name, name.split("/")[0])]
        if not matches:
            near = difflib.get_close_matches(wanted.lower(), [*chapters, *book.snippets], 1)
            hint = f"did you mean {near[0]}? " if near else ""
            remedy = f"{hint}`overlap list` shows what there is"
            raise OverlapError(f"{text[:200]}: no such chapter or snippet; {remedy}")
        names += [name for name in matches if name not in names]
    return names


def _lacking(book: Book, names: list[str]) -> str:
    """What these snippets need that this machine has not."""
    needs: dict[str, list[str]] = {}
    for name in names:
        counts = " or ".join(map(str, book.snippets[name].options["gpus"]))
        needs.setdefault("1 GPU" if counts == "1" else f"{counts} GPUs", []).append(name)
    parts = []
    for need, group in needs.items():
        verb = "needs" if len(group) == 1 else "need"
        more = ""
        if len(group) > 5:
            more = f" and {len(group) - 5} more"
        parts.append(f"{', '.join(group[:5])}{more} {verb} {need}")
    return f"{'; '.join(parts)}; this machine has {machine.described()}"


def _runnable(book: Book, typed: list[str]) -> list[str]:
    """The names that were typed, of which this machine can run some, into a cache that can be written."""
    names = _names(book, typed)
    items = list(book.runnable(names or None))
    if names and not items:
        raise OverlapError(_lacking(book, names))
    if items:
        _check_writable(book.cache_path(*items[0]).parent)
    return names


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        remedy = "make it a folder you may write to, or move away what is in its place"
        raise OverlapError(f"{folder}: cannot be written ({error.strerror}); {remedy}") from None


# Commands


def _list(book: Book, options) -> int:
    names = _names(book, options.names)
    here = {snippet.name for snippet, _ in book.runnable()}
    shown = [name for name in names or book.snippets if name in here or not options.here]
    rows = [("SNIPPET", "GPUS", "RECORDED")]
    for name in shown:
        rows.append((name, ",".join(map(str, book.snippets[name].options["gpus"])), _freshness(book, name)))
    if not names:
        _print_table(rows)
        return 0
    for name, gpus, freshness in rows[1:]:
        _print(f"{name}: GPUs {gpus}; {freshness}")
        runs = book.committed.get(name, {})
        profiles = sorted(runs, key=machine.order)
        machines = ", ".join(f"{profile} ({runs[profile].grade})" for profile in profiles)
        for text in (book.snippets[name].summary, machines):
            _print(*textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    "))
    return 0


def _freshness(book: Book, name: str) -> str:
    """How fresh the recordings of a snippet are, in few words: here, and on how many other machines."""
    runs = book.committed.get(name, {})
    if not runs:
        return "nothing"
    stale = sum(run.grade == recording.CODE for run in runs.values())
    if stale:
        return f"{recording.CODE} on {stale} of {len(runs)}"
    here = {run.grade for run in runs.values()} - {recording.OTHER}
    others = sum(run.grade == recording.OTHER for run in runs.values())
    if not here:
        return plural(others, "machine")
    grade = recording.ENVIRONMENT if recording.ENVIRONMENT in here else f"{recording.FRESH} here"
    return f"{grade}, {others} more" if others else grade


def _run(book: Book, options) -> int:
    names = _runnable(book, options.names)
    count = plural(book.run(names or None, force=bool(names)), "run")
    _print(count if names else f"{count}; what had run before was left alone")
    for name in names:
        for run in book.live(name).values():
            text = "".join(line for output in run.data["outputs"] for line in output["text"])
            _print("", f"{name} on {machine.label(run.profile)}", text.removesuffix("\n"))
    return 0


def _record(book: Book, options) -> int:
    names = _names(book, options.names)
    items = [item for item in book.runnable(names or None) if options.gpus is None or item[1] in options.gpus]
    able = {snippet.name for snippet, _ in items}
    unable = [name for name in names or book.snippets if name not in able]
    if not items:
        more = " and --gpus leaves out the rest" if options.gpus else ""
        raise OverlapError(_lacking(book, unable) + more)
    if names and unable:
        _print(_lacking(book, unable))
    target = Bundle(options.bundle) if options.bundle else None
    lacking = {item: record.lacking_runs(book, target, item, options.runs, bool(names)) for item in items}
    wanted = record.round_robin(lacking)
    if wanted:
        _check_writable(book.cache_path(*wanted[0]).parent)
        _check_writable(target.path.absolute().parent if target else book.recordings)
    written, failures = [], []

    def keep(snippet, gpus, data) -> None:
        if target:
            target.add(data)
        else:
            _, data = recording.add(book.recordings / data["profile"] / f"{snippet.name}.json", data)
        book.keep(snippet, gpus, data)
        line = f"{snippet.name} on {data['profile']}: {data['run']['seconds']:.1f} s"
        runs = Recording(data).runs
        if len(runs) > 1:
            line += f", run {len(runs)}"
        if (data["run"].get("noise") or {}).get("disturbed"):
            line += ", the host was disturbed"
        written.append(line)

    try:
        with Runner(book.root, watchful=True) as runner:
            runner.run_all(wanted, keep, "recording", failures)
    finally:
        if target and target.mended:
            _print(target.mended)
        _print(*written, *map(str, failures))
        left = sum(count == 0 for count in lacking.values())
        summary = f"{len(written)} recorded, {len(failures)} failed, {left} left as they were"
        if left:
            summary += f" (fresh, or in {target.path} already)" if target else " (fresh)"
        missed = len(wanted) - len(written) - len(failures)
        if missed > 0:
            summary += f", {missed} not run"
        _print(summary)
    return int(bool(failures))


def _import(book: Book, options) -> int:
    before = record.verdicts(book.root)
    taken, problems = [], []
    for where, line in bundle.lines(options.file):
        try:
            taken.append(record.take(book, line, where))
        except OverlapError as error:
            problems.append(f"{where}: {str(error).removeprefix(f'{where}: ')}")
        except UnicodeEncodeError:
            problems.append(f"{where}: has half a character (a lone surrogate); record it again")
        except OSError as error:
            problems.append(f"{where}: {error.filename} cannot be written ({error.strerror}); mend this")
    turned = record.turned(before, record.verdicts(book.root))
    _print(*taken, *turned, *problems, f"{len(taken)} imported, {len(problems)} refused")
    return int(bool(problems) or not taken)


def _build(book: Book, options) -> int:
    try:
        from overlap.site.build import prepare
    except ImportError as error:
        remedy = "run `pip install -e .` in this folder"
        raise OverlapError(f"build: {error.name} is not installed; {remedy}") from None
    execute = os.environ.get("OVERLAP_EXECUTE") or "auto"
    ran, drawn = prepare(Book(book.root, execute))
    _print(f"{plural(ran, 'run')}, {plural(drawn, 'picture')} made; now run a builder, as `zensical build`")
    return 0


def _check(book: Book, options) -> int:
    problems = book.check()
    _print(*problems or [f"{len(book.snippets)} snippets, {len(book.claims)} claims: all in order"])
    return int(bool(problems))


def _compare(book: Book, options) -> int:
    if options.check or options.bundle:
        return _hold(book, options)
    names = _names(book, options.names)
    book.run(names or None)
    rows = [("SNIPPET", "VALUE", "HERE", "RECORDED", "RATIO")]
    for name, profile, other, key, mine, theirs in compare.beside(book, names or None):
        ratio = f"{mine / theirs:.2f}" if theirs else "–"
        rows.append((f"{name} ({profile} : {other})", key, f"{mine:.4g}", f"{theirs:.4g}", ratio))
    if len(rows) == 1:
        raise OverlapError("nothing to compare: no recording has as many GPUs as a run of this machine")
    _print_table(rows)
    return 0


def _hold(book: Book, options) -> int:
    """Hold runs that are made now, or those of a bundle, against the recorded ranges."""
    results, problems = _bundled(book, options) if options.bundle else _made_again(book, options)
    values = []
    for name, profile, result in results:
        recorded = book.committed.get(name, {}).get(profile)
        if recorded is None:
            continue
        if recorded.grade == recording.CODE:
            problems.append(f"{recorded.path}: {recording.CODE}; run `overlap record {name}` first")
        else:
            values += compare.held(recorded, result)
    if not values and not problems:
        why = "there is no recording of such a machine; run `overlap record` here"
        if options.bundle:
            why = f"{options.bundle} has no run of these snippets on a recorded machine; name others"
        raise OverlapError(f"nothing to compare: {why}")
    rows = [("SNIPPET", "VALUE", "HERE", "RECORDED", "")]
    for value in values:
        if value.said != compare.INSIDE:
            here = "nothing" if value.here is None else f"{value.here:.4g}"
            recorded_range = f"{value.low:.4g} to {value.high:.4g}"
            rows.append((f"{value.snippet} on {value.profile}", value.key, here, recorded_range, value.said))
    if len(rows) > 1:
        _print_table(rows)
    counts = {}
    for verdict in (compare.INSIDE, compare.OUTSIDE, compare.UNKNOWN):
        counts[verdict] = sum(value.said == verdict for value in values)
    _print(*problems, ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(bool(problems or counts[compare.OUTSIDE]))


def _bundled(book: Book, options) -> tuple[list[tuple[str, str, dict]], list[str]]:
    """(snippet, profile, result) of each run in a bundle, and what is wrong with its other lines."""
    names = _names(book, options.names) or book.snippets
    results, problems = [], []
    for where, line in bundle.lines(options.bundle):
        try:
            data = record.fitting(book, line, where)
        except OverlapError as error:
            problems.append(f"{where}: {str(error).removeprefix(f'{where}: ')}")
            continue
        if data["snippet"] in names:
            results += [(data["snippet"], data["profile"], run["result"]) for run in data.runs]
    return results, problems


def _made_again(book: Book, options) -> tuple[list[tuple[str, str, dict]], list[str]]:
    """(snippet, profile, result) of a new run of each of these snippets, and what failed."""
    results = []

    def keep(snippet, gpus, data) -> None:
        book.keep(snippet, gpus, data)
        results.append((snippet.name, data["profile"], data["result"]))

    names = _runnable(book, options.names)
    with Runner(book.root, watchful=True) as runner:
        failures = runner.run_all(list(book.runnable(names or None)), keep, "recording again")
    return results, [str(failure) for failure in failures]


def _verify(book: Book, options) -> int:
    names = _runnable(book, options.names)
    report = verify(book, names or None, options.quick, lambda text: print(text, file=sys.stderr, flush=True))
    if options.json:
        print(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _print(*as_text(report))
    return int(options.strict and is_off(report))
