"""The command line; see `overlap --help`. It needs torch and numpy, not MkDocs."""

import argparse
import json
import sys
from pathlib import Path

from overlap import OverlapError, find_root
from overlap.book.book import Book
from overlap.run import machine, recording
from overlap.run.runner import Runner


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        root = find_root()
        return options.command(Book(root), options)
    except OverlapError as error:
        print(f"overlap: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="overlap", description="Run the book's snippets and keep what they gave.")
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
    text = "append the recordings to one portable file instead of docs/recordings"
    record.add_argument("--bundle", metavar="FILE", type=Path, help=text)
    record.add_argument("--gpus", metavar="N,N", type=_counts, help="only these GPU counts; 0 is the CPU")
    taking = add("import", _import, "take the recordings of a bundle into docs/recordings", names=False)
    taking.add_argument("file", type=Path)
    add("check", _check, "freshness and claims of the committed book; non-zero with reasons", names=False)
    add("compare", _compare, "this machine's numbers beside the recorded ones, with ratios")
    return parser


def _counts(text: str) -> set[int]:
    return {int(part) for part in text.split(",")}


def _names(book: Book, names: list[str]) -> list[str] | None:
    """Snippet names for what was typed; a chapter stands for all its snippets."""
    found = []
    for name in names:
        name = name.removeprefix("snippets/").removesuffix(".py").strip("/")
        found += [n for n in book.snippets if n.split("/")[0] == name] or [book.snippet(name).name]
    return found or None


def _list(book: Book, options) -> int:
    rows = [("SNIPPET", "GPUS", "RECORDED", "SUMMARY")]
    for name in _names(book, options.names) or book.snippets:
        snippet, runs = book.snippets[name], book.committed.get(name, {})
        grades = ", ".join(f"{profile} ({runs[profile].grade})" for profile in sorted(runs, key=machine.order))
        rows.append((name, ",".join(map(str, snippet.options["gpus"])), grades or "nothing", snippet.summary))
    _print_table(rows)
    return 0


def _run(book: Book, options) -> int:
    ran = book.run(_names(book, options.names), force=bool(options.names))
    print(f"{ran} runs" if options.names else f"{ran} runs; what had run before was left alone")
    for name in _names(book, options.names) or ():
        for run in book.live(name).values():
            text = "".join(line for output in run.data["outputs"] for line in output["text"])
            print(f"\n{name} on {machine.label(run.profile)}\n{text}", end="")
    return 0


def _record(book: Book, options) -> int:
    names = _names(book, options.names)

    def is_fresh(snippet, gpus) -> bool:
        run = book.committed.get(snippet.name, {}).get(machine.profile(machine.here()["gpus"][:gpus]))
        return run is not None and run.grade == recording.FRESH

    able = [item for item in book.runnable(names) if options.gpus is None or item[1] in options.gpus]
    wanted = [item for item in able if names or not is_fresh(*item)]
    written = []

    def keep(snippet, gpus, data) -> None:
        if options.bundle:
            with open(options.bundle, "a", encoding="utf-8") as file:
                file.write(json.dumps(data, sort_keys=True) + "\n")
        else:
            recording.write(book.recordings / data["profile"] / f"{snippet.name}.json", recording.dump(data))
        written.append(f"{snippet.name} on {data['profile']}: {data['run']['seconds']:.1f} s")

    with Runner(book.root) as runner:
        failures = runner.run_all(wanted, keep, "recording")
    print("\n".join(written + [str(error) for error in failures]))
    print(f"{len(written)} recorded, {len(failures)} failed, {len(able) - len(wanted)} left as they were")
    return int(bool(failures))


def _import(book: Book, options) -> int:
    try:
        lines = options.file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OverlapError(f"{options.file}: cannot be read ({error}); copy it here again") from None
    problems = []
    for number, line in enumerate(lines, 1):
        try:
            data = recording.parse(line, "this line")
            snippet = book.snippet(data["snippet"])
            if recording.digest(data) != data["digest"]:
                raise OverlapError("its digest does not match its content; record it again")
            if recording.grade(data, snippet, machine.here(), set()) == recording.CODE:
                raise OverlapError(f"{snippet.path} has changed since it was recorded; record it again")
            if machine.profile([gpu["name"] for gpu in data["machine"]["gpus"]]) != data["profile"]:
                raise OverlapError(f"{data['profile']!r} is not the machine it describes; record it again")
            recording.write(book.recordings / data["profile"] / f"{snippet.name}.json", recording.dump(data))
        except OverlapError as error:
            problems.append(f"{options.file}:{number}: {error}")
    print("\n".join([*problems, f"{len(lines) - len(problems)} imported, {len(problems)} refused"]))
    return int(bool(problems) or not lines)


def _check(book: Book, options) -> int:
    problems = book.check()
    in_order = f"{len(book.snippets)} snippets, {len(book.claims)} claims: all in order"
    print("\n".join(problems) or in_order)
    return int(bool(problems))


def _compare(book: Book, options) -> int:
    names = _names(book, options.names)
    book.run(names)
    rows = [("SNIPPET", "VALUE", "HERE", "RECORDED", "RATIO")]
    for name in names or book.snippets:
        for profile, run in book.live(name).items():
            for other_profile, other in book.committed.get(name, {}).items():
                mine, theirs = dict(_numbers(run.result)), dict(_numbers(other.result))
                for key in mine if other.gpus == run.gpus else ():
                    if key in theirs:
                        ratio = f"{mine[key] / theirs[key]:.2f}" if theirs[key] else "–"
                        label = f"{name} ({profile} : {other_profile})"
                        rows.append((label, key, f"{mine[key]:.4g}", f"{theirs[key]:.4g}", ratio))
    if len(rows) == 1:
        raise OverlapError("nothing to compare: no recording has as many GPUs as a run of this machine")
    _print_table(rows)
    return 0


def _numbers(result, prefix: str = ""):
    """(dotted key, number) of everything measured, raw trials left out."""
    for key, value in result.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{key}", value


def _print_table(rows: list[tuple]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
