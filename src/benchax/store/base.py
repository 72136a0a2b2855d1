"""`Row`: the scalars of one measurement, for tables, histories and SQL; and the words that ask for rows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from benchax.errors import UsageError
from benchax.model import CaseId, Measurement
from benchax.printable import can_name_a_file


@dataclass(frozen=True, slots=True)
class Row:
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


@dataclass(frozen=True)
class StoredRun:
    """The rows that a run stored."""

    run_id: str
    started_at: str
    """The start of its first row; UTC, ISO 8601."""
    rows: int
    failed: int
    cases: tuple[str, ...]
    """Names, without parameters, in the order in which they came."""
    commit: str | None
    is_dirty: bool | None
    host: str
    backend: str | None
    device_kind: str | None
    jax: str | None


def row_of(m: Measurement, id: int = 0) -> Row:
    """The scalars of `m`."""
    headline, environment = m.headline, m.environment
    summary = m.find_summary() if headline and headline.elapsed_s else None
    return Row(
        id=id,
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


def check_place(where: object) -> None:
    """Raises UsageError where `where` can be neither a path nor a URL."""
    text = str(cast("object", where)) if isinstance(where, str | os.PathLike) else ""
    if not text or not can_name_a_file(text):
        raise UsageError(
            f"rows cannot be in {where!r}",
            "a folder, a path that ends in .db, .sqlite, .jsonl or .json, or the URL of a database",
        )


FILE_NAME = "benchax.db"
SUFFIXES = (".db", ".sqlite")


def file_at(where: str | os.PathLike[str]) -> Path:
    """The database at `where`, which is no URL: a folder, or the file itself."""
    path = Path(where)
    return path if path.suffix in SUFFIXES and not path.is_dir() else path / FILE_NAME


def is_pattern(case: str) -> bool:
    return "*" in case or "?" in case


def name_matcher(case: str) -> Callable[[str], bool]:
    """Does a name answer to `case`, a name or a pattern? [ ] stand for themselves: names of tests are full of them."""
    if not is_pattern(case):
        return case.__eq__
    wildcards = {"*": ".*", "?": "."}
    pattern = re.compile("".join(wildcards.get(c) or re.escape(c) for c in case), re.DOTALL)
    return lambda name: pattern.fullmatch(name) is not None


def commit_range(commit: str) -> tuple[str, str]:
    """(low, high): the commits that begin with the digits `commit` are low <= c < high, which an index can answer."""
    return commit, commit + "g"  # no hexadecimal digit reaches "g"
