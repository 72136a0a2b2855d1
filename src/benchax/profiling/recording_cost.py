"""The cost that recording adds to a step of a loop, or to a call: recorded and unrecorded times side by side.

It exists only if there are enough events to matter.
"""

from __future__ import annotations

from statistics import mean, median

from benchax.results.profile import MANY_EVENTS_PER_S, Profile, RecordingCost


def cost_of_calls(found: Profile, unrecorded_s: float | None) -> RecordingCost | None:
    """Returns the cost for calls that are each marked as a step, from the time of such calls without a recording.

    Args:
        found: the profile of the calls.
        unrecorded_s: seconds of a call without a recording. None: all were recorded.
    """
    lengths = [step.length_s for step in found.steps]
    if not lengths or found.n_events < MANY_EVENTS_PER_S * sum(lengths):
        return None
    why = "" if unrecorded_s else "all calls were recorded"
    # One late call says nothing about recording.
    return RecordingCost(median(lengths), unrecorded_s, found.n_events / len(lengths), why)


def cost_of_steps(found: Profile, unrecorded_s: float | None, why: str) -> RecordingCost | None:
    """Returns the cost for the steps of a program, from their pace between recordings; `why` is the reason if there is
    no pace."""
    split = found.split
    if split is None or split.mark == "none" or split.events_per_step < MANY_EVENTS_PER_S * split.mean_s:
        return None
    return RecordingCost(mean(split.lengths_s), unrecorded_s, split.events_per_step, why)
