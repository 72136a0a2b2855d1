"""--ptjb-fail-slower: an alarm counts when a second, fresh measurement raises it too.

An alarm is what `benchax.comparing.stored` calls slower, and more than the limit that was given. Run times only: a
compilation is a single reading.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchax.comparing.stored import TIMES
from pytest_jax_bench.history import Row, judged, number_of


@dataclass(frozen=True)
class Gate:
    """What became of the alarms of one measurement."""

    is_slower: bool
    message: str


def check(old: Row, new: Row, limit: float, again: Callable[[], Row | None]) -> Gate | None:
    """None where there is no alarm.

    Args:
        limit: as a share: 0.1 is 10 %.
        again: measures once more; None where that failed.
    """
    first = alarms(old, new, limit)
    if not first:
        return None
    second = again()
    confirmed = first.keys() & alarms(old, second, limit).keys() if second is not None else set[str]()
    listed = "; ".join(text for metric, text in first.items() if metric in confirmed or not confirmed)
    if confirmed:
        return Gate(True, f"{listed}, in two measurements")
    return Gate(False, f"{listed}, which a second measurement did not confirm")


def alarms(old: Row, new: Row, limit: float) -> dict[str, str]:
    """The run times that are slower, and by how much, in words."""
    verdicts = judged(old, new)
    ratios = {
        metric: number_of(new, metric) / number_of(old, metric)
        for metric in TIMES
        if metric in verdicts and verdicts[metric].verdict == "slower"
    }
    return {metric: f"{metric} {ratio:.3g} times as slow" for metric, ratio in ratios.items() if ratio > 1 + limit}


def as_record(gate: Gate | None) -> dict[str, Any] | None:
    return asdict(gate) if gate else None
