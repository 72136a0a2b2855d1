"""A time with its interval, in the few characters of a table's cell. The one place that writes "±".

"±" promises that the time is about in the middle and that the interval is a part of it. Where that is not so, both
ends are shown; where they are more than three times apart, that it is unstable, and why.
"""

from __future__ import annotations

from benchax.stats.summary import Summary
from benchax.units import percent, seconds, seconds_range

WIDEST = 0.5
"""Of "±", half the interval over the time."""
LOPSIDED, MATTERS = 3.0, 0.1
"""One side of the interval is so many times the other; below ± 10 % nobody is misled by that."""
UNSTABLE = 3.0
"""High over low."""
FEW = 20
"""So few readings are the reason for a wide interval."""


def estimate(s: Summary | None) -> str:
    """58.1 µs ± 1.2 %; 5.10 – 9.80 µs; unstable, 5.10 – 34.0 µs: 7 readings. Without an interval the time alone."""
    if s is None:
        return ""
    beside = spread(s.median_s, s.low_s, s.high_s)
    if not beside or beside.startswith("±"):
        return f"{seconds(s.median_s)} {beside}".rstrip()
    why = f": {instability(s)}" if is_unstable(s.low_s, s.high_s) else ""
    return beside + why


def spread(median_s: float, low_s: float | None, high_s: float | None) -> str:
    """± 1.2 %; 5.10 – 9.80 µs; unstable, 5.10 – 34.0 µs; empty without an interval."""
    if low_s is None or high_s is None or median_s <= 0:
        return ""
    if is_unstable(low_s, high_s):
        return f"unstable, {seconds_range(low_s, high_s)}"
    half = (high_s - low_s) / 2 / median_s
    shorter, longer = sorted((median_s - low_s, high_s - median_s))
    if half > WIDEST or (half > MATTERS and longer > LOPSIDED * shorter):
        return seconds_range(low_s, high_s)
    return f"± {percent(half)}"


def is_unstable(low_s: float | None, high_s: float | None) -> bool:
    return low_s is not None and high_s is not None and high_s > UNSTABLE * max(low_s, 0.0)


def instability(s: Summary) -> str:
    """Why the interval is that wide, as far as the readings tell."""
    if s.processes > 1:
        return f"{s.processes} processes differ"
    if s.n < FEW:
        return f"{s.n} readings"
    return "readings scatter" if s.q75_s > UNSTABLE * s.q25_s else "readings drift, or have two modes"
