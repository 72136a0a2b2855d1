"""Donations in vain."""

from __future__ import annotations

from typing import Any

ID = "donation-unused"


def test_a_donated_array_that_fits_no_output_is_named_with_the_reason(ask_about: Any) -> None:
    finding = ask_about(ID, lambda a, b: (a + 1, b.sum()), "f32[256]", "f32[1024]", donate=(0, 1)).one

    assert finding.title == "1 of 2 donated arrays are not reused"
    assert finding.seen[0].startswith("args[1] f32[1024], 4.00 KiB: no output has its shape and dtype")
    assert finding.seen[1] == "donated were 5.00 KiB, 4.00 KiB of them in vain"
    assert finding.severity == "info"


def test_a_large_one_is_a_warning(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a.sum(), "f32[512,1024]", donate=(0,)).one.severity == "warning"


def test_donations_that_are_used_are_fine(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a + 1, "f32[256]", donate=(0,)).outcome == "fine"


def test_without_donation_it_does_not_apply(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a + 1, "f32[256]").outcome == "not applicable"


def test_a_counter_that_is_donated_in_vain_is_fine(ask_about: Any) -> None:
    assert ask_about(ID, lambda a, n: a + n.astype(a.dtype), "f32[256]", "i32[]", donate=(0, 1)).outcome == "fine"
