"""A server in a running program that records the program on request, any number of times.

It listens on 127.0.0.1 only. Any user of this machine can connect, but no other machine can.
(`jax.profiler.start_server` listens on all addresses, jax 0.10.2.) It costs a thread that waits in the kernel for a
connection, and records nothing before a request. The recording is the one of `program_recorder.py`: it starts no
backend, and ends when the program begins its own trace. The server makes the files in a temporary folder and sends them
to the client, so a request cannot choose where to write. Nothing here raises into the program.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import psutil

from benchax.errors import BenchaxError, NotAvailable, UsageError
from benchax.profiling import wire
from benchax.profiling.program_recorder import COMPILED, ProgramRequest, Recorder
from benchax.profiling.wire import Ask, EndOfRecording, Refused, StartOfRecording

HOOK = "benchax.profiling.serving:begin"
MOST_CONNECTIONS = 8
"""At once; further ones are closed unread."""
LOOK_S = 0.1
"""While recording, how often it is looked whether the client is still there."""
WORD, WORDS = 200, 20
"""The longest word, and the number of words, that an answer contains of the process's command: an answer has a maximum
length."""
DELIVER_S = 10.0
"""The time that `close` leaves for sending a recording that it ended."""


def serve(port: int = 0) -> ProfileServer:
    """Lets `benchax profile --attach PORT` record this process, until `close` or the end of a `with` block.

    Starts JAX's backend, if nothing has: call it where the program has chosen it.

    Args:
        port: of 127.0.0.1. 0: a free one, to be read from `port` of the result.

    Raises:
        UsageError: no port, or one that is taken.
    """
    jax.devices()
    server = ProfileServer(port)
    server.is_ready = True
    atexit.register(server.close)
    return server


class ProfileServer:
    """Listens from the beginning; records once `is_ready` says that there is a backend."""

    def __init__(self, port: int) -> None:
        self.is_ready = False
        self.recordings = 0
        """How many were made and sent."""
        self._pid = os.getpid()
        self._socket = _listening(port)
        self.port: int = self._socket.getsockname()[1]
        self._recorder: Recorder | None = None
        self._alone = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._closed = threading.Event()
        # A child made by os.fork has the socket, but no thread that would answer.
        os.register_at_fork(after_in_child=self._socket.close)
        threading.Thread(target=self._accept, name="benchax-server", daemon=True).start()

    def __enter__(self) -> ProfileServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the port. A recording that is under way ends here, and is sent."""
        if os.getpid() != self._pid:  # a fork: what is under way belongs to its parent
            return
        self._closed.set()
        atexit.unregister(self.close)
        with contextlib.suppress(OSError):  # wakes the thread on Linux; elsewhere `close` does
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if (recorder := self._recorder) is not None:
            recorder.stop("end")
            # Whoever was recorded for holds it until all has been sent.
            if self._alone.acquire(timeout=DELIVER_S):
                self._alone.release()

    # ---- connections ----

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed; or no file descriptors left for now
                self._closed.wait(1.0)
                continue
            if not self._places.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()
            except RuntimeError:  # no more threads
                self._places.release()
                connection.close()

    def _converse(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._answer(connection)
        except Exception:
            # The client is gone, or never was one. We are guests in a program of the user's: a traceback of this thread
            # would look like a fault of the program. What a recording cannot do is an answer (`Refused`), no exception.
            pass
        finally:
            self._places.release()

    def _answer(self, connection: socket.socket) -> None:
        try:
            ask = wire.parse_request(wire.line_of(connection))
            with self._only_one():
                self._record(ask, connection)
        except BenchaxError as error:
            wire.send(connection, Refused(_sentence(error)))

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[None]:
        if self._closed.is_set():
            raise NotAvailable("the program is about to end, or has closed its server")
        if not self.is_ready:
            raise NotAvailable(
                "the program has not compiled anything yet, and recording would start the backend, which it may still "
                "want to choose; ask again"
            )
        if not self._alone.acquire(blocking=False):
            raise NotAvailable("the program is being recorded for somebody else; ask again when that has ended")
        try:
            yield
        finally:
            self._recorder = None
            self._alone.release()

    # ---- one recording ----

    def _record(self, ask: Ask, connection: socket.socket) -> None:
        with tempfile.TemporaryDirectory(prefix="benchax-", ignore_cleanup_errors=True) as folder:
            request = ProgramRequest(folder, duration_s=ask.duration_s, keeps_memory=ask.memory, samples_stack=True)
            recorder = Recorder(request)
            recorder.give_way()  # and does not listen: it begins when it is asked to, not at a compilation
            self._recorder = recorder
            try:
                recorder.start()
                if recorder.found.began_s is None:
                    raise NotAvailable("; ".join(recorder.found.remarks) or "the program traces itself, or ends")
                wire.send(connection, StartOfRecording(os.getpid(), [word[:WORD] for word in sys.orig_argv[:WORDS]]))
                _await(recorder, connection)
            finally:
                connection.settimeout(wire.PATIENCE_S)
                recorder.finish()
            self._send(recorder, connection)

    def _send(self, recorder: Recorder, connection: socket.socket) -> None:
        found = recorder.found
        if found.xplane is None:
            raise NotAvailable("; ".join(found.remarks) or "the profiler wrote no trace")
        files = sorted(Path(found.xplane).parent.iterdir())
        connection.settimeout(None)
        wire.send(connection, EndOfRecording(asdict(found), [[file.name, file.stat().st_size] for file in files]))
        wire.send_files(connection, files)
        self.recordings += 1


def _listening(port: int) -> socket.socket:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise UsageError(f"port {port!r}", "a whole number from 1 to 65535, or 0 for a free one")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a program that is started again at once
        made.bind((wire.HOST, port))
        made.listen(MOST_CONNECTIONS)
    except OSError as error:
        made.close()
        raise UsageError(
            f"cannot listen on port {port} of {wire.HOST}: {error.strerror}",
            "a port that nobody listens on; 0 chooses a free one",
        ) from error
    return made


def _await(recorder: Recorder, connection: socket.socket) -> None:
    """Until it has stopped; earlier where the client has gone.

    Raises:
        ConnectionError: it has gone.
    """
    connection.settimeout(0.0)
    while not recorder.over.wait(LOOK_S):
        with contextlib.suppress(BlockingIOError):  # nothing to read is how a waiting client looks
            if not connection.recv(1, socket.MSG_PEEK):
                raise ConnectionError


def _sentence(error: BenchaxError) -> str:
    expected = f"; expected {error.expected}" if error.expected else ""
    return f"{error.problem}{expected}"


# ---- a program that is wrapped ----------------------------------------------------------------------------------


def begin(settings: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """The hook of `benchax profile --serve`. It listens in the first process only: the file `owner` names that process.

    If it cannot listen, it reports the reason on stderr at once, and the program runs.
    """
    try:
        served = _serve(settings["port"], Path(settings["owner"]))
    except BenchaxError as error:
        why = _sentence(error)
        if isinstance(error, UsageError):
            _tell(f"process {os.getpid()} runs, but cannot be recorded: {why}")
        return lambda how: {"port": None, "recordings": 0, "remarks": [why]}
    _tell(f"process {os.getpid()} can be recorded with: benchax profile --attach {served.port}")
    return lambda how: _end(served)


def _serve(port: int, owner: Path) -> ProfileServer:
    if (first := _first(owner)) is not None:
        raise NotAvailable(f"process {first} of this program has the port, and one process can be asked")
    server = ProfileServer(port)
    owner.write_text(json.dumps(os.getpid()), encoding="utf-8")

    def on_event(event: str, duration_secs: float, **_: Any) -> None:
        server.is_ready = server.is_ready or event == COMPILED

    jax.monitoring.register_event_duration_secs_listener(on_event)
    return server


def _first(owner: Path) -> int | None:
    """The process that listens; one that has ended leaves its place to the next."""
    try:
        pid = json.loads(owner.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return pid if psutil.pid_exists(pid) else None


def _end(server: ProfileServer) -> dict[str, Any]:
    server.close()
    return {"port": server.port, "recordings": server.recordings, "remarks": []}


def _tell(text: str) -> None:
    with contextlib.suppress(Exception):  # a program without a stderr
        sys.stderr.write(f"benchax: {text}\n")
        sys.stderr.flush()
