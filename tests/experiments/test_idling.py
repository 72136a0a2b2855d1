"""Idle devices in traces made by hand."""

from __future__ import annotations

import pytest
from xspace_by_hand import Event, op, plane, space

from benchax.errors import NotMeasured
from benchax.experiments.devices import Idle, describe_idle, idle_of

US = 10**6
"""Picoseconds."""


def trace(*events: Event) -> bytes:
    return space(plane("/host:CPU", {"pool": events}))


def test_a_device_is_idle_before_its_first_operation_and_behind_its_last() -> None:
    recorded = trace(
        op("a", 0, 4 * US),
        op("a", 5 * US, US),
        op("b", 2 * US, 6 * US, device_ordinal=1, run_id=2),
        op("b", 9 * US, US, device_ordinal=1, run_id=3),
    )

    span_s, idle, count = idle_of(recorded, ["cpu:1", "cpu:0"])

    assert span_s == pytest.approx(10e-6)
    assert idle == pytest.approx((0.3, 0.5))
    assert count == 4


def test_a_device_that_the_trace_lacks_is_no_idle_one() -> None:
    with pytest.raises(NotMeasured, match="no operations of cpu:1"):
        idle_of(trace(op("a", 0, US)), ["cpu:0", "cpu:1"])


def test_an_operation_without_its_end_is_no_busy_time() -> None:
    with pytest.raises(NotMeasured, match="does not say when some operations ended"):
        idle_of(trace(op("a", 0, US, _p=1)), ["cpu:0"])


def test_the_recording_of_median_length_is_told_of_those_that_hold_all_operations() -> None:
    whole = [Idle(span, (span / 10, 0.5), 6) for span in (3.0, 1.0, 2.0)]

    found = describe_idle([Idle(0.5, (0.9, 0.9), 5), *whole, Idle(0.6, (0.9, 0.9), 5)], "")

    assert found == (("idle in a profile:", "35 % (by device 20 %, 50 %)"),)


@pytest.mark.parametrize(("why", "told"), [("", "the recordings differ in the number of operations"), ("so", "so")])
def test_too_few_recordings_that_hold_all_operations_say_nothing(why: str, told: str) -> None:
    found = describe_idle([Idle(1, (0.5,), 6), Idle(1, (0.5,), 6), Idle(1, (0.5,), 5)], why)

    assert found == (("idle, not measured:", told),)
