"""What `open_store` understands; what the columns hold, and that it stays so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.errors import MissingPackage, UsageError
from benchax.model import CaseId, Opaque
from benchax.store.database import open_store
from benchax.store.schema import case_key, decode_text, encode_text


def test_a_folder_holds_benchax_db(tmp_path: Path) -> None:
    assert open_store(tmp_path).where == str(tmp_path / "benchax.db")
    assert open_store().where == str(Path(".benchmarks") / "benchax.db")
    for name in ("mine.db", "mine.sqlite"):
        assert open_store(tmp_path / name).where == str(tmp_path / name)
    (tmp_path / "mine.db").mkdir()  # a folder may have the ending of a file
    assert open_store(tmp_path / "mine.db").where == str(tmp_path / "mine.db" / "benchax.db")
    assert repr(open_store("a")) == f"DatabaseStore({str(Path('a') / 'benchax.db')!r})"


@pytest.mark.parametrize("url", ["mysql://me:secret@host/db", "https://example.org/rows", "sqlite:///x.db"])
def test_other_urls_are_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(UsageError) as error:
        open_store(url)

    assert "cannot store rows in" in error.value.problem
    assert "secret" not in str(error.value)
    with pytest.raises(UsageError, match=r"cannot read the URL of the store ':://'"):
        open_store(":://")
    assert error.value.expected == "a folder, a path that ends in .db or .sqlite, or postgresql://user@host/name"


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(MissingPackage, match=r"pip install 'psycopg\[binary\]'"):
        open_store("postgresql://me@host/db")


def test_the_key_of_a_case_never_changes() -> None:
    """Rows of older databases are found by it."""
    case = CaseId("fft", (("n", 256), ("dtype", Opaque("dtype", "f32")), ("shape", (1, 2.5))), "eager", "naïve")

    assert case_key(case) == "3634af587dfba0197b451d7cc1cda7bf156a5d45bbc1ca4a78734ee23ae2b6a3"


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain, naïve 🦊\n", "plain, naïve 🦊\n"),
        ("", ""),
        (None, None),
        ("a\0b", '"a\\u0000b"'),
        ("\ud800", '"\\ud800"'),
        ('"quoted"', '"\\"quoted\\""'),
    ],
)
def test_only_texts_that_a_database_refuses_are_stored_otherwise(text: str | None, stored: str | None) -> None:
    assert encode_text(text) == stored
    assert decode_text(stored) == text


@given(st.text() | st.text(["\0", '"', "\\", "\udc80", "é"]))
def test_any_text_comes_back(text: str) -> None:
    stored = encode_text(text)

    assert stored is not None
    assert "\0" not in stored
    assert stored.encode("utf-8").decode("utf-8") == stored
    assert decode_text(stored) == text
