"""Programs just beyond what XLA:CPU runs on the calling thread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchax.auditing.rules import whole_calls

ID = "inline-cliff"


OF_25_US = {"measurement": SimpleNamespace(median_s=25e-6)}


def hand_over(monkeypatch: pytest.MonkeyPatch, extra_s: float) -> None:
    monkeypatch.setattr(whole_calls, "_plus_one", lambda n: 4e-6 + (extra_s if n >= 1000 else 0.0))


def test_a_small_program_beyond_the_limit_is_told_with_both_times(
    ask_about: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(monkeypatch, 12e-6)

    finding = ask_about(ID, lambda a: a + 1, "f32[2000]", parts=OF_25_US).one

    assert finding.title == "2.00 kFLOP are dispatched to the thread pool, about 48 % of the call"
    assert finding.seen[1] == "x + 1 of 999 elements takes 4.00 µs here, of 1000 16.0 µs"
    assert finding.gain == "estimated: up to 12.0 µs per call, were it part of a larger program"


@pytest.mark.parametrize(("extra_s", "outcome"), [(2e-6, "fine"), (30e-6, "not checked")])
def test_a_cheap_hand_over_is_fine_and_one_longer_than_the_call_cannot_be_told(
    ask_about: Any, monkeypatch: pytest.MonkeyPatch, extra_s: float, outcome: str
) -> None:
    hand_over(monkeypatch, extra_s)

    assert ask_about(ID, lambda a: a + 1, "f32[2000]", parts=OF_25_US).outcome == outcome


def test_below_the_limit_it_is_fine(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a + 1, "f32[999]").outcome == "fine"


def test_with_much_work_it_does_not_apply(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a @ a, "f32[256,256]").outcome == "not applicable"


@pytest.mark.slow
@pytest.mark.serial
def test_the_two_sides_of_the_limit_are_really_measured() -> None:
    """Which of them is longer is the machine's affair."""
    assert whole_calls._plus_one(999) > 0
    assert whole_calls._plus_one(1000) > 0
