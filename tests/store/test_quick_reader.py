"""The reader of `list` and `show`: the same rows as the store's own, and no answer where anything is unusual."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from measurement_strategies import RICH, measured, measurements

from benchax.model import CaseId, Measurement
from benchax.store import quick_reader
from benchax.store.base import file_at
from benchax.store.database import open_store
from benchax.store.schema import SCALARS, SCHEMA


@given(measurements())
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_row_is_the_row_that_the_store_reads(tmp_path_factory: pytest.TempPathFactory, m: Measurement) -> None:
    store = open_store(tmp_path_factory.mktemp("store"))
    id = store.append(m)

    file = file_at(store.where)
    assert repr(quick_reader.newest_rows(file, None)) == repr(store.rows())
    assert repr(quick_reader.get(file, id)) == repr(store.get(id))


def test_the_newest_are_given_oldest_first(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for m in (measured("a"), replace(RICH, case=CaseId('"b"', (("n", 2**70),))), measured("c")):
        store.append(m)

    assert quick_reader.newest_rows(file_at(tmp_path), 2) == store.rows(limit=2)
    assert quick_reader.get(file_at(tmp_path), 9) is None


def test_it_knows_the_schema_of_today() -> None:
    assert str(SCHEMA) == quick_reader.SCHEMA
    assert [c.name for c in SCALARS] == quick_reader._COLUMNS


def test_what_is_unusual_has_no_answer(tmp_path: Path) -> None:
    assert quick_reader.newest_rows(tmp_path / "none.db", 1) is None
    (tmp_path / "text.db").write_text("no database")
    assert quick_reader.newest_rows(tmp_path / "text.db", 1) is None
    os.mkfifo(tmp_path / "fifo.db")
    assert quick_reader.newest_rows(tmp_path / "fifo.db", 1) is None
    open_store(tmp_path).append(measured())
    with closing(sqlite3.connect(file_at(tmp_path))) as connection:
        connection.execute("UPDATE meta SET value = '99'")
        connection.commit()
    assert quick_reader.newest_rows(file_at(tmp_path), 1) is None
