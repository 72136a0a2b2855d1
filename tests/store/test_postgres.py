"""A server for a team: roles, many writers at once, a server that goes away, versions of tables, a long history."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from measurement_strategies import measured
from store.conftest import PostgresServer

from benchax.errors import StoreError
from benchax.store import schema
from benchax.store.database import DatabaseStore, open_store

EXAMPLES = Path(__file__).parents[2] / "examples" / "postgres"


@pytest.fixture(scope="module")
def roles(postgres_server: PostgresServer) -> PostgresServer:
    """A server with a database "empty" as examples/postgres/roles.sql leaves it, and a login for each role."""
    _run(postgres_server.url_of("postgres"), "CREATE ROLE owner LOGIN CREATEROLE", "CREATE DATABASE empty OWNER owner")
    _run(postgres_server.url_of("owner", "empty"), (EXAMPLES / "roles.sql").read_text(encoding="utf-8"))
    logins = [f"CREATE ROLE {name} LOGIN IN ROLE benchax_{role}" for name, role in LOGINS.items()]
    _run(postgres_server.url_of("postgres"), *logins)
    return postgres_server


@pytest.fixture
def team(roles: PostgresServer) -> Iterator[PostgresServer]:
    """With a database for the test, which has no tables."""
    _run(roles.url_of("postgres"), "CREATE DATABASE benchax TEMPLATE empty OWNER owner")
    yield roles
    _run(roles.url_of("postgres"), "DROP DATABASE benchax WITH (FORCE)")


@pytest.fixture
def team_with_tables(team: PostgresServer) -> PostgresServer:
    of(team, "owner").migrate()
    return team


LOGINS = {"ci": "writer", "laptop": "writer", "viewer": "reader"}


def _run(url: str, *statements: str) -> None:
    with pytest.importorskip("psycopg").connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def of(team: PostgresServer, role: str) -> DatabaseStore:
    return open_store(team.url_of(role, "benchax"))


def test_a_writer_cannot_make_the_tables_and_hears_who_does(team: PostgresServer) -> None:
    with pytest.raises(StoreError) as error:
        of(team, "ci").append(measured())

    assert "permission denied for schema public" in error.value.problem
    assert error.value.hint.startswith("tables are made and updated by their owner: benchax migrate --store URL")


def test_writers_add_rows_and_change_none_not_even_their_own(team: PostgresServer) -> None:
    assert of(team, "owner").migrate() == (0, schema.SCHEMA)
    assert of(team, "owner").migrate() == (schema.SCHEMA, schema.SCHEMA)
    first, second = of(team, "ci").append(measured("a")), of(team, "laptop").append(measured("b"))

    for role in LOGINS:
        for change in (
            f"UPDATE measurements SET median_s = 0 WHERE id = {first}",
            f"DELETE FROM samples WHERE measurement_id = {second}",
            "UPDATE cases SET name = 'x'",
            "UPDATE meta SET value = '99'",
            "TRUNCATE measurements CASCADE",
            "DROP TABLE samples",
            "ALTER TABLE cases ADD COLUMN x int",
            "CREATE TABLE mine (x int)",
        ):
            with pytest.raises(Exception, match=r"permission denied|must be owner"):
                _run(team.url_of(role, "benchax"), change)

    assert [row.case.name for row in of(team, "viewer").rows()] == ["a", "b"]
    assert of(team, "viewer").get(first).case.name == "a"


def test_a_reader_cannot_add_rows(team_with_tables: PostgresServer) -> None:
    with pytest.raises(StoreError, match="permission denied for table"):
        of(team_with_tables, "viewer").append(measured())


def test_machines_that_write_at_once_lose_nothing_and_share_cases(team_with_tables: PostgresServer) -> None:
    problems: list[BaseException] = []

    def write(role: str) -> None:
        try:
            store = of(team_with_tables, role)
            with store.held_open():
                for i in range(25):
                    store.append(measured(f"together {i % 5}"))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=(role,)) for role in ("ci", "laptop") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert problems == []
    rows = of(team_with_tables, "viewer").rows()
    assert len(rows) == 100
    assert len({row.id for row in rows}) == len(rows)
    assert len({row.case for row in rows}) == 5


def test_a_server_that_goes_away_is_an_error_and_what_was_stored_is_there_when_it_is_back(
    team_with_tables: PostgresServer,
) -> None:
    store = of(team_with_tables, "ci")
    with store.held_open():
        kept = store.append(measured("before"))
        team_with_tables.stop()
        try:
            with pytest.raises(StoreError, match=r"^cannot write postgresql") as error:
                store.append(measured("meanwhile"))
        finally:
            team_with_tables.start()
        after = store.append(measured("afterwards"))

    assert error.value.expected == "a PostgreSQL server that can be reached, and a role that may do that"
    names = [row.case.name for row in store.rows()]
    assert names == ["before", "afterwards"]
    assert kept < after


def test_the_recipe_for_a_server_names_files_that_are_there() -> None:
    service = yaml.safe_load((EXAMPLES / "compose.yaml").read_text(encoding="utf-8"))["services"]["database"]

    mounted = [volume.split(":")[0] for volume in service["volumes"] if volume.startswith("./")]
    assert mounted == ["./roles.sql"]
    assert (EXAMPLES / mounted[0]).is_file()
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
