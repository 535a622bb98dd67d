"""Runs snippets as processes: time limit, process group, capture of file descriptors 1 and 2, one at a time or side by side."""

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from overlap import OverlapError
from overlap.run import machine
from overlap.run.recording import SCHEMA, sealed
from overlap.run.snippet import Snippet

#: Bytes kept from the beginning and the end of a stream; what lies between is left out with a note.
HEAD, TAIL = 48 << 10, 16 << 10
_DIED = "the process that runs snippets died; can this Python `import torch`?"


class RunFailed(OverlapError):
    """A snippet that raised, ran past its limit or was killed; the message has its last lines."""


@dataclass
class Outcome:
    """How a process ended and what it wrote."""

    exit: int | None
    timed_out: bool
    seconds: float
    stdout: str
    stderr: str
    result: object


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


class Runner:
    """Runs jobs in children of one nursery process; use it as a context manager."""

    def __init__(self, root: Path):
        self.root, self._lock, self._nursery, self._probes = root, threading.Lock(), None, {}

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *exc_info) -> None:
        if self._nursery:
            self._channel.close()
            self._nursery.wait()

    def _send(self, job: Path, fds: list[int]) -> None:
        with self._lock:
            if self._nursery is None:
                self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                path = os.pathsep.join(filter(None, [str(self.root), os.environ.get("PYTHONPATH")]))
                environment = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "MPLBACKEND": "Agg"}
                command = [sys.executable, "-m", "overlap.run.nursery", str(theirs.fileno())]
                self._nursery = subprocess.Popen(
                    command, pass_fds=[theirs.fileno()], env=environment, cwd=self.root, stdin=subprocess.DEVNULL
                )
                theirs.close()
            socket.send_fds(self._channel, [str(job).encode()], fds)

    def _job(self, kind: str, folder: Path, timeout: float, gpus: int, **more) -> Outcome:
        """Run one job to its end; nothing it started is left when this returns."""
        cwd, result, outcome = folder / "cwd", folder / "result.json", folder / "outcome.json"
        cwd.mkdir()
        job = {"kind": kind, "timeout": timeout, "cwd": str(cwd), "result": str(result), "outcome": str(outcome)}
        job["env"] = {"CUDA_VISIBLE_DEVICES": machine.visible_devices(gpus) if gpus else ""}
        (folder / "job.json").write_text(json.dumps(job | more))
        pipes = [os.pipe() for _ in range(3)]
        try:
            self._send(folder / "job.json", [write for _, write in pipes])
        except OSError:
            raise OverlapError(_DIED) from None
        finally:
            for _, write in pipes:
                os.close(write)
        captures = [Capture() for _ in pipes]
        with selectors.DefaultSelector() as selector:
            for (read, _), capture in zip(pipes, captures, strict=True):
                selector.register(read, selectors.EVENT_READ, capture)
            while selector.get_map():
                for key, _ in selector.select():
                    chunk = os.read(key.fd, 1 << 16)
                    key.data.add(chunk)
                    if not chunk:
                        selector.unregister(key.fd)
                        os.close(key.fd)
        if not outcome.exists():
            raise OverlapError(_DIED)
        ended = json.loads(outcome.read_text())
        returned = json.loads(result.read_text()) if ended["exit"] == 0 and result.exists() else None
        return Outcome(**ended, stdout=captures[0].text(), stderr=captures[1].text(), result=returned)

    def probe(self, gpus: int) -> dict:
        """`machine` and `software` of a recording made with this many GPUs visible."""
        if gpus not in self._probes:
            with tempfile.TemporaryDirectory(prefix="overlap-") as folder:
                found = self._job("probe", Path(folder), 120, gpus)
            if found.result is None:
                raise OverlapError(f"cannot tell what this is; can this Python `import torch`?\n{found.stderr[-2000:]}")
            self._probes[gpus] = found.result
        return self._probes[gpus]

    def run(self, snippet: Snippet, gpus: int) -> dict:
        """Run a snippet with `gpus` visible GPUs (0: the CPU alone) and return its recording."""
        here = self.probe(gpus)
        if (shown := len(here["machine"]["gpus"])) != gpus:
            raise OverlapError(f"{snippet.path}: asked for {gpus} GPU(s), this machine shows {shown}")
        started = datetime.now(UTC).isoformat(timespec="seconds")
        path = str(self.root / snippet.path)
        with tempfile.TemporaryDirectory(prefix="overlap-") as temporary:
            folder = Path(temporary)
            if snippet.options["launcher"] == "torchrun":
                command = f"torchrun --standalone --nproc-per-node {gpus or 1} {snippet.path}"
                argv = ["-m", "torch.distributed.run", *command.split()[1:4], "--redirects", "3"]
                argv += ["--log-dir", str(folder / "ranks")]
                argv += ["-m", "overlap.run.nursery", "--rank", path, str(folder / "result.json")]
                ended = self._job("torchrun", folder, snippet.options["timeout"], gpus, argv=argv)
                outputs = _rank_outputs(folder / "ranks")
            else:
                command = f"python {snippet.path}"
                ended = self._job("snippet", folder, snippet.options["timeout"], gpus, path=path)
                outputs = _outputs(ended.stdout, ended.stderr, 0)
        for path, short in ((f"{folder}/cwd", "."), (str(folder), "."), (f"{self.root}/", "")):
            for output in outputs:
                output["text"] = [line.replace(path, short) for line in output["text"]]
        if ended.timed_out or ended.exit != 0 or not isinstance(ended.result, dict):
            raise RunFailed(_failure(snippet, gpus, ended, outputs))
        return sealed(
            {
                "schema": SCHEMA,
                "snippet": snippet.name,
                "profile": machine.profile([gpu["name"] for gpu in here["machine"]["gpus"]]),
                "source": {"path": snippet.path, "sha256": snippet.hash},
                "inputs": snippet.input_hashes,
                "run": {"command": command, "started": started, "seconds": ended.seconds, "exit": ended.exit},
                **here,
                "outputs": outputs,
                "result": ended.result,
            }
        )

    def draw(self, snippet: Snippet, data: dict, ceilings: dict, salt: str) -> list[dict]:
        """Draw a snippet's plot from recorded data, in a process of its own."""
        with tempfile.TemporaryDirectory(prefix="overlap-") as folder:
            path = str(self.root / snippet.path)
            ended = self._job("plot", Path(folder), 60, 0, path=path, data=data, ceilings=ceilings, salt=salt)
        if ended.exit != 0:
            last = "\n".join(ended.stderr.splitlines()[-8:])
            raise RunFailed(f"{snippet.path}: plot(results, ceilings) failed on recorded data of {salt}:\n{last}")
        return ended.result

    def run_all(
        self, wanted: list[tuple[Snippet, int]], done=lambda snippet, gpus, recording: None, label: str = "running"
    ) -> list[RunFailed]:
        """Run many: measurements one at a time, the rest side by side. Failures are returned, after all had their turn."""
        failures = []

        def one(item: tuple[Snippet, int]) -> None:
            try:
                done(*item, self.run(*item))
            except OverlapError as error:
                failures.append(error)

        shared = [item for item in wanted if not item[0].options["exclusive"]]
        alone = [item for item in wanted if item[0].options["exclusive"]]
        for gpus in sorted({gpus for _, gpus in wanted}):
            self.probe(gpus)
        with _progress(len(wanted), label) as advance, ThreadPoolExecutor(max(2, min(8, os.cpu_count() // 2))) as pool:
            for future in as_completed([pool.submit(one, item) for item in shared]):
                future.result()
                advance(label)
            for item in alone:
                advance(f"{item[0].name} on {item[1]} GPU(s)" if item[1] else item[0].name, 0)
                one(item)
                advance(label)
        return failures


def _outputs(stdout: str, stderr: str, rank: int) -> list[dict]:
    """nbformat stream objects, with the rank that wrote them."""
    streams = (("stdout", stdout), ("stderr", stderr))
    return [
        {"output_type": "stream", "name": name, "text": text.splitlines(keepends=True), "rank": rank}
        for name, text in streams
        if text
    ]


def _rank_outputs(logs: Path) -> list[dict]:
    outputs = []
    for folder in sorted(logs.glob("*/attempt_0/*"), key=lambda path: int(path.name)):
        texts = []
        for name in ("stdout.log", "stderr.log"):
            capture = Capture()
            with contextlib.suppress(FileNotFoundError), open(folder / name, "rb") as file:
                while chunk := file.read(1 << 20):
                    capture.add(chunk)
            texts.append(capture.text())
        outputs += _outputs(*texts, int(folder.name))
    return outputs


def _failure(snippet: Snippet, gpus: int, ended: Outcome, outputs: list[dict]) -> str:
    if ended.timed_out:
        why = f"still ran after its limit of {snippet.options['timeout']} s and was stopped"
    elif ended.exit < 0:
        why = f"was killed by signal {-ended.exit}"
    elif ended.exit:
        why = f"failed with exit code {ended.exit}"
    else:
        why = "returned no dict from main()"
    lines = [line.rstrip() for output in outputs for line in output["text"]] or ended.stderr.splitlines()
    last = "\n".join(f"    {line[:300]}" for line in lines[-12:]) or "    (it printed nothing)"
    where = f"with {gpus} GPU(s)" if gpus else "on the CPU"
    again = f"overlap run {snippet.name}"
    return f"{snippet.path} {why}, {where}. Its last lines:\n{last}\n  Run it alone: {again}"


@contextlib.contextmanager
def _progress(total: int, label: str):
    """A progress bar on stderr where rich is installed; `advance(label, step)` moves it."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield lambda text, step=1: print(text, file=sys.stderr, flush=True) if not step else None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not total) as bar:
        task = bar.add_task(label, total=total)
        yield lambda text, step=1: bar.update(task, description=text, advance=step)
