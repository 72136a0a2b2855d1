"""What the doctor says, and when. The machine is made up: a fake clock, and readings given by hand."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count, cycle
from typing import Any

import pytest

from benchax import environment
from benchax.environment import Machine
from benchax.errors import UsageError
from benchax.machine import doctor, noise
from benchax.machine.doctor import Clock, CompiledClock, Diagnosis, Interpreter, advise, examine
from benchax.machine.noise import Gaps, Reading, ReadingSpread
from benchax.model import Environment, Noise

HOST = Environment(host="h", os="Linux", python="3.11.7", cores=4, affinity=(0, 1, 2, 3))
HEALTHY = Diagnosis(
    environment=HOST,
    machine=Machine(clock_source="tsc"),
    interpreter=Interpreter(),
    clock=Clock(resolution_s=1e-9, reading_s=50e-9),
    compiled_clock=CompiledClock("prebuilt", 1e-7),
    noise=Noise(load_1m=0.5, others_share=0.01, steal_share=0.0),
    gaps=Gaps(watched_s=1.0, count=250, lost_s=0.002, longest_s=20e-6),
    spread=ReadingSpread(median_s=1e-4, relative_iqr=0.01, p99_over_median=1.1),
    smallest_effect=0.002,
)


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A healthy machine. Returns its clock, which advances by 50 ns per reading."""
    found: dict[str, Any] = {
        "capture": lambda: HOST, "machine": lambda: HEALTHY.machine, "interpreter": Interpreter,
        "compiled_clock": lambda: HEALTHY.compiled_clock, "note_pace": lambda where: 0.03,
    }  # fmt: skip
    for name, value in found.items():
        monkeypatch.setattr(doctor, name, value)
    monkeypatch.setattr(noise, "start", lambda: Reading({}, 0.0, 4))
    monkeypatch.setattr(noise, "finish", lambda begun: HEALTHY.noise)
    readings = count(step=50)
    return lambda: next(readings)


def no_work() -> None:
    """Takes no time."""


def with_environment(**changes: Any) -> Diagnosis:
    return replace(HEALTHY, environment=replace(HOST, **changes))


class TestExamine:
    def test_the_readings_of_a_healthy_machine(self, healthy: Callable[[], int]) -> None:
        seen = set[bool]()
        found = examine(0.001, healthy, lambda: seen.add(gc.isenabled()))

        assert seen == {False}  # garbage is not collected meanwhile
        assert found.clock == Clock(resolution_s=50e-9, reading_s=50e-9)
        assert (found.gaps.count, found.gaps.watched_s) == (0, pytest.approx(0.001))
        assert found.spread == ReadingSpread(median_s=50e-9, relative_iqr=0.0, p99_over_median=1.0)
        assert found.noise == replace(HEALTHY.noise, pace_scatter=0.03)
        assert found.machine == HEALTHY.machine

    @pytest.mark.usefixtures("healthy")
    def test_a_gap_now_and_then_is_found_and_said(self) -> None:
        steps, now = cycle([50] * 99 + [50_000]), 0

        def clock() -> int:
            nonlocal now
            now += next(steps)
            return now

        found = examine(0.1, clock, no_work)

        # 50 µs lost for every 55: the rest of the cycle is 99 readings of 50 ns.
        assert found.gaps.longest_s == 50e-6
        assert found.gaps.lost_share == pytest.approx(50 / 55, rel=0.01)
        assert "gaps" in [remark.code for remark in found.advice]

    @pytest.mark.usefixtures("healthy")
    def test_a_clock_too_coarse_for_the_work_gives_no_spread(self) -> None:
        """It moves at every 1000th reading, by 1 ms."""
        readings = count()

        found = examine(0.01, lambda: next(readings) // 1000 * 1_000_000, no_work)

        assert (found.spread, found.smallest_effect) == (None, None)
        assert "clock" in [remark.code for remark in found.advice]

    @pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
    def test_a_time_that_is_none(self, seconds: float) -> None:
        with pytest.raises(UsageError) as raised:
            examine(seconds)

        assert raised.value.problem == f"cannot watch the machine for {seconds!r} seconds"
        assert raised.value.expected == "a number of seconds above 0, such as 1.0"

    def test_this_machine_without_jax(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jax", None)

        found = examine(0.01)

        assert found.environment.backend is None
        assert found.clock.resolution_s > 0
        assert found.gaps.watched_s >= 0.01


def test_tracers_are_named_and_threads_counted() -> None:
    def tracer(*_: object) -> None: ...

    done, before = threading.Event(), sys.gettrace()
    thread, threads = threading.Thread(target=done.wait), doctor.interpreter().threads
    thread.start()
    sys.settrace(tracer)
    try:
        found = doctor.interpreter()
    finally:
        sys.settrace(before)
        done.set()
        thread.join()

    assert (found.tracers, found.threads) == ((f"{__name__} (sys.settrace)",), threads + 1)


class TestAdvice:
    @pytest.mark.parametrize(
        ("code", "diagnosis"),
        [
            ("stolen", replace(HEALTHY, noise=Noise(0.5, 0.0, 0.04))),
            ("busy", replace(HEALTHY, noise=Noise(9.0, 0.3, 0.0))),
            ("loaded", replace(HEALTHY, noise=Noise(9.0, 0.0, 0.0))),
            ("gaps", replace(HEALTHY, gaps=Gaps(2.0, 80, 0.1, 0.008))),
            ("unsteady", replace(HEALTHY, spread=ReadingSpread(1e-4, 0.2, 3.0))),
            ("noise-floor", replace(HEALTHY, smallest_effect=0.081)),
            ("quota", replace(HEALTHY, machine=Machine(cpu_quota=1.5))),
            ("confined", with_environment(affinity=(0, 1))),
            ("virtual-machine", with_environment(virtual_machine=True)),
            ("governor", with_environment(governor="powersave")),
            ("turbo", replace(HEALTHY, machine=Machine(is_turbo_on=True))),
            ("smt", replace(HEALTHY, machine=Machine(is_smt_on=True))),
            ("small-pages", with_environment(huge_pages="never")),
            ("clock", replace(HEALTHY, clock=Clock(1e-9, 2e-6))),
            (
                "interpreted-clock",
                replace(HEALTHY, compiled_clock=CompiledClock("python", 1.8e-6, ("gone", "no 'cc'"))),
            ),
            ("no-compiled-clock", replace(HEALTHY, compiled_clock=CompiledClock(reasons=("JAX has no CPU here",)))),
            ("slow-python", replace(HEALTHY, interpreter=Interpreter(is_debug_build=True))),
            ("slow-python", replace(HEALTHY, interpreter=Interpreter(True, ("coverage.tracer (sys.settrace)",)))),
            ("threads", replace(HEALTHY, interpreter=Interpreter(threads=3))),
            ("jax-debugging", with_environment(config={"jax_debug_nans": True})),
            ("inline-dispatch", with_environment(backend="cpu", config={"jax_cpu_enable_async_dispatch": False})),
            ("compile-cache", with_environment(config={"jax_compilation_cache_dir": "/tmp/cache"})),
            ("flags", with_environment(flags={"XLA_FLAGS": "--xla_a"})),
        ],
    )
    def test_one_trouble_gets_one_remark(self, code: str, diagnosis: Diagnosis, snapshot: Any) -> None:
        """It says what, and what it means, and what to do."""
        (remark,) = advise(diagnosis)

        assert remark.code == code
        assert (remark.severity, remark.message) == snapshot

    @pytest.mark.parametrize(
        "diagnosis",
        [
            HEALTHY,
            replace(HEALTHY, noise=Noise()),
            replace(HEALTHY, spread=None, smallest_effect=None),
            replace(HEALTHY, machine=Machine(cpu_quota=4.0)),
            with_environment(cores=None, affinity=None),
            with_environment(governor="performance", huge_pages="always", virtual_machine=False),
            with_environment(backend="cpu", config={"jax_cpu_enable_async_dispatch": True, "jax_debug_nans": False}),
            with_environment(backend="gpu", config={"jax_cpu_enable_async_dispatch": False}),
        ],
    )
    def test_what_is_fine_or_not_known_gets_none(self, diagnosis: Diagnosis) -> None:
        assert advise(diagnosis) == ()

    def test_errors_come_first(self) -> None:
        diagnosis = replace(
            with_environment(virtual_machine=True, governor="ondemand"), interpreter=Interpreter(is_debug_build=True)
        )

        assert [remark.severity for remark in advise(diagnosis)] == ["error", "warning", "info"]
        # The cores that count for a quota are those allowed.
        confined = replace(with_environment(affinity=(0,)), machine=Machine(cpu_quota=1.0))
        assert [remark.code for remark in advise(confined)] == ["confined"]
        assert set(doctor.DEBUGGING) <= set(environment.CONFIG)  # settings that are recorded


def test_the_clock_inside_compiled_code_is_really_read() -> None:
    found = doctor.compiled_clock()

    assert found.tier in ("prebuilt", "built", "python")
    assert 0 < found.reading_s < 1e-3
