"""A program that runs is recorded when it is asked to, and whatever comes over the socket leaves it unharmed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from benchax.errors import NotMeasured, UsageError
from benchax.hooks.command import EndedCommand, run
from benchax.profiling import files, serve
from benchax.profiling.profile import session
from benchax.profiling.serving import HOOK, HOST, Attached, ProfileServer, attach, key_file
from benchax.profiling.trace import profile_of

SHORT = 0.05


@pytest.fixture
def server() -> Iterator[ProfileServer]:
    with serve() as running:
        yield running


@pytest.fixture
def busy(server: ProfileServer) -> Iterator[None]:
    """A thread that computes all the time."""
    is_over = threading.Event()
    f = jax.jit(lambda x: jnp.tanh(x @ x))
    x = f(jnp.ones((64, 64)))

    def compute() -> None:
        while not is_over.is_set():
            f(x).block_until_ready()

    thread = threading.Thread(target=compute)
    thread.start()
    yield
    is_over.set()
    thread.join()


def begun(server: ProfileServer, duration_s: float = 60.0) -> Connection:
    """A connection whose recording has begun."""
    connection = Client((HOST, server.port), authkey=key_file(server.port).read_bytes())
    connection.send({"duration_s": duration_s})
    assert connection.recv()["pid"] == os.getpid()
    return connection


# ---- a recording ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("busy")
def test_a_program_is_recorded_as_often_as_it_is_asked(server: ProfileServer, tmp_path: Path) -> None:
    found = [attach(server.port, SHORT, tmp_path) for _ in range(2)]

    for one in found:
        profile = profile_of(one.xplane.read_bytes())
        assert any("tanh" in op.name for op in profile.ops)
        assert (one.pid, one.recorded.stopped_by, one.recorded.remarks) == (os.getpid(), "duration", [])
        assert (one.recorded.recorded_s or 0.0) >= SHORT
    assert sorted(file.name for file in tmp_path.iterdir()) == ["plugins"], "nothing else stays behind"
    assert len({one.xplane.parent for one in found}) == 2
    run = attach(server.port, SHORT, tmp_path, memory=True).xplane.parent
    assert files.list_files(run).keys() == {"xplane", "trace_json", "perfetto", "memory", "timeline"}
    assert len(list(run.iterdir())) == 5


def test_only_this_machine_is_listened_to_and_a_port_that_is_taken_is_said(server: ProfileServer) -> None:
    """Every other address of ours is refused, as 127.0.0.2, which is loopback, too."""
    with pytest.raises(UsageError, match=f"cannot listen on port {server.port} of 127.0.0.1: Address already in use"):
        serve(server.port)
    assert server._listener.address[0] == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), timeout=10)


# ---- what is refused --------------------------------------------------------------------------------------------


def test_a_second_recording_is_refused_while_the_first_goes_on(server: ProfileServer, tmp_path: Path) -> None:
    with begun(server), pytest.raises(NotMeasured, match="another client is recording the program"):
        attach(server.port, SHORT, tmp_path)


def test_a_client_that_goes_away_leaves_the_next_one_its_turn(server: ProfileServer, tmp_path: Path) -> None:
    begun(server).close()

    # The server notices within 0.1 s and then stops the profiler.
    assert _until_it_records(server, tmp_path).recorded.stopped_by == "duration"


def _until_it_records(server: ProfileServer, folder: Path) -> Attached:
    while True:
        try:
            return attach(server.port, SHORT, folder)
        except NotMeasured as error:
            if "another client" not in error.problem:
                raise


def test_the_programs_own_trace_is_named_as_the_reason(server: ProfileServer, tmp_path: Path) -> None:
    with session(), pytest.raises(NotMeasured, match=r"jax\.profiler is tracing this process already"):
        attach(server.port, SHORT, tmp_path)

    assert attach(server.port, SHORT, tmp_path).xplane.exists()


def test_a_trace_that_the_program_begins_ends_the_recording_and_works(server: ProfileServer, tmp_path: Path) -> None:
    with begun(server) as connection:
        with jax.profiler.trace(str(tmp_path)):
            jnp.ones(3).block_until_ready()
        ended = connection.recv()

    assert ended["recorded"]["stopped_by"] == "trace of the program's own"
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1


def test_closing_ends_a_recording_and_sends_it() -> None:
    server = serve()
    with begun(server) as connection:
        closing = threading.Thread(target=server.close)
        closing.start()
        ended = connection.recv()
        connection.send("copied")
        closing.join()

    assert ended["recorded"]["stopped_by"] == "end"
    assert server.recordings == 1


def test_without_the_key_nothing_is_said_and_others_are_not_kept_out(server: ProfileServer, tmp_path: Path) -> None:
    silent = [socket.create_connection((HOST, server.port)) for _ in range(20)]
    for data in (os.urandom(1000), b"GET / HTTP/1.1\r\n\r\n", b"no end of line"):
        with socket.create_connection((HOST, server.port)) as connection, contextlib.suppress(OSError):
            connection.sendall(data)
    with pytest.raises(AuthenticationError):
        Client((HOST, server.port), authkey=b"another key")

    assert attach(server.port, SHORT, tmp_path).xplane.exists()
    for connection in silent:
        connection.close()


def test_a_closed_server_frees_its_port_and_does_not_answer_and_takes_its_key_along() -> None:
    with serve() as server:
        assert stat.S_IMODE(key_file(server.port).stat().st_mode) == 0o600
        with Client((HOST, server.port), authkey=key_file(server.port).read_bytes()) as connection:
            connection.send({"duration_s": 61})
            assert "from 0.001 to 60" in connection.recv()["refused"]

    assert not key_file(server.port).exists()
    with pytest.raises(UsageError, match="no program of yours answers on port"):
        attach(server.port, SHORT, Path("unused"))
    with serve(server.port) as again:
        assert again.port == server.port


def test_a_key_that_cannot_be_kept_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "benchax").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with pytest.raises(UsageError, match="cannot keep the key of the server in"):
        serve()


@pytest.mark.parametrize("port", [-1, 65536, "9999", True, 1.0])
def test_a_port_that_is_none_is_refused(port) -> None:
    with pytest.raises(UsageError, match=r"expected a whole number from 1 to 65535, or 0"):
        serve(port)


# ---- a program that is wrapped ----------------------------------------------------------------------------------


@pytest.fixture
def served(project: Path):
    """Runs a program as `benchax profile --serve` does."""

    def run_it(program: str, port: int = 0) -> EndedCommand:
        (project / "train.py").write_text(program)
        settings = {"port": port, "owner": str(project / "owner.json")}
        return run([sys.executable, "train.py"], HOOK, settings, limit_s=60)

    return run_it


@pytest.mark.slow
def test_recording_never_starts_the_backend(served, project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = f"""
import jax, pathlib
from benchax.errors import NotMeasured
from benchax.profiling.serving import attach
import psutil
(port,) = [c.laddr.port for c in psutil.Process().net_connections() if c.status == "LISTEN"]
ask = lambda: attach(port, 0.05, pathlib.Path({str(project)!r}))
try:
    ask()
except NotMeasured as error:
    print(error.problem)
jax.config.update("jax_num_cpu_devices", 3)  # refused once there is a backend
jax.jit(lambda x: x + 1)(1)
print(len(jax.devices()), ask().xplane.exists())
"""

    ended = served(program)

    out, err = capfd.readouterr()
    assert (ended.exit_code, ended.remarks) == (0, ())
    assert out.splitlines()[0].startswith("the program has not compiled anything yet")
    assert out.splitlines()[1] == "3 True"
    assert f"can be recorded with: benchax profile --attach {ended.reports[0].result['port']}" in err
    assert ended.reports[0].result["recordings"] == 1


@pytest.mark.slow
def test_a_process_that_cannot_listen_runs_and_is_told(
    served, server: ProfileServer, capfd: pytest.CaptureFixture[str]
) -> None:
    first = served("import jax, subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import jax'], check=True)")
    ended = served("import jax; print('fine')", port=server.port)

    parent, child = (report.result for report in first.reports)
    assert parent["port"] is not None
    assert child["port"] is None
    assert child["remarks"] == [
        f"process {first.reports[0].pid} of this program has the port, and only one process can be recorded"
    ]
    out, err = capfd.readouterr()
    assert (ended.exit_code, out) == (0, "fine\n")
    assert f"runs, but cannot be recorded: cannot listen on port {server.port}" in err


def test_a_child_made_by_fork_does_not_keep_the_port() -> None:
    """Its parent is gone without a word, and the child would never answer."""
    program = """
import os, signal, warnings
warnings.simplefilter("ignore")  # JAX warns of forks
from benchax.profiling import serve
server = serve()
child = os.fork()
if child:
    print(server.port, child, flush=True)
    os._exit(0)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port, child = map(int, process.stdout.readline().split())
        process.wait()

        try:
            with serve(port) as server:
                assert server.port == port
        finally:
            os.kill(child, signal.SIGKILL)


# ---- the client ------------------------------------------------------------------------------------------------------


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


def test_a_folder_that_cannot_be_written_to_and_a_limit_of_time_are_said(server: ProfileServer, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")

    with pytest.raises(UsageError, match=r"cannot write a profile into .*taken.*: File exists"):
        attach(server.port, SHORT, taken)
    with pytest.raises(NotMeasured, match=r"the recording did not come back within 0\.5 s"):
        attach(server.port, 60.0, tmp_path, limit_s=0.5)

    assert server.recordings == 0


@pytest.mark.parametrize("duration_s", [None, "1", True, 61, float("nan")])
def test_a_duration_that_is_none_is_refused(duration_s, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a number of seconds from 0\.001 to 60"):
        attach(1, duration_s, tmp_path)


def test_a_program_that_is_killed_while_it_is_recorded_is_said(project: Path) -> None:
    program = "from benchax.profiling import serve\nprint(serve().port, flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        with pytest.raises(NotMeasured, match=f"process {process.pid} ended"):
            attach(port, 60.0, project / "p", begun=lambda _: process.send_signal(signal.SIGKILL))

    assert list(project.rglob("*.pb")) == []
