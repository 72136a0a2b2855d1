"""A site is the same of whichever store, and by however many processes, each of which opens the store anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from site_stores import contents, fill

from benchax.reporting.site import publishing
from benchax.reporting.site.publishing import publish
from benchax.store.database import DatabaseStore


def test_processes_that_open_a_store_anew_write_what_one_writes(
    store: DatabaseStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    publish(store, tmp_path / "by-one")

    monkeypatch.setattr(publishing, "_choose_processes", lambda tasks: 2)
    publish(store, tmp_path / "by-two")

    assert contents(tmp_path / "by-two") == contents(tmp_path / "by-one")
