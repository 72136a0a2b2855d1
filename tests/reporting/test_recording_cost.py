"""What recording adds, in words."""

from __future__ import annotations

import pytest

from benchax.reporting.steps import describe_recording_cost
from benchax.results.profile import RecordingCost


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (
            RecordingCost(4e-4, 1e-4, 1800),
            (
                "while nothing is recorded, a step takes 100 µs: recording its 1.80 k events makes it 4 times as long "
                "(400 µs), and the shares of short operations too large"
            ),
        ),
        (
            RecordingCost(1.01e-4, 1e-4, 30),
            "while nothing is recorded, a step takes 100 µs: recording adds little",
        ),
        (
            RecordingCost(4e-4, None, 1800, "the program ended before it was"),
            (
                "what recording the 1.80 k events of a step adds to its time was not measured, because the program "
                "ended before it was"
            ),
        ),
    ],
    ids=["much", "little", "not measured"],
)
def test_a_recorded_time_does_not_pass_for_the_real_one(cost: RecordingCost, text: str) -> None:
    assert describe_recording_cost(cost, "a step") == text
