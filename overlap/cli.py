"""The command line; see `overlap --help`. It needs torch and numpy, not MkDocs."""

import argparse
import difflib
import json
import os
import signal
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from overlap import OverlapError, __version__, find_root
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.book.library import SECONDS
from overlap.commands import compare, mine, record
from overlap.commands.check import check, findings
from overlap.commands.report import as_text, is_off
from overlap.commands.verify import verify
from overlap.run import hardware, recording
from overlap.run.recording import Bundle
from overlap.run.runner import RunFailed, Runner, grouped
from overlap.run.text import aligned, plain, plural
from overlap.site import machines
from overlap.site.pictures import Pictures

#: What `overlap list` calls the grades of recordings: their words would not fit a terminal.
_GRADES = {
    "FRESH": recording.FRESH,
    "CODE": recording.CODE,
    "SOFTWARE": recording.ENVIRONMENT,
    "OTHER": recording.OTHER,
}


def main(arguments: list[str] | None = None, root: Path | None = None) -> int:
    """Run one command on the book at `root`, else on that of the working directory; return the exit code."""
    signal.signal(signal.SIGTERM, _stop)
    sys.stdout.reconfigure(errors="replace")
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    try:
        root = root or find_root()
        _refuse_in_a_copy(root, options)
        if options.measures:
            _refuse_without_torch()
        code = options.command(Book(root), options)
        sys.stdout.flush()
        return code
    except OverlapError as error:
        print(plain(f"overlap: {error}"), file=sys.stderr)
        return 1
    except BrokenPipeError:  # `overlap list | head` has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        print(f"overlap: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print("overlap: interrupted", file=sys.stderr)
        return 128 + (stop.args or (signal.SIGINT,))[0]


def _refuse_in_a_copy(root: Path, options: argparse.Namespace) -> None:
    """The book within `overlap.pyz` stays as it is: it measures and compares."""
    if not (root / SECONDS).exists():
        return
    if options.command is _record and not options.bundle:
        reason = "this copy of the book stays as it is"
        raise OverlapError(f"{reason}; record with --bundle FILE, and import that file in a checkout")
    if options.needs_checkout:
        raise OverlapError("this is a copy of the book to measure with; that command needs a checkout")


def _refuse_without_torch() -> None:
    if not find_spec("torch"):
        reason = f"{sys.executable}: this Python has no PyTorch, which is what is measured"
        raise OverlapError(f"{reason}; https://pytorch.org/get-started/locally/ says how to install it")


def _stop(number: int, frame) -> None:
    """End a command by SIGTERM as by Ctrl-C."""
    signal.signal(number, signal.SIG_IGN)  # a second one does not disturb its tidying up
    raise KeyboardInterrupt(number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="overlap",
        description="Run the book's snippets and keep what they gave.",
        epilog="Commands work on a book: in a checkout, or in overlap.pyz, which has one to measure with.",
    )
    parser.add_argument("--version", action="version", version=f"overlap {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", help="each has a --help of its own")

    def add(
        name: str, command: Callable, text: str, names=True, measures=False, needs_checkout=False
    ) -> argparse.ArgumentParser:
        """A command; it may take `names` of snippets, measure with torch, and work in no `overlap.pyz`."""
        sub = commands.add_parser(name, help=text, description=text)
        if names:
            text = "chapter/snippet, or a chapter; default: all"
            sub.add_argument("names", nargs="*", metavar="NAME", help=text)
        sub.set_defaults(command=command, measures=measures, needs_checkout=needs_checkout)
        return sub

    sub = add("list", _list, "what there is, what it needs, how fresh its recordings are")
    sub.epilog = "FRESH counts the recordings that this machine would make so again; CODE and SOFTWARE those "
    sub.epilog += "of this machine for which that has changed since; OTHER those of other machines."
    sub.add_argument("--here", action="store_true", help="only what this machine can run")

    text = "run what this machine can into its cache; with names, even what is cached"
    add("run", _run, text, measures=True)

    text = "run and write recordings; without names, what is not fresh for this machine"
    sub = add("record", _record, text, measures=True)
    text = "append the recordings to one portable file instead, but not what it has already"
    sub.add_argument("--bundle", metavar="FILE", type=Path, help=text)
    sub.add_argument("--gpus", metavar="N,N", type=_counts, help="only these GPU counts; 0 is the CPU")
    text = "let each measurement have this many runs; default: what pyproject.toml wants of this machine; "
    text += "with names and no --bundle one more"
    sub.add_argument("--runs", metavar="N", type=int, choices=range(1, recording.MOST_RUNS + 1), help=text)

    text = "take the recordings of a bundle, or of mine.json, into docs/recordings"
    sub = add("import", _import, text, names=False, needs_checkout=True)
    sub.add_argument("file", type=Path)

    text = "write docs/ with all that was recorded in its pages, for a builder other than MkDocs"
    sub = add("build", _build, text, names=False, needs_checkout=True)
    sub.add_argument("folder", metavar="DIR", type=Path, help="a new folder, or an empty one")

    text = "freshness and claims of the committed book; non-zero with reasons"
    sub = add("check", _check, text, names=False, needs_checkout=True)
    text = "also which claims do not hold, or barely, on machines that are not the book's own"
    sub.add_argument("--all", action="store_true", help=text)

    add("compare", _compare, "this machine's numbers beside the recorded ones, with ratios")

    text = "measure now, and say what is low here, which claims hold, what explains it"
    sub = add("verify", _verify, text, measures=True)
    much = sub.add_mutually_exclusive_group()
    much.add_argument("--quick", action="store_true", help="headline rates only, in less than a minute")
    text = f"keep all that runs in {mine.NAME}, which the site takes, and go on where that file ends"
    much.add_argument("--all", action="store_true", help=text)
    text = "all of it as JSON; overlap/commands/verify.py says which keys"
    sub.add_argument("--json", action="store_true", help=text)
    text = "exit with 1 if a rate is LOW, a claim false, or a run failed"
    sub.add_argument("--strict", action="store_true", help=text)
    return parser


def _counts(text: str) -> set[int]:
    try:
        return {int(count) for count in text.split(",")}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of GPU counts, as in 0,1") from None


# What several commands share


def _print(*lines: str) -> None:
    """Print text that may come from recordings or snippets."""
    for line in lines:
        print(plain(line))


def _names(book: Book, typed: list[str]) -> list[str]:
    """Snippet names for what was typed; a chapter stands for all its snippets, nothing for nothing."""
    names = []
    for text in typed:
        wanted = text.removeprefix("snippets/").removesuffix(".py").strip("/")
        matches = [name for name in book.snippets if wanted in (name, name.split("/")[0])]
        if not matches:
            chapters = {name.split("/")[0] for name in book.snippets}
            near = difflib.get_close_matches(wanted, [*chapters, *book.snippets], 1)
            remedy = f"did you mean {near[0]}?" if near else "`overlap list` shows what there is"
            raise OverlapError(f"{text}: no such chapter or snippet; {remedy}")
        names += [name for name in matches if name not in names]
    return names


def _lacking(book: Book, names: list[str]) -> str:
    """What these snippets need that this machine has not."""
    needs = [f"{name} {book.snippets[name].requirement}" for name in names]
    return f"{textwrap.shorten('; '.join(needs), 300)}; this machine has {hardware.described()}"


def _runnable(book: Book, typed: list[str]) -> list[str]:
    """The names that were typed, of which this machine can run some."""
    names = _names(book, typed)
    if names and not list(book.local.runnable(names)):
        raise OverlapError(_lacking(book, names))
    return names


# Commands


def _list(book: Book, options) -> int:
    here = {snippet.name for snippet, _ in book.local.runnable()}
    rows = [("SNIPPET", "GPUS", *_GRADES)]
    for name in _names(book, options.names) or book.snippets:
        if name in here or not options.here:
            counts = ",".join(map(str, book.snippets[name].options["gpus"]))
            grades = Counter(known.grade for known in book.committed.get(name, {}).values())
            rows.append((name, counts, *(str(grades[grade] or "-") for grade in _GRADES.values())))
    _print(*aligned(rows))
    return 0


def _run(book: Book, options) -> int:
    names = _runnable(book, options.names)
    count = plural(book.run(names or None, force=bool(names)), "run")
    if not names:
        count += "; what had run before was left alone"
    _print(count)
    for name in names:
        for local in book.local.of(name).values():
            text = "".join("".join(output["text"]) for output in local.data["outputs"])
            _print("", f"{name} on {hardware.label(local.machine)}", text.removesuffix("\n"))
    return 0


def _record(book: Book, options) -> int:
    names = _names(book, options.names)
    items = list(book.local.runnable(names or None))
    if options.gpus is not None:
        items = [(snippet, gpus) for snippet, gpus in items if gpus in options.gpus]
    able = {snippet.name for snippet, _ in items}
    unable = [name for name in names or book.snippets if name not in able]
    if not items:
        raise OverlapError(_lacking(book, unable))
    if names and unable:
        _print(_lacking(book, unable))
    bundle = Bundle(options.bundle) if options.bundle else None
    recorder = record.Recorder(book, bundle, _print)
    lacking = {item: recorder.lacking_runs(item, options.runs, bool(names)) for item in items}
    wanted = record.round_robin(lacking)
    failures = []
    try:
        with Runner(book.root, watchful=True) as runner:
            failures = runner.run_all(wanted, recorder.keep)
    finally:
        left = sum(runs == 0 for runs in lacking.values())
        _print(*grouped(failures))
        _print(
            f"{recorder.count} of {len(wanted)} recorded, {len(failures)} failed; {left} were fresh already"
        )
        _print(*recorder.remarks())
    return int(bool(failures))


def _import(book: Book, options) -> int:
    before = record.verdicts(book.root)
    taken = []
    problems = []
    for where, line in mine.lines(options.file):
        try:
            taken.append(record.take(book, line, where))
        except OverlapError as error:
            problems.append(f"{where}: {str(error).removeprefix(f'{where}: ')}")
    turned = record.turned(before, record.verdicts(book.root))
    same = sum(line.startswith("unchanged:") for line in taken)
    count = f"{len(taken) - same} imported, {len(problems)} refused"
    if same:
        count += f", {same} unchanged"
    _print(*taken, *turned, *problems, count)
    return int(bool(problems) or not taken)


def _build(book: Book, options) -> int:
    try:
        from overlap.site.build import prepare
        from overlap.site.folder import refuse, write
        from overlap.site.navigation import read_nav, titles
        from overlap.site.view import Site
    except ModuleNotFoundError as error:
        reason = f"pages need more than recording does: {error.name} is not installed"
        raise OverlapError(f"{reason}; `pip install -e '.[site]'`") from None
    book = Book(book.root, os.environ.get("OVERLAP_EXECUTE") or "auto")
    refuse(book.docs, options.folder)
    pages = Pages(book)
    site = Site(pages, Pictures(book, pages.pictures_in_chinese), titles=titles(read_nav(book.root)))
    ran = prepare(site)
    count = plural(write(site, options.folder), "page")
    _print(
        f"{plural(ran, 'run')} made; {count} in {options.folder}, which any builder can take as its docs_dir"
    )
    return 0


def _check(book: Book, options) -> int:
    pages = Pages(book)
    problems = [*check(pages), *Pictures(book, pages.pictures_in_chinese).problems()]
    _print(*problems or [f"{len(book.snippets)} snippets, {len(pages.claims)} claims: all in order"])
    _print(*findings(pages, options.all))
    return int(bool(problems))


def _compare(book: Book, options) -> int:
    names = _names(book, options.names)
    failed = None
    try:
        book.run(names or None)
    except RunFailed as error:  # the others are compared all the same
        failed = error
    rows = [("SNIPPET", "VALUE", "HERE", "RECORDED", "RATIO")]
    for name, machine, other, key, ours, theirs in compare.compared(book, names or None):
        ratio = f"{ours / theirs:.2f}" if theirs else "–"
        rows.append((f"{name} ({machine} : {other})", key, f"{ours:.4g}", f"{theirs:.4g}", ratio))
    if len(rows) > 1:
        _print(*aligned(rows))
    else:
        _print("No number differs, or no recording has as many GPUs as a run of this machine")
    if failed:
        raise failed
    return 0


def _tell(text: str) -> None:
    """Say on stderr what goes on."""
    print(text, file=sys.stderr, flush=True)


def _shown(now: Pages, machine: str) -> dict:
    """What pages show of this machine."""
    return machines.shown(now, Pictures(now.book, now.pictures_in_chinese), machine, machines.YOUR)


def _verify(book: Book, options) -> int:
    names = _runnable(book, options.names)
    pages = Pages(book)
    file = None
    if options.all:
        file = mine.Mine(pages, Path.cwd() / mine.NAME)
    try:
        report = verify(pages, names or None, options.quick, _tell, file)
    except KeyboardInterrupt:
        if file:
            file.finish(_shown)
            _tell(f"{len(file.all_recordings)} runs are in {mine.NAME}; the same command goes on from there")
        raise
    if file:
        file.finish(_shown)
        _tell(f"{mine.NAME} is whole: drop it on the page Check your GPU, and the book shows this machine")
    if options.json:
        print(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _print(*as_text(report))
    return int(options.strict and is_off(report))
