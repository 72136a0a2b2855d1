"""A PostgreSQL server as the place of a store, for a team. Concurrency and durability are the server's business."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from benchax.errors import StoreError, require
from benchax.store.schema import Connection

T = TypeVar("T")

NOT_PERMITTED = "42501"
"""SQLSTATE insufficient_privilege."""
MIGRATE = "tables are made and updated by their owner: benchax migrate --store URL; roles are in docs/how-to/team.md"
CONNECT_TIMEOUT_S = 10
"""A host that answers nothing would be waited for for minutes."""


class Server:
    """A database on a server. A connection lives for one transaction, so that none is inherited over a fork.

    Raises:
        MissingPackage: psycopg is not installed.
    """

    def __init__(self, url: str) -> None:
        self._psycopg = require("psycopg", doing="storing rows in PostgreSQL")
        self.url = url
        self._held: dict[tuple[int, int], Any] | None = None
        """By process and thread: a fork must not speak on the connection of its parent."""
        self.where = hide_password(url)

    def __reduce__(self) -> tuple[type[Server], tuple[str]]:
        """Connections do not travel to another process."""
        return Server, (self.url,)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction and commits. Raises StoreError."""
        return self._transaction(work, "READ_COMMITTED", "write")

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on one consistent state of the database. Raises StoreError."""
        return self._transaction(work, "REPEATABLE_READ", "read")

    @contextmanager
    def held_open(self) -> Generator[None, None, None]:
        """A connection serves all transactions of a thread inside the block; a lost connection is made again."""
        if self._held is not None:
            yield
            return
        self._held = {}
        try:
            yield
        finally:
            held, self._held = self._held, None
            for (process, _), connection in held.items():
                if process == os.getpid():
                    connection.close()

    def _transaction(self, work: Callable[[Connection], T], isolation: str, verb: str) -> T:
        try:
            with self._connection() as connection:
                connection.isolation_level = self._psycopg.IsolationLevel[isolation]
                with connection.transaction():
                    return work(Connection(connection, "postgresql"))
        except self._psycopg.Error as error:
            raise StoreError(
                f"cannot {verb} {self.where}: {error}",
                "a PostgreSQL server that can be reached, and a role that may do that",
                MIGRATE if error.sqlstate == NOT_PERMITTED else "",
            ) from error

    @contextmanager
    def _connection(self) -> Generator[Any, None, None]:
        held = self._held
        if held is None:
            with closing(self._connect()) as connection:
                yield connection
            return
        here = os.getpid(), threading.get_ident()
        if here not in held or not self._is_alive(held[here]):
            held[here] = self._connect()
        yield held[here]

    def _connect(self) -> Any:
        given = self._psycopg.conninfo.conninfo_to_dict(self.url)
        return self._psycopg.connect(**{"connect_timeout": CONNECT_TIMEOUT_S} | given, autocommit=True)

    def _is_alive(self, connection: Any) -> bool:
        try:
            connection.execute("SELECT 1")
        except self._psycopg.Error:
            return False
        return True


def hide_password(url: str) -> str:
    """Returns the URL as people may see it."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":***@", 1) if password else url
