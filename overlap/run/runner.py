"""Runs snippets in workers, one at a time or side by side, and records what they gave."""

import contextlib
import json
import math
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

from overlap import OverlapError
from overlap.run import hardware, noise, recording, worker
from overlap.run.progress import Expected, Item, Progress
from overlap.run.snippet import Snippet
from overlap.run.text import plural
from overlap.run.worker import Job, Outcome

#: The line of a traceback that names an error; what a snippet asserts is its own.
_ERROR = re.compile(r"^ *(?!AssertionError)([\w.]*(?:Error|Exception): .+)", re.M)


class RunFailed(OverlapError):
    """A snippet that raised, ran past its limit or was killed; the message has its last lines.

    `path` is the snippet's; `reason` is one line, empty where other snippets cannot fail for the same.
    """

    def __init__(self, message: str, path: str = "", reason: str = ""):
        super().__init__(message)
        self.path = path
        self.reason = reason


def grouped(failures: list[RunFailed]) -> list[str]:
    """The messages of failures; where several have one reason, the first message names the others."""
    by_reason: dict[str, list[RunFailed]] = {}
    for failure in failures:
        by_reason.setdefault(failure.reason or str(failure), []).append(failure)
    texts = []
    for first, *others in by_reason.values():
        texts.append(str(first))
        if others:
            more = f" and {len(others) - 4} more" if others[4:] else ""
            names = ", ".join(failure.path for failure in others[:4])
            texts[-1] += f"\n  The same reason: {names}{more}"
    return texts


class Interrupted(OverlapError):
    """The runner was closed, so that this run ended or never began."""


def ranks(snippet: Snippet, gpus: int) -> int:
    """How many processes a run has: under torchrun one per GPU, or on the CPU as many as the header says."""
    if snippet.options["launcher"] != "torchrun":
        return 1
    return gpus or snippet.options["ranks"]


def command(snippet: Snippet, file: str, gpus: int | None = None) -> str:
    """What a reader types to run `file`: with `gpus` GPUs, or on whatever machine the reader has."""
    if snippet.options["launcher"] != "torchrun":
        return f"python {file}"
    if gpus is None and 0 not in snippet.options["gpus"]:
        return f"torchrun --nproc-per-node gpu {file}"
    return f"torchrun --nproc-per-node {ranks(snippet, gpus or 0)} {file}"


class Runner:
    """Runs snippets until it is closed, which ends those that still run.

    The recording of a measurement says how busy the host was; with `watchful`, also what a small call costs.
    """

    def __init__(self, root: Path, watchful: bool = False):
        self.root = root
        self._watchful = watchful and worker.PRELOADS  # a look at the host must not take seconds
        self._least_us: float | None = None
        self._probes: dict[int, dict] = {}
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def close(self) -> None:
        """End whatever runs; nothing more will run."""
        with self._lock:
            self._is_closed = True
            for connection in self._connections:
                with contextlib.suppress(ConnectionError):  # it has just ended
                    connection.send("stop")

    def run_all(
        self,
        wanted: list[Item],
        done: Callable[[Snippet, int, dict], None] = lambda snippet, gpus, recording: None,
        expected: Expected = lambda item: 1.0,
    ) -> list[RunFailed]:
        """Run many: measurements one at a time, the rest side by side; `done` takes each recording.

        `expected` tells how long each may take, for the time that is left. Failures are returned after all
        had their turn.
        """
        failures = []
        for gpus in sorted({gpus for _, gpus in wanted}):
            self.probe(gpus)
        alone = [item for item in wanted if item[0].options["exclusive"]]
        workers = max(2, min(8, os.cpu_count() // 2))
        progress = Progress(wanted, expected)
        with ThreadPoolExecutor(workers) as pool:

            def run(item: Item) -> None:
                seconds = None
                try:
                    data = self.run(*item)
                    done(*item, data)
                    seconds = data["run"]["seconds"]
                except RunFailed as error:
                    snippet, gpus = item
                    typed = f"PYTHONPATH=. {command(snippet, snippet.path, gpus)}"
                    failures.append(
                        RunFailed(f"{error}\n  Run it alone: {typed}", snippet.path, error.reason)
                    )
                progress.ended(item, seconds)

            try:
                futures = [pool.submit(run, item) for item in wanted if item not in alone]
                for future in as_completed(futures):
                    future.result()
                for item in alone:
                    run(item)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.close()
                raise
        return failures

    def run(self, snippet: Snippet, gpus: int) -> dict:
        """Run a snippet with `gpus` visible GPUs (0: the CPU alone) and return its recording."""
        if not snippet.options["exclusive"]:
            return recording.sealed(self._recording(snippet, gpus)[0])
        if self._watchful and self._least_us is None:
            self._least_us = min(self._dispatch_us() for _ in range(5))
        data, busyness = noise.during(lambda: self._recording(snippet, gpus))
        if self._least_us is not None:
            busyness["least_us"] = self._least_us
        data["run"]["noise"] = busyness
        return recording.sealed(data)

    def _recording(self, snippet: Snippet, gpus: int) -> tuple[dict, float]:
        """A recording without its digest, and the seconds of CPU time that the run took."""
        here = self.probe(gpus)
        visible = len(here["machine"]["gpus"])
        if visible != gpus:
            torch = f"torch {here['software']['torch']} sees {visible}"
            remedy = "install a torch that fits the driver, or ask for fewer"
            reason = f"asked for {plural(gpus, 'GPU')}, and {torch}; {remedy}"
            raise RunFailed(f"{snippet.path}: {reason}", snippet.path, reason)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        writers = ["main"]
        count = 0
        if snippet.options["launcher"] == "torchrun":
            count = ranks(snippet, gpus)
            writers = [str(rank) for rank in range(count)]
        path = str(self.root / snippet.path)
        outcome = self._call(snippet.options["timeout"], gpus, path=path, ranks=count)
        result = None
        if outcome.exit == 0:
            result = json.loads(outcome.result or "null")
        if not isinstance(result, dict):
            raise _failure(snippet, gpus, outcome)
        data = {
            "schema": recording.SCHEMA,
            "snippet": snippet.name,
            hardware.MACHINE: recording.machine_of(self.root, here["machine"]),
            "source": {"path": snippet.path, "sha256": snippet.digest},
            "inputs": snippet.input_digests,
            "run": {
                "command": command(snippet, snippet.path, gpus),
                "started": started,
                "seconds": outcome.seconds,
                "exit": 0,
            },
            **here,
            "outputs": self._outputs(outcome, writers),
            "result": result,
        }
        return data, outcome.cpu_s

    def _outputs(self, outcome: Outcome, writers: list[str]) -> list[dict]:
        """nbformat stream objects, with the rank that wrote them and without this machine's folders."""
        outputs = []
        for rank, writer in enumerate(writers):
            for stream in ("stdout", "stderr"):
                text = outcome.outputs.get(f"{writer}.{stream}", "").replace(f"{self.root}/", "")
                text = text.replace(f"{outcome.folder}/cwd", ".").replace(outcome.folder, ".")
                lines = text.splitlines(keepends=True)
                if lines:
                    outputs.append({"output_type": "stream", "name": stream, "text": lines, "rank": rank})
        return outputs

    def probe(self, gpus: int) -> dict:
        """`machine` and `software` of a recording made with this many GPUs visible."""
        if gpus not in self._probes:
            self._probes[gpus] = self._ask(hardware.probe, gpus)
        return self._probes[gpus]

    def free_gib(self) -> float:
        """GiB that a process can have on the first GPU; without limit where that cannot be asked."""
        try:
            return self._ask(hardware.free_gib, 1)
        except Interrupted:
            raise
        except OverlapError:  # what is wrong there, the snippets will say
            return math.inf

    def _dispatch_us(self) -> float:
        return self._ask(noise.dispatch_us, 0)

    def _ask(self, function: Callable[[], object], gpus: int) -> object:
        """What a function returns in a worker."""
        outcome = self._call(120, gpus, function=function)
        if outcome.exit != 0:
            raise OverlapError(
                f"{function.__name__}() {_why(outcome)}. Its last lines:\n{_last_lines(outcome)}"
            )
        return json.loads(outcome.result)

    def _call(self, timeout: float, gpus: int, **what) -> Outcome:
        """Do a job to its end; nothing that it started is left then. What it is to do, `Job` says."""
        job = Job(str(self.root), _environment(self.root, gpus), timeout, **what)
        with self._lock:
            if self._is_closed:
                raise Interrupted("interrupted")
            connection = worker.SERVER.begin(job)
            self._connections.add(connection)
        try:
            outcome = connection.recv()
        except (EOFError, ConnectionError):
            outcome = Outcome("lost")
        finally:
            with self._lock:
                self._connections.remove(connection)
                connection.close()
        if outcome.end == "stopped":
            raise Interrupted("interrupted")
        return outcome


def _environment(root: Path, gpus: int) -> dict[str, str]:
    return os.environ | {
        "CUDA_VISIBLE_DEVICES": hardware.visible_devices(gpus) if gpus else "",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order of nvidia-smi
        "PYTHONPATH": worker.python_path(str(root)),  # for children of the snippet, and for ranks
        "PYTHONUNBUFFERED": "1",
        "MPLBACKEND": "Agg",
    }


def _failure(snippet: Snippet, gpus: int, outcome: Outcome) -> RunFailed:
    """The error of a snippet that gave no result."""
    where = f"with {gpus} GPU(s)" if gpus else "on the CPU"
    printed = _last_lines(outcome)
    errors = []
    if outcome.end == "exit":
        errors = _ERROR.findall(printed)
    message = f"{snippet.path} {_why(outcome, snippet)}, {where}. Its last lines:\n{printed}"
    return RunFailed(message, snippet.path, errors[-1] if errors else "")


def _why(outcome: Outcome, snippet: Snippet | None = None) -> str:
    """How a job failed."""
    if outcome.end == "timeout" and snippet:
        limit = snippet.options["timeout"]
        remedy = f"if it needs longer, raise `timeout = {limit}` in its header"
        return f"still ran after {limit} s and was stopped ({remedy})"
    if outcome.end != "exit":
        return "ended without an answer"
    if outcome.exit < 0:
        return f"was killed by signal {-outcome.exit}"
    if outcome.exit:
        return f"failed with exit code {outcome.exit}"
    return "returned no dict from main()"


def _last_lines(outcome: Outcome) -> str:
    """The last lines of each writer, stderr last; of several writers each line says whose it is."""
    writers = sorted({name.partition(".")[0] for name in outcome.outputs})
    count = 16 if len(writers) == 1 else 8
    lines = []
    for writer in writers:
        prefix = "    "
        if len(writers) > 1:
            prefix += "torchrun: " if writer == "main" else f"rank {writer}: "
        text = outcome.outputs.get(f"{writer}.stdout", "") + outcome.outputs.get(f"{writer}.stderr", "")
        lines += [prefix + line[:300] for line in text.splitlines()[-count:]]
    return "\n".join(lines) or "    (it printed nothing)"
