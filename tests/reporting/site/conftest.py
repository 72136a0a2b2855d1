"""A store of which a site is made, and where."""

from __future__ import annotations

from pathlib import Path

import pytest
from site_stores import make_store

from benchax.store.database import DatabaseStore


@pytest.fixture
def store(tmp_path: Path) -> DatabaseStore:
    return make_store(tmp_path / "store")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"
