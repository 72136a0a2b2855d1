"""A browser that complains of what its pages said or asked for; a store of which a site is made, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_pages import Opened, start_browser
from site_stores import make_store

from benchax.reporting import display  # noqa: F401  # teaches all results to show themselves
from benchax.store.database import DatabaseStore


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with start_browser() as started:
        yield started


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens files, and complains at the end of what a page said or asked for beyond the folder of its file."""
    pages: list[tuple[Opened, Path]] = []

    def open_file(file: Path, **looks: Any) -> Opened:
        pages.append((Opened(browser, file, **looks), file.parent))
        return pages[-1][0]

    yield open_file
    for page, folder in pages:
        page.close()
        assert page.messages == []
        assert [
            url for url in page.requests if not url.startswith((folder.absolute().as_uri(), "data:", "blob:"))
        ] == []


@pytest.fixture
def store(tmp_path: Path) -> DatabaseStore:
    return make_store(tmp_path / "store")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"
