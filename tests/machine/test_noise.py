"""CPU time of others, gaps, the spread of a fixed piece of work, and the paces that are kept. Clocks here are fakes."""

from __future__ import annotations

import gc
import math
import random
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchax.environment import capture
from benchax.errors import NotMeasured
from benchax.machine import noise
from benchax.machine.noise import (
    KEPT,
    LEAST_MOMENTS,
    Gaps,
    Reading,
    between,
    note_pace,
    scatter,
    smallest_effect,
    spread,
    watch,
)
from benchax.model import Noise
from benchax.stats.intervals import median_interval
from benchax.subprocesses import descendants

US = 1000


class FakeClock:
    """Nanoseconds that advance by the next of `steps` with every reading, and by `work_ns` with every `work`."""

    def __init__(self, steps: Iterable[int], work_ns: Iterable[int] = repeat(100 * US)) -> None:
        self.now, self.steps, self.work_ns = 0, iter(steps), iter(work_ns)

    def __call__(self) -> int:
        self.now += next(self.steps)
        return self.now

    def work(self) -> None:
        self.now += next(self.work_ns)


def reading(own_s: float = 0.0, cores: int = 2, **by_kind: float) -> Reading:
    return Reading(by_kind, own_s, cores)


class TestShares:
    @pytest.mark.parametrize(
        ("begun", "ended", "others", "steal"),
        [
            (
                # 4 s in all, 2 of them busy, 1 ours. Waiting for a disk is nobody's work, and stolen time is not ours.
                reading(own_s=5.0, user=100.0, system=50.0, idle=1000.0, iowait=1.0, steal=0.0),
                reading(own_s=6.0, user=101.5, system=50.5, idle=1001.0, iowait=1.5, steal=0.5),
                0.25,
                0.125,
            ),
            (
                # Guests are not counted twice; without such a count, there is no steal.
                reading(user=0.0, nice=0.0, idle=0.0, guest=0.0, guest_nice=0.0),
                reading(user=1.0, nice=1.0, idle=2.0, guest=1.0, guest_nice=1.0),
                0.5,
                None,
            ),
            # A counter that steps back counts as standing still.
            (reading(user=0.0, idle=100.0, iowait=5.0), reading(user=1.0, idle=101.0, iowait=3.0), 0.5, None),
            # Never below zero: our own time is exact, the rest is counted in ticks of 10 ms.
            (reading(user=0.0, idle=0.0), reading(own_s=1.004, user=1.0, idle=1.0), 0.0, None),
        ],
    )
    def test_others_are_what_is_busy_and_not_ours(
        self, begun: Reading, ended: Reading, others: float, steal: float | None
    ) -> None:
        assert between(begun, ended) == Noise(None, others_share=others, steal_share=steal)

    @pytest.mark.parametrize(("idle_s", "cores", "says"), [(0.49, 1, False), (0.5, 1, True), (0.5, 8, False)])
    def test_too_short_to_say(self, idle_s: float, cores: int, says: bool) -> None:
        """50 ticks in all and 10 per core at least."""
        begun, ended = reading(cores=cores, user=0.0, idle=0.0), reading(cores=cores, user=0.0, idle=idle_s)

        found = between(begun, ended, load_1m=0.5)

        assert (found.others_share is not None) is says
        assert found.load_1m == 0.5

    def test_what_cannot_be_read_is_not_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A hidden /proc, a load that is unobtainable, and a child that is gone."""

        def unobtainable() -> None:
            raise OSError("Load averages are unobtainable")

        first, second = noise.start(), noise.start()
        assert second.own_s > first.own_s
        assert first.by_kind
        monkeypatch.setattr(noise, "descendants", lambda pid: [2**22 + 1])  # beyond the highest there can be
        assert noise.start().own_s > 0
        monkeypatch.setattr(psutil, "getloadavg", unobtainable)
        assert noise.finish(noise.start()).load_1m is None
        monkeypatch.setattr(psutil, "PROCFS_PATH", "/nowhere")
        assert noise.finish(noise.start()) == Noise()

    def test_the_time_of_a_child_of_a_child_is_ours(self) -> None:
        grandchild = [sys.executable, "-c", "while True: pass"]
        child = [sys.executable, "-c", f"import subprocess; subprocess.run({grandchild!r})"]

        def spent_by_descendants() -> float:
            return noise.start().own_s - time.process_time()

        before, deadline = spent_by_descendants(), time.monotonic() + 60
        with subprocess.Popen(child) as started:
            try:
                while spent_by_descendants() - before < 0.5:  # 0.1 s is what the child itself takes to start
                    assert time.monotonic() < deadline
            finally:
                for pid in descendants(started.pid):
                    psutil.Process(pid).kill()


class TestClock:
    def test_the_smallest_positive_step(self) -> None:
        clock = FakeClock(chain([50, 0, 0, 30, 40], repeat(60)))

        assert noise.smallest_step_ns(clock, readings=100) == 30
        with pytest.raises(NotMeasured) as raised:
            noise.smallest_step_ns(lambda: 7, readings=100)
        assert raised.value.problem == "the clock did not move in 100 readings"


def test_preemptions_never_decrease() -> None:
    first, second = noise.preemptions(), noise.preemptions()

    assert (first is None and second is None) or (first is not None and second is not None and 0 <= first <= second)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_is_off_inside_and_afterwards_as_before_also_after_an_error(was_enabled: bool) -> None:
    class Cycle:
        pass

    cycle = Cycle()
    cycle.itself = cycle  # type: ignore[attr-defined]
    gone = weakref.ref(cycle)
    del cycle
    (gc.enable if was_enabled else gc.disable)()

    seen: list[object] = []

    def look() -> None:
        with noise.paused_gc(), noise.paused_gc():
            seen.extend((gone(), gc.isenabled()))  # recent garbage is collected before
            raise KeyError

    try:
        with pytest.raises(KeyError):
            look()
        assert (seen, gc.isenabled()) == ([None, False], was_enabled)
    finally:
        gc.enable()


class TestWatch:
    def test_gaps_are_counted_and_summed(self) -> None:
        # The first of 200 shares of 5 µs: 100 ns, then 20 µs, which ends it 15.1 µs late.
        clock = FakeClock(chain([100, 100, 20 * US], repeat(100)))

        gaps, _ = watch(0.001, clock, clock.work)

        assert (gaps.count, gaps.lost_s, gaps.longest_s) == (1, 20e-6, 20e-6)
        assert gaps.watched_s == pytest.approx(0.001 + 15.1e-6)
        assert gaps.per_s == pytest.approx(1 / gaps.watched_s)
        assert gaps.lost_share == pytest.approx(20e-6 / gaps.watched_s)

    def test_work_runs_once_untimed_before_each_pair(self) -> None:
        clock = FakeClock(repeat(100), chain.from_iterable(repeat((900 * US, 100 * US, 200 * US))))

        gaps, pairs = watch(0.001, clock, clock.work)

        assert gaps == Gaps(watched_s=0.001, count=0, lost_s=0.0, longest_s=0.0)
        assert pairs == [(100.1e-6, 200.1e-6)] * 200


def test_the_spread_of_known_numbers_and_none_below_a_step_of_the_clock() -> None:
    found = spread([float(n) for n in range(101)], step_s=1e-9)

    assert found == noise.ReadingSpread(median_s=50.0, relative_iqr=1.0, p99_over_median=99 / 50)
    assert spread([0.0, 0.0, 1e-3], step_s=1e-3) is None


def noisy_pairs(random_: random.Random, size: int, sigma: float, slowdown: float = 0.0) -> list[tuple[float, float]]:
    """Pairs whose log ratio is ln(1 + slowdown) + a normal of `sigma`, on a machine that wanders slowly."""
    paces = [1e-4 * math.exp(0.3 * math.sin(n / 20)) for n in range(size)]
    return [(pace, pace * (1 + slowdown) * math.exp(random_.gauss(0, sigma))) for pace in paces]


class TestSmallestEffect:
    def test_a_comparison_finds_it_four_times_in_five(self) -> None:
        """Not asserted of the formula but of the thing: 300 simulated comparisons at a two-sided 2 %."""
        random_, found = random.Random(1), 0
        for _ in range(300):
            effect = smallest_effect(noisy_pairs(random_, 200, sigma=0.05), step_s=1e-9)
            assert effect is not None
            compared = noisy_pairs(random_, noise.COMPARED_ROUNDS, 0.05, slowdown=effect)
            interval = median_interval([math.log(b / a) for a, b in compared], level=0.98)
            found += interval is not None and interval[0] > 0

        assert 0.72 < found / 300 < 0.88

    def test_it_is_never_below_one_step_of_the_clock(self) -> None:
        assert smallest_effect([(1e-4, 1e-4)] * 200, step_s=1e-6) == pytest.approx(0.01)
        assert smallest_effect([(1e-4, 0.0)] * 200, step_s=1e-6) is None  # a reading is shorter


# ---- pace ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock says, which tests set."""
    times = [1e9]
    monkeypatch.setattr(noise, "_now_s", lambda: times[-1])
    return times


def note(folder: Path, now: list[float], times: int, apart_s: float = 2.0) -> float | None:
    found = None
    for _ in range(times):
        now.append(now[-1] + apart_s)
        found = note_pace(capture(), folder)
    return found


def lines(folder: Path) -> list[str]:
    (file,) = folder.iterdir()
    return file.read_text().splitlines()


def test_the_scatter_is_the_standard_deviation_of_normal_readings() -> None:
    """Pauses that make one reading in ten far longer do not count."""
    dice = np.random.default_rng(0)
    paces = np.exp(dice.normal(-8, 0.03, 400)).tolist()
    dice = np.random.default_rng(0)
    steady = np.exp(dice.normal(-9, 0.004, 125))
    paused = np.concatenate([steady, steady[:14] * dice.uniform(1.1, 1.45, 14)])

    assert scatter(paces) == pytest.approx(0.03, rel=0.15)
    assert scatter([*paces, 1.0]) == pytest.approx(0.03, rel=0.15)
    assert scatter(paces[: LEAST_MOMENTS - 1]) is None
    assert np.std(np.log(paused)) > 0.07
    assert scatter(paused.tolist()) == pytest.approx(0.004, rel=0.25)


def test_readings_are_kept_until_there_are_enough_to_say_something(tmp_path: Path, now: list[float]) -> None:
    assert note(tmp_path, now, LEAST_MOMENTS - 1) is None
    assert len(lines(tmp_path)) == LEAST_MOMENTS - 1

    found = note(tmp_path, now, 1)

    assert found is not None
    assert 0 <= found < 1


def test_readings_within_a_second_are_of_one_moment_and_a_clock_that_was_set_back_stops_nothing(
    tmp_path: Path, now: list[float]
) -> None:
    note(tmp_path, now, 5, apart_s=0.1)
    assert len(lines(tmp_path)) == 1

    now.append(now[-1] - 1e6)
    note(tmp_path, now, 3)

    assert len(lines(tmp_path)) == 4
    # A folder that cannot be made costs nothing.
    (tmp_path / "file").write_text("")
    assert note_pace(capture(), tmp_path / "file" / "pace") is None


def test_old_readings_say_nothing_of_today_and_a_long_file_is_cut(tmp_path: Path, now: list[float]) -> None:
    note(tmp_path, now, LEAST_MOMENTS)
    now.append(now[-1] + noise.AGE_S)
    assert note(tmp_path, now, 1) is None

    (file,) = tmp_path.iterdir()
    file.write_text("".join(f"{now[-1] - 3000 + i:.3f} 0.000125\n" for i in range(2 * KEPT)))
    assert note(tmp_path, now, 1) == pytest.approx(0, abs=0.02)
    assert len(lines(tmp_path)) == KEPT


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"one two\n3\n", b"1e9 nan\n1e9 -1\ninf 0.1\n", b"1000000000.0 0.00"])
def test_lines_that_are_damaged_are_no_readings(damage: bytes, tmp_path: Path, now: list[float]) -> None:
    note(tmp_path, now, 1)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage)

    assert note(tmp_path, now, 1) is None


def test_machines_and_pythons_that_share_a_home_have_files_of_their_own(tmp_path: Path) -> None:
    here = capture()
    for other in (here, replace(here, host="another"), replace(here, python="3.99.0")):
        note_pace(other, tmp_path)

    assert len([*tmp_path.iterdir()]) == 3
