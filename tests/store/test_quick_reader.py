"""The reader of `list`, `show` and `runs`: the rows of the store's own, no answer where anything is unusual."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from measurement_strategies import RICH, exact, measured

from benchax.model import CaseId
from benchax.store import quick_reader
from benchax.store.base import file_at
from benchax.store.baselines import remove, set_baseline
from benchax.store.database import open_store
from benchax.store.runs import list_runs
from benchax.store.schema import SCALARS, SCHEMA

ODD = ('"quoted"', "a\0b", 'a, b\n"c" 🦊', "\ud7ff\U0010ffff", "")


@pytest.mark.parametrize("text", ODD)
def test_any_row_is_the_row_that_the_store_reads(text: str, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    environment = replace(RICH.environment, host=text, commit=text, backend=text, is_dirty=None)
    case = CaseId(text, (("n", 2**70), ("x", float("nan")), ("t", text)), text, text)
    ids = [store.append(m) for m in (RICH, replace(RICH, case=case, environment=environment, failure=None), measured())]

    file = file_at(store.where)
    assert exact(quick_reader.newest_rows(file, None)) == exact(store.rows())
    assert [exact(quick_reader.get(file, id)) for id in ids] == [exact(store.get(id)) for id in ids]


def test_any_run_is_the_run_that_the_store_lists(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for text in ODD:
        odd = replace(RICH.environment, host=text, commit=text, backend=text, is_dirty=None)
        store.append(replace(RICH, case=CaseId(text), run_id=f"{text} run", environment=odd, failure=None))
        store.append(measured())
    set_baseline(store, ODD[0], f"{ODD[1]} run")
    set_baseline(store, "gone", measured().run_id)
    remove(store, "gone")

    file = file_at(store.where)
    assert quick_reader.newest_runs(file, 3) == (list_runs(store, 3), {f"{ODD[1]} run": ODD[0]})
    assert (quick_reader.newest_runs(file, None) or ([], {}))[0] == list_runs(store)


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
