"""`benchax site`: what it says of what it wrote, and of what it cannot."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from command_line import Benchax
from site_stores import make_store, row


@pytest.fixture
def site(benchax: Benchax) -> Benchax:
    return partial(benchax, "site")


def test_it_says_how_many_pages_were_written(site: Benchax, project: Path) -> None:
    store = make_store(project / ".benchmarks")

    first = site()
    second = site()
    store.append(row(4))
    third = site()

    assert (first.code, first.out) == (0, "")
    assert first.err == "site/index.html: 4 of 4 pages of cases written, 24 of 24 versions, 11 other files\n"
    assert second.err == "site/index.html: 0 of 4 pages of cases written, 0 of 24 versions, 0 other files\n"
    assert third.err == "site/index.html: 1 of 4 pages of cases written, 1 of 24 versions, 2 other files\n"
