"""What many cases have to say is said once, with how many they are; what is about one case stays with it."""

from __future__ import annotations

import pytest

from benchax.model import Remark
from benchax.reporting.tables import each_once, share_remarks

IMPURE = Remark("impure", "warning", "it prints")


def busy(share: int) -> Remark:
    return Remark("busy", "warning", f"other processes used {share} %")


def test_remarks_that_are_shared_are_shown_once_and_the_busy_machine_whatever_its_numbers() -> None:
    other = Remark("impure", "warning", "it reads a clock")

    assert each_once([IMPURE, busy(40), other, IMPURE, busy(60)]) == [IMPURE, busy(40), other]


def test_what_all_have_is_said_once_with_their_number() -> None:
    shared = share_remarks({f"f{i}": [busy(40)] for i in range(20)})

    assert [r.message for r in shared.common] == ["busy: all 20 cases; other processes used 40 %"]
    assert shared.universal == {"busy"}
    assert not any(shared.own.values())


def test_numbers_that_differ_are_those_of_a_case_that_is_named() -> None:
    (common,) = share_remarks({f"f{i}": [busy(40 + i)] for i in range(20)}).common

    assert common.message == "busy: all 20 cases; of f0: other processes used 40 %"


def test_of_what_most_have_those_without_it_are_named() -> None:
    shared = share_remarks({f"f{i}": [busy(40)] if i < 18 else [] for i in range(20)})

    assert [r.message for r in shared.common] == ["busy: 18 of 20 cases, not f18 and f19; other processes used 40 %"]
    assert not shared.universal


def test_many_exceptions_are_counted_only() -> None:
    (common,) = share_remarks({f"f{i}": [busy(40)] if i < 12 else [] for i in range(20)}).common

    assert common.message == "busy: 12 of 20 cases; other processes used 40 %"


@pytest.mark.parametrize("having", [1, 2, 10])
def test_what_no_more_than_half_have_stays_with_them(having: int) -> None:
    by_name = {f"f{i}": [IMPURE] if i < having else [] for i in range(20)}

    shared = share_remarks(by_name)

    assert shared.common == ()
    assert {name: list(own) for name, own in shared.own.items()} == by_name


def test_errors_and_what_is_about_one_case_stay_with_each() -> None:
    wrong, again = Remark("wrong", "error", "differs"), Remark("recompiled", "warning", "of x")
    by_name = {"f": [wrong, again], "g": [wrong, again]}

    shared = share_remarks(by_name, apart=["recompiled"])

    assert (shared.common, shared.own) == ((), {"f": (wrong, again), "g": (wrong, again)})


def test_nothing_is_lost_of_a_case_that_has_two_messages_of_one_code() -> None:
    other = Remark("impure", "warning", "it reads a clock")

    shared = share_remarks({"f": [IMPURE, other], "g": [IMPURE]})

    assert (shared.common, shared.own["f"]) == ((), (IMPURE, other))
