"""A server in a running program that records the program on request, any number of times.

It listens on 127.0.0.1 only, and answers only processes of its own user, which can read its key.
(`jax.profiler.start_server` listens on all addresses, jax 0.10.2.) It costs a thread that waits in the kernel for a
connection, and records nothing before a request. The recording is the one of `program_recorder.py`: it starts no
backend, and ends when the program begins its own trace. The server makes the files in a temporary folder, so a request
cannot choose where to write. Nothing here raises into the program.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

import jax
import platformdirs
import psutil

from benchax.errors import BenchaxError, NotAvailable, NotMeasured, UsageError
from benchax.profiling import files
from benchax.profiling.program_recorder import ProgramRequest, Recorded, Recorder
from benchax.watching.compiles import CompileEvent, Listening

# Asks a running program to record itself, and takes the files: the client.
#
# The two sides talk through `multiprocessing.connection`, over loopback. Each proves that it knows the key of the
# server, which the server keeps in a file that only its own user can read. So they are processes of one user on one
# machine. The program writes the files into its own temporary folder, and the client copies them from there.

HOST = "127.0.0.1"
"""The only address that a server listens on: who reaches a profiler can read a program's code and slow it down."""
LEAST_S, MOST_S = 0.001, 60.0
"""The limits of one recording. A second of small programs on CPU is 300,000 events, in memory until it ends."""
PATIENCE_S = 10.0
"""For an answer that is due at once."""
HINT = (
    "start the program with: benchax profile --serve {port} -- python train.py, or call benchax.profiling.serve in it"
)


@dataclass(frozen=True)
class Attached:
    """A recording of another process, and where its files are now."""

    pid: int
    argv: tuple[str, ...]
    recorded: Recorded
    xplane: Path


def key_file(port: int) -> Path:
    """Returns the file with the key of the server at a port of this machine. Home folders can be shared by machines."""
    return Path(platformdirs.user_cache_dir("benchax")) / "served" / f"{socket.gethostname()}-{port}.key"


def check_duration(value: Any) -> None:
    """Raises UsageError if a recording cannot have this duration."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not LEAST_S <= value <= MOST_S:
        raise UsageError(
            f"a recording of {value!r} s of a running program", f"a number of seconds from {LEAST_S:g} to {MOST_S:g}"
        )


def attach(
    port: int,
    duration_s: float,
    folder: Path,
    *,
    memory: bool = False,
    limit_s: float | None = None,
    begun: Callable[[int], None] = lambda pid: None,
) -> Attached:
    """Asks the program behind `port` to record, and keeps the files in `folder`.

    Args:
        memory: also takes readings of memory.
        limit_s: longest wait for the recording to come back. None: until the program ends.
        begun: called with the number of the process as soon as the program reports that it records.

    Raises:
        UsageError: nothing listens there, or something else does; or `folder` cannot be written to.
        NotMeasured: the program refuses, or ended; `problem` gives the reason.
    """
    check_duration(duration_s)
    with _connect(port) as connection, files.recording_folder(folder) as place:
        pid = 0
        try:
            connection.send({"duration_s": duration_s, "memory": memory})
            first = _receive(connection, limit_s)
            pid = first["pid"]
            begun(pid)
            ended = _receive(connection, limit_s)
            run = Path(ended["recorded"]["xplane"]).parent
            # Copy to the same disk first, so that a full disk leaves no partial file.
            copied = files.move_run(Path(shutil.copytree(run, place / run.name)), folder)
            connection.send("copied")
            connection.poll(PATIENCE_S)  # until it hangs up: it refuses others before that
        except (EOFError, ConnectionError) as error:
            raise NotMeasured(f"process {pid} ended, or closed its server, before it had sent all") from error
    return Attached(pid, tuple(first["argv"]), Recorded(**ended["recorded"]), files.list_files(copied)["xplane"])


def _connect(port: int) -> Connection:
    try:
        key = key_file(port).read_bytes()
        connection = Client((HOST, port))
    except OSError as error:
        raise UsageError(
            f"no program of yours answers on port {port} of {HOST}: {error.strerror or error}",
            "the port of a running program",
            HINT.format(port=port),
        ) from error
    try:
        if not connection.poll(PATIENCE_S):
            raise TimeoutError(f"no answer within {PATIENCE_S:g} s")
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
    except (OSError, EOFError, AuthenticationError, AssertionError) as error:
        connection.close()
        raise UsageError(
            f"what listens on port {port} of {HOST} does not answer as benchax does: {error or type(error).__name__}",
            "the port that the program printed when it began",
            HINT.format(port=port),
        ) from error
    return connection


def _receive(connection: Connection, limit_s: float | None) -> dict[str, Any]:
    if not connection.poll(limit_s):
        raise NotMeasured(f"the recording did not come back within {limit_s:g} s", "a longer --timeout")
    found = connection.recv()
    if "refused" in found:
        raise NotMeasured(found["refused"])
    return found


HOOK = "benchax.profiling.serving:begin"
LOOK_S = 0.1
"""While recording, how often it is looked whether the client is still there."""
DELIVER_S = 10.0
"""The time that `close` leaves for sending a recording that it ended."""


def serve(port: int = 0) -> ProfileServer:
    """Lets `benchax profile --attach PORT` record this process, until `close` or the end of a `with` block.

    Starts JAX's backend, if nothing has: call it where the program has chosen it.

    Args:
        port: of 127.0.0.1. 0: a free one, to be read from `port` of the result.

    Raises:
        UsageError: no port, or one that is taken; or the key of the server cannot be kept.
    """
    jax.devices()
    server = ProfileServer(port)
    server.is_ready = True
    atexit.register(server.close)
    return server


class ProfileServer(contextlib.AbstractContextManager["ProfileServer"]):
    """Listens from the beginning; records once `is_ready` says that there is a backend."""

    def __init__(self, port: int) -> None:
        self.is_ready = False
        self.recordings = 0
        """How many were made and sent."""
        self._pid = os.getpid()
        self._listener = _listening(port)
        self.port = int(self._listener.address[1])
        self._key = secrets.token_bytes(32)
        self._key_file = key_file(self.port)
        self._keep_key()
        self._recorder: Recorder | None = None
        self._alone = threading.Lock()
        self._closed = threading.Event()
        # A child of os.fork has the socket, but no thread to answer.
        os.register_at_fork(after_in_child=self._listener.close)
        self._thread = threading.Thread(target=self._accept, name="benchax-server", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the port. A recording that is under way ends here, and is sent."""
        if os.getpid() != self._pid or self._closed.is_set():  # a fork: what is under way belongs to its parent
            return
        self._closed.set()
        atexit.unregister(self.close)
        with contextlib.suppress(OSError):
            self._key_file.unlink(missing_ok=True)
            socket.create_connection((HOST, self.port), timeout=1.0).close()  # wakes the thread, which frees the port
        self._thread.join(1.0)
        if (recorder := self._recorder) is not None:
            recorder.stop("end")
            # The client of the recording holds it until everything is sent.
            if self._alone.acquire(timeout=DELIVER_S):
                self._alone.release()

    def _keep_key(self) -> None:
        try:
            self._key_file.parent.mkdir(parents=True, exist_ok=True)
            self._key_file.unlink(missing_ok=True)
            self._key_file.touch(mode=0o600, exist_ok=False)
            self._key_file.write_bytes(self._key)
        except OSError as error:
            self._listener.close()
            raise UsageError(
                f"cannot keep the key of the server in {str(self._key_file)!r}: {error.strerror or error}",
                "a cache folder that can be written to: set XDG_CACHE_HOME to one",
            ) from error

    # ---- connections ----

    def _accept(self) -> None:
        with self._listener:
            while not self._closed.is_set():
                try:
                    connection = self._listener.accept()
                    # A silent connection blocks this thread, and nothing else, until it closes.
                    threading.Thread(target=self._converse, args=(connection,), daemon=True).start()
                except (OSError, RuntimeError):  # no file descriptors, or no threads, are left for now
                    self._closed.wait(1.0)

    def _converse(self, connection: Connection) -> None:
        # An exception means that the client is gone or has no key. benchax is a guest in the user's program: a
        # traceback of this thread would look like a fault of the program. If a recording fails, the client gets the
        # reason as an answer.
        with contextlib.suppress(Exception), connection:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            try:
                asked = connection.recv()
                check_duration(asked["duration_s"])
                self._record_alone(connection, asked)
            except BenchaxError as error:
                connection.send({"refused": _sentence(error)})

    def _record_alone(self, connection: Connection, asked: Mapping[str, Any]) -> None:
        if self._closed.is_set():
            raise NotAvailable("the program is about to end, or has closed its server")
        if not self.is_ready:
            raise NotAvailable(
                "the program has not compiled anything yet, and recording would start JAX's backend too early; "
                "try again later"
            )
        if not self._alone.acquire(blocking=False):
            raise NotAvailable("another client is recording the program; try again when it has ended")
        try:
            self._record(connection, **asked)
        finally:
            self._recorder = None
            self._alone.release()

    def _record(self, connection: Connection, duration_s: float, memory: bool = False) -> None:
        with tempfile.TemporaryDirectory(prefix="benchax-", ignore_cleanup_errors=True) as folder:
            request = ProgramRequest(folder, duration_s=duration_s, keeps_memory=memory, samples_stack=True)
            recorder = Recorder(request)
            recorder.give_way()  # and does not listen: it begins when it is asked to, not at a compilation
            self._recorder = recorder
            found = recorder.found
            try:
                recorder.start()
                if found.began_s is None:
                    raise NotAvailable("; ".join(found.remarks) or "the program traces itself, or ends")
                connection.send({"pid": os.getpid(), "argv": sys.orig_argv})
                while not recorder.is_wanted.is_set():
                    if connection.poll(LOOK_S):
                        connection.recv()  # EOFError: the client has gone
            finally:
                recorder.finish()
            if found.xplane is None:
                raise NotAvailable("; ".join(found.remarks) or "the profiler wrote no trace")
            connection.send({"recorded": asdict(found)})
            connection.recv()  # the client has copied the files
            self.recordings += 1


def _listening(port: int) -> Listener:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise UsageError(f"port {port!r}", "a whole number from 1 to 65535, or 0 for a free one")
    try:
        return Listener((HOST, port), backlog=8)
    except OSError as error:
        raise UsageError(
            f"cannot listen on port {port} of {HOST}: {error.strerror}",
            "a free port; 0 chooses one",
        ) from error


def _sentence(error: BenchaxError) -> str:
    expected = f"; expected {error.expected}" if error.expected else ""
    return f"{error.problem}{expected}"


# ---- a program that is wrapped ----------------------------------------------------------------------------------


def begin(settings: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """The hook of `benchax profile --serve`. It listens in the first process only: the file `owner` names that process.

    If it cannot listen, it reports the reason on stderr at once, and the program runs.
    """
    try:
        server = _serve_once(settings["port"], Path(settings["owner"]))
    except BenchaxError as error:
        why = _sentence(error)
        if isinstance(error, UsageError):
            _tell(f"process {os.getpid()} runs, but cannot be recorded: {why}")
        return lambda how: {"port": None, "recordings": 0, "remarks": [why]}
    _tell(f"process {os.getpid()} can be recorded with: benchax profile --attach {server.port}")

    def end(how: str) -> dict[str, Any]:
        server.close()
        return {"port": server.port, "recordings": server.recordings, "remarks": []}

    return end


def _serve_once(port: int, owner: Path) -> ProfileServer:
    with contextlib.suppress(OSError, ValueError):  # of the first process, there is no such file
        # A process that has ended leaves its place to the next.
        if psutil.pid_exists(first := json.loads(owner.read_text(encoding="utf-8"))):
            raise NotAvailable(f"process {first} of this program has the port, and only one process can be recorded")
    server = ProfileServer(port)
    owner.write_text(json.dumps(os.getpid()), encoding="utf-8")

    def on_step(step: CompileEvent) -> None:
        server.is_ready = server.is_ready or step.kind == "compile"

    Listening(on_step).__enter__()  # to the end of the program
    return server


def _tell(text: str) -> None:
    with contextlib.suppress(Exception):  # a program without a stderr
        sys.stderr.write(f"benchax: {text}\n")
        sys.stderr.flush()
