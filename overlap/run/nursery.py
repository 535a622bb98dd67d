"""A process that has imported torch and does nothing else, and forks one supervised child per job.

Started by `overlap.run.runner` as `python -m overlap.run.nursery FD FOLDER …`, where FD is a Unix socket and the folders are removed when its
other end is gone, however it went. Each message is the kind of one
job and the path of the rest of it in JSON, with the file descriptors of its stdout, its stderr and a pipe that closes when the
job and everything it started are gone; the pipe says which process it is and, last, how it ended. Importing torch once instead of
in every job saves seconds a snippet; the parent computes nothing, because a child forked after that would hang in its first
matrix product.

`python -m overlap.run.nursery --job FILE OUT ERR DONE` supervises one job, where no nursery can run;
`python -m overlap.run.nursery --rank FILE RESULT FOLDER` runs one snippet in this very process: what torchrun starts per GPU. It
writes to FIFOs of the folder, so that no rank can fill a disk, and says there when its main() has returned.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
import types
import weakref
from pathlib import Path

from overlap import OverlapError
from overlap.run import strict

_PRELOAD = {"": ("numpy", "torch"), "call": ("matplotlib.pyplot",)}
_GRACE_S, _UNKILLABLE_S = 0.5, 10
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def serve(channel: socket.socket, folders: list[str]) -> None:
    """Fork a supervisor for each job until the other end closes, then end what still runs and remove the folders. Never returns."""
    _preload("")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # from here on, only the other end says when to stop
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    supervisors = set()
    while True:
        message, fds, _, _ = socket.recv_fds(channel, 1 << 12, 3)
        if not message:
            break
        kind, _, path = message.decode().partition(" ")
        _preload(kind)
        supervisor = os.fork()
        if not supervisor:
            try:
                channel.close()
                _supervise(json.loads(Path(path).read_text()), *fds)
            finally:
                os._exit(1)
        supervisors.add(supervisor)
        for fd in fds:
            os.close(fd)
    _kill(supervisors & set(_children()), signal.SIGTERM)
    while left := set(_children()):
        _kill(left - supervisors)  # what supervisors left that were killed themselves
        time.sleep(0.01)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _preload(kind: str) -> None:
    for name in _PRELOAD.get(kind, ()):
        with contextlib.suppress(Exception):  # the job itself says what is missing
            importlib.import_module(name)
    for finalizer in weakref.finalize._registry:
        finalizer.atexit = False  # else each child takes torch's libraries apart, which costs more than a small snippet


def _supervise(job: dict, out: int, err: int, done: int) -> None:
    """Fork the worker, wait for it within the limit, then end all it left behind. Never returns."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})  # until there is who takes them
    worker = os.fork()
    if worker == 0:
        os.close(done)
        _become(out, err)
        do(job)
    os.close(out)
    os.close(err)
    os.write(done, b"%d\n" % worker)
    signal.signal(signal.SIGTERM, lambda *_: (_end_all(worker), os._exit(1)))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    started = time.monotonic()
    pid, status = os.waitpid(worker, os.WNOHANG)
    while not pid and (left := started + job["timeout"] - time.monotonic()) > 0:
        _nap(left)
        pid, status = os.waitpid(worker, os.WNOHANG)
    exit_code, seconds = os.waitstatus_to_exitcode(status) if pid else None, time.monotonic() - started
    _end_all(worker, _GRACE_S if pid else 0)
    os.write(done, json.dumps({"exit": exit_code, "timed_out": not pid, "seconds": round(seconds, 3)}).encode())
    os._exit(0)


def _nap(seconds: float) -> None:
    """Sleep, until a child ends."""
    if hasattr(signal, "sigtimedwait"):
        signal.sigtimedwait({signal.SIGCHLD}, seconds)
    else:
        time.sleep(min(seconds, 0.01))


def _end_all(worker: int, grace: float = 0) -> None:
    """Kill the worker's process group and, by adoption, every descendant that escaped it."""
    deadline = time.monotonic() + grace
    while _any_left(worker) and (left := deadline - time.monotonic()) > 0:
        _nap(min(left, 0.05))
    while _any_left(worker, signal.SIGKILL) and time.monotonic() < deadline + _UNKILLABLE_S:
        _kill(_children())
        _nap(0.1)


def _any_left(group: int, number: int = 0) -> bool:
    """Reap who has ended; whether a child or anyone of the group is left, who gets this signal."""
    found = False
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        found = True
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        found = True
    return found


def _kill(pids, number: int = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it may have just ended by itself
            os.kill(pid, number)


def _children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found


def _become(out: int, err: int) -> None:
    """Become the worker: own process group, own streams, and no life without a supervisor."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.dup2(out, 1)
    os.dup2(err, 2)


def do(job: dict) -> None:
    """Do the job in its own environment and folder, then exit as a Python program would. Never returns."""
    sys.stdout, sys.stderr = (os.fdopen(fd, "w", 1, "utf-8", "replace", closefd=False) for fd in (1, 2))
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    if job["kind"] == "torchrun":
        os.execv(sys.executable, [sys.executable, *job["argv"]])
    code = 1
    try:
        text = _KINDS[job["kind"]](job)
        try:
            Path(job["result"]).write_text(text)
        except OSError as error:
            why = f"its result cannot be kept ({error.strerror}: {job['result']})"
            raise SystemExit(f"{why}; let main() leave the folder it runs in, and some space, alone") from None
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except OverlapError as error:
        print(error, file=sys.stderr)
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


def run_snippet(job: dict) -> str:
    """What `main()` of the file at `path` returned, as JSON."""
    main = getattr(load(job["path"]), "main", None)
    if not callable(main):
        raise SystemExit(f"{job['path']} has no main(); write `def main() -> dict`")
    returned = main()
    try:
        text = json.dumps(returned, allow_nan=False)
        strict.loads(text, job["path"], "let main() return less, and plain data")
    except OverlapError as error:
        raise SystemExit(str(error)) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise SystemExit(f"{job['path']}: main() must return plain JSON data without NaN: {error}") from None
    return text


def call(job: dict) -> str:
    """What `function` returned for the file at `path` as a module, and the arguments, as JSON."""
    module, _, name = job["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    return json.dumps(function(load(job["path"]), **job["arguments"]))


def probe(job: dict) -> str:
    """What this machine is, as JSON."""
    from overlap.run import machine

    try:
        import torch  # noqa: F401
    except Exception as error:
        raise SystemExit(f"{sys.executable} cannot `import torch`: {type(error).__name__}: {error}") from None
    return json.dumps(machine.probe())


def dispatch(job: dict) -> str:
    """What a small torch call costs here and now, as JSON."""
    from overlap.run import noise

    return json.dumps(noise.dispatch_us())


_KINDS = {"snippet": run_snippet, "call": call, "probe": probe, "dispatch": dispatch}


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    option, *rest = sys.argv[1:]
    if option == "--job":
        _supervise(json.loads(Path(rest[0]).read_text()), *map(int, rest[1:]))
    elif option == "--rank":
        rank = int(os.environ["RANK"])
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{rest[2]}/{rank}.{name}", os.O_WRONLY), number)
        job = {"path": rest[0], "result": rest[1], "rank": rank}
        returned = run_snippet(job)
        if rank == 0:
            Path(rest[1]).write_text(returned)
        Path(rest[2], f"{rank}.ended").touch()
    else:
        serve(socket.socket(fileno=int(option)), rest)
