"""Asks a program that is running to record itself, and takes the files: the client of `serving.py`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path

from benchax.errors import BenchaxError, FormatError, NotMeasured, UsageError
from benchax.profiling import files, wire
from benchax.profiling.program_recorder import Recorded
from benchax.profiling.wire import Ask, EndOfRecording, Refused, StartOfRecording

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


def attach(
    port: int,
    ask: Ask,
    folder: Path,
    *,
    limit_s: float | None = None,
    begun: Callable[[StartOfRecording], None] = lambda begun: None,
) -> Attached:
    """Asks the program behind `port` to record, and keeps the files in `folder`.

    Args:
        limit_s: longest wait for the recording to come back. None: until the program ends.
        begun: called as soon as the program reports that it records.

    Raises:
        UsageError: nothing listens there, or another service does; or `folder` cannot be written to.
        NotMeasured: the program refuses, or ended; `problem` gives the reason.
    """
    wire.check_duration(ask.duration_s)
    with _connect(port) as connection, files.recording_folder(folder) as place:
        first = _first(connection, ask, port)
        begun(first)
        try:
            return _receive(connection, first, place, folder, limit_s)
        except TimeoutError as error:
            raise NotMeasured(f"the recording did not come back within {limit_s:g} s", "a longer --timeout") from error
        except (ConnectionError, FormatError) as error:
            raise NotMeasured(f"process {first.pid} ended, or closed its server, before it had sent all") from error


def _connect(port: int) -> socket.socket:
    try:
        return socket.create_connection((wire.HOST, port), timeout=wire.PATIENCE_S)
    except OSError as error:
        raise UsageError(
            f"no program can be asked on port {port} of {wire.HOST}: {error.strerror or error}",
            "the port of a program that runs",
            HINT.format(port=port),
        ) from error


def _first(connection: socket.socket, ask: Ask, port: int) -> StartOfRecording:
    try:
        wire.send(connection, ask)
        found = wire.answer(wire.line_of(connection))
    except (OSError, FormatError) as error:
        why = f"no answer within {wire.PATIENCE_S:g} s" if isinstance(error, TimeoutError) else _why(error)
        raise UsageError(
            f"what listens on port {port} of {wire.HOST} does not answer as benchax does: {why}",
            "the port that the program told when it began",
            HINT.format(port=port),
        ) from error
    if isinstance(found, Refused):
        raise NotMeasured(found.refused)
    if not isinstance(found, StartOfRecording):
        raise UsageError(f"what listens on port {port} answers out of turn", "a program that benchax serves")
    return found


def _why(error: Exception) -> str:
    return error.problem if isinstance(error, BenchaxError) else str(error)


def _receive(
    connection: socket.socket, begun: StartOfRecording, place: Path, folder: Path, limit_s: float | None
) -> Attached:
    """Takes the files into `place`, and moves them into `folder` when all of them have come."""
    ended = wire.answer(wire.line_of(connection, limit_s))
    if isinstance(ended, Refused):
        raise NotMeasured(ended.refused)
    if not isinstance(ended, EndOfRecording):
        raise FormatError("an answer out of turn")
    run = place / f"{datetime.now().astimezone():%Y_%m_%d_%H_%M_%S}"
    run.mkdir()
    connection.settimeout(limit_s)
    wire.receive_files(connection, ended.files, run)
    wire.await_end(connection)
    xplane = files.list_files(files.move_run(run, folder)).get("xplane")
    if xplane is None:
        raise FormatError("there was no trace among the files")
    return Attached(begun.pid, tuple(begun.argv), _without_unknown(ended), xplane)


def _without_unknown(ended: EndOfRecording) -> Recorded:
    """Without the names that only a newer benchax knows."""
    known = {one.name for one in fields(Recorded)}
    return Recorded(**{name: value for name, value in ended.recorded.items() if name in known})
