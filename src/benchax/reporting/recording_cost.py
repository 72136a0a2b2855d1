"""The cost that recording adds to a step or a call, in a sentence. Readers must not mistake recorded times for real
ones."""

from __future__ import annotations

from benchax.results.profile import RecordingCost
from benchax.units import count, seconds

LEAST_FACTOR = 1.05
"""Below it recorded and unrecorded are the same, as far as neighbours on the machine let it be known."""


def describe_recording_cost(cost: RecordingCost, what: str) -> str:
    """Recorded, a step takes 2.7 times as long as the 1.42 ms without, for its 4,900 events: ...

    Args:
        what: a step, or a call.
    """
    events = f"{count(round(cost.events))} events"
    if cost.unrecorded_s is None or cost.factor is None:
        return f"what recording the {events} of {what} adds to its time was not measured, because {cost.why}"
    unrecorded = seconds(cost.unrecorded_s)
    if cost.factor < LEAST_FACTOR:
        return f"while nothing is recorded, {what} takes {unrecorded}: recording adds little"
    times = f"{cost.factor:.2g} times as long"
    return (
        f"while nothing is recorded, {what} takes {unrecorded}: recording its {events} makes it {times} "
        f"({seconds(cost.recorded_s)}), and the shares of short operations too large"
    )
