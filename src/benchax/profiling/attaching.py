"""Asks a running program to record itself, and takes the files: the client of `serving.py`.

The two sides talk through `multiprocessing.connection`, over loopback. Each proves that it knows the key of the server,
which the server keeps in a file that only its own user can read. So they are processes of one user on one machine. The
program writes the files into its own temporary folder, and the client copies them from there.
"""

from __future__ import annotations

import math
import shutil
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

import platformdirs

from benchax.errors import NotMeasured, UsageError
from benchax.profiling import files
from benchax.profiling.program_recorder import Recorded

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
class Ask:
    """The settings of a requested recording."""

    duration_s: float
    memory: bool = False
    """Also take readings of memory."""


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
    ask: Ask,
    folder: Path,
    *,
    limit_s: float | None = None,
    begun: Callable[[int], None] = lambda pid: None,
) -> Attached:
    """Asks the program behind `port` to record, and keeps the files in `folder`.

    Args:
        limit_s: longest wait for the recording to come back. None: until the program ends.
        begun: called with the number of the process as soon as the program reports that it records.

    Raises:
        UsageError: nothing listens there, or something else does; or `folder` cannot be written to.
        NotMeasured: the program refuses, or ended; `problem` gives the reason.
    """
    check_duration(ask.duration_s)
    with _connect(port) as connection, files.recording_folder(folder) as place:
        pid = 0
        try:
            connection.send(asdict(ask))
            first = _receive(connection, limit_s)
            pid = first["pid"]
            begun(pid)
            ended = _receive(connection, limit_s)
            run = Path(ended["recorded"]["xplane"]).parent
            # Copied to the same disk first, so that a full one leaves nothing half written.
            copied = files.move_run(Path(shutil.copytree(run, place / run.name)), folder)
            connection.send("copied")
            connection.poll(PATIENCE_S)  # until it hangs up: it refuses others before that
        except (EOFError, ConnectionError) as error:
            raise NotMeasured(f"process {pid} ended, or closed its server, before it had sent all") from error
    # Without the names that only a newer benchax knows.
    known = {one.name: ended["recorded"][one.name] for one in fields(Recorded) if one.name in ended["recorded"]}
    return Attached(pid, tuple(first["argv"]), Recorded(**known), files.list_files(copied)["xplane"])


def _connect(port: int) -> Connection:
    try:
        key = key_file(port).read_bytes()
        connection = Client((HOST, port))
    except OSError as error:
        raise UsageError(
            f"no program of yours can be asked on port {port} of {HOST}: {error.strerror or error}",
            "the port of a program that runs",
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
            "the port that the program told when it began",
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
