"""The timer `device` on CPU: runs of known duration, what recording costs, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import warm_python
from jax.experimental.mosaic.gpu import profiler
from jax_versions import tells_runs

from benchax.clock import handlers, tier
from benchax.errors import NotMeasured
from benchax.measuring.timers import TIMERS, device
from benchax.measuring.timers.base import PreparedTimer, Subject
from benchax.measuring.timers.device import EventCost
from benchax.model import Measurement
from benchax.profiling.operations import ProgramRun
from benchax.profiling.profile import session

pytestmark = tells_runs  # `serial` are those that look at the length of what they record: a neighbour disturbs it

Make = Callable[..., Subject]


def spinning(ns: int) -> Callable[[Any], Any]:
    return lambda x: handlers.spin(tier(), x * 2, ns)


def taken(prepared: PreparedTimer, count: int) -> list[int]:
    assert prepared.take is not None
    return prepared.take(1, count)


@pytest.mark.serial
def test_each_reading_is_one_run_of_known_duration(subject: Make) -> None:
    prepared = TIMERS["device"].prepare(subject(spinning(50_000), jnp.ones(4)))

    readings = taken(prepared, 100)

    assert len(readings) == 100
    assert prepared.overhead_s is not None
    assert min(readings) >= 50_000
    assert min(readings) - prepared.overhead_s(1) * 1e9 < 51_500  # the least of many: whatever disturbs, lengthens


@pytest.mark.serial
def test_recording_an_operation_costs_a_fraction_of_a_microsecond() -> None:
    cost = device.event_cost()

    assert 10e-9 < cost.outer_s <= cost.inner_s < 20e-6


def test_where_nothing_is_recorded_inside_a_loop_the_cost_is_not_known(monkeypatch) -> None:
    monkeypatch.setattr(device, "TURNS", 1)  # XLA leaves no loop

    with pytest.raises(NotMeasured, match="recorded no operation inside a loop"):
        device.event_cost.__wrapped__()


@pytest.mark.parametrize(
    ("outer", "inner", "why"),
    [
        (1, 0, r"^recording its 1 operation takes about 20 % of the 1.00 µs that were recorded$"),
        (1, 3, r"^recording its 4 operations takes about 80 % of the 1.00 µs that were recorded$"),
        (1, 9, r"^recording its 10 operations takes nearly all of the 1.00 µs that were recorded$"),
    ],
)
def test_a_run_that_is_mostly_recording_is_refused(
    outer: int, inner: int, why: str, subject: Make, monkeypatch
) -> None:
    monkeypatch.setattr(device, "event_cost", lambda: EventCost(0.2e-6, 0.2e-6))
    monkeypatch.setattr(device, "whole_runs", lambda subject, calls, cold: [ProgramRun(0, 1e-6, outer, inner)] * calls)
    prepared = TIMERS["device"].prepare(subject(lambda x: x + 1, jnp.ones(4)))
    assert prepared.overhead_s is not None

    taken(prepared, 5)

    with pytest.raises(NotMeasured, match=why):
        prepared.overhead_s(1)


def test_a_run_with_little_recording_has_it_subtracted(subject: Make, monkeypatch) -> None:
    monkeypatch.setattr(device, "event_cost", lambda: EventCost(outer_s=0.2e-6, inner_s=0.3e-6))
    monkeypatch.setattr(device, "whole_runs", lambda subject, calls, cold: [ProgramRun(0, 1e-3, 2, 2)] * calls)
    prepared = TIMERS["device"].prepare(subject(lambda x: x + 1, jnp.ones(4)))
    assert prepared.overhead_s is not None

    taken(prepared, 5)

    assert [prepared.overhead_s(n) for n in (1, 3)] == pytest.approx([1e-6, 3e-6])


@pytest.mark.serial
def test_a_long_scan_of_short_steps_is_refused_before_it_is_sampled(subject: Make) -> None:
    scan = lambda x: jax.lax.fori_loop(0, 1000, lambda _, y: jnp.sort(y) + 1, x)  # noqa: E731

    with pytest.raises(NotMeasured, match=r"^recording its 3\d\d\d operations takes (about \d+ %|nearly all) of the "):
        TIMERS["device"].prepare(subject(scan, "f32[2]"))


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_inputs_of_a_donating_function_are_not_all_made_at_once(subject: Make, monkeypatch) -> None:
    asked = []
    made = subject(lambda x: (jnp.sin(x) + 1).reshape(100, 100), "f32[10000]", donate=[0])
    monkeypatch.setattr(device, "RENEWED_BYTES", 3 * 4 * 10_000)
    monkeypatch.setattr(
        device, "whole_runs", lambda s, calls, cold: asked.append(calls) or [ProgramRun(0, 1e-3, 1, 0)] * calls
    )

    taken(TIMERS["device"].prepare(made), 10)

    assert asked == [1, 3, 3, 3, 1]


@pytest.mark.serial
@pytest.mark.parametrize("kind", ["jit", "eager", "compiled"])
def test_all_programs_of_one_call_count_together(kind: str, subject: Make) -> None:
    """An eager call runs one program for each operation."""
    twice = lambda x: spinning(100_000)(spinning(100_000)(x))  # noqa: E731
    fn = jax.jit(twice).lower(jnp.ones(4)).compile() if kind == "compiled" else twice

    readings = taken(TIMERS["device"].prepare(subject(fn, jnp.ones(4), jit=kind != "eager")), 10)

    assert 200_000 <= min(readings) < 220_000


def test_beside_another_profiler_the_reason_is_given(subject: Make, tmp_path: Path) -> None:
    made = subject(spinning(50_000), jnp.ones(4))

    with session(folder=tmp_path), pytest.raises(NotMeasured, match="another profiler is running in this process"):
        TIMERS["device"].prepare(made)

    assert len(taken(TIMERS["device"].prepare(made), 3)) == 3


def test_programs_that_run_beside_the_calls_are_noticed(subject: Make) -> None:
    calls = []

    def sometimes(x: Any) -> Any:
        calls.append(1)
        return jnp.sin(x) if len(calls) % 4 else jnp.sin(x) + jnp.cos(x)

    with pytest.raises(NotMeasured, match=r"holds \d+ runs of compiled programs for \d+ calls: something else ran"):
        taken(TIMERS["device"].prepare(subject(sometimes, jnp.ones(4), jit=False)), 9)


def test_a_function_that_runs_nothing_is_not_measured(subject: Make) -> None:
    with pytest.raises(NotMeasured, match="the profiler recorded no operation of a compiled program"):
        TIMERS["device"].prepare(subject(lambda x: 3, jnp.ones(4), jit=False))


def test_runs_whose_end_was_not_recorded_are_recorded_again(subject: Make, monkeypatch) -> None:
    asked = []

    def half(subject: Subject, calls: int) -> list[ProgramRun]:
        asked.append(calls)
        return [ProgramRun(i, i / 1e6, 1, 0, is_whole=i % 2 == 0) for i in range(calls)]

    monkeypatch.setattr(device, "_recorded_calls", half)

    runs = device.whole_runs(subject(lambda x: x + 1, jnp.ones(4)), 4)

    assert [run.start_ps for run in runs] == [2, 4, 2, 2]
    assert asked == [5, 4, 3]


def test_an_end_that_is_never_recorded_is_a_reason(subject: Make, monkeypatch) -> None:
    lost = ProgramRun(0, 1e-6, 1, 0, is_whole=False)
    monkeypatch.setattr(device, "_recorded_calls", lambda subject, calls: [lost] * calls)

    with pytest.raises(NotMeasured, match="in 5 recordings the profiler did not say when each operation ended"):
        device.whole_runs(subject(lambda x: x + 1, jnp.ones(4)), 4)


@pytest.mark.parametrize(
    ("of", "name", "value", "why"),
    [
        (jax.profiler, "ProfileOptions", None, r"records every call of Python; use 0\.6\.2 or newer"),
        (jax, "default_backend", lambda: "metal", "there is no profiler for metal that tells the runs apart"),
    ],
)
def test_what_has_no_such_profiler_is_a_reason(of, name, value, why, subject: Make, monkeypatch) -> None:
    made = subject(lambda x: x + 1, jnp.ones(4))
    monkeypatch.delattr(of, name) if value is None else monkeypatch.setattr(of, name, value)

    with pytest.raises(NotMeasured, match=why):
        TIMERS["device"].prepare(made)


def test_the_same_program_on_several_devices_is_one_run_for_each_call() -> None:
    program = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from benchax.profiling import events, operations
from benchax.profiling.profile import session
x = jax.device_put(np.ones(2**20, np.float32), NamedSharding(Mesh(jax.devices(), "d"), PartitionSpec("d")))
f = jax.jit(lambda x: jax.numpy.sin(x) * 2)
f(x).block_until_ready()
with session() as recording:
    for _ in range(5):
        f(x).block_until_ready()
print([run.outer + run.inner for run in operations.device_runs(events.read(recording.xspace, operations.STATS))])
"""
    assert warm_python.run_on_devices(2, program) == "[2, 2, 2, 2, 2]\n"


@pytest.mark.serial
def test_it_agrees_with_the_clock_inside(bench: Callable[..., Measurement]) -> None:
    m = bench(spinning(200_000), jnp.ones(4), options={"timer": "device,in_graph", "max_time_s": 0.2})

    by_device, in_graph = (min(samples.per_call_s) for samples in m.samples)
    assert by_device == pytest.approx(in_graph, rel=0.05)
    assert median(m.samples[0].per_call_s) >= 200e-6


# ---- cupti -------------------------------------------------------------------------------------------------------

Make = Callable[..., Subject]


class Cupti:
    """As in jax 0.7.2 to 0.10.2: one number for one call, a list for several, None where no kernel ran."""

    answer: Any = 0.25
    asked: list[tuple[bool, int]] = []  # noqa: RUF012  emptied by each test

    def __init__(self, *, finalize: bool = True) -> None:
        self.finalize = finalize

    def measure(self, f: Callable[..., Any], *, aggregate: bool = True, iterations: int = 1) -> Callable[..., Any]:
        self.asked.append((self.finalize, iterations))
        assert aggregate

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if isinstance(self.answer, Exception):
                raise self.answer
            out = f(*args, **kwargs)
            return out, self.answer if iterations == 1 or self.answer is None else [self.answer] * iterations

        return wrapper


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[Cupti]:
    """A GPU, as far as the timer can see."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(profiler, "Cupti", Cupti)
    monkeypatch.setattr(Cupti, "asked", [])
    return Cupti


def test_on_nvidia_the_device_is_timed_by_cupti(gpu: type[Cupti], subject: Make) -> None:
    prepared = TIMERS["device"].prepare(subject(lambda x: x + 1, jnp.ones(8)))

    assert prepared.take is not None
    assert prepared.take(1, 3) == [250_000] * 3
    assert prepared.sample(4) == 1_000_000
    assert prepared.regime == "kernels, L2 warm"
    assert gpu.asked == [(False, 1), (False, 3), (False, 4)]


class Older:
    def measure(self, f: Any, *, mode: str = "events", aggregate: bool = True) -> Any: ...


@pytest.mark.parametrize(
    ("of", "name", "value", "why"),
    [
        (Cupti, "answer", None, "it ran no kernel on the GPU"),
        (Cupti, "answer", RuntimeError("CUPTI_ERROR_X\nand more"), r"^CUPTI: CUPTI_ERROR_X$"),
        (profiler, "Cupti", Older, r"knows no finalize, iterations; 0\.7\.2 or newer does"),
        (profiler, "Cupti", None, r"this jax has no timer by CUPTI \("),
    ],
    ids=["no kernels", "an error", "an older jax", "a jax without it"],
)
def test_what_cannot_be_timed_is_a_reason(of, name, value, why, gpu: type[Cupti], subject: Make, monkeypatch) -> None:
    monkeypatch.setattr(of, name, value)

    with pytest.raises(NotMeasured, match=why):
        TIMERS["device"].prepare(subject(lambda x: x + 1, jnp.ones(8)))


@pytest.mark.parametrize(
    ("of_the_case", "why"),
    [({"donate": [0]}, "it donates its arguments"), ({"jit": False}, "takes jitted and compiled functions only")],
)
def test_what_cannot_be_repeated_there_is_refused(of_the_case, why: str, gpu: type[Cupti], subject: Make) -> None:
    with pytest.raises(NotMeasured, match=why):
        TIMERS["device"].prepare(subject(lambda x: x + 1, "f32[8]", **of_the_case))


def test_the_timer_of_this_jax_is_the_one_that_was_read(subject: Make) -> None:
    """Where there is no GPU it says so itself."""
    with pytest.raises(NotMeasured, match="CUPTI"):
        device.prepare_kernels(subject(lambda x: x + 1, jnp.ones(8)))


@pytest.mark.gpu
def test_on_a_real_gpu_a_longer_function_takes_longer() -> None:
    program = """
import benchax, jax.numpy as jnp
short, long = (benchax.bench(lambda x: x @ x, f"f32[{n},{n}]", timer="device", store="off") for n in (512, 4096))
print(short.summary("device").median_s * 10 < long.summary("device").median_s)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert out == "True\n"


@pytest.mark.parametrize(
    ("seen_ns", "step_s"),
    [({1056, 1087, 1088, 1120, 1184}, 31e-9), ({1088}, None), ({1087, 1088}, None), (set(), None)],
)
def test_the_step_of_its_clock_is_what_readings_differ_by(seen_ns: set[int], step_s: float | None) -> None:
    assert device._step_s(seen_ns) == step_s
