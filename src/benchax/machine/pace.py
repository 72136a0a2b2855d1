"""The pace of this machine, and how far it differs from one moment to the next.

A core is slower while its neighbors work, also those of other virtual machines: in steps of 2 to 5 %, each for seconds
to minutes. Processes that are measured within seconds share the pace of that moment. A repetition has another pace, and
no reading of the function shows the difference. So each run times a fixed piece of work, and the readings of this
machine are kept. Intervals between processes are wide enough for the scatter of the pace.

The readings are lines "when seconds" of a file in the user's cache folder, one file for each machine and Python.
Without a file, or with too few lines, the scatter is not known.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter_ns

import platformdirs

from benchax.model import Environment
from benchax.stats.intervals import normal_deviation
from benchax.whole_files import write_whole

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
    return min(_timed_ns() for _ in range(_REPEATS)) / 1e9


def _timed_ns() -> int:
    start = perf_counter_ns()
    hashlib.blake2b(_WORK).digest()
    return perf_counter_ns() - start


def note_pace(where: Environment, folder: Path | None = None) -> float | None:
    """Reads the pace, keeps it, and returns what those of this machine scatter by from moment to moment.

    Args:
        where: this process's environment.
        folder: where the files are; default: in the user's cache folder.

    Returns:
        The standard deviation of their logarithms, as a share; None if fewer than `LEAST_MOMENTS` are known.
    """
    path = (folder or Path(platformdirs.user_cache_dir("benchax")) / "pace") / _file_name(where)
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


def _file_name(where: Environment) -> str:
    """Hashing is other code in another Python; a home folder may be shared by machines."""
    machine = f"{where.host}\n{where.processor}\n{where.python}"
    return f"{hashlib.blake2b(machine.encode(), digest_size=8).hexdigest()}.txt"


def _read(path: Path) -> list[tuple[float, float]]:
    """(when, seconds) of all lines that hold two numbers; another program may be writing one."""
    found: list[tuple[float, float]] = []
    with suppress(OSError, UnicodeDecodeError):
        for line in path.read_text().splitlines():
            with suppress(ValueError):
                at, pace_s = map(float, line.split())
                if math.isfinite(at) and 0 < pace_s < 1:
                    found.append((at, pace_s))
    return found


def _keep(path: Path, known: Sequence[tuple[float, float]]) -> None:
    """Writes the newest ones. A folder without write permission does not affect the measurement: then nothing is known
    the next time. A reading that another run adds at the same moment can be lost: it is one of hundreds."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "".join(f"{at:.3f} {pace_s:.9f}\n" for at, pace_s in known[-KEPT:]))
