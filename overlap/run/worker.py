"""Processes that run snippets: each in a session, a folder and an environment of its own.

    build ──> fork server ──fork──> supervisor ──fork──> worker: the snippet

To import torch takes seconds, to fork a process that has imported it milliseconds. The fork server computes
nothing: a child that is forked after a computation hangs in its first matmul. When a job is over, or
the build that wanted it has ended in whatever way, the supervisor kills what is left of the job and removes
its folder.

The forkserver of `multiprocessing` does not serve: a snippet in it would be a child of `multiprocessing`,
with a parent process and a start method already set, and would import the main file of the build.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from overlap.run.text import unfit

#: Whether jobs fork from a process that has imported torch; elsewhere that is not safe, and each imports it.
PRELOADS = sys.platform == "linux"
#: How much is kept of the beginning and of the end of an output, in characters.
HEAD, TAIL = 48 << 10, 16 << 10
#: Seconds in which what a worker leaves behind can end by itself, and in which it dies once it is killed.
_GRACE_S, _DEATH_S = 0.5, 10
_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Job:
    """A function to call in a process of its own; or a snippet, perhaps in several `ranks` of torchrun."""

    root: str
    env: dict[str, str]
    timeout: float
    function: Callable[[], object] | None = None
    path: str = ""
    ranks: int = 0


@dataclass
class Outcome:
    """How a job ended: `end` is `exit`, `timeout`, `stopped`, or `lost` where its supervisor was killed."""

    end: str
    exit: int | None = None
    seconds: float = 0
    #: CPU time of the worker and of all that it started.
    cpu_s: float = 0
    #: What was written, by writer and stream: `main.stdout`, or `0.stderr` of a rank.
    outputs: dict[str, str] = field(default_factory=dict)
    #: What the function returned, as JSON.
    result: str = ""
    folder: str = ""


class ForkServer:
    """The build's end of the fork server, which is started with the first job."""

    def __init__(self):
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._channel: socket.socket | None = None

    def begin(self, job: Job) -> Connection:
        """Begin a job. Its outcome comes through the connection; what is sent there, or its end, stops it."""
        ours, theirs = multiprocessing.Pipe()
        with self._lock, theirs:
            if self._process is None or self._process.poll() is not None:
                self._start()
            socket.send_fds(self._channel, [b"."], [theirs.fileno()])
        ours.send(job)
        return ours

    def _start(self) -> None:
        self.close()
        self._channel, channel = socket.socketpair()
        program = f"from overlap.run import worker; worker.serve({channel.fileno()})"
        with channel:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                pass_fds=[channel.fileno()],
                env=os.environ | {"PYTHONPATH": python_path()},
                cwd="/",
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # out of reach of Ctrl-C, which is for the build
            )

    def close(self) -> None:
        """End the server; jobs that run go on."""
        if self._process:
            self._channel.close()
            self._process.terminate()
            self._process.wait()


def python_path(*folders: str) -> str:
    """`PYTHONPATH` with these folders and this package before what it has."""
    package = Path(__file__).resolve().parents[2]
    return os.pathsep.join(filter(None, [*folders, str(package), os.environ.get("PYTHONPATH")]))


#: The one server of this process.
SERVER = ForkServer()
atexit.register(SERVER.close)


def serve(channel: int) -> None:
    """Be the fork server: fork a supervisor for each job, until the build closes its end."""
    requests = socket.socket(fileno=channel)
    if PRELOADS:
        for name in ("numpy", "torch"):
            with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
                importlib.import_module(name)  # the job itself says what is missing
    for finalizer in weakref.finalize._registry:
        finalizer.atexit = False  # or each worker takes torch's libraries apart when it ends
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        _, fds, _, _ = socket.recv_fds(requests, 1, 1)
        if not fds:
            return
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                _supervise(Connection(fds[0]))
            except (EOFError, ConnectionError):
                pass  # the build has ended
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.close(fds[0])


def _supervise(connection: Connection) -> None:
    """Run the job that comes through the connection, and answer how it ended."""
    if sys.platform == "linux":
        # what its parent leaves behind becomes a child of this process
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    job = connection.recv()
    folder = Path(tempfile.mkdtemp(prefix="overlap-"))
    try:
        outcome = _outcome(job, folder, connection)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    connection.send(outcome)


def _outcome(job: Job, folder: Path, connection: Connection) -> Outcome:
    """Fork the worker, and wait for its end, its limit, or the end of the build."""
    started = time.monotonic()
    worker = os.fork()
    if worker == 0:
        _work(job, folder)
    ended, at_end = multiprocessing.Pipe(duplex=False)
    waiter = threading.Thread(target=lambda: at_end.send(os.waitpid(worker, 0)[1]))
    waiter.start()
    ready = wait([ended, connection], job.timeout)
    if ended in ready:
        outcome = Outcome("exit", os.waitstatus_to_exitcode(ended.recv()))
    else:
        outcome = Outcome("timeout")
        if connection in ready:
            outcome.end = "stopped"
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(worker, signal.SIGKILL)
    outcome.seconds = round(time.monotonic() - started, 3)
    waiter.join()
    grace_s = 0
    if outcome.end == "exit":
        grace_s = _GRACE_S
    _end_descendants(grace_s)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome.cpu_s = used.ru_utime + used.ru_stime
    for path in folder.glob("*.std*"):
        outcome.outputs[path.name] = _shortened(path.read_bytes().decode("utf-8", "replace"))
    result = folder / "result.json"
    if result.exists():
        outcome.result = result.read_text()
    outcome.folder = str(folder)
    return outcome


def _shortened(text: str) -> str:
    left_out = len(text) - HEAD - TAIL
    if left_out <= 0:
        return text
    return f"{text[:HEAD]}\n[… {left_out:,} characters of output left out …]\n{text[-TAIL:]}"


def _end_descendants(grace_s: float) -> None:
    """Wait so long for what the worker left behind, then kill it."""
    deadline = time.monotonic() + grace_s
    while _has_children() and time.monotonic() < deadline + _DEATH_S:
        if time.monotonic() > deadline:
            for child in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def _has_children() -> bool:
    """Whether a child lives; the dead ones are waited for."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    except ChildProcessError:
        return False


def _children() -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = stat.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                children.append(int(stat.parent.name))
    return children


def _work(job: Job, folder: Path) -> None:
    """Do the job in this process, then exit as a Python program does."""
    code = 1
    try:
        os.setsid()
        _write_to(folder, "main")
        os.environ.clear()
        os.environ.update(job.env)
        sys.path.insert(0, job.root)
        (folder / "cwd").mkdir()
        os.chdir(folder / "cwd")
        code = _exit_code(job, folder)
        threading._shutdown()  # waits for threads
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _exit_code(job: Job, folder: Path) -> int:
    """Do the job, and return what a Python program that does so exits with."""
    if job.ranks:
        options = ["--standalone", f"--nproc-per-node={job.ranks}", f"--log-dir={folder}"]
        rank = ["-m", "overlap.run.worker", str(folder), job.path]
        os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *options, *rank])
    try:
        result = run_snippet(job.path) if job.path else job.function()
        _keep(folder, result)
        return 0
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


def _be_rank(folder: Path, path: str) -> None:
    """What torchrun starts as often as there are ranks."""
    rank = os.environ["RANK"]
    _write_to(folder, rank)
    result = run_snippet(path)
    if rank == "0":
        _keep(folder, result)


def _keep(folder: Path, result: object) -> None:
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError) as error:
        remedy = "return numbers, texts, lists and dicts"
        sys.exit(f"{unfit(result, 'the result of main()')} is no plain data: {error}; {remedy}")
    (folder / "result.json").write_text(text)


def _write_to(folder: Path, writer: str) -> None:
    """Let descriptors 1 and 2 of this process, and of all that it starts, be files of the job's folder."""
    for number, stream in ((1, "stdout"), (2, "stderr")):
        fd = os.open(folder / f"{writer}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(fd, number)
        os.close(fd)
        setattr(sys, stream, os.fdopen(number, "w", 1, "utf-8", "replace", closefd=False))


def run_snippet(path: str) -> dict:
    """What main() of a file returned.

    The file is executed as `__mp_main__`: so processes that it spawns import the main file of their parent.
    """
    module = types.ModuleType("__mp_main__")
    module.__file__ = path
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    sys.argv = [path]
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    return module.main()


if __name__ == "__main__":
    _be_rank(Path(sys.argv[1]), sys.argv[2])
