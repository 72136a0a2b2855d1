"""What `make docs` has built: nothing is fetched from elsewhere, links lead somewhere, and search works from disk."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import benchax

BUILT = Path(__file__).parents[1] / "docs" / "_build" / "html"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIETLY = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=15000",
)  # fmt: skip

pytestmark = pytest.mark.skipif(not (BUILT / "index.html").is_file(), reason="make docs has not built the pages here")


@pytest.fixture(scope="module")
def pages() -> dict[Path, str]:
    return {page: page.read_text(encoding="utf-8") for page in BUILT.rglob("*.html")}


def test_no_page_fetches_anything_from_elsewhere(pages: dict[Path, str]) -> None:
    tags = r"<(?:script|link|img|iframe|source|video)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]+)\""

    assert {url for text in pages.values() for url in re.findall(tags, text)} == set()
    styles = [file.read_text(encoding="utf-8") for file in BUILT.rglob("*.css")]
    assert [url for text in styles for url in re.findall(r"(?:@import|url\()\s*[\"']?(https?:[^\"')]+)", text)] == []


def test_every_public_name_can_be_searched_for() -> None:
    index = (BUILT / "searchindex.js").read_text(encoding="utf-8")

    assert [name for name in benchax.__all__ if f'"{name}"' not in index and f'"{name.lower()}"' not in index] == []


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
def test_the_search_works_from_disk() -> None:
    address = f"{(BUILT / 'search.html').as_uri()}?q=watch_cache"

    shown = subprocess.run(
        [str(BROWSER), *QUIETLY, "--dump-dom", address], capture_output=True, encoding="utf-8"
    ).stdout

    assert 'href="reference/seeing-inside.html#watch_cache"' in shown
