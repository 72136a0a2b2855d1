"""Tables and columns, their version, and the steps that lead from one version to the next.

One text works for SQLite and PostgreSQL. Scalar columns are for questions, `document` is the truth (`codec.py`)
without the readings, and `samples` holds these as arrays: elapsed_s little-endian float64, disturbed one byte each.

Programs of baselines are kept once each, under the digest of their content, separately from their rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    bindparam,
    func,
    insert,
    inspect,
    select,
    update,
)

from benchax.codec import encode_params
from benchax.errors import UPGRADE, StoreError
from benchax.model import CaseId, Program


class AnyText(TypeDecorator[str]):
    """Text that can hold characters that databases refuse: NUL (PostgreSQL) and lone surrogates (both).

    Such a text is stored as a JSON string, known by its leading quotation mark; so is one that begins with such a
    mark. All others are stored as they are, so that people can ask for them in SQL.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: object) -> str | None:
        if value is None or not (
            value.startswith('"') or "\0" in value or any("\ud800" <= c <= "\udfff" for c in value)
        ):
            return value
        return json.dumps(value)

    def process_result_value(self, value: str | None, dialect: object) -> str | None:
        return json.loads(value) if value is not None and value.startswith('"') else value


# SQLite makes the id its row number only if the type is INTEGER to the letter.
_Id = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData()

meta = Table("meta", metadata, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))

cases = Table(
    "cases",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("key", String(64), unique=True, nullable=False),
    Column("name", AnyText, nullable=False),
    Column("params", Text, nullable=False),
    Column("variant", AnyText, nullable=False),
    Column("tag", AnyText, nullable=False),
)

measurements = Table(
    "measurements",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("case_id", _Id, ForeignKey("cases.id"), nullable=False),
    Column("run_id", AnyText, nullable=False),
    Column("started_at", AnyText, nullable=False),
    Column("status", Text, nullable=False),
    Column("failure_kind", Text),
    Column("commit", AnyText),
    Column("is_dirty", Boolean),
    Column("host", AnyText, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("backend", AnyText),
    Column("device_kind", AnyText),
    Column("jax", AnyText),
    Column("timer", AnyText),
    Column("iterations", BigInteger),
    Column("n", BigInteger),
    Column("median_s", Double),
    Column("low_s", Double),
    Column("high_s", Double),
    Column("compile_s", Double),
    Column("predicted_peak_bytes", BigInteger),
    Column("observed_peak_bytes", BigInteger),
    # Last, because SQLite reads a row from its start: what is long and seldom asked for must not be in the way.
    Column("document", Text, nullable=False),
    Index("measurements_of_run", "run_id"),
    Index("measurements_of_case", "case_id", "id"),
    Index("measurements_of_commit", "commit"),
)

samples = Table(
    "samples",
    metadata,
    Column("measurement_id", _Id, ForeignKey("measurements.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("elapsed_s", LargeBinary, nullable=False),
    Column("disturbed", LargeBinary),
)

programs = Table(
    "programs",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

program_sources = Table(
    "program_sources",
    metadata,
    # Of what a program was exported from; several may give the same one.
    Column("source", String(64), primary_key=True),
    Column("sha256", String(64), ForeignKey("programs.sha256"), nullable=False),
)

baselines = Table(
    "baselines",
    metadata,
    Column("id", _Id, primary_key=True),
    # Not unique: the newest of a name holds, and the earlier ones say what it was before.
    Column("name", AnyText, nullable=False),
    Column("run_id", AnyText, nullable=False),
    Column("set_at", Text, nullable=False),
)

comparisons = Table(
    "comparisons",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("case_id", _Id, ForeignKey("cases.id"), nullable=False),
    Column("metric", Text, nullable=False),
    Column("baseline", AnyText, nullable=False),
    Column("document", Text, nullable=False),
    Index("comparisons_of_case", "case_id", "id"),
)

SCALARS = [c for c in measurements.columns if c.name not in ("id", "case_id", "document")]
"""In the order of the fields of `Row` from run_id on."""


def case_key(case: CaseId) -> str:
    """64 hexadecimal digits that stand for the whole identity, however long its texts are. Never changes."""
    identity = json.dumps([case.name, encode_params(case.params), case.variant, case.tag])
    return hashlib.sha256(identity.encode("ascii")).hexdigest()


def case_columns(case: CaseId) -> dict[str, str]:
    return {
        "key": case_key(case),
        "name": case.name,
        "params": encode_params(case.params),
        "variant": case.variant,
        "tag": case.tag,
    }


# ---- versions ---------------------------------------------------------------------------------------------------


def _version_1(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Its trees refuse values beyond 2,700 bytes. (SQLite has trees only, without a limit.) Said here and not where
        # the index is: there SQLAlchemy would load its module for PostgreSQL, 30 ms, in every session.
        of_run = next(index for index in measurements.indexes if index.name == "measurements_of_run")
        of_run.dialect_kwargs["postgresql_using"] = "hash"
    metadata.create_all(connection, tables=[meta, cases, measurements, samples], checkfirst=False)
    connection.execute(insert(meta).values(name="schema", value="1"))


def _version_2(connection: Connection) -> None:
    """Programs that can run again, names of baselines, and comparisons."""
    metadata.create_all(connection, tables=[programs, baselines, comparisons], checkfirst=False)
    connection.execute(update(meta).where(meta.c.name == "schema").values(value="2"))


def _version_3(connection: Connection) -> None:
    """Adds the digest of each program's source, so that a stored program is not exported again."""
    metadata.create_all(connection, tables=[program_sources], checkfirst=False)
    connection.execute(update(meta).where(meta.c.name == "schema").values(value="3"))


MIGRATIONS: list[Callable[[Connection], None]] = [_version_1, _version_2, _version_3]
"""Step i makes version i + 1 out of version i and says so in `meta`. Steps are added, never changed."""

SCHEMA = len(MIGRATIONS)

_TABLES = frozenset({"meta", "cases", "measurements", "samples"})
_ADVISORY_LOCK = 0x62656E63686178  # "benchax": a number that nobody else locks


def migrate(connection: Connection, where: str) -> None:
    """Brings the database of this transaction up to `SCHEMA`: all steps or none. Raises as `version` does."""
    if version(connection, where) == SCHEMA:
        return
    if connection.dialect.name == "postgresql":
        # Two processes may begin a database at once. (In SQLite the transaction excludes the other one already.)
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    # Asked again: another process may have taken these steps while this one waited for the lock.
    for step in MIGRATIONS[version(connection, where) :]:
        step(connection)


def version(connection: Connection, where: str) -> int:
    """The version of the tables that are there, 0 for none. Changes nothing.

    Raises:
        StoreError: a newer benchax wrote them, or they belong to something else.
    """
    present = _TABLES.intersection(inspect(connection).get_table_names())
    if not present:
        return 0
    if present != _TABLES:
        raise StoreError(
            f"database {where} belongs to something else: its only tables of benchax are {', '.join(sorted(present))}",
            "a database of benchax, or a place where there is none yet",
        )
    found = read_version(connection)
    if found > SCHEMA:
        raise StoreError(
            f"database {where} was written by a newer benchax (schema {found}; this one knows {SCHEMA})",
            hint=UPGRADE,
        )
    return found


def read_version(connection: Connection) -> int:
    """Returns the version in `meta`, which must be there."""
    return int(connection.execute(select(meta.c.value).where(meta.c.name == "schema")).scalar_one())


def keep_program(connection: Connection, program: Program) -> None:
    """In the transaction of the row."""
    if program.content is None:
        return
    known = select(programs.c.sha256).where(programs.c.sha256 == program.sha256)
    if connection.execute(known).scalar() is None:
        connection.execute(insert(programs).values(sha256=program.sha256, content=program.content))
    known = select(program_sources.c.sha256).where(program_sources.c.source == program.source)
    if program.source and connection.execute(known).scalar() is None:
        connection.execute(insert(program_sources).values(source=program.source, sha256=program.sha256))


_PROGRAM_FROM = (
    select(programs.c.sha256, func.length(programs.c.content))
    .join(program_sources, program_sources.c.sha256 == programs.c.sha256)
    .where(program_sources.c.source == bindparam("source"))
)


def program_from(connection: Connection, source: str) -> Program | None:
    """Returns the program that was exported from this source, without its content; None if it is not stored."""
    found = connection.execute(_PROGRAM_FROM, {"source": source}).first()
    return None if found is None else Program(found[0], found[1], source=source)


def program_of(connection: Connection, sha256: str) -> bytes | None:
    """Returns the content of a program; None if it is not stored."""
    return connection.execute(select(programs.c.content).where(programs.c.sha256 == sha256)).scalar()
