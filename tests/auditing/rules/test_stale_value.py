"""Compiled functions that go on with an old value."""

from __future__ import annotations

from typing import Any

ID = "stale-value"
SEEN = {"is_seen": True}


def test_the_value_its_function_and_its_line_are_told(ask_about_program: Any) -> None:
    value = {
        "function": "_update", "name": "self.temperature", "where": "train.py:41", "change": "from 2.0 to 1.7",
        "call": 2,
    }  # fmt: skip

    finding = ask_about_program(ID, stale=[value], calls=SEEN).one

    assert (
        finding.title == "_update was compiled with self.temperature as it was, and self.temperature has changed since"
    )
    assert finding.seen[0] == "self.temperature went from 2.0 to 1.7; seen at call 2 of the program"
    assert finding.where[1] == 41


def test_without_any_it_is_fine_and_where_calls_cannot_be_seen_it_is_not_checked(ask_about_program: Any) -> None:
    assert ask_about_program(ID, stale=[], calls=SEEN).outcome == "fine"
    assert ask_about_program(ID, stale=[], calls={"is_seen": False}).outcome == "not checked"
    assert ask_about_program(ID).outcome == "not checked"
