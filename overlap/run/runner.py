"""Runs snippets as processes: time limit, process group, capture of file descriptors 1 and 2, one at a time or side by side."""

import contextlib
import ctypes
import json
import os
import re
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from overlap import OverlapError
from overlap.run import machine
from overlap.run.noise import Watch
from overlap.run.progress import progress
from overlap.run.recording import SCHEMA, sealed, write
from overlap.run.snippet import Snippet

#: Bytes kept from the beginning and the end of a stream; what lies between is left out with a note.
HEAD, TAIL = 48 << 10, 16 << 10


class RunFailed(OverlapError):
    """A snippet that raised, ran past its limit or was killed; the message has its last lines."""


@dataclass
class Outcome:
    """How a process ended and what it wrote, and each of its ranks; without exit code and not timed out: its supervisor was killed."""

    exit: int | None
    timed_out: bool
    seconds: float
    stdout: str
    stderr: str
    result: object
    ranks: tuple[str, ...] = ()


class Capture:
    """The first and the last bytes of a stream of any length."""

    def __init__(self):
        self.head, self.tail, self.total = bytearray(), bytearray(), 0

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self.total += len(chunk)
        room = HEAD - len(self.head)
        self.head += chunk[:room] if room > 0 else b""
        self.tail = (self.tail + chunk[max(room, 0) :])[-TAIL:]

    def text(self) -> str:
        """What was kept, as text; broken UTF-8 is replaced."""
        left_out = self.total - len(self.head) - len(self.tail)
        note = f"\n[… {left_out:,} bytes of output left out …]\n".encode() if left_out else b""
        return bytes(self.head + note + self.tail).decode("utf-8", "replace")


class Nursery:
    """Starts jobs as children of one process that has imported torch; see `overlap.run.nursery`."""

    def __init__(self, root: Path, temporary: tuple[str, ...] = ()):
        self.root, self._lock, self._process, self._channel, self.closed = root, threading.Lock(), None, None, False
        self._temporary = (_unused(), *temporary)

    @property
    def folder(self) -> Path:
        """Where jobs are; it is made only when there is a process that removes it, whatever happens to this one."""
        with self._lock:
            if self._process is None or self.closed:
                self._spawn()
            os.makedirs(self._temporary[0], 0o700, exist_ok=True)
        return Path(self._temporary[0])

    @staticmethod
    def possible() -> bool:
        """Whether this system has all it needs."""
        sockets = hasattr(socket, "SOCK_SEQPACKET") and hasattr(socket, "recv_fds")
        return sockets and hasattr(ctypes.CDLL(None), "prctl")

    def start(self, kind: str, path: Path, fds: list[int]) -> subprocess.Popen:
        """Begin a job in the process returned; `fds` are its stdout, its stderr and where its supervisor says how it ended."""
        with self._lock:
            for _ in range(2):
                if self._process is None or self._process.poll() is not None:
                    self._spawn()
                try:
                    socket.send_fds(self._channel, [f"{kind} {path}".encode()], fds)
                    break
                except OSError:  # a snippet killed it, or it cannot start
                    self._process.wait()
            return self._process

    def warm(self) -> None:
        """Begin to import, so that the first job waits less."""
        with self._lock:
            if self._process is None:
                self._spawn()

    def _spawn(self) -> None:
        if self.closed:
            raise OverlapError("stopped")
        if self._channel:
            self._channel.close()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = _python(self.root, [theirs.fileno()], after=self._temporary)

    def close(self) -> None:
        """End the nursery and whatever runs in it."""
        with self._lock:
            self.closed = True
            if self._process:
                self._channel.close()
                self._process.terminate()  # heard only while it still imports
                self._process.wait()
                shutil.rmtree(self._temporary[0], ignore_errors=True)  # if it was, or was killed


class Plain:
    """Starts each job as a process of its own where there can be no nursery: slower, and what leaves its group may escape."""

    def __init__(self, root: Path, temporary: tuple[str, ...] = ()):
        self.root, self._lock, self._processes, self.closed, self._folder = root, threading.Lock(), [], False, _unused()

    @property
    def folder(self) -> Path:
        """Where jobs are."""
        if self.closed:
            raise OverlapError("stopped")
        os.makedirs(self._folder, 0o700, exist_ok=True)
        return Path(self._folder)

    def start(self, kind: str, path: Path, fds: list[int]) -> subprocess.Popen:
        """Begin a job, as a nursery would."""
        with self._lock:
            if self.closed:
                raise OverlapError("stopped")
            self._processes.append(_python(self.root, fds, "--job", str(path)))
            return self._processes[-1]

    def warm(self) -> None:
        """Nothing to begin with."""

    def close(self) -> None:
        """End what still runs."""
        with self._lock:
            self.closed = True
        for process in self._processes:
            process.terminate()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _unused() -> str:
    """A path in the temporary folder that nobody has."""
    return os.path.join(tempfile.gettempdir(), f"overlap-{secrets.token_hex(8)}")


def _python(root: Path, fds: list[int], *options: str, after: tuple[str, ...] = ()) -> subprocess.Popen:
    """A Python of its own session, out of reach of Ctrl-C, which is for who asked."""
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "overlap.run.nursery", *options, *map(str, fds), *after],
        pass_fds=fds,
        env=os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "MPLBACKEND": "Agg"},
        cwd=root,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def ranks(snippet: Snippet, gpus: int) -> int:
    """How many processes a run has: under torchrun one per GPU, or on the CPU as many as the header says."""
    if snippet.options["launcher"] != "torchrun":
        return 1
    if not (count := gpus or snippet.options.get("ranks")):
        raise OverlapError(
            f"{snippet.path}: torchrun on the CPU needs a number of processes; add `ranks = 2` to the header"
        )
    return count


def command(snippet: Snippet, file: str, gpus: int | None = None) -> str:
    """What a reader types to run `file`: with `gpus` GPUs, or on whatever machine the reader has."""
    if snippet.options["launcher"] != "torchrun":
        return f"python {file}"
    anywhere = gpus is None and 0 not in snippet.options["gpus"]
    return f"torchrun --nproc-per-node {'gpu' if anywhere else ranks(snippet, gpus or 0)} {file}"


def _starter(root: Path, temporary: tuple[str, ...]) -> Nursery | Plain:
    return (Nursery if Nursery.possible() else Plain)(root, temporary)


class Runner:
    """Runs jobs in children of one nursery, or in plain processes; use it as a context manager.

    With `watchful`, a measurement waits for a calm host, is repeated once where it was disturbed, and says how busy the host was.
    The folders `temporary` are removed when this process is gone, even if it was killed, where there can be a nursery.
    """

    #: Seconds that all this waiting and repeating may take; None is what `overlap.run.noise` says.
    patience_s: float | None = None

    def __init__(self, root: Path, watchful: bool = False, temporary: tuple[str, ...] = ()):
        self.root, self._probes, self._again = root, {}, threading.Lock()
        self._temporary = temporary
        self._watchful, self._watch = watchful, None
        self._starter = _starter(root, temporary)

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def close(self) -> None:
        """End whatever runs; what is run afterwards begins anew."""
        self._starter.close()

    def start(self) -> None:
        """Begin to import what snippets need, while there is something else to do."""
        if self._starter.closed:
            self._starter = _starter(self.root, self._temporary)
        self._starter.warm()

    @contextlib.contextmanager
    def _folder(self):
        with tempfile.TemporaryDirectory(dir=self._starter.folder, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def _job(self, kind: str, folder: Path, timeout: float, gpus: int, fifos: tuple[str, ...] = (), **more) -> Outcome:
        """Run one job to its end; nothing it started is left when this returns. What comes through FIFOs is caught, too."""
        cwd, result, path = folder / "cwd", folder / "result.json", folder / "job.json"
        visible = machine.visible_devices(gpus) if gpus else ""
        job = {"kind": kind, "timeout": timeout, "cwd": str(cwd), "result": str(result), **more}
        job["env"] = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # the order of nvidia-smi
        for turn in (contextlib.nullcontext(), self._again):  # a neighbour may have killed the nursery
            shutil.rmtree(cwd, ignore_errors=True)
            cwd.mkdir(parents=True)
            write(path, json.dumps(job))
            with turn:
                host, (out, err, *from_ranks, word) = self._begin(job, path, fifos)
            worker, _, ended = word.partition("\n")
            code = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = None if ended else host.wait(0.2)
            if code is None:
                break
        if not ended and not worker and code is not None:
            how = f"`{sys.executable} -m overlap.run.nursery` ended with exit code {code} before it began"
            raise OverlapError(f"nothing can be run: {how}; what it says above is the reason")
        if not ended:
            with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
                os.killpg(int(worker), signal.SIGKILL)
            return Outcome(None, False, 0.0, out, err, None, tuple(from_ranks))
        outcome = Outcome(**json.loads(ended), stdout=out, stderr=err, result=None, ranks=tuple(from_ranks))
        if outcome.exit == 0:
            with contextlib.suppress(OSError, ValueError):  # gone or half: as if nothing was returned
                outcome.result = json.loads(result.read_text())
        return outcome

    def _begin(self, job: dict, path: Path, fifos: tuple[str, ...]) -> tuple[subprocess.Popen, list[str]]:
        """Start a job and read its stdout, its stderr, the FIFOs and the word of its supervisor until that one is gone; also who started it."""
        pipes = [os.pipe() for _ in range(3)]
        more = [
            os.open(fifo, os.O_RDWR | os.O_NONBLOCK) for fifo in fifos
        ]  # for writing, too: so it has no end before the job has
        try:
            try:
                host = self._starter.start(job["kind"], path, [write for _, write in pipes])
            finally:
                for _, write in pipes:
                    os.close(write)
            out, err, word = (read for read, _ in pipes)
            return host, _read([out, err, *more, word])
        except BaseException:
            self._starter.close()
            raise
        finally:
            for read in [read for read, _ in pipes] + more:
                os.close(read)

    def probe(self, gpus: int) -> dict:
        """`machine` and `software` of a recording made with this many GPUs visible."""
        if gpus not in self._probes:
            with self._folder() as folder:
                found = self._job("probe", folder, 120, gpus)
            if found.result is None:
                raise OverlapError(f"cannot tell what this machine is:\n{_last(found.stderr)}")
            self._probes[gpus] = found.result
        return self._probes[gpus]

    def run(self, snippet: Snippet, gpus: int) -> dict:
        """Run a snippet with `gpus` visible GPUs (0: the CPU alone) and return its recording."""
        if self._watchful and snippet.options["exclusive"] and isinstance(self._starter, Nursery):
            self._watch = self._watch or Watch(self._dispatch_us, self.patience_s)
            made, noise = self._watch.around(lambda: self._run(snippet, gpus))
            made["run"]["noise"] = noise
        else:
            made = self._run(snippet, gpus)
        return sealed(made)

    def _torchrun(self, snippet: Snippet, gpus: int, own: Path, limit: float):
        """Run the ranks of a snippet; what they write about each other is in the new folder `own`."""
        own.mkdir()
        count = ranks(snippet, gpus)
        fifos = tuple(f"{own}/{rank}.{name}" for rank in range(count) for name in ("out", "err"))
        for fifo in fifos:
            os.mkfifo(fifo)
        argv = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", f"--log-dir={own}"]
        argv += ["-m", "overlap.run.nursery", "--rank", str(self.root / snippet.path)]
        argv += [str(own.parent / "result.json"), str(own)]
        return self._job("torchrun", own.parent, limit, gpus, fifos, argv=argv)

    def _dispatch_us(self) -> float:
        with self._folder() as folder:
            found = self._job("dispatch", folder, 60, 0)
        if found.result is None:
            raise OverlapError(f"cannot tell how busy this machine is:\n{_last(found.stderr)}")
        return found.result

    def _run(self, snippet: Snippet, gpus: int) -> dict:
        here, limit = self._seen(snippet, gpus), snippet.options["timeout"]
        started = datetime.now(UTC).isoformat(timespec="seconds")
        with self._folder() as folder:
            ended, outputs, blamed = self._launched(snippet, gpus, folder, limit)
        if ended.exit != 0 or not isinstance(ended.result, dict):
            raise RunFailed(_failure(snippet, gpus, ended, outputs, blamed, limit, "returned no dict from main()"))
        return {
            "schema": SCHEMA,
            "snippet": snippet.name,
            "profile": machine.profile([gpu["name"] for gpu in here["machine"]["gpus"]]),
            "source": {"path": snippet.path, "sha256": snippet.hash},
            "inputs": snippet.input_hashes,
            "run": {
                "command": command(snippet, snippet.path, gpus),
                "started": started,
                "seconds": ended.seconds,
                "exit": ended.exit,
            },
            **here,
            "outputs": outputs,
            "result": ended.result,
        }

    def _seen(self, snippet: Snippet, gpus: int) -> dict:
        """What this machine is, if torch sees as many GPUs as it should."""
        here = self.probe(gpus)
        if (shown := len(here["machine"]["gpus"])) != gpus:
            why = f"torch {here['software']['torch']} sees {shown}; install a torch that fits the driver, or ask for fewer"
            raise OverlapError(f"{snippet.path}: asked for {gpus} GPU(s), and {why}")
        return here

    def _launched(self, snippet: Snippet, gpus: int, folder: Path, limit: float):
        """Run a snippet; how it ended, what it printed, which ranks are to blame."""
        if snippet.options["launcher"] == "torchrun":
            own, count = folder / "ranks", ranks(snippet, gpus)
            ended = self._torchrun(snippet, gpus, own, limit)
            outputs = [each for rank in range(count) for each in _outputs(*ended.ranks[2 * rank :][:2], rank)]
            blamed = _blamed(ended, {rank for rank in range(count) if not (own / f"{rank}.ended").exists()})
        else:
            ended = self._job("snippet", folder, limit, gpus, path=str(self.root / snippet.path))
            outputs, blamed = _outputs(ended.stdout, ended.stderr, 0), []
        for long, short in ((f"{folder}/cwd", "."), (str(folder), "."), (f"{self.root}/", "")):
            for output in outputs:
                output["text"] = [line.replace(long, short) for line in output["text"]]
        return ended, outputs, blamed

    def call(self, function: str, snippet: Snippet, timeout: float = 60, **arguments) -> object:
        """What `function`, as in `package.module:name`, gives for the snippet as a module and the arguments, all plain data."""
        with self._folder() as folder:
            path = str(self.root / snippet.path)
            ended = self._job("call", folder, timeout, 0, path=path, function=function, arguments=arguments)
        if ended.exit != 0 or ended.result is None:
            why = _why(
                ended, f"was stopped after {timeout} s", "gave nothing, as if its code had ended the program; mend it"
            )
            raise RunFailed(f"{snippet.path}: {function} {why}. Its last lines:\n{_last(ended.stderr or ended.stdout)}")
        return ended.result

    def run_all(
        self,
        wanted: list[tuple[Snippet, int]],
        done=lambda snippet, gpus, recording: None,
        label: str = "running",
        failures: list[OverlapError] | None = None,
    ) -> list[OverlapError]:
        """Run many: measurements one at a time, the rest side by side. Failures are returned, after all had their turn; who hands in
        a list has them also where this is interrupted."""
        failures = [] if failures is None else failures
        self.start()

        def one(item: tuple[Snippet, int]) -> float | None:
            try:
                made = self.run(*item)
                done(*item, made)
                return made["run"]["seconds"]
            except RunFailed as error:
                again = f"overlap run {item[0].name}"
                if len(wanted) == 1:
                    again = f"PYTHONPATH=. {command(item[0], item[0].path, item[1])}"
                failures.append(RunFailed(f"{error}\n  Run it alone: {again}"))
            except OverlapError as error:
                failures.append(error)
            return None

        shared = [item for item in wanted if not item[0].options["exclusive"]]
        alone = [item for item in wanted if item[0].options["exclusive"]]
        for gpus in sorted({gpus for _, gpus in wanted}):
            self.probe(gpus)
        with progress(self.root, wanted, label) as shown, self._pool() as pool:
            futures = {pool.submit(one, item): item for item in shared}
            for future in as_completed(futures):
                shown.ended(futures[future], future.result())
            for item in alone:
                shown.begun(item)
                shown.ended(item, one(item))
        return failures

    @contextlib.contextmanager
    def _pool(self):
        """Threads for runs side by side; whatever still runs is ended where this is left by an error."""
        pool = ThreadPoolExecutor(max(2, min(8, os.cpu_count() // 2)))
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            self._starter.close()
            raise
        finally:
            pool.shutdown()


def _read(fds: list[int]) -> list[str]:
    """Texts from these descriptors, read until the last of them closes and the others have no more."""
    captures, over = {fd: Capture() for fd in fds}, None
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map() and (over is None or time.monotonic() < over):
            ready = selector.select(None if over is None else 0)
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                captures[key.fd].add(chunk)
                if not chunk:
                    selector.unregister(key.fd)
                if not chunk and key.fd == fds[-1]:
                    over = time.monotonic() + 1  # whoever still holds the others is no part of the job
            if over and not ready:
                break
    return [capture.text() for capture in captures.values()]


def _outputs(stdout: str, stderr: str, rank: int) -> list[dict]:
    """nbformat stream objects, with the rank that wrote them."""
    streams = (("stdout", stdout), ("stderr", stderr))
    return [
        {"output_type": "stream", "name": name, "text": text.splitlines(keepends=True), "rank": rank}
        for name, text in streams
        if text
    ]


def _blamed(ended: Outcome, running: set[int]) -> list[int]:
    """Which ranks a failure is of: those that still ran at the limit, or the first that failed by what torchrun says; its end is set right."""
    if ended.timed_out:
        return sorted(running)
    found = re.search(r"Root Cause.*?\brank\s*: (\d+).*?\bexitcode\s*: (-?\d+)", ended.stderr, re.S)
    if ended.exit and found:
        ended.exit = int(found[2])
    return [int(found[1])] if ended.exit and found else []


def _failure(
    snippet: Snippet, gpus: int, ended: Outcome, outputs: list[dict], blamed: list[int], limit: float, nothing: str
) -> str:
    raised = f"raise `timeout = {snippet.options['timeout']}` in its header"
    late = f"still ran after {limit} s and was stopped (if it needs longer, {raised})"
    where = f"with {gpus} GPU(s)" if gpus else "on the CPU"
    if blamed:
        where = f"in rank {' and '.join(map(str, blamed))}, {where}"
    lines = [_last(_printed(outputs, {rank}), f"rank {rank}: ") for rank in blamed]
    lines = lines or [_last(_printed(outputs, None) or ended.stderr)]
    why = _why(ended, late, nothing)
    return f"{snippet.path} {why}, {where}. Its last lines:\n" + "\n".join(lines)


def _printed(outputs: list[dict], ranks: set[int] | None) -> str:
    """What these ranks printed, all by default; what went to stderr is last."""
    errors_last = sorted(outputs, key=lambda output: output["name"] == "stderr")
    return "".join(line for each in errors_last if ranks is None or each["rank"] in ranks for line in each["text"])


def _why(ended: Outcome, late: str, nothing: str) -> str:
    if ended.timed_out:
        return late
    if ended.exit is None:
        return "ended without a word: the process that watches over it was killed, perhaps by its own code"
    if ended.exit < 0:
        return f"was killed by signal {-ended.exit}"
    return f"failed with exit code {ended.exit}" if ended.exit else nothing


def _last(text: str, who: str = "") -> str:
    lines = [line.rstrip()[:300] for line in text.splitlines()[-12:]] or ["(it printed nothing)"]
    return "\n".join(f"    {who}{line}" for line in lines)
