"""The members of the family, for the contract; PostgreSQL where there is one.

BENCHAX_TEST_POSTGRES is the URL of a database in which schemas may be made, e.g. postgresql://postgres@localhost/postgres;
or "start", as `make test-postgres` has it: then the server that is installed is started for the session.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from postgres_server import INSTALL, PostgresServer, find_programs

from benchax.store.database import DatabaseStore, open_store

POSTGRES = os.environ.get("BENCHAX_TEST_POSTGRES")


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
