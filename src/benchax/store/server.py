"""A PostgreSQL server as the place of a store, for a team. Concurrency and durability are the server's business."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

from sqlalchemy import URL, BigInteger, Connection, Engine, NullPool, cast, create_engine, func, select
from sqlalchemy.exc import DBAPIError

from benchax.errors import StoreError, require

T = TypeVar("T")

NOT_PERMITTED = "42501"
"""SQLSTATE insufficient_privilege."""
MIGRATE = "tables are made and updated by their owner: benchax migrate --store URL; roles are in docs/how-to/team.md"
CONNECT_TIMEOUT = {"connect_timeout": "10"}
"""Seconds."""


class Server:
    """A database on a server. A connection lives for one transaction, so that none is inherited over a fork.

    Raises:
        MissingPackage: psycopg is not installed.
    """

    def __init__(self, url: URL) -> None:
        require("psycopg", doing="storing rows in PostgreSQL")
        self.url = url
        self._held: tuple[int, Engine] | None = None
        """(process, its engine)"""
        self.where = url.render_as_string(hide_password=True)

    def __reduce__(self) -> tuple[type[Server], tuple[URL]]:
        """Connections do not travel to another process."""
        return Server, (self.url,)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction and commits. Raises StoreError."""
        return self._transaction(work, "READ COMMITTED", "write")

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on one consistent state of the database. Raises StoreError."""
        return self._transaction(work, "REPEATABLE READ", "read")

    def tables_mark(self, connection: Connection) -> int | None:
        """The number of one of the tables, which another one of its name would not have."""
        return connection.execute(select(cast(func.to_regclass("measurements"), BigInteger))).scalar()

    @contextmanager
    def held_open(self) -> Generator[None, None, None]:
        """One connection serves all transactions of this process inside the block; a lost connection is made again."""
        if self._held is not None:
            yield
            return
        engine = create_engine(self._patient_url, pool_size=1, max_overflow=-1, pool_pre_ping=True)
        self._held = os.getpid(), engine
        try:
            yield
        finally:
            self._held = None
            engine.dispose()

    def _transaction(self, work: Callable[[Connection], T], isolation: str, verb: str) -> T:
        try:
            with (
                self._choose().connect().execution_options(isolation_level=isolation) as connection,
                connection.begin(),
            ):
                return work(connection)
        except DBAPIError as error:
            raise StoreError(
                f"cannot {verb} {self.where}: {error.orig}",
                "a PostgreSQL server that can be reached, and a role that may do that",
                MIGRATE if getattr(error.orig, "sqlstate", None) == NOT_PERMITTED else "",
            ) from error

    def _choose(self) -> Engine:
        # A fork must not speak on the connection of its parent.
        held = self._held
        return held[1] if held is not None and held[0] == os.getpid() else self._engine

    @cached_property
    def _engine(self) -> Engine:
        return create_engine(self._patient_url, poolclass=NullPool)

    @property
    def _patient_url(self) -> URL:
        """A host that answers nothing would be waited for for minutes."""
        return self.url if "connect_timeout" in self.url.query else self.url.update_query_dict(CONNECT_TIMEOUT)
