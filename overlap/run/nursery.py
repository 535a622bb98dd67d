"""A process that has imported torch and does nothing else, and forks one supervised child per job.

Started by `overlap.run.runner` as `python -m overlap.run.nursery FD`, where FD is a Unix socket. Each message is the path of one
job in JSON, with the file descriptors of its stdout, its stderr and a pipe that closes when the job and everything
it started are gone. Importing torch once instead of in every job saves seconds a snippet; the parent computes
nothing, because a child forked after that would hang in its first matrix product.

`python -m overlap.run.nursery --rank FILE RESULT` runs one snippet in this very process: what torchrun starts per GPU.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
import types
from pathlib import Path

_PRELOAD = ("numpy", "torch", "matplotlib.pyplot")
_GRACE_S = 0.5
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def serve(channel: socket.socket) -> None:
    """Fork a supervisor for each job until the other end closes."""
    for name in _PRELOAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(channel, 1 << 12, 3)
        if not message:
            return
        if os.fork() == 0:
            channel.close()
            _supervise(json.loads(Path(message.decode()).read_text()), *fds)
        for fd in fds:
            os.close(fd)


def _supervise(job: dict, out: int, err: int, done: int) -> None:
    """Fork the worker, wait for it within the limit, then end all it left behind. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    os.setsid()
    worker = os.fork()
    if worker == 0:
        os.close(done)
        _work(job, out, err)
    os.close(out)
    os.close(err)
    signal.signal(signal.SIGTERM, lambda *_: (_end_all(worker), os._exit(1)))
    started = time.monotonic()
    status, timed_out = None, False
    while status is None and not timed_out:
        time.sleep(0.01)
        pid, code = os.waitpid(worker, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if pid else None
        timed_out = status is None and time.monotonic() - started > job["timeout"]
    seconds = time.monotonic() - started
    _end_all(worker, grace=0 if timed_out else _GRACE_S)
    Path(job["outcome"]).write_text(json.dumps({"exit": status, "timed_out": timed_out, "seconds": round(seconds, 3)}))
    os._exit(0)


def _end_all(worker: int, grace: float = 0) -> None:
    """Kill the worker's process group and, by adoption, every descendant that escaped it."""
    deadline = time.monotonic() + grace
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found


def _work(job: dict, out: int, err: int) -> None:
    """Become the job: own process group, own streams, own environment. Never returns."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    sys.stdout, sys.stderr = (os.fdopen(fd, "w", 1, "utf-8", "replace", closefd=False) for fd in (1, 2))
    if job["kind"] == "torchrun":
        os.execv(sys.executable, [sys.executable, *job["argv"]])
    code = 1
    try:
        {"snippet": run_snippet, "plot": draw_plot, "probe": write_probe}[job["kind"]](job)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        threading._shutdown()
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def load(path: str) -> types.ModuleType:
    """Execute a snippet as `__mp_main__`, the name under which spawned children import their parent's main file."""
    module = types.ModuleType("__mp_main__")
    module.__file__ = path
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    sys.argv = [path]
    exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), module.__dict__)
    return module


def run_snippet(job: dict) -> None:
    """Run `main()` of the file at `path` and write what it returned to `result` as JSON."""
    returned = load(job["path"]).main()
    try:
        text = json.dumps(returned, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SystemExit(f"{job['path']}: main() must return plain JSON data without NaN: {error}") from None
    if int(os.environ.get("RANK", "0")) == 0:
        Path(job["result"]).write_text(text)


def draw_plot(job: dict) -> None:
    """Draw the snippet's `plot(results, ceilings)` in the book's style and write its pictures to `result` as JSON."""
    from overlap.site import figure

    Path(job["result"]).write_text(
        json.dumps(figure.draw(load(job["path"]), job["data"], job["ceilings"], job["salt"]))
    )


def write_probe(job: dict) -> None:
    """Write what this machine is to `result`."""
    from overlap.run import machine

    Path(job["result"]).write_text(json.dumps(machine.probe()))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        run_snippet({"path": sys.argv[2], "result": sys.argv[3]})
    else:
        serve(socket.socket(fileno=int(sys.argv[1])))
