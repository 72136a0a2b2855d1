"""Texts of strangers are spelt out and capped, and nothing else is changed."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.printable import cap, show_controls, show_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("safe\rEVIL", r"safe\rEVIL"),
        ("abc\u202ecba", r"abc\u202ecba"),
        ("\u2066x\u2069\u200f", r"\u2066x\u2069\u200f"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("naïve 数学 🦊 עברית", "naïve 数学 🦊 עברית"),
    ],
)
def test_what_a_terminal_would_obey_is_spelt_out(text: str, shown: str) -> None:
    assert show_controls(text) == shown


@given(st.text())
def test_nothing_that_is_shown_is_a_control(text: str) -> None:
    assert not [c for c in show_line(text) if unicodedata.category(c) == "Cc"]


def test_a_long_text_is_capped_with_its_length_told() -> None:
    text = cap("a" * 500 + "b" * 1_000_000 + "c" * 100, 400)

    assert text.startswith("a" * 300)
    assert text.endswith("c" * 100)
    assert "[1,000,600 characters in all]" in text
    assert len(text) < 500
    assert cap("x" * 400, 400) == "x" * 400
