"""The client of a running program believes only who knows the key, and says what was wrong."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Listener
from pathlib import Path

import pytest

from benchax.errors import NotMeasured, UsageError
from benchax.profiling import serve
from benchax.profiling.serving import HOST, Ask, attach, key_file

SHORT = Ask(0.05)


@pytest.fixture
def stranger() -> Iterator[Callable[[bytes], int]]:
    """Something else that listens on the port of a server that was killed, says the given bytes, and hangs up."""
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
        key_file(port).parent.mkdir(parents=True, exist_ok=True)
        key_file(port).write_bytes(b"a key")

        def answer(data: bytes) -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(data)

        def start(data: bytes) -> int:
            threading.Thread(target=answer, args=(data,), daemon=True).start()
            return port

        yield start
        key_file(port).unlink()


@pytest.mark.parametrize("data", [b"", b"SSH-2.0-OpenSSH\r\n", b"{}\n", b"x" * 100_000])
def test_somebody_else_on_the_port_is_told_apart(data: bytes, stranger, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not answer as benchax does"):
        attach(stranger(data), SHORT, tmp_path)


def test_a_server_with_another_key_is_not_believed(stranger, tmp_path: Path) -> None:
    with Listener((HOST, 0), authkey=b"another key") as other:
        port = other.address[1]
        key_file(port).write_bytes(b"a key")

        def accept() -> None:
            with pytest.raises(Exception, match="digest"):
                other.accept()

        thread = threading.Thread(target=accept)
        thread.start()
        with pytest.raises(UsageError, match="does not answer as benchax does"):
            attach(port, SHORT, tmp_path)
        thread.join()
        key_file(port).unlink()


def test_a_folder_that_cannot_be_written_to_is_seen_before_anything_is_recorded(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")

    with serve() as server, pytest.raises(UsageError, match=r"cannot write a profile into .*taken.*: File exists"):
        attach(server.port, SHORT, taken)

    assert server.recordings == 0


def test_a_limit_of_time_is_said(tmp_path: Path) -> None:
    with serve() as server, pytest.raises(NotMeasured, match=r"the recording did not come back within 0\.5 s"):
        attach(server.port, Ask(60.0), tmp_path, limit_s=0.5)


@pytest.mark.parametrize("duration_s", [None, "1", True, 61, float("nan")])
def test_a_duration_that_is_none_is_refused(duration_s, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a number of seconds from 0\.001 to 60"):
        attach(1, Ask(duration_s), tmp_path)


def test_a_program_that_is_killed_while_it_is_recorded_is_said(project: Path) -> None:
    program = "from benchax.profiling import serve\nprint(serve().port, flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        with pytest.raises(NotMeasured, match=f"process {process.pid} ended"):
            attach(port, Ask(60.0), project / "p", begun=lambda _: process.send_signal(signal.SIGKILL))

    assert list(project.rglob("*.pb")) == []
