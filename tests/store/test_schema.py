"""What the columns hold, and that it stays so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.model import CaseId, Opaque
from benchax.store.schema import case_key, decode_text, encode_text


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
