"""How much processes of a case differed on this machine, by earlier rows of several processes.

It is told beside an interval of one process, which knows nothing of others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import stdev

from benchax.errors import StoreError
from benchax.model import OTHER_PROCESSES, Measurement
from benchax.stats.intervals import LEAST_PROCESSES
from benchax.store.base import Store, is_pattern
from benchax.units import percent

ROWS = 20
"""So many of the newest rows of a case are looked through: reading them all would take longer than measuring."""


@dataclass(frozen=True)
class Scatter:
    """How the medians of the headline scatter, each of a process of its own."""

    share: float
    """Standard deviation of their logarithms."""
    processes: int
    day: str
    """When they were taken."""

    def __str__(self) -> str:
        return f"{self.processes} of them differed by {percent(self.share)} (standard deviation) here on {self.day}"


def find_scatter(store: Store, m: Measurement) -> Scatter | None:
    """The scatter in the newest row of the same case, of the same machine and settings, of several processes.

    Those were timed by the headline of `m`; None where there is no such row.
    """
    # A name with * in it would ask for the rows of other cases.
    if m.headline is None or is_pattern(m.case.name):
        return None
    try:
        rows = store.query(case=m.case.name, limit=ROWS)
    except StoreError:  # nothing was ever stored there
        return None
    for row in reversed(rows):
        series = row.series_of(m.headline.timer)
        is_alike = row.case == m.case and row.environment.fingerprint == m.environment.fingerprint
        if is_alike and len(series) >= LEAST_PROCESSES and all(s.elapsed_s and s.summary.median_s > 0 for s in series):
            share = stdev(math.log(s.summary.median_s) for s in series)
            return Scatter(share, len(series), row.started_at[:10])
    return None


def with_scatter(store: Store, m: Measurement) -> Measurement:
    """`m` with what is known of other processes, where it has one and says so."""
    why = m.why_absent(OTHER_PROCESSES)
    found = find_scatter(store, m) if why else None
    if found is None:
        return m
    absent = tuple(replace(a, why=f"{a.why}; {found}") if a.what == OTHER_PROCESSES else a for a in m.not_measured)
    return replace(m, not_measured=absent)
