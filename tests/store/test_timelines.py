"""What a site reads of a store, of any kind of store."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparisons_by_hand import CASE, compared
from measurement_strategies import RICH, measured
from site_stores import contents, fill

from benchax.errors import StoreError
from benchax.reporting.site import publishing
from benchax.reporting.site.publishing import publish
from benchax.store import comparisons
from benchax.store.comparisons import list_activity, read_comparisons, read_environment, read_timeline
from benchax.store.database import DatabaseStore
from benchax.store.schema import MIGRATIONS, StorableRow, take_step


def test_a_case_is_listed_with_what_it_has(store: DatabaseStore) -> None:
    ids = [store.append(measured(commit=commit)) for commit in ("a1", "b2")]
    comparisons.append(store, [compared(n, 1.5) for n in range(3)])

    by_case = {found.case: found for found in list_activity(store)}

    assert [by_case[measured().case].seen, by_case[CASE].seen] == [[2, ids[-1], 0, 0], [0, 0, 3, 3]]


def test_what_comes_later_is_left_for_the_next_time(store: DatabaseStore) -> None:
    store.append(measured(commit="a1"))
    comparisons.append(store, [compared(0, 1.5)])
    row, ratio = list_activity(store)

    store.append(measured(commit="b2"))
    comparisons.append(store, [compared(1, 1.6)])

    assert [each.commit for each in read_timeline(store, row)] == ["a1"]
    assert [c.ratio for c in read_comparisons(store, ratio)] == [1.5]
    assert list_activity(store)[0].seen != row.seen


def test_a_row_knows_where_it_was_measured(store: DatabaseStore) -> None:
    store.append(RICH)
    (found,) = list_activity(store)
    (row,) = read_timeline(store, found)

    assert read_environment(store, row) == RICH.environment
    assert (row.fingerprint, row.median_s) == (RICH.environment.fingerprint, RICH.summary().median_s)


def test_a_store_from_before_there_were_comparisons_has_rows(store: DatabaseStore) -> None:
    store.place.write(lambda c: take_step(c, MIGRATIONS[0]))
    store.place.write(StorableRow(measured()).insert)

    (found,) = list_activity(store)

    assert (found.seen[0], read_comparisons(store, found)) == (1, [])


def test_where_nothing_was_ever_stored_it_is_said(store: DatabaseStore) -> None:
    with pytest.raises(StoreError, match="no database at"):
        list_activity(store)


@pytest.mark.slow
def test_processes_that_open_a_store_anew_write_what_one_writes(
    store: DatabaseStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    publish(store, tmp_path / "by-one")

    monkeypatch.setattr(publishing, "_choose_processes", lambda activity: 2)
    publish(store, tmp_path / "by-two")

    assert contents(tmp_path / "by-two") == contents(tmp_path / "by-one")
