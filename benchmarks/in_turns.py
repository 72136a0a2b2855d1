"""Timers and a chain in turns, so that both meet the machine at the same speed: the readings of `census.py`.

A machine that is shared changes its pace, here by up to 2, for less than a millisecond and for seconds. Two medians
taken one after the other then differ by that, whatever they measure. So chain and timers visit the machine in turns,
some readings each, and the visits are dealt out to groups. Of each group the least readings are compared: the pace at
which they were taken is the fastest that the machine has. (Of `loop`, a difference whose least one is no time of
anything, medians are compared.) What is judged is the range over the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from time import perf_counter
from typing import Any

from chains import TARGET_NS, Chain, Readings, join

from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.measuring.prepare import prepare
from benchax.measuring.sampling import calibrate
from benchax.measuring.timers import TIMERS
from benchax.measuring.timers.base import PreparedTimer, Subject

GROUPS = 6
"""The range of so many holds the median of what a group says in 97 % of all cases (1 - 2 / 2^6)."""
LEAST_VISITS, MOST_VISITS = 5 * GROUPS, 40 * GROUPS
READINGS = 3
"""In a row, of each program and timer at a visit."""
DEAR_VISITS = GROUPS
"""At so many visits the timer `device` is read."""
RECORDED = 20
"""Runs of a recording."""
SAMPLE_TIME_S = TARGET_NS * 1e-9
"""As long as a chain: the least of many short readings falls between interrupts, and that of long ones does not (read
for 2 ms beside 100 µs, the same function seems 7 % slower)."""
CALIBRATIONS = 3
DIFFERENCES = {"loop"}
"""Timers whose readings are differences of two."""


@dataclass(frozen=True)
class Turns:
    """Seconds a call, per group: of the chain by least readings and by medians, of a call that fills the outputs, and
    of each timer."""

    trips: int
    tie_s: float
    chain_s: list[float]
    chain_median_s: list[float]
    floor_s: list[float]
    timers_s: dict[str, list[float]]

    def distance(self, timer: str, allowed_s: Iterable[float] = ()) -> tuple[float, float, float]:
        """(low, middle, high) of the share by which the timer is above the chain; `allowed_s` per group is subtracted
        from the timer."""
        chain_s = self.chain_median_s if timer in DIFFERENCES else self.chain_s
        allowed = list(allowed_s) or [0.0] * len(chain_s)
        whole_s = median(chain_s)
        each = [(t - a - c) / whole_s for t, c, a in zip(self.timers_s[timer], chain_s, allowed, strict=True)]
        return min(each), median(each), max(each)


def subject_of(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Subject:
    """Built and called once."""
    prepared = prepare(make_case(fn, args, kwargs))
    subject = replace(prepared.subject, hlo=prepared.hlo)
    return replace(subject, outputs=subject.outcome())


def take_turns(subject: Subject, yardstick: Chain, names: Iterable[str], seconds: float) -> Turns:
    """Reads the chain and the timers named, until `seconds` are over. A timer that refuses now is left out."""
    readers = {name: reader for name in names if (reader := _reader(subject, name))}
    visits: list[Readings] = []
    taken: dict[str, list[list[float]]] = {name: [] for name in readers}
    deadline = perf_counter() + seconds
    while len(visits) < LEAST_VISITS or (perf_counter() < deadline and len(visits) < MOST_VISITS):
        visits.append(yardstick.read(READINGS))
        for name, reader in list(readers.items()):
            if not reader.is_dear or len(visits) <= DEAR_VISITS:
                try:
                    taken[name].append(reader.read())
                except NotMeasured:
                    del readers[name]
    groups = [join(visits[i::GROUPS]) for i in range(GROUPS)]
    return Turns(
        yardstick.trips,
        median(group.tie_s(yardstick.trips) for group in groups),
        [group.per_trip_s(yardstick.trips) for group in groups],
        [group.per_trip_s(yardstick.trips, median) for group in groups],
        [group.floor_s for group in groups],
        {name: reader.summarize(taken[name]) for name, reader in readers.items()},
    )


def _reader(subject: Subject, name: str) -> _Reader | None:
    try:
        return _Recorder(subject) if name == "device" else _Reader(TIMERS[name].prepare(subject), name)
    except NotMeasured:
        return None


class _Reader:
    """One timer, as the engine reads it, but for the length of a reading."""

    is_dear = False
    """Is it read once a block only?"""

    def __init__(self, prepared: PreparedTimer, name: str) -> None:
        self._prepared = prepared
        # The first readings meet cold caches (190 µs of a call of 70), which would make all others too short.
        self._iterations = max(calibrate(prepared, SAMPLE_TIME_S) for _ in range(CALIBRATIONS))
        self.pick: Callable[[list[float]], float] = median if name in DIFFERENCES else min

    def read(self) -> list[float]:
        """Seconds a call, with the timer's own cost; after a reading that is not counted."""
        prepared, n = self._prepared, self._iterations
        if prepared.take:
            taken = prepared.take(n, 2 * READINGS)[READINGS:]
        else:
            taken = [prepared.sample(n) for _ in range(READINGS + 1)][1:]
        return [ns * 1e-9 / n for ns in taken]

    def summarize(self, taken: list[list[float]]) -> list[float]:
        """Per group, of what the visits gave."""
        return [self.pick(list(chain.from_iterable(taken[i::GROUPS]))) - self.overhead_s() for i in range(GROUPS)]

    def overhead_s(self) -> float:
        """Of a call, by all readings so far."""
        overhead = self._prepared.overhead_s
        return overhead(self._iterations) / self._iterations if overhead else 0.0


class _Recorder(_Reader):
    """The timer `device`, which records more runs ahead than it is asked for: it is prepared anew for each reading."""

    is_dear = True

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        super().__init__(TIMERS["device"].prepare(subject), "device")

    def read(self) -> list[float]:
        prepared = TIMERS["device"].prepare(self._subject)
        assert prepared.take
        assert prepared.overhead_s
        taken = prepared.take(1, RECORDED)
        return [ns * 1e-9 - prepared.overhead_s(1) for ns in taken]

    def overhead_s(self) -> float:
        return 0.0  # subtracted already
