"""Timers and a chain in turns, so that both meet the machine at the same speed: the readings of `census.py`.

A machine that is shared changes its pace, here by up to 2 and for seconds. Two medians taken one after the other then
differ by that, whatever they measure. So there are blocks of about 50 ms, in which each timer and each program of the
chain is read several times; what is compared is their medians of one block, and what is judged is the interval of these
comparisons over all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

from chains import Chain, ChainTime

from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.measuring import stages
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of
from benchax.measuring.stopping import calibrate
from benchax.measuring.timers import TIMERS
from benchax.measuring.timers.base import Prepared, Subject
from benchax.stats.intervals import median_interval

ROUNDS = 7
"""Of a block: the median of so many readings forgives three preemptions."""
RECORDED = 20
"""Runs of a recording."""
LEAST_BLOCKS, MOST_BLOCKS = 12, 60
SAMPLE_TIME_S = 300e-6
"""Of a timer that leaves it to us: as long as a chain."""


@dataclass(frozen=True)
class Turns:
    """Seconds a call, per block: of the chain, of filling the outputs, and of each timer."""

    chain: ChainTime
    chain_s: list[float]
    floor_s: list[float]
    timers_s: dict[str, list[float]]

    def distance(self, timer: str, allowance_s: Iterable[float] = ()) -> tuple[float, float, float]:
        """(low, middle, high) of how far the timer is above the chain in a block, in seconds; less `allowance_s`."""
        allowed = list(allowance_s) or [0.0] * len(self.chain_s)
        each = [t - c - a for t, c, a in zip(self.timers_s[timer], self.chain_s, allowed, strict=True)]
        low, high = median_interval(each) or (min(each), max(each))
        return low, median(each), high


def subject_of(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Subject:
    """Built and called once."""
    case = make_case(fn, args, kwargs)
    inputs = make_inputs(case, 0)
    program = program_of(case, inputs)
    built = stages.build(program, inputs, lambda stage: None)
    hlo = (built.compiled.as_text() or "") if built.compiled is not None else ""
    subject = Subject(program, inputs, None, built.static, built.donates, hlo)
    return replace(subject, outputs=subject.outcome())


def take_turns(subject: Subject, chain: Chain, names: Iterable[str], seconds: float) -> Turns:
    """Reads the chain and the timers named, until `seconds` are over. A timer that refuses now is left out."""
    readers = {name: reader for name in names if (reader := _reader(subject, name))}
    taken: dict[str, list[float]] = {name: [] for name in readers}
    readings: list[list[int]] = [[] for _ in range(5)]
    medians_s: list[list[float]] = []
    deadline = perf_counter() + seconds
    while len(medians_s) < LEAST_BLOCKS or (perf_counter() < deadline and len(medians_s) < MOST_BLOCKS):
        own, theirs = _take_block(chain, readers)
        medians_s.append([median(each) * 1e-9 for each in own])
        for each, more in zip(readings, own, strict=True):
            each += more
        for name, seconds_of in theirs.items():
            taken[name].append(median(seconds_of))
    found = chain.estimate(readings)
    return Turns(
        found,
        [(long - short) / chain.copies - found.tie_s for short, long, *_ in medians_s],
        [each[4] for each in medians_s],
        {name: [s - reader.overhead_s() for s in taken[name]] for name, reader in readers.items()},
    )


def _take_block(chain: Chain, readers: dict[str, _Reader]) -> tuple[list[list[int]], dict[str, list[float]]]:
    own: list[list[int]] = [[] for _ in range(5)]
    theirs: dict[str, list[float]] = {name: [] for name in readers}
    for i in range(ROUNDS):
        for j, ns in chain.read(range(5) if i % 2 else reversed(range(5))).items():
            own[j].append(ns)
        for name, reader in readers.items():
            if i == 0 or not reader.is_dear:
                theirs[name] += reader.read()
    return own, theirs


def _reader(subject: Subject, name: str) -> _Reader | None:
    try:
        return _Recorder(subject) if name == "device" else _Reader(TIMERS[name].prepare(subject))
    except NotMeasured:
        return None


class _Reader:
    """One timer, as the engine reads it."""

    is_dear = False
    """Is it read once a block only?"""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._iterations = calibrate(prepared, prepared.sample_time_s or SAMPLE_TIME_S)

    def read(self) -> list[float]:
        """Seconds a call, with the timer's own cost."""
        prepared, n = self._prepared, self._iterations
        return [ns * 1e-9 / n for ns in (prepared.take(n, 5) if prepared.take else [prepared.sample(n)])]

    def overhead_s(self) -> float:
        """Of a call, by all readings so far."""
        overhead = self._prepared.overhead_s
        return overhead(self._iterations) / self._iterations if overhead else 0.0


class _Recorder(_Reader):
    """The timer `device`, which records more runs ahead than it is asked for: it is prepared anew for each reading."""

    is_dear = True

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        super().__init__(TIMERS["device"].prepare(subject))

    def read(self) -> list[float]:
        prepared = TIMERS["device"].prepare(self._subject)
        assert prepared.take
        assert prepared.overhead_s
        taken = prepared.take(1, RECORDED)
        return [ns * 1e-9 - prepared.overhead_s(1) for ns in taken]

    def overhead_s(self) -> float:
        return 0.0  # subtracted already
