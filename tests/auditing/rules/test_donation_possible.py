"""Arguments that could be donated."""

from __future__ import annotations

from typing import Any

import pytest

from benchax.auditing.recorder.views import Carried

ID = "donation-possible"


def moved(params: Any, grads: Any) -> Any:
    return {"w": params["w"] - 0.1 * grads}


PARAMS = {"w": "f32[512,1024]"}


def test_what_an_output_could_take_over_is_named_with_bytes_and_time(ask_about: Any) -> None:
    answered = ask_about(ID, moved, PARAMS, "f32[512,1024]", ratio=0.5)

    assert answered.one.title == "2.00 MiB of its arguments could be donated"
    assert answered.one.seen[0] == "args[0]['w'] f32[512,1024] → result['w'], 2.00 MiB"
    assert answered.one.gain_bytes == 2 << 20
    assert answered.one.gain == (
        "measured: 1.00 ms → 500 µs per call (2.00×, 1.96 – 2.04); 2.00 MiB less in the compiler's plan"
    )
    assert [(before.donate, variant.donate) for before, variant in answered.pairs] == [((), (0,))]


def test_where_time_is_not_won_the_bytes_are(ask_about: Any) -> None:
    answered = ask_about(ID, moved, PARAMS, "f32[512,1024]", ratio=1.0)

    assert (answered.one.gain, answered.one.gain_s) == ("measured: 2.00 MiB less in the compiler's plan", None)


def test_where_it_would_be_slower_nothing_is_advised(ask_about: Any) -> None:
    answered = ask_about(ID, moved, PARAMS, "f32[512,1024]", ratio=1.2)

    assert answered.outcome == "not applicable"
    assert answered.why.startswith("nothing is donated, and donating 2.00 MiB would not pay: donated: slower")


def test_small_arrays_are_not_worth_a_word(ask_about: Any) -> None:
    answered = ask_about(ID, lambda a: a + 1, "f32[256]")

    assert answered.outcome == "not applicable"
    assert answered.why == "1.00 KiB is all that could be donated, which is too little to matter"


def test_a_sum_can_take_over_nothing(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a.sum(), "f32[1024,1024]").outcome == "not applicable"


def test_a_function_that_donates_is_another_rules(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a + 1, "f32[1024,1024]", donate=(0,)).outcome == "not applicable"


def test_what_is_to_be_donated_can_hold_no_array_as_under_equinox(ask_about: Any) -> None:
    answered = ask_about(ID, lambda given, a: a + 1, {}, "f32[1024,1024]", donate=(0,))

    assert answered.outcome == "not checked"
    assert answered.why == "the arguments that it is to donate hold no array, and others are not looked at"


def stored(buffer: Any, row: Any) -> Any:
    return buffer.at[3].set(row), row.sum()


def rewritten(buffer: Any, row: Any) -> Any:
    return buffer * row, row.sum()


@pytest.mark.parametrize(
    ("fn", "title"),
    [
        (stored, "copies 16.0 MiB in each call, to change a part of it"),
        (rewritten, "16.0 MiB of its arguments could be donated"),
    ],
)
def test_what_comes_back_with_a_part_changed_is_copied_in_each_call_and_a_warning(
    ask_about: Any, fn: Any, title: str
) -> None:
    parts = {"carried": Carried(50, ((0, 0),))}

    found = ask_about(ID, fn, "f32[4096,1024]", "f32[1024]", ratio=1.0, parts=parts).one

    assert found.title == title
    assert found.severity == ("warning" if fn is stored else "info")


def test_without_coming_back_it_is_an_info(ask_about: Any) -> None:
    assert ask_about(ID, stored, "f32[4096,1024]", "f32[1024]", ratio=1.0).one.severity == "info"
