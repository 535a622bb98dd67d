"""The processes that run snippets: a fork server, and for each run a supervisor with a worker.

    build ──socket──> fork server ──fork──> supervisor ──fork──> worker: the snippet, in a session of its own
      └──────────────── socket of one job ─────┘

To import torch takes seconds, to fork a process that has imported it milliseconds. The fork server computes
nothing: a child that is forked after a computation hangs in its first matrix product. (The forkserver of
`multiprocessing` does not serve: a snippet in it is a `multiprocessing` child, with a parent process and a
start method that is set already, and each imports the build's main file again.)

The build sends a job as one line of JSON and reads how it ended as another. When the build's end of the
socket closes, however the build ended, the supervisor kills all that the job started, removes its folder,
and closes its own end.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import select
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
from dataclasses import asdict, dataclass, field
from pathlib import Path

#: Whether jobs fork from a process that has imported torch; where that is not safe, each job imports it.
PRELOADS = sys.platform == "linux"
#: Bytes kept from the beginning and the end of what a job writes, and how much it may write.
HEAD, TAIL, FLOOD = 48 << 10, 16 << 10, 256 << 20
#: Seconds that what a job leaves behind has to end by itself, and then to die.
_GRACE_S, _UNKILLABLE_S = 0.5, 10
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@dataclass
class Outcome:
    """How a job ended, and what it gave.

    `end` is `exit`, `timeout`, `flood`, `cancel`, or `killed`: its supervisor was.
    """

    end: str
    exit: int | None = None
    seconds: float = 0
    #: What was written, by writer and stream, such as `main.stdout` and `0.stderr`.
    outputs: dict[str, str] = field(default_factory=dict)
    #: JSON, or nothing.
    result: str = ""
    folder: str = ""
    ended_ranks: list[int] = field(default_factory=list)


# In the build


class ForkServer:
    """The build's end: it starts the server when a job needs one."""

    def __init__(self):
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._channel: socket.socket | None = None

    def start(self) -> None:
        """Let the server import torch, so that the first job waits less."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.close()
                self._channel, theirs = socket.socketpair()
                package = Path(__file__).resolve().parents[2]
                path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", "overlap.run.worker", str(theirs.fileno())],
                        pass_fds=[theirs.fileno()],
                        env=os.environ | {"PYTHONPATH": path},
                        cwd="/",
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,  # out of reach of Ctrl-C, which is for the build
                    )

    def connect(self) -> socket.socket:
        """The socket of a new job."""
        self.start()
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError):  # a server that has died closes `theirs`, too
            socket.send_fds(self._channel, [b"."], [theirs.fileno()])
        return ours

    def death(self) -> str:
        """How the server ended, if it has."""
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(0.2)
        return "" if code is None else f"`{sys.executable} -m overlap.run.worker` ended with exit code {code}"

    def close(self) -> None:
        """End the server; jobs that run go on."""
        if self._process:
            self._channel.close()
            self._process.terminate()
            self._process.wait()
            self._process = None


#: The one server of this process.
SERVER = ForkServer()
atexit.register(SERVER.close)


# In the fork server


def serve(channel: socket.socket) -> None:
    """Fork a supervisor for each job, until the build closes its end."""
    for name in ("numpy", "torch") if PRELOADS else ():
        with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
            importlib.import_module(name)  # the job itself says what is missing
    for finalizer in weakref.finalize._registry:
        # or each worker takes torch's libraries apart when it ends, which costs more than a small snippet
        finalizer.atexit = False
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        _, fds, _, _ = socket.recv_fds(channel, 1, 1)
        if not fds:
            return
        if os.fork() == 0:
            try:
                channel.close()
                _supervise(socket.socket(fileno=fds[0]))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(fds[0])


# In a supervisor


def _supervise(channel: socket.socket) -> None:
    """Run the job that comes through this socket, and answer how it ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what leaves the job's group becomes a child of this process
    with channel.makefile("rb") as lines:
        line = lines.readline()
    if not line:
        return  # the build has ended
    folder = Path(tempfile.mkdtemp(prefix="overlap-"))
    try:
        outcome = _run(json.loads(line), folder, channel)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        channel.sendall(json.dumps(asdict(outcome)).encode())


def _run(job: dict, folder: Path, channel: socket.socket) -> Outcome:
    """Fork the worker, and wait for its end, its limit, too much output, or the end of the build."""
    child_ended, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # the number of the signal arrives at `child_ended`
    started = time.monotonic()
    worker = os.fork()
    if worker == 0:
        channel.close()
        _work(job, folder)
    exit_code = end = None
    while end is None:
        pid, status = os.waitpid(worker, os.WNOHANG)
        left = started + job["timeout"] - time.monotonic()
        if pid:
            exit_code, end = os.waitstatus_to_exitcode(status), "exit"
        elif left <= 0:
            end = "timeout"
        elif _written(folder) > FLOOD:
            end = "flood"
        else:
            ready, _, _ = select.select([channel, child_ended], [], [], min(left, 1))
            if channel in ready:
                end = "cancel"
            elif ready:
                os.read(child_ended, 1 << 10)
    seconds = round(time.monotonic() - started, 3)
    _end_all(worker, _GRACE_S if end == "exit" else 0)
    result = folder / "result.json"
    outputs = {path.name: _text(path) for path in folder.glob("*.std*")}
    ended_ranks = [int(path.stem) for path in folder.glob("*.ended")]
    text = result.read_text() if result.exists() else ""
    return Outcome(end, exit_code, seconds, outputs, text, str(folder), ended_ranks)


def _written(folder: Path) -> int:
    """Bytes of output until now."""
    with contextlib.suppress(OSError):  # the job removed it
        return sum(path.stat().st_size for path in folder.glob("*.std*"))
    return 0


def _text(path: Path) -> str:
    """The beginning and the end of what was written; broken UTF-8 is replaced."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size <= HEAD + TAIL:
            return file.read().decode("utf-8", "replace")
        head = file.read(HEAD)
        file.seek(size - TAIL)
        note = f"\n[… {size - HEAD - TAIL:,} bytes of output left out …]\n".encode()
        return (head + note + file.read()).decode("utf-8", "replace")


def _end_all(worker: int, grace_s: float) -> None:
    """After so many seconds kill the worker's group, and by adoption every descendant that left it."""
    deadline = time.monotonic() + grace_s
    while _any_left(worker) and time.monotonic() < deadline + _UNKILLABLE_S:
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(worker, signal.SIGKILL)
            for child in _children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def _any_left(worker: int) -> bool:
    """Reap the dead; whether a child or anyone of the worker's group still lives."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    except ChildProcessError:
        pass
    try:
        os.killpg(worker, 0)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def _children() -> list[int]:
    """Children of this process, adopted ones included, where there is a /proc."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                children.append(int(stat.parent.name))
    return children


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# In a worker


def _work(job: dict, folder: Path) -> None:
    """Do the job in a session, folder and environment of its own, then exit as a Python program would."""
    code = 1
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # no life without a supervisor
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _write_to(folder, "main")
        os.environ.clear()
        os.environ.update(job["env"])
        sys.path.insert(0, job["root"])
        (folder / "cwd").mkdir()
        os.chdir(folder / "cwd")
        code = _exit_code(job, folder)
        threading._shutdown()  # waits for threads
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _exit_code(job: dict, folder: Path) -> int:
    """Do the job, and return what a Python program that does so exits with."""
    try:
        if "torchrun" in job:
            options = ["--standalone", f"--nproc-per-node={job['torchrun']}", f"--log-dir={folder}"]
            rank = ["-m", "overlap.run.worker", "rank", job["arguments"]["path"], str(folder)]
            os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *options, *rank])
        module, _, name = job["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        _keep(folder, json.dumps(function(**job["arguments"])))
        return 0
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


def _write_to(folder: Path, name: str) -> None:
    """Let descriptors 1 and 2 of this process, and of all that it starts, be files of the job's folder."""
    for number, stream in ((1, "stdout"), (2, "stderr")):
        fd = os.open(folder / f"{name}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(fd, number)
        os.close(fd)
        setattr(sys, stream, os.fdopen(number, "w", 1, "utf-8", "replace", closefd=False))


def _keep(folder: Path, text: str) -> None:
    try:
        (folder / "result.json").write_text(text)
    except OSError as error:
        why = f"its result cannot be kept ({error.strerror}: {folder})"
        raise SystemExit(f"{why}; let main() leave the folder it runs in, and some space, alone") from None


def load(path: str) -> types.ModuleType:
    """Execute a snippet as `__mp_main__`: so spawned children import their parent's main file."""
    module = types.ModuleType("__mp_main__")
    module.__file__ = path
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    sys.argv = [path]
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    return module


def run_snippet(path: str) -> dict:
    """What main() of a file returned, which JSON can say."""
    main = getattr(load(path), "main", None)
    if not callable(main):
        raise SystemExit(f"{path} has no main(); write `def main() -> dict`")
    returned = main()
    try:
        json.dumps(returned, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SystemExit(f"{path}: main() must return plain JSON data without NaN: {error}") from None
    return returned


def _be_rank(path: str, folder: Path) -> None:
    """What torchrun starts per GPU: run the snippet in this very process."""
    rank = os.environ["RANK"]
    _write_to(folder, rank)
    returned = run_snippet(path)
    if rank == "0":
        _keep(folder, json.dumps(returned))
    (folder / f"{rank}.ended").touch()


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        _be_rank(sys.argv[2], Path(sys.argv[3]))
    else:
        serve(socket.socket(fileno=int(sys.argv[1])))
