"""Tables and columns, their version, the steps from one version to the next; and measurements and programs in them.

One text of SQL works for SQLite and PostgreSQL. Scalar columns are for questions, `document` is the truth (`codec.py`)
without the readings, and `samples` holds these as arrays: elapsed_s little-endian float64, disturbed one byte each.

Programs of baselines are kept once each, under the digest of their content, separately from their rows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from benchax import codec
from benchax.errors import UPGRADE, FormatError, StoreError
from benchax.json_values import Mismatch
from benchax.model import CaseId, Comparison, Measurement, Program, Samples

MIGRATIONS = (
    # The document is last, because SQLite reads a row from its start, and long, rarely used columns must not be in the
    # way. PostgreSQL's indexes refuse values beyond 2,700 bytes; SQLite's have no limit.
    """
    CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE cases (
        id {id} NOT NULL PRIMARY KEY, "key" VARCHAR(64) NOT NULL UNIQUE,
        name TEXT NOT NULL, params TEXT NOT NULL, variant TEXT NOT NULL, tag TEXT NOT NULL
    );
    CREATE TABLE measurements (
        id {id} NOT NULL PRIMARY KEY, case_id {reference} NOT NULL REFERENCES cases (id),
        run_id TEXT NOT NULL, started_at TEXT NOT NULL, status TEXT NOT NULL, failure_kind TEXT, "commit" TEXT,
        is_dirty BOOLEAN, host TEXT NOT NULL, fingerprint TEXT NOT NULL, backend TEXT, device_kind TEXT, jax TEXT,
        timer TEXT, iterations BIGINT, n BIGINT, median_s DOUBLE PRECISION, low_s DOUBLE PRECISION,
        high_s DOUBLE PRECISION, compile_s DOUBLE PRECISION, predicted_peak_bytes BIGINT, observed_peak_bytes BIGINT,
        document TEXT NOT NULL
    );
    CREATE INDEX measurements_of_run ON measurements {using_hash} (run_id);
    CREATE INDEX measurements_of_case ON measurements (case_id, id);
    CREATE INDEX measurements_of_commit ON measurements ("commit");
    CREATE TABLE samples (
        measurement_id {reference} NOT NULL REFERENCES measurements (id), position INTEGER NOT NULL,
        elapsed_s {bytes} NOT NULL, disturbed {bytes}, PRIMARY KEY (measurement_id, position)
    );
    INSERT INTO meta (name, value) VALUES ('schema', '1')
    """,
    # Programs that can run again, names of baselines, and comparisons. A name is not unique: the newest one is valid,
    # and earlier ones record its history.
    """
    CREATE TABLE programs (sha256 VARCHAR(64) NOT NULL PRIMARY KEY, content {bytes} NOT NULL);
    CREATE TABLE baselines (
        id {id} NOT NULL PRIMARY KEY, name TEXT NOT NULL, run_id TEXT NOT NULL, set_at TEXT NOT NULL
    );
    CREATE TABLE comparisons (
        id {id} NOT NULL PRIMARY KEY, case_id {reference} NOT NULL REFERENCES cases (id),
        metric TEXT NOT NULL, baseline TEXT NOT NULL, document TEXT NOT NULL
    );
    CREATE INDEX comparisons_of_case ON comparisons (case_id, id);
    UPDATE meta SET value = '2' WHERE name = 'schema'
    """,
    # The digest of each program's source, so that a stored program is not exported again.
    """
    CREATE TABLE program_sources (
        source VARCHAR(64) NOT NULL PRIMARY KEY, sha256 VARCHAR(64) NOT NULL REFERENCES programs (sha256)
    );
    UPDATE meta SET value = '3' WHERE name = 'schema'
    """,
)
"""Step i makes version i + 1 out of version i and says so in `meta`. Steps are added, never changed."""

SCHEMA = len(MIGRATIONS)

Dialect = Literal["sqlite", "postgresql"]
_WORDS: dict[Dialect, dict[str, str]] = {
    # SQLite uses the id as its row id only if the type is exactly INTEGER.
    "sqlite": {"id": "INTEGER", "reference": "INTEGER", "bytes": "BLOB", "using_hash": ""},
    "postgresql": {"id": "BIGSERIAL", "reference": "BIGINT", "bytes": "BYTEA", "using_hash": "USING hash"},
}


class Row(NamedTuple):
    """One measurement without its readings. `None`: not measured, or not known."""

    id: int
    """Grows with every row appended to one store; 0 where the measurement is in none."""
    case: CaseId
    run_id: str
    started_at: str
    status: str
    failure_kind: str | None
    commit: str | None
    is_dirty: bool | None
    host: str
    fingerprint: str
    backend: str | None
    device_kind: str | None
    jax: str | None
    timer: str | None
    """The headline timer, which the five numbers below belong to."""
    iterations: int | None
    n: int | None
    """Samples."""
    median_s: float | None
    """Per call, as are the two ends of its 95 % interval."""
    low_s: float | None
    high_s: float | None
    compile_s: float | None
    predicted_peak_bytes: int | None
    observed_peak_bytes: int | None


def row_of(m: Measurement) -> Row:
    """The scalars of `m`."""
    headline, environment = m.headline, m.environment
    summary = m.find_summary() if headline and headline.elapsed_s else None
    return Row(
        id=0,
        case=m.case,
        run_id=m.run_id,
        started_at=m.started_at,
        status=m.status,
        failure_kind=m.failure.kind if m.failure else None,
        commit=environment.commit,
        is_dirty=environment.is_dirty,
        host=environment.host,
        fingerprint=environment.fingerprint,
        backend=environment.backend,
        device_kind=environment.device_kind,
        jax=environment.jax,
        timer=headline.timer if headline else None,
        iterations=headline.iterations if headline else None,
        n=len(headline.elapsed_s) if headline else None,
        median_s=summary.median_s if summary else None,
        low_s=summary.low_s if summary else None,
        high_s=summary.high_s if summary else None,
        compile_s=m.stages.compile_s,
        predicted_peak_bytes=m.memory.predicted_peak_bytes,
        observed_peak_bytes=m.memory.observed_peak_bytes,
    )


SCALARS = Row._fields[2:]
"""The columns of a measurement: the fields of `Row` from run_id on."""

_TABLES = frozenset({"meta", "cases", "measurements", "samples"})
_LIST_TABLES: dict[Dialect, str] = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
}
_ADVISORY_LOCK = 0x62656E63686178  # "benchax": a number that nobody else locks


class DamagedRow(StoreError):
    """The data of a row in a database is not a valid row of benchax."""


class Connection:
    """A transaction. Statements have `?` instead of values.

    Args:
        driver: a connection of sqlite3 or psycopg.
    """

    def __init__(self, driver: Any, dialect: Dialect) -> None:
        self.driver = driver
        self.dialect: Dialect = dialect

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Returns the rows that the statement gives."""
        cursor = self.driver.execute(self._adapt(statement), [encode_text(value) for value in values])
        if not cursor.description:
            return []
        # Most texts are stored as they are, and a call for each value would take most of the time.
        return [tuple([decode_text(v) if type(v) is str and v[:1] == '"' else v for v in row]) for row in cursor]

    def scalar(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Returns the first value of the first row; None without a row."""
        found = self.execute(statement, values)
        return found[0][0] if found else None

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]], end: str = "") -> None:
        """Adds rows, which have values for the same columns."""
        if rows:
            values = [[encode_text(value) for value in row.values()] for row in rows]
            self.driver.cursor().executemany(self._adapt(_insert(table, rows[0], end)), values)

    def add(self, table: str, row: Mapping[str, Any]) -> int:
        """Adds a row and returns its id."""
        if self.dialect == "postgresql":
            return self.scalar(_insert(table, row, "RETURNING id"), list(row.values()))
        # Older versions of SQLite have no RETURNING.
        return self.driver.execute(_insert(table, row), [encode_text(value) for value in row.values()]).lastrowid

    def _adapt(self, statement: str) -> str:
        return statement.replace("?", "%s") if self.dialect == "postgresql" else statement


def _insert(table: str, row: Mapping[str, Any], end: str = "") -> str:
    columns = ", ".join(f'"{name}"' for name in row)
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))}) {end}"


_NOT_STORABLE = re.compile('^"|[\0\ud800-\udfff]')


def encode_text(value: Any) -> Any:
    """Prepares a value for a database. Databases refuse NUL (PostgreSQL) and lone surrogates (both) in a text.

    Such a text is stored as a JSON string, known by its leading quotation mark; so is one that begins with such a
    mark. All others are stored as they are, so that people can ask for them in SQL.
    """
    return json.dumps(value) if isinstance(value, str) and _NOT_STORABLE.search(value) else value


def decode_text(value: Any) -> Any:
    """Inverse of `encode_text`. Raises `DamagedRow`."""
    if not isinstance(value, str) or not value.startswith('"'):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise DamagedRow(f"a text in the database is damaged: {error}") from error


def flag(stored: Any) -> bool | None:
    """A truth value, which SQLite stores as a number."""
    return None if stored is None else bool(stored)


def limited(limit: int | None, offset: int = 0) -> str:
    """The end of a statement that gives at most `limit` rows."""
    return "" if limit is None else f" LIMIT {limit} OFFSET {offset}"


def case_key(case: CaseId) -> str:
    """64 hexadecimal digits that stand for the whole identity, however long its texts are. Never changes."""
    identity = json.dumps([case.name, codec.encode_params(case.params), case.variant, case.tag])
    return hashlib.sha256(identity.encode("ascii")).hexdigest()


def case_columns(case: CaseId) -> dict[str, str]:
    return {
        "key": case_key(case),
        "name": case.name,
        "params": codec.encode_params(case.params),
        "variant": case.variant,
        "tag": case.tag,
    }


def comparison_columns(connection: Connection, c: Comparison, document: str) -> dict[str, Any]:
    case_id = case_id_of(connection, case_columns(c.case))
    return {"case_id": case_id, "metric": c.metric, "baseline": c.baseline.label, "document": document}


# ---- versions ---------------------------------------------------------------------------------------------------


def migrate(connection: Connection, where: str) -> int:
    """Brings the database of this transaction up to `SCHEMA`: all steps or none. Returns the version before, 0 for
    none. Raises as `version` does."""
    before = version(connection, where)
    if before == SCHEMA:
        return before
    if connection.dialect == "postgresql":
        # Two processes may begin a database at once. (In SQLite the transaction excludes the other one already.)
        connection.execute("SELECT pg_advisory_xact_lock(?)", [_ADVISORY_LOCK])
    # Check again: another process can take these steps while this one waits for the lock.
    for step in MIGRATIONS[version(connection, where) :]:
        take_step(connection, step)
    return before


def take_step(connection: Connection, step: str) -> None:
    """Takes one of the `MIGRATIONS`."""
    for statement in step.format(**_WORDS[connection.dialect]).split(";"):
        connection.execute(statement)


def version(connection: Connection, where: str) -> int:
    """The version of the tables that are there, 0 for none. Changes nothing.

    Raises:
        StoreError: a newer benchax wrote them, or they belong to something else.
    """
    present = _TABLES.intersection(name for (name,) in connection.execute(_LIST_TABLES[connection.dialect]))
    if not present:
        return 0
    if present != _TABLES:
        raise StoreError(
            f"database {where} belongs to something else: its only tables of benchax are {', '.join(sorted(present))}",
            "a database of benchax, or a new place",
        )
    found = int(connection.scalar("SELECT value FROM meta WHERE name = 'schema'"))
    if found > SCHEMA:
        raise StoreError(
            f"database {where} was written by a newer benchax (schema {found}; this one knows {SCHEMA})",
            hint=UPGRADE,
        )
    return found


# ---- measurements as columns and arrays, and back; and the programs that rows keep ----------------------------------

READINGS_CRC32 = "readings_crc32"
"""Key of a stored document, which no field of a measurement has: of the bytes of each array of readings. SQLite does
not notice a damaged page that holds nothing else."""
UNLESS_THERE = "ON CONFLICT DO NOTHING"
"""On a server another writer may be adding the same right now."""
_GREATEST = 2**63 - 1


class StorableRow:
    """A measurement, made ready to be stored: what takes time is done before anything is locked."""

    def __init__(self, m: Measurement) -> None:
        self.case = case_columns(m.case)
        self.program = m.program
        self.arrays = [_arrays(s) for s in m.samples]
        self.values = _columns(m, [zlib.crc32(array["elapsed_s"] or b"") for array in self.arrays])

    def insert(self, connection: Connection, id: int | None = None) -> int:
        """Stores it, under the next id unless one is given, and returns the id."""
        given = {} if id is None else {"id": id}
        new = connection.add("measurements", {"case_id": case_id_of(connection, self.case)} | self.values | given)
        connection.insert(
            "samples", [{"measurement_id": new, "position": i} | array for i, array in enumerate(self.arrays)]
        )
        if self.program is not None:
            keep_program(connection, self.program)
        return new


def case_id_of(connection: Connection, case: dict[str, str]) -> int:
    """The id of a case, which is added if need be."""
    known = 'SELECT id FROM cases WHERE "key" = ?', [case["key"]]
    found: int | None = connection.scalar(*known)
    if found is not None:
        return found
    connection.insert("cases", [case], UNLESS_THERE)
    return connection.scalar(*known)


def _columns(m: Measurement, checksums: Sequence[int]) -> dict[str, Any]:
    """The scalars of a row, and its document without the readings, which are stored as arrays."""
    bare = tuple(dataclasses.replace(s, elapsed_s=(), disturbed=None) for s in m.samples)
    scalars = dict(zip(SCALARS, row_of(m)[2:], strict=True))
    # A compiler that reports 2**64 - 1 bytes must not cost the row. The document keeps the reported value.
    scalars = {name: min(value, _GREATEST) if type(value) is int else value for name, value in scalars.items()}
    document = codec.encode(dataclasses.replace(m, samples=bare), {READINGS_CRC32: list(checksums)})
    return scalars | {"document": document}


def _arrays(s: Samples) -> dict[str, bytes | None]:
    return {
        # In one byte order, so that a file can be copied to another machine.
        "elapsed_s": struct.pack(f"<{len(s.elapsed_s)}d", *s.elapsed_s),
        "disturbed": None if s.disturbed is None else bytes(s.disturbed),
    }


_ROWS = (
    "SELECT m.id, c.name, c.params, c.variant, c.tag, "
    + ", ".join(f'm."{name}"' for name in SCALARS)
    # A row without its case is damaged, and must not be skipped silently.
    + " FROM measurements m LEFT JOIN cases c ON m.case_id = c.id WHERE {} ORDER BY m.id"
)


def read_rows(connection: Connection, condition: str, values: Sequence[Any] = ()) -> list[Row]:
    """The scalars of the measurements `m` that answer to a condition, oldest first. Raises `DamagedRow`."""
    return [_read_row(*record) for record in connection.execute(_ROWS.format(condition), values)]


@lru_cache(maxsize=1024)  # rows of one case come together
def _case_of(name: str, params: str, variant: str, tag: str) -> CaseId:
    return CaseId(name, codec.decode_params(params), variant, tag)


def _read_row(id: int, name: str | None, params: str, variant: str, tag: str, *scalars: Any) -> Row:
    if name is None:
        raise DamagedRow(f"row {id} is damaged: its case is missing")
    try:
        row = Row(id, _case_of(name, params, variant, tag), *scalars)
        return row._replace(is_dirty=flag(row.is_dirty)) if row.is_dirty is not None else row
    except (ValueError, TypeError, AttributeError, Mismatch) as error:
        raise DamagedRow(f"row {id} is damaged: {error}") from error


def read_record(id: int, document: str, arrays: Sequence[tuple[bytes, bytes | None]]) -> Measurement:
    """Puts together what `StorableRow` took apart.

    Args:
        arrays: (elapsed_s, disturbed) of each timer, in order.

    Raises:
        DamagedRow: the parts are not of one row, or not what was stored.
        NewerFormat: a newer benchax wrote it.
    """
    try:
        found = codec.load(document)
        bare = codec.from_document(found)
        checksums = found.get(READINGS_CRC32)
        if checksums is not None and checksums != [zlib.crc32(elapsed_s) for elapsed_s, _ in arrays]:
            raise ValueError("its readings are not those that were stored")
        samples = tuple(
            dataclasses.replace(
                s,
                elapsed_s=struct.unpack(f"<{len(elapsed_s) // 8}d", elapsed_s),
                disturbed=None if disturbed is None else tuple(map(bool, disturbed)),
            )
            for s, (elapsed_s, disturbed) in zip(bare.samples, arrays, strict=True)
        )
    except codec.NewerFormat:
        raise
    except (FormatError, ValueError, TypeError, struct.error) as error:
        raise DamagedRow(f"row {id} is damaged: {error}") from error
    return dataclasses.replace(bare, samples=samples)


def keep_program(connection: Connection, program: Program) -> None:
    """Stores a program that is not stored yet. For the transaction of its row."""
    if program.content is None:
        return
    # Check first, because a program can be large.
    if connection.scalar("SELECT 1 FROM programs WHERE sha256 = ?", [program.sha256]) is None:
        connection.insert("programs", [{"sha256": program.sha256, "content": program.content}], UNLESS_THERE)
    if program.source:
        found = {"source": program.source, "sha256": program.sha256}
        connection.insert("program_sources", [found], UNLESS_THERE)


def program_from(connection: Connection, source: str) -> Program | None:
    """Returns the program that was exported from this source, without its content; None if it is not stored."""
    found = connection.execute(
        "SELECT p.sha256, length(p.content) FROM programs p JOIN program_sources s ON s.sha256 = p.sha256 "
        "WHERE s.source = ?",
        [source],
    )
    return Program(found[0][0], found[0][1], source=source) if found else None


def program_of(connection: Connection, sha256: str) -> bytes | None:
    """Returns the content of a program; None if it is not stored."""
    return connection.scalar("SELECT content FROM programs WHERE sha256 = ?", [sha256])
