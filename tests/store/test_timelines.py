"""What a site reads of a store, of any kind of store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from comparisons_by_hand import compared
from measurement_strategies import RICH, measured
from site_stores import contents, fill

from benchax.errors import StoreError
from benchax.reporting.site import publishing
from benchax.reporting.site.publishing import publish
from benchax.store import comparisons
from benchax.store.comparisons import list_activity, read_comparisons, read_environment, read_timeline
from benchax.store.database import DatabaseStore
from benchax.store.schema import MIGRATIONS, StorableRow, take_step


def test_a_case_has_what_it_had_when_it_was_listed_and_what_comes_later_is_left_for_the_next_time(
    store: DatabaseStore,
) -> None:
    with pytest.raises(StoreError, match="no database at"):
        list_activity(store)
    ids = [store.append(replace(RICH, case=measured().case)) for _ in range(2)]
    comparisons.append(store, [compared(0, 1.5)])
    listed, ratio = list_activity(store)

    store.append(measured(commit="b2"))
    comparisons.append(store, [compared(1, 1.6)])

    assert (listed.case, listed.seen, ratio.seen) == (measured().case, [2, ids[-1], 0, 0], [0, 0, 1, 1])
    row, _ = read_timeline(store, listed)
    assert read_environment(store, row) == RICH.environment
    assert (row.fingerprint, row.median_s) == (RICH.environment.fingerprint, RICH.summary().median_s)
    assert [c.ratio for c in read_comparisons(store, ratio)] == [1.5]
    assert list_activity(store)[0].seen != listed.seen


def test_a_store_from_before_there_were_comparisons_has_rows(store: DatabaseStore) -> None:
    store.place.write(lambda c: take_step(c, MIGRATIONS[0]))
    store.place.write(StorableRow(measured()).insert)

    (found,) = list_activity(store)

    assert (found.seen[0], read_comparisons(store, found)) == (1, [])


@pytest.mark.slow
def test_processes_that_open_a_store_anew_write_what_one_writes(
    store: DatabaseStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    publish(store, tmp_path / "by-one")

    monkeypatch.setattr(publishing, "_choose_processes", lambda activity: 2)
    publish(store, tmp_path / "by-two")

    assert contents(tmp_path / "by-two") == contents(tmp_path / "by-one")
