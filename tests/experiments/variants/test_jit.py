"""Jitted or not, and from how many calls on compiling pays."""

from __future__ import annotations

import pytest
from comparisons_by_hand import compared

from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.experiments.study import Observation
from benchax.experiments.variants.jit import Eager, Jit
from benchax.model import Memory

CASE = make_case(lambda x: x + 1, ("f32[4]",))


def seen(build_s: float | None) -> Observation:
    return Observation("f32[4]", build_s, "", Memory(), None, "f32[4]", None, 0.0, None)


def test_compiling_pays_after_its_time_over_what_a_call_saves() -> None:
    changed = Eager().change(CASE)
    assert changed.facts is not None
    assert not changed.case.jit

    # 10 µs jitted, 20 µs operation by operation (1 % up and down), 1 ms to compile
    ((label, text),) = changed.facts(seen(1e-3), seen(None), compared(1, 2.0))

    assert label == "break-even"
    assert text.startswith("Compiling (1.00 ms) pays from 100 calls on (95 %: 99 – 103): 20.0 µs eager, 10.0 µs jitted")


def test_the_other_way_round_it_is_the_same() -> None:
    changed = Jit().change(CASE.eager())
    assert changed.facts is not None
    assert changed.case.jit

    ((_, text),) = changed.facts(seen(None), seen(1e-3), compared(1, 0.5))

    assert "10.0 µs eager, 5.00 µs jitted, 2.00× (1.98 – 2.02) faster" in text
    assert "pays from 200 calls on" in text


def test_without_a_comparison_there_is_no_break_even() -> None:
    changed = Eager().change(CASE)
    assert changed.facts is not None

    assert changed.facts(seen(1e-3), seen(None), None) == ()


@pytest.mark.parametrize(("variant", "case"), [(Jit(), CASE), (Eager(), CASE.eager())])
def test_what_it_is_already_shows_nothing(variant, case) -> None:
    with pytest.raises(NotMeasured, match="as it is"):
        variant.change(case)
