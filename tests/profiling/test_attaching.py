"""Who asks a running program trusts nothing that comes back, and says what was wrong."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchax.errors import NotMeasured, UsageError
from benchax.profiling import serve, wire
from benchax.profiling.attaching import attach
from benchax.profiling.wire import Ask

SHORT = Ask(0.05)


@pytest.fixture
def stranger() -> Iterator[Callable[[bytes], int]]:
    """Something else that listens, says the given bytes to whoever connects, and hangs up."""
    with socket.create_server((wire.HOST, 0)) as listening:

        def answer(data: bytes) -> None:
            connection, _ = listening.accept()
            with connection:
                wire.line_of(connection)
                connection.sendall(data)

        def start(data: bytes) -> int:
            threading.Thread(target=answer, args=(data,), daemon=True).start()
            return listening.getsockname()[1]

        yield start


BEGUN = b'{"pid": 1, "argv": ["python"], "benchax": 1}\n'


@pytest.mark.parametrize("data", [b"", b"SSH-2.0-OpenSSH\r\n", b"{}\n", b"x" * wire.LONGEST_LINE * 2])
def test_somebody_else_on_the_port_is_told_apart(data: bytes, stranger, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not answer as benchax does"):
        attach(stranger(data), SHORT, tmp_path)


@pytest.mark.parametrize("name", ["../evil.xplane.pb", "/etc/evil.xplane.pb", "evil.sh", ".xplane.pb/x", ""])
def test_a_name_that_no_file_of_a_profile_has_is_not_written(name: str, stranger, tmp_path: Path) -> None:
    ended = json.dumps({"recorded": {}, "files": [[name, 4]]}).encode()

    with pytest.raises(NotMeasured):
        attach(stranger(BEGUN + ended + b"\nevil"), SHORT, tmp_path / "a" / "b")

    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_a_program_that_ends_before_it_has_sent_all_is_said(stranger, tmp_path: Path) -> None:
    ended = json.dumps({"recorded": {}, "files": [["vm.xplane.pb", 400]]}).encode()

    with pytest.raises(NotMeasured, match="process 1 ended, or closed its server, before it had sent all"):
        attach(stranger(BEGUN + ended + b"\nhalf of it"), SHORT, tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_seen_before_anything_is_recorded(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")

    with serve() as server, pytest.raises(UsageError, match=r"cannot write a profile into .*taken.*: File exists"):
        attach(server.port, SHORT, taken)

    assert server.recordings == 0


def test_a_limit_of_time_is_said(tmp_path: Path) -> None:
    with serve() as server, pytest.raises(NotMeasured, match=r"the recording did not come back within 0\.1 s"):
        attach(server.port, Ask(60.0), tmp_path, limit_s=0.1)


def test_a_program_that_is_killed_while_it_is_recorded_is_said(project: Path) -> None:
    program = "from benchax.profiling import serve\nprint(serve().port, flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        with pytest.raises(NotMeasured, match=f"process {process.pid} ended"):
            attach(port, Ask(60.0), project / "p", begun=lambda _: process.send_signal(signal.SIGKILL))

    assert list(project.rglob("*.pb")) == []
