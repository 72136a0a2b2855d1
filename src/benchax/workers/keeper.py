"""This program's handle on its zygote, and through it on the workers: started, read, told of their end, killed.

The zygote does the killing, since it alone knows which processes are still there and which number is free for another
one. All of it ends with `stop`, and also when this program ends in any other way (see `zygote.py`).

Output of a worker goes to this program's standard error, up to a limit, and is never kept as a whole. A function that
prints without end cannot fill memory or disk, and cannot delay the waiting program.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

from benchax.errors import BenchaxError
from benchax.workers import process_tree, zygote
from benchax.workers.channel import Channel, Closed, Garbled, TooLate, pair, wait_readable

PASSED_ON_BYTES = 64 * 2**10
"""Per job."""
TAIL_BYTES = 16 * 2**10
"""Kept to say what a crash was: the fault handler writes up to 100 frames per thread, the innermost ones first."""
LAST_WORDS = 2 * 2**10
_AT_A_TIME = 2**16
_MOST_READS = 16


class Output:
    """The reading end of a worker's output pipe."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_open = True
        os.set_blocking(fd, False)
        self.begin(is_passed_on=False)

    def fileno(self) -> int:
        return self.fd

    def begin(self, is_passed_on: bool) -> None:
        """A new job: what was printed since the last one belongs to neither."""
        self.is_passed_on = False
        self.tail = b""
        self.drain()
        self.tail = b""
        self.left = PASSED_ON_BYTES
        self.is_passed_on = is_passed_on
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def pump(self) -> bool:
        """Takes what is there, without waiting. False if there was nothing, or nothing will come any more."""
        if not self.is_open:
            return False
        try:
            data = os.read(self.fd, _AT_A_TIME)
        except (BlockingIOError, InterruptedError):
            return False
        if not data:  # the worker has closed it: from now on it could always be read, and would be empty
            self.close()
            return False
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        self._pass_on(data)
        return True

    def drain(self) -> None:
        """All that is there, up to 1 MiB: something may go on printing."""
        for _ in range(_MOST_READS):
            if not self.pump():
                return

    def _pass_on(self, data: bytes) -> None:
        if not self.is_passed_on or self.left < 0:
            return
        text = self.decoder.decode(data[: self.left])
        self.left -= len(data)
        if self.left < 0:
            text += f"\n[benchax: more than {PASSED_ON_BYTES // 2**10} KiB printed; the rest is dropped]\n"
        # A closed or full standard error is no reason to lose a measurement.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def text(self) -> str:
        """The end of the output."""
        return self.tail.decode("utf-8", "replace")

    def stack(self, within_s: float) -> str:
        """Returns the text that the fault handler writes on request; it is not shown elsewhere."""
        until = perf_counter() + within_s
        while self.is_open and (rest := until - perf_counter()) > 0 and not self.text().endswith("<module>\n"):
            if wait_readable([self], rest):
                self.pump()
        return self.text()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self.fd)


Start = Literal["auto", "spawn"]

START_S = 120.0
"""Importing JAX from a cold disk on a busy machine takes its time; more than this it does not."""
END_S = 15.0


class CannotStart(BenchaxError):
    """There is no worker process, and why."""


@dataclass(eq=False)
class Worker:
    pid: int
    how: str
    """ "fork" or "spawn"."""
    channel: Channel
    output: Output
    status: int | None = None
    """Once it has ended: its exit code, or minus the signal that killed it."""
    jobs: int = 0

    def close(self) -> None:
        self.channel.close()
        self.output.close()


class Keeper:
    def __init__(self, start: Start, preload: Sequence[str], environ: Mapping[str, str]) -> None:
        """Starts the zygote, which imports `preload` before anything else, and does not wait for it.

        Args:
            environ: variables that it has on top of those of this process.
        """
        self.workers: dict[int, Worker] = {}
        self.replies: list[dict[str, Any]] = []
        self.count = 0
        self.errors = tempfile.TemporaryFile(prefix="benchax-")  # noqa: SIM115 - lives as long as the process
        ours, theirs = pair()
        self.channel = Channel(ours)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, *_flags(), "-c", zygote.BOOT, json.dumps(_paths()), start, json.dumps(preload)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self.errors,
                # OpenBLAS would start threads, with which a process must not be forked. Each job brings its own value.
                env={**os.environ, **environ, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # not in the terminal's group: Ctrl-C is for this program
            )

    def start(self) -> Worker:
        """A new worker.

        Raises:
            CannotStart: it, or the zygote, did not come to life.
        """
        self.count += 1
        number = self.count
        ours, theirs = pair()
        reading, writing = os.pipe()
        channel, output = Channel(ours), Output(reading)
        try:
            # Our copies of the worker's ends are closed when they are sent: while one is open here, neither ever shows
            # its end.
            with theirs, os.fdopen(writing, "wb"):
                self.channel.send({"start": number}, fds=[theirs.fileno(), writing], timeout_s=START_S)
            reply = self._reply(lambda reply: reply.get("started") == number, START_S)
        except BaseException as error:
            channel.close()
            output.close()
            if isinstance(error, Closed | Garbled | TimeoutError):
                raise CannotStart(f"no worker process could be started: {self._why()}") from error
            raise
        worker = Worker(reply["pid"], reply["how"], channel, output)
        self.workers[worker.pid] = worker
        return worker

    def where(self, worker: Worker, within_s: float) -> str:
        """Returns the position of `worker` from its fault handler; any text if the handler writes nothing in time."""
        worker.output.begin(is_passed_on=False)  # before it is asked: the answer may be there at once
        try:
            self.channel.send({"ask": worker.pid}, timeout_s=within_s)
        except (Closed, TooLate):
            return ""
        return worker.output.stack(within_s)

    def kill(self, worker: Worker) -> None:
        """Ends `worker`, if it has not ended, and all that it has left behind. Its status is known afterwards."""
        self._kill(worker.pid if worker.status is None else 0)
        self.workers.pop(worker.pid, None)
        worker.close()

    def sweep(self) -> None:
        """Ends what workers have left behind in the background."""
        self._kill(0)

    def _kill(self, pid: int) -> None:
        try:
            self.channel.send({"kill": pid}, timeout_s=END_S)
            self._reply(lambda reply: reply.get("killed") == pid, END_S)
        except (Closed, Garbled, TimeoutError, OSError):  # the zygote itself is in trouble: nothing of it shall stay
            self.stop()

    def absorb(self) -> None:
        """Takes note of new messages from the zygote. Raises `Closed` if it is gone."""
        self.channel.take()
        while (message := self.channel.pop()) is not None:
            self._note(message.document)

    def _note(self, document: dict[str, Any]) -> None:
        if "ended" not in document:
            self.replies.append(document)
        elif (worker := self.workers.get(document["ended"])) is not None:
            worker.status = document["status"]

    def await_end(self, worker: Worker, timeout_s: float) -> None:
        """Waits until the status of `worker` is known, or for `timeout_s`."""
        until = perf_counter() + timeout_s
        try:
            while worker.status is None and (rest := until - perf_counter()) > 0:
                if (message := self.channel.receive(rest)) is not None:
                    self._note(message.document)
        except (Closed, Garbled):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)

    def _reply(self, fits: Callable[[dict[str, Any]], bool], timeout_s: float) -> dict[str, Any]:
        until = perf_counter() + timeout_s
        while True:
            if (found := next((reply for reply in self.replies if fits(reply)), None)) is not None:
                self.replies.clear()  # the others answer requests that were given up
                return found
            message = self.channel.receive(max(0.0, until - perf_counter()))
            if message is None:
                raise TimeoutError
            self._note(message.document)

    def _why(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 2000))
        words = self.errors.read().decode("utf-8", "replace").strip()
        code = self.process.returncode
        how = "it does not answer" if code is None else f"it ended with exit code {code}"
        return f"{how}; its last words: {words.splitlines()[-1]}" if words else how

    def stop(self) -> None:
        """Ends the zygote, which first ends everything below it. May be called while another thread uses this."""
        with contextlib.suppress(OSError):
            # Not a signal: the zygote takes the end of its connection for the order to end what is below it, which it
            # alone can.
            self.channel.sock.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            process_tree.kill_tree(self.process.pid)
            self.process.wait()

    def close(self) -> None:
        self.stop()
        # Where the zygote was killed by others, its workers end by themselves, but not what they had started.
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()
        self.channel.close()
        self.errors.close()

    def abandon(self) -> None:
        """In a fork of this program, to which none of this belongs: lets go of it without ending it."""
        self.process.returncode = 0  # it is no child of this process, which Popen would find out with a warning
        for worker in self.workers.values():
            worker.close()
        self.channel.close()
        self.errors.close()


def _paths() -> list[str]:
    return [path for path in sys.path if isinstance(path, str)]


def _flags() -> list[str]:
    """Flags of this interpreter that change what code does."""
    return ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []


def signal_name(status: int) -> str:
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
