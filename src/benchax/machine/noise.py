"""Records the machine's other work during a measurement, and which differences can be seen in spite of it.

For the engine: CPU time of others and of the hypervisor around a measurement (`start`, `finish`), preemptions around a
sample, a pause of the garbage collector, the step of the clock. For the doctor: `watch`, which takes a second. It finds
out how often this process is kept from running, and how much a fixed piece of work varies. Other modules draw
conclusions from the readings: `remarks/` for one row, and `doctor.py` for the machine.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import gc
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TypeVar

import platformdirs
import psutil

from benchax.errors import NotMeasured
from benchax.model import Environment, Noise
from benchax.stats.intervals import effective_size, normal_deviation, quantile
from benchax.stats.verdicts import MEDIAN_EFFICIENCY, POWER
from benchax.subprocesses import descendants
from benchax.whole_files import write_whole

T = TypeVar("T")

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # Windows

    def preemptions() -> int | None:
        """None: Windows does not count them."""
        return None

else:

    def preemptions() -> int | None:
        """How often the system took the core away from a thread of this process, so far. Costs about 1 µs."""
        return getrusage(RUSAGE_SELF).ru_nivcsw


# The kernel accounts CPU time in ticks of 10 ms by checking who runs at each tick. A share of p seen in n ticks has a
# standard error of sqrt(p (1 - p) / n), and each end of the interval can be off by a tick per core. 50 ticks in total
# give at most 7 points of 100 (3 points for a share of 5 %). With 10 per core, the ends cost at most 10 %.
_TICK_S = 0.01
_MIN_TICKS = 50
_MIN_TICKS_PER_CORE = 10

BUSY_SHARE, STEAL_SHARE = 0.1, 0.02
"""The shares of all CPU time: above these, other processes and the hypervisor are worth a remark."""
# No work: waiting, or time that the hypervisor gave to another machine. User and nice already include guests.
_NOT_BUSY = frozenset({"idle", "iowait", "steal"})
_COUNTED_TWICE = frozenset({"guest", "guest_nice"})

_GAP_NS = 5_000
"""Longer than a reading of the clock by far, and than most timer interrupts: somebody else ran."""
_ROUNDS = 200
COMPARED_ROUNDS = 150
"""The number of rounds that a paired comparison has at its first look: 6 blocks of 25 rounds."""


@dataclass(frozen=True)
class Reading:
    """CPU seconds since boot by kind, over all cores, and those of this process and its descendants."""

    by_kind: dict[str, float] | None
    """None if the system does not tell."""
    own_s: float
    cores: int
    at_s: float = field(default_factory=time.monotonic)

    @property
    def least_s(self) -> float:
        """CPU seconds, over all cores, that an interval has to hold."""
        return _TICK_S * max(_MIN_TICKS, _MIN_TICKS_PER_CORE * self.cores)


def start() -> Reading:
    """The first of two readings. Costs half a millisecond or so: it looks for the descendants of this process."""
    try:
        return Reading(psutil.cpu_times()._asdict(), _own_s(), psutil.cpu_count() or 1)
    except (OSError, psutil.Error):
        # Some sandboxes hide /proc. Not measured is an answer.
        return Reading(None, 0.0, 1)


def finish(begun: Reading) -> Noise:
    """Returns the load by all other processes since `begun`. Shares have the value None after a very short interval."""
    is_short = (time.monotonic() - begun.at_s) * begun.cores < begun.least_s  # a cell of a grid: reading takes time
    return between(begun, begun if is_short else start(), load_1m=_load_1m())


def between(begun: Reading, ended: Reading, load_1m: float | None = None) -> Noise:
    """Noise from two readings.

    others_share is (busy - own) / total, in CPU seconds of all cores. Interrupts count as others'. On a machine whose
    hypervisor does not report steal, steal_share is 0.
    """
    if begun.by_kind is None or ended.by_kind is None:
        return Noise(load_1m)
    # Counters sometimes step back (psutil issues 392, 645, 1210), so never go below zero.
    spent = {k: max(0.0, ended.by_kind[k] - v) for k, v in begun.by_kind.items() if k not in _COUNTED_TWICE}
    total_s = sum(spent.values())
    if total_s < begun.least_s:
        return Noise(load_1m)
    busy_s = sum(s for kind, s in spent.items() if kind not in _NOT_BUSY)
    # Our own time is exact, but busy time is counted in ticks, so the difference may be slightly below zero.
    others_s = max(0.0, busy_s - (ended.own_s - begun.own_s))
    steal_s = spent.get("steal")
    return Noise(load_1m, others_s / total_s, None if steal_s is None else steal_s / total_s)


def _own_s() -> float:
    """CPU seconds of this process, of its children that have ended, and of all descendants that live.

    A child that ends between two readings moves from the last term to the second, with all its seconds.
    """
    process = psutil.Process()
    own = process.cpu_times()
    # process_time is exact; psutil's figure for the same is rounded down to ticks.
    total_s = time.process_time() + own.children_user + own.children_system
    for pid in descendants(process.pid):
        # It has ended since it was listed. The next reading counts it among the ended ones.
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


def _load_1m() -> float | None:
    try:
        return psutil.getloadavg()[0]
    except OSError:
        # os.getloadavg says "unobtainable" in this way. Not measured is an answer.
        return None


@lru_cache(maxsize=1)
def clock_resolution_s() -> float:
    """Smallest step of `time.perf_counter_ns` that this process sees, in seconds. Read once, for about 1 ms."""
    return smallest_step_ns(time.perf_counter_ns) / 1e9


def smallest_step_ns(clock: Callable[[], int], readings: int = 10_000) -> int:
    """Smallest positive difference between neighbours among `readings` readings.

    Raises:
        NotMeasured: the clock never moved.
    """
    times = [clock() for _ in range(readings)]
    step = min((b - a for a, b in pairwise(times) if b > a), default=None)
    if step is None:
        raise NotMeasured(f"the clock did not move in {readings} readings")
    return step


@contextmanager
def paused_gc() -> Iterator[None]:
    """Collects recent garbage now, and pauses the collector inside the block. Nests; restores the earlier state.

    It collects only the two young generations. Going through all objects of a process with JAX takes 50 ms, many times
    over in a suite. Old objects did not become garbage just now.
    """
    was_enabled = gc.isenabled()
    # Collect before `disable`, so that garbage of the previous case does not stay through all samples of this one.
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True)
class Gaps:
    """Times longer than 5 µs in which a process that never waits was not running."""

    watched_s: float
    count: int
    lost_s: float
    """All gaps together."""
    longest_s: float

    @property
    def per_s(self) -> float:
        return self.count / self.watched_s

    @property
    def lost_share(self) -> float:
        return self.lost_s / self.watched_s


Pair = tuple[float, float]
"""Seconds of the same work done twice, one right after the other."""


def watch(watch_s: float, clock: Callable[[], int], work: Callable[[], object]) -> tuple[Gaps, list[Pair]]:
    """Reads the clock without pause for `watch_s` seconds in 200 shares, and times `work` twice after each.

    The two alternate, so that both see all of the time. Only pauses within the shares count as gaps.
    """
    share_ns = max(1, round(watch_s * 1e9 / _ROUNDS))
    watched_ns, gaps_ns, pairs = 0, list[int](), list[Pair]()
    for _ in range(_ROUNDS):
        begun = last = clock()
        while last - begun < share_ns:
            now = clock()
            if now - last > _GAP_NS:
                gaps_ns.append(now - last)
            last = now
        watched_ns += last - begun
        work()  # Untimed: the loop above has left other things in the caches, and the first of the pair would pay.
        pairs.append((timed(work, clock)[1], timed(work, clock)[1]))
    return Gaps(watched_ns / 1e9, len(gaps_ns), sum(gaps_ns) / 1e9, max(gaps_ns, default=0) / 1e9), pairs


def timed(call: Callable[[], T], clock: Callable[[], int] = time.perf_counter_ns) -> tuple[T, float]:
    """(result, seconds until `call` returned)"""
    begun = clock()
    result = call()
    return result, (clock() - begun) / 1e9


@dataclass(frozen=True)
class ReadingSpread:
    """How much a fixed piece of work varies."""

    median_s: float
    relative_iqr: float
    """Interquartile range over median."""
    p99_over_median: float


def spread(times_s: Sequence[float], step_s: float) -> ReadingSpread | None:
    """None if the median is below `step_s`, one step of the clock: then it is the clock that varies."""
    ordered = sorted(times_s)
    q25, middle, q75, p99 = (quantile(ordered, q) for q in (0.25, 0.5, 0.75, 0.99))
    return ReadingSpread(middle, (q75 - q25) / middle, p99 / middle) if middle >= step_s else None


def smallest_effect(pairs: Sequence[Pair], step_s: float) -> float | None:
    """Returns the slowdown that `COMPARED_ROUNDS` paired rounds of this work, here and now, detect four times in five.

    It is a best case: work on several threads or on much memory varies more, and so do new buffers and new processes.
    It says nothing about times that were not taken side by side.

    It comes from d = ln(second / first), whose true median is 0. s = 1.4826 MAD(d) is its standard deviation if it is
    normal. 1.2533 s sqrt(E / n) is the standard error of the median of n values, with E = 1 for independent ones
    (`effective_size`). A two-sided test at 2 % finds 2.33 + 0.84 standard errors with 80 % power (Lachin 1981,
    Controlled Clinical Trials 2, 93-113). It was tried on recorded pairs of four JAX kernels at load 3 to 6 (21
    processes each). 82 to 88 % of resampled comparisons found an effect of this size, and 35 to 47 % found half of it.
    It is never below one step of the clock, `step_s`. The result is missing (None) if a reading is shorter than that.

    Returns:
        A share: 0.02 is 2 %.
    """
    if min(min(pair) for pair in pairs) < step_s:
        return None
    logs = [math.log(second / first) for first, second in pairs]
    dependence = len(logs) / effective_size(logs)
    error = MEDIAN_EFFICIENCY * normal_deviation(logs) * math.sqrt(dependence / COMPARED_ROUNDS)
    return max(math.expm1(POWER * error), step_s / median(first for first, _ in pairs))


# ---- pace ------------------------------------------------------------------------------------------------------------
#
# The pace of this machine, and how far it differs from one moment to the next.
#
# A core is slower while its neighbors work, even in other virtual machines. It slows by 2 to 5 % at a time, for
# seconds to minutes. Processes that are measured within seconds share the pace of that moment. A repetition has another
# pace, and no reading of the function shows the difference. So each run times a fixed piece of work, and the readings
# of this machine are kept. Intervals between processes are wide enough for the scatter of the pace.
#
# The readings are lines "when seconds" of a file in the user's cache folder, one file for each machine and Python.
# Without a file, or with too few lines, the scatter is not known.


_WORK = bytes(128 * 1024)
"""Fits into the nearest caches. Hashing it takes 0.1 to 0.3 ms and follows the clock rate of the core alone."""
_REPEATS = 9
LEAST_MOMENTS = 10
"""With fewer moments, a standard deviation can be half of its true value (chi-squared with 9 degrees of freedom: 0.55
at 2.5 %)."""
APART_S = 1.0
"""Readings that lie closer together are of one moment."""
KEPT, AGE_S = 500, 30 * 86400.0


def read_pace_s() -> float:
    """Seconds of the work: the least of a few repeats, which a preemption does not reach. Takes about 2 ms."""
    return min(timed(lambda: hashlib.blake2b(_WORK).digest())[1] for _ in range(_REPEATS))


def note_pace(where: Environment, folder: Path | None = None) -> float | None:
    """Reads the pace, keeps it, and returns what those of this machine scatter by from moment to moment.

    Args:
        where: this process's environment.
        folder: where the files are; default: in the user's cache folder.

    Returns:
        The standard deviation of their logarithms, as a share; None if fewer than `LEAST_MOMENTS` are known.
    """
    # Each Python version hashes with different code, and machines may share a home folder.
    digest = hashlib.blake2b(f"{where.host}\n{where.processor}\n{where.python}".encode(), digest_size=8)
    path = (folder or Path(platformdirs.user_cache_dir("benchax")) / "pace") / f"{digest.hexdigest()}.txt"
    known, now = _read(path), _now_s()
    if not known or not 0 <= now - known[-1][0] < APART_S:
        known.append((now, read_pace_s()))
        _keep(path, known)
    return scatter([pace_s for at, pace_s in known if now - AGE_S <= at <= now])


def scatter(paces_s: Sequence[float]) -> float | None:
    """The standard deviation of their logarithms, by the median absolute deviation.

    A pause of the whole machine makes one reading in ten up to twice as long. A plain standard deviation of such
    readings says 8 % on a machine that keeps its pace within 0.4 %.
    """
    if len(paces_s) < LEAST_MOMENTS:
        return None
    return normal_deviation([math.log(pace_s) for pace_s in paces_s])


def _now_s() -> float:
    return datetime.now(UTC).timestamp()


def _read(path: Path) -> list[tuple[float, float]]:
    """(when, seconds) of each line; none of a file that is damaged. Harmless: other moments come."""
    try:
        lines = [map(float, line.split()) for line in path.read_text().splitlines()]
        return [(at, pace_s) for at, pace_s in lines if math.isfinite(at) and 0 < pace_s < 1]
    except (OSError, ValueError):
        return []


def _keep(path: Path, known: Sequence[tuple[float, float]]) -> None:
    """Writes the newest ones. A folder without write permission does not affect the measurement: then nothing is known
    the next time. A reading that another run adds at the same moment can be lost: it is one of hundreds."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "".join(f"{at:.3f} {pace_s:.9f}\n" for at, pace_s in known[-KEPT:]))
