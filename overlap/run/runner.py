"""Runs snippets as jobs of the fork server, one at a time or side by side, and records what they gave."""

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path

from overlap import OverlapError
from overlap.run import machine, worker
from overlap.run.noise import Watch
from overlap.run.progress import Item, progress
from overlap.run.recording import SCHEMA, sealed
from overlap.run.snippet import Snippet
from overlap.run.worker import Outcome


class RunFailed(OverlapError):
    """A snippet that raised, ran past its limit or was killed; the message has its last lines."""


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
    """Runs jobs; as a context manager it ends those that still run where it is left.

    With `watchful`, a measurement waits for a calm host, is repeated once where it was disturbed, and says
    how busy the host was.
    """

    #: Seconds that all this waiting and repeating may take; None is what `overlap.run.noise` says.
    patience_s: float | None = None

    def __init__(self, root: Path, watchful: bool = False):
        self.root = root
        self._watchful = watchful and worker.PRELOADS  # a look at the host must not take seconds
        self._watch: Watch | None = None
        self._probes: dict[int, dict] = {}
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def start(self) -> None:
        """Begin to import what snippets need, while there is something else to do."""
        if not self._is_closed:
            worker.SERVER.start()

    def close(self) -> None:
        """End whatever runs; nothing more will run."""
        with self._lock:
            self._is_closed = True
            for connection in self._connections:
                connection.shutdown(socket.SHUT_WR)

    def run_all(
        self,
        wanted: list[Item],
        done: Callable[[Snippet, int, dict], None] = lambda snippet, gpus, recording: None,
        label: str = "running",
        failures: list[OverlapError] | None = None,
    ) -> list[OverlapError]:
        """Run many: measurements one at a time, the rest side by side; `done` takes each recording.

        Failures are returned after all had their turn. A list that is handed in has them also where this is
        interrupted.
        """
        failures = [] if failures is None else failures
        self.start()

        def run_one(item: Item) -> float | None:
            try:
                recording = self.run(*item)
                done(*item, recording)
                return recording["run"]["seconds"]
            except RunFailed as error:
                again = f"overlap run {item[0].name}"
                if len(wanted) == 1:
                    again = f"PYTHONPATH=. {command(item[0], item[0].path, item[1])}"
                failures.append(RunFailed(f"{error}\n  Run it alone: {again}"))
            except OverlapError as error:
                failures.append(error)
            return None

        for gpus in sorted({gpus for _, gpus in wanted}):
            self.probe(gpus)
        with progress(self.root, wanted, label) as bar, self._pool() as pool:
            futures = {
                pool.submit(run_one, item): item for item in wanted if not item[0].options["exclusive"]
            }
            for future in as_completed(futures):
                bar.ended(futures[future], future.result())
            for item in wanted:
                if item[0].options["exclusive"]:
                    bar.begun(item)
                    bar.ended(item, run_one(item))
        return failures

    @contextlib.contextmanager
    def _pool(self) -> Iterator[ThreadPoolExecutor]:
        """Threads for runs side by side; where this is left by an error, what runs is ended."""
        pool = ThreadPoolExecutor(max(2, min(8, os.cpu_count() // 2)))
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            self.close()
            raise
        finally:
            pool.shutdown()

    def run(self, snippet: Snippet, gpus: int) -> dict:
        """Run a snippet with `gpus` visible GPUs (0: the CPU alone) and return its recording."""
        if not (self._watchful and snippet.options["exclusive"]):
            return sealed(self._recording(snippet, gpus))
        if self._watch is None:
            self._watch = Watch(self._dispatch_us, self.patience_s)
        recording, noise = self._watch.around(lambda: self._recording(snippet, gpus))
        recording["run"]["noise"] = noise
        return sealed(recording)

    def _recording(self, snippet: Snippet, gpus: int) -> dict:
        here = self.probe(gpus)
        visible = len(here["machine"]["gpus"])
        if visible != gpus:
            remedy = "install a torch that fits the driver, or ask for fewer"
            torch = f"torch {here['software']['torch']} sees {visible}"
            raise OverlapError(f"{snippet.path}: asked for {gpus} GPU(s), and {torch}; {remedy}")
        started = datetime.now(UTC).isoformat(timespec="seconds")
        result, outputs, seconds = self._run(snippet, gpus)
        return {
            "schema": SCHEMA,
            "snippet": snippet.name,
            "profile": machine.profile([gpu["name"] for gpu in here["machine"]["gpus"]]),
            "source": {"path": snippet.path, "sha256": snippet.hash},
            "inputs": snippet.input_hashes,
            "run": {
                "command": command(snippet, snippet.path, gpus),
                "started": started,
                "seconds": seconds,
                "exit": 0,
            },
            **here,
            "outputs": outputs,
            "result": result,
        }

    def _run(self, snippet: Snippet, gpus: int) -> tuple[dict, list[dict], float]:
        """Result, outputs and seconds of one run; a failure is an error."""
        arguments = {"path": str(self.root / snippet.path)}
        writers = ["main"]
        if snippet.options["launcher"] == "torchrun":
            count = ranks(snippet, gpus)
            outcome = self._job(snippet.options["timeout"], gpus, torchrun=count, arguments=arguments)
            writers = [str(rank) for rank in range(count)]
        else:
            function = "overlap.run.worker:run_snippet"
            outcome = self._job(snippet.options["timeout"], gpus, function=function, arguments=arguments)
        outputs = self._outputs(outcome, writers)
        result = _result(outcome)
        if not isinstance(result, dict):
            raise RunFailed(_failure(snippet, gpus, outcome, outputs))
        return result, outputs, outcome.seconds

    def _outputs(self, outcome: Outcome, writers: list[str]) -> list[dict]:
        """nbformat stream objects, with the rank that wrote them and without this machine's folders."""
        outputs = []
        for rank, writer in enumerate(writers):
            for stream in ("stdout", "stderr"):
                text = outcome.outputs.get(f"{writer}.{stream}", "").replace(f"{self.root}/", "")
                if outcome.folder:
                    text = text.replace(f"{outcome.folder}/cwd", ".").replace(outcome.folder, ".")
                lines = text.splitlines(keepends=True)
                if lines:
                    outputs.append({"output_type": "stream", "name": stream, "text": lines, "rank": rank})
        return outputs

    def probe(self, gpus: int) -> dict:
        """`machine` and `software` of a recording made with this many GPUs visible."""
        if gpus not in self._probes:
            self._probes[gpus] = self._ask("overlap.run.machine:probe", 120, gpus)
        return self._probes[gpus]

    def _dispatch_us(self) -> float:
        return self._ask("overlap.run.noise:dispatch_us", 60, 0)

    def _ask(self, function: str, timeout: float, gpus: int) -> object:
        """What `function`, as in `package.module:name`, returns in a worker."""
        outcome = self._job(timeout, gpus, function=function, arguments={})
        answer = _result(outcome)
        if answer is None:
            printed = outcome.outputs.get("main.stderr") or outcome.outputs.get("main.stdout", "")
            raise RunFailed(f"{function} {_why(outcome, 'gave nothing')}. Its last lines:\n{_last(printed)}")
        return answer

    def _job(self, timeout: float, gpus: int, **job) -> Outcome:
        """Run one job to its end; nothing that it started is left then (see `overlap.run.worker`)."""
        job |= {"root": str(self.root), "timeout": timeout, "env": _environment(self.root, gpus)}
        with self._lock:
            if self._is_closed:
                raise OverlapError("stopped")
            connection = worker.SERVER.connect()
            self._connections.add(connection)
        answer = b""
        try:
            with contextlib.suppress(ConnectionError), connection.makefile("rb") as lines:
                connection.sendall(json.dumps(job).encode() + b"\n")
                answer = lines.read()
        finally:
            with self._lock:
                self._connections.remove(connection)
            connection.close()
        if answer:
            return Outcome(**json.loads(answer))
        death = worker.SERVER.death()
        if death:
            raise OverlapError(f"nothing can be run: {death}; what it says above is the reason")
        return Outcome("killed")


def _environment(root: Path, gpus: int) -> dict[str, str]:
    package = Path(__file__).resolve().parents[2]  # for children of the snippet, and for ranks
    path = os.pathsep.join(filter(None, [str(root), str(package), os.environ.get("PYTHONPATH")]))
    return os.environ | {
        "CUDA_VISIBLE_DEVICES": machine.visible_devices(gpus) if gpus else "",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order of nvidia-smi
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "MPLBACKEND": "Agg",
    }


def _result(outcome: Outcome) -> object:
    """What a job returned; None if it failed, or if its result is gone or half written."""
    if outcome.exit != 0:
        return None
    try:
        return json.loads(outcome.result)
    except ValueError:
        return None


def _failure(snippet: Snippet, gpus: int, outcome: Outcome, outputs: list[dict]) -> str:
    where = f"with {gpus} GPU(s)" if gpus else "on the CPU"
    last = [_last(_printed(outputs) or outcome.outputs.get("main.stderr", ""))]
    blamed = _blamed(snippet, gpus, outcome)
    if blamed:
        where = f"in rank {' and '.join(map(str, blamed))}, {where}"
        last = [
            _last(_printed([o for o in outputs if o["rank"] == rank]), f"rank {rank}: ") for rank in blamed
        ]
    limit = snippet.options["timeout"]
    remedy = f"if it needs longer, raise `timeout = {limit}` in its header"
    late = f"still ran after {limit} s and was stopped ({remedy})"
    why = _why(outcome, "returned no dict from main()", late)
    return f"{snippet.path} {why}, {where}. Its last lines:\n" + "\n".join(last)


def _blamed(snippet: Snippet, gpus: int, outcome: Outcome) -> list[int]:
    """Ranks that still ran at the limit, or the first that failed: then its exit code counts."""
    if snippet.options["launcher"] != "torchrun":
        return []
    if outcome.end == "timeout":
        return sorted(set(range(ranks(snippet, gpus))) - set(outcome.ended_ranks))
    said = outcome.outputs.get("main.stderr", "")
    cause = re.search(r"Root Cause.*?\brank\s*: (\d+).*?\bexitcode\s*: (-?\d+)", said, re.S)
    if not outcome.exit or not cause:
        return []
    outcome.exit = int(cause[2])
    return [int(cause[1])]


def _printed(outputs: list[dict]) -> str:
    """What was printed, stderr last."""
    ordered = sorted(outputs, key=lambda output: output["name"] == "stderr")
    return "".join(line for output in ordered for line in output["text"])


def _why(outcome: Outcome, nothing: str, late: str = "took too long and was stopped") -> str:
    if outcome.end == "timeout":
        return late
    if outcome.end == "flood":
        return f"wrote more than {worker.FLOOD >> 20} MiB of output and was stopped"
    if outcome.end == "cancel":
        return "was stopped"
    if outcome.end == "killed":
        return "ended without a word: the process that watches over it was killed, perhaps by its own code"
    if outcome.exit < 0:
        return f"was killed by signal {-outcome.exit}"
    return f"failed with exit code {outcome.exit}" if outcome.exit else nothing


def _last(text: str, writer: str = "") -> str:
    lines = [line.rstrip()[:300] for line in text.splitlines()[-12:]] or ["(it printed nothing)"]
    return "\n".join(f"    {writer}{line}" for line in lines)
