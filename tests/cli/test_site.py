"""`benchax site`: what it says of what it wrote, and of what it cannot."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from command_line import Benchax
from site_stores import make_store, row

from benchax.store.database import open_store


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


def test_without_a_store_it_says_what_to_do(site: Benchax, project: Path) -> None:
    done = site()

    assert done.code == 2
    assert "no database at" in done.err
    assert not (project / "site").exists()


def test_a_folder_that_cannot_be_written_is_named(site: Benchax, project: Path) -> None:
    open_store(project / ".benchmarks").append(row(0))
    (project / "taken").write_text("")

    done = site("-o", "taken/site")

    assert (done.code, done.err) == (
        2,
        "error: cannot write a site to 'taken/site': Not a directory\nexpected a folder that can be written to\n",
    )
