"""The members of the family, for the contract; PostgreSQL where there is one.

TEST_POSTGRES is the URL of a database in which schemas may be made, e.g. postgresql://postgres@localhost/postgres;
or "start", as `make test-postgres` has it: then the server that is installed is started for the session.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from benchax.store.database import DatabaseStore, open_store

INSTALL = "apt-get install postgresql, or set TEST_POSTGRES to the URL of a server"
# Durability is not what the tests of a killed client need; a killed server recovers all the same.
SETTINGS = "-c listen_addresses= -c fsync=off -c max_connections=100 -c shared_buffers=256MB -c max_wal_size=4GB"


def find_programs() -> Path | None:
    """The folder with initdb and pg_ctl, the newest one; None where no server is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


class PostgresServer:
    """The installed one, with its data in a temporary folder, on a socket in it.

    As root it runs as another user, since it refuses to be root's.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        self.user = _other_user() if os.geteuid() == 0 else None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def url_of(self, role: str, database: str = "postgres") -> str:
        return f"postgresql://{role}@/{database}?host={self.folder}"

    def __enter__(self) -> PostgresServer:
        self.folder.mkdir(mode=0o755, exist_ok=True)
        if self.user is not None:
            os.chown(self.folder, self.user, -1)
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        options = f"{SETTINGS} -c unix_socket_directories={self.folder}"
        self._run("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """At once, as by a power cut."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.programs / program, *arguments],
            user=self.user,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # not a pipe: the server would keep it open
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            log = self.folder / "log"
            raise RuntimeError(f"{program} failed: {log.read_text() if log.exists() else ''}")


def _other_user() -> int:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise RuntimeError("the server refuses to run as root, and there is no other user")


POSTGRES = os.environ.get("TEST_POSTGRES")


@pytest.fixture(params=["folder", "file", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabaseStore]:
    """A store in which nothing was ever stored."""
    match request.param:
        case "folder":
            yield open_store(tmp_path / "new" / ".benchmarks")
        case "file":
            yield open_store(str(tmp_path / "odd ?name#1%20 ü.db"))
        case _:
            yield from _postgresql(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server of the tests' own, which may be stopped and started again."""
    if POSTGRES != "start":
        pytest.skip("needs a PostgreSQL server: make test-postgres")
    programs = find_programs()
    if programs is None:
        pytest.skip(f"needs a PostgreSQL server: {INSTALL}")
    # Not in a folder of pytest's, which other users may not enter; and paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="benchax-pg-") as folder:
        Path(folder).chmod(0o755)
        with PostgresServer(Path(folder) / "server", programs) as server:
            yield server


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> str:
    if POSTGRES and POSTGRES != "start":
        return POSTGRES
    return request.getfixturevalue("postgres_server").url


def _postgresql(where: str) -> Iterator[DatabaseStore]:
    psycopg = pytest.importorskip("psycopg")
    schema = f"benchax_{uuid.uuid4().hex}"
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        yield open_store(f"{where}{'&' if '?' in where else '?'}options={quote(f'-csearch_path={schema}', safe='')}")
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
