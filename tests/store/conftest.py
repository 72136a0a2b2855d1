"""The members of the family, for the contract; PostgreSQL where there is one.

BENCHAX_TEST_POSTGRES is the URL of a database in which schemas may be made, e.g. postgresql://postgres@localhost/postgres.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

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
            yield from _postgresql()


def _postgresql() -> Iterator[DatabaseStore]:
    if not POSTGRES:
        pytest.skip("needs a PostgreSQL server: set BENCHAX_TEST_POSTGRES to its URL")
    url = make_url(POSTGRES).set(drivername="postgresql+psycopg")
    schema = f"benchax_{uuid.uuid4().hex}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
        inside = url.update_query_dict({"options": f"-csearch_path={schema}"})
        yield open_store(inside.render_as_string(hide_password=False))
        connection.exec_driver_sql(f"DROP SCHEMA {schema} CASCADE")
    engine.dispose()
