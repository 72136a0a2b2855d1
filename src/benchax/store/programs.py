"""Programs of baselines: each kept once, under the digest of its content, beside the rows that have it."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from benchax.store.schema import programs


def keep_program(connection: Connection, sha256: str, content: bytes) -> None:
    """In the transaction of the row."""
    known = connection.execute(select(programs.c.sha256).where(programs.c.sha256 == sha256)).scalar()
    if known is None:
        connection.execute(insert(programs).values(sha256=sha256, content=content))


def program_of(connection: Connection, sha256: str) -> bytes | None:
    """None where there is none."""
    return connection.execute(select(programs.c.content).where(programs.c.sha256 == sha256)).scalar()
