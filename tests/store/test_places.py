"""What `open_store` understands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchax.errors import MissingPackage, UsageError
from benchax.store.database import open_store


def test_a_folder_holds_benchax_db(tmp_path: Path) -> None:
    assert open_store(tmp_path).where == str(tmp_path / "benchax.db")
    assert open_store().where == str(Path(".benchmarks") / "benchax.db")
    assert repr(open_store("a")) == f"DatabaseStore({str(Path('a') / 'benchax.db')!r})"


@pytest.mark.parametrize("name", ["mine.db", "mine.sqlite"])
def test_a_file_is_known_by_its_ending(tmp_path: Path, name: str) -> None:
    assert open_store(tmp_path / name).where == str(tmp_path / name)


def test_a_folder_may_have_the_ending_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()

    assert open_store(tmp_path / "x.db").where == str(tmp_path / "x.db" / "benchax.db")


@pytest.mark.parametrize("url", ["mysql://me:secret@host/db", "https://example.org/rows", "sqlite:///x.db"])
def test_other_urls_are_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(UsageError) as error:
        open_store(url)

    assert "cannot store rows in" in error.value.problem
    assert "secret" not in str(error.value)
    assert error.value.expected == "a folder, a path that ends in .db or .sqlite, or postgresql://user@host/name"


def test_what_is_no_url_is_quoted() -> None:
    with pytest.raises(UsageError, match=r"cannot read the URL of the store ':://'"):
        open_store(":://")


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(MissingPackage, match=r"pip install 'psycopg\[binary\]'"):
        open_store("postgresql://me@host/db")
