"""A PostgreSQL server as the place of a store, for a team. Concurrency and durability are the server's business."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from benchax.errors import StoreError, require

T = TypeVar("T")


class Server:
    """A database on a server. A connection lives for one transaction, so that none is inherited over a fork.

    Raises:
        MissingPackage: psycopg is not installed.
    """

    def __init__(self, url: URL) -> None:
        require("psycopg", doing="storing rows in PostgreSQL")
        self.url = url
        self.where = url.render_as_string(hide_password=True)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction and commits. Raises StoreError."""
        return self._transaction(work, "READ COMMITTED", "write")

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on one consistent state of the database. Raises StoreError."""
        return self._transaction(work, "REPEATABLE READ", "read")

    def tables_mark(self, connection: Connection) -> None:
        return None

    def held_open(self) -> AbstractContextManager[None]:
        """Nothing to do: a server has no file to tidy up after each row."""
        return nullcontext()

    def _transaction(self, work: Callable[[Connection], T], isolation: str, verb: str) -> T:
        try:
            with self._engine.connect().execution_options(isolation_level=isolation) as connection, connection.begin():
                return work(connection)
        except DBAPIError as error:
            raise StoreError(
                f"cannot {verb} {self.where}: {error.orig}",
                "a PostgreSQL server that can be reached, and a role that may make tables there",
            ) from error

    @cached_property
    def _engine(self) -> Engine:
        return create_engine(self.url, poolclass=NullPool)
