"""Traces by hand: what is known to be in them must be in the table."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax_versions import tells_runs
from xspace_by_hand import US, Event, block, number, op, plane, program, space, varint

import benchax
from benchax import kept_peaks
from benchax import protobuf as wire
from benchax.clock import handlers, tier
from benchax.environment import fingerprint
from benchax.errors import FormatError, NotMeasured
from benchax.profiling import events, profile
from benchax.profiling.events import group_rows, number_rows, read, unite
from benchax.profiling.operations import STATS, ProgramRun, device_runs
from benchax.profiling.profile import session
from benchax.profiling.trace import profile_of
from benchax.results.inspection import Peaks
from benchax.results.profile import Op, Profile


def cpu(*lines: list[Event], **more: object) -> Profile:
    return profile_of(space(plane("/host:CPU", {f"pool/{i}": line for i, line in enumerate(lines)})), **more)  # type: ignore[arg-type]


def self_us(p: Profile) -> dict[str, float]:
    return {one.name: round(one.self_s * 1e6, 6) for one in p.ops}


def remark(p: Profile, code: str) -> str:
    return next(one.message for one in p.remarks if one.code == code)


@pytest.mark.parametrize(
    ("lines", "own_us", "busy_us"),
    [
        (
            [[op("while", 0, 10 * US), op("dot", US, 4 * US), op("dot", 6 * US, 3 * US), op("sin", 10 * US, US)]],
            {"dot": 7, "while": 3, "sin": 1},
            11,
        ),
        ([[op("dot", 0, 10 * US)], [op("sin", 2 * US, 4 * US)]], {"dot": 10, "sin": 4}, 10),
        ([[op("dot", 0, 2 * US, _p=77)], [Event("end: dot", 9 * US, 100, {"_c": 77})]], {"dot": 9}, 9),
    ],
    ids=["inside a loop", "on two threads", "handed to other threads"],
)
def test_each_moment_of_a_thread_counts_once(
    lines: list[list[Event]], own_us: dict[str, float], busy_us: float
) -> None:
    p = cpu(*lines)

    assert self_us(p) == own_us
    assert sum(one.share for one in p.ops) == pytest.approx(1)
    assert p.devices[0].busy_s == pytest.approx(busy_us * 1e-6)
    assert p.compile_s is None, "nothing compiled is not zero seconds"


def test_an_operation_without_its_end_is_said_to_be_longer() -> None:
    p = cpu(
        [op("dot.1", 0, 2 * US, _p=77), op("dot.1", 5 * US, 2 * US, _p=78)],
        [Event("end: dot.1", 3 * US, 1, {"_c": 77})],
    )

    assert p.ops[0].total_s is None
    assert "1 of 2 calls of operations had not ended" in remark(p, "open-calls")


def test_a_device_is_idle_between_operations_and_gaps_name_their_neighbours() -> None:
    p = cpu([op("a", 0, 2 * US), op("b", 5 * US, US), op("c", 7 * US, US)])

    (device,) = p.devices

    assert (device.name, device.busy_s, device.idle_s) == ("cpu:0", pytest.approx(4e-6), pytest.approx(4e-6))
    assert [(gap.before, gap.after) for gap in device.gaps] == [("a", "b"), ("b", "c")]
    assert device.gaps[0].length_s == pytest.approx(3e-6)


def test_the_compiler_is_counted_by_pass() -> None:
    line = [
        Event("PjRtCpuClient::Compile", 0, 10 * US),
        Event("fusion (jit_f)", US, 6 * US, {"module": "jit_f"}),
        Event("dce", 2 * US, US),
        Event("dce", 4 * US, US),
        Event("dce", 20 * US, US),  # outside of the compiler
    ]

    p = cpu(line)

    assert p.compile_s == pytest.approx(10e-6)
    assert {one.name: (one.calls, round(one.self_s * 1e6)) for one in p.passes} == {
        "PjRtCpuClient::Compile": (1, 4),
        "fusion": (1, 4),
        "dce": (2, 2),
    }


def test_streams_of_a_gpu_are_read() -> None:
    kernels = [
        Event("gemm_kernel", 0, 3 * US, {"hlo_op": "dot.1", "hlo_module": "jit_f"}),
        Event("MemcpyD2H", 4 * US, US),
    ]

    p = profile_of(
        space(plane("/device:GPU:1", {"Stream #7(Compute)": kernels, "XLA Modules": [Event("m", 0, 9 * US)]}))
    )

    assert p.backend == "gpu"
    assert p.devices[0].name == "gpu:1"
    assert self_us(p) == {"dot.1": 3, "MemcpyD2H": 1}
    assert p.runs == ()
    assert "unverified" not in {one.code for one in p.remarks}


def test_operations_of_a_tpu_are_those_of_one_line() -> None:
    lines = {
        "XLA Ops": [Event("%fusion.1", 0, 3 * US, {"hlo_category": "loop fusion"})],
        "Steps": [Event("1", 0, 9 * US)],
    }

    p = profile_of(space(plane("/device:TPU:0", lines)))

    assert [(one.name, one.category) for one in p.ops] == [("%fusion.1", "loop fusion")]
    assert p.backend == "tpu"
    assert "was not tried" in remark(p, "unverified")


@pytest.mark.parametrize(
    ("planes", "options", "advice"),
    [
        ({"/host:CPU": {"python": [Event("PjitFunction(f)", 0, US)]}}, {}, "jax.block_until_ready"),
        ({"/host:CPU": {}}, {"host_tracer_level": 0}, "host_tracer_level=0 records no operation"),
        ({"/host:CPU": {}}, {}, "nothing at all ran"),
        ({"/host:CPU": {"python": [Event("x", 0, 1)]}, "/device:GPU:0": {}}, {}, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
    ],
)
def test_a_trace_without_operations_says_why(planes, options, advice: str) -> None:
    p = profile_of(space(*(plane(name, lines) for name, lines in planes.items())), options=options)

    assert p.ops == ()
    assert advice in remark(p, "no-operations")
    assert "/host:CPU (" in remark(p, "no-operations"), "which planes were there"


def test_a_gpu_that_gave_no_plane_at_all_is_told_from_a_cpu() -> None:
    version = number(1, 1) + block(5, "12.9")
    names = block(5, number(1, 1) + block(2, number(1, 1) + block(2, "cuda_version")))
    metadata = block(1, block(2, "/host:metadata") + names + block(6, version))

    p = profile_of(space(metadata, plane("/host:CPU", {"python": [Event("x", 0, 1)]})))

    assert "no plane of a device" in remark(p, "no-operations")


@pytest.mark.parametrize(
    ("end", "code", "text"),
    [
        ({"warnings": ["Dropped 12 activity records"]}, "events-dropped", "Dropped 12"),
        ({"host": ""}, "maybe-cut", "perhaps it was cut"),
    ],
)
def test_a_trace_that_lost_something_is_said_to_have(end: dict[str, Any], code: str, text: str) -> None:
    p = profile_of(space(plane("/host:CPU", {"a": [op("a", 0, 1)]}), **end))

    assert text in remark(p, code)
    assert p.is_truncated == (code == "events-dropped")


intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), min_size=1, max_size=12).map(sorted)


@given(intervals)
def test_covered_and_uncovered_time_make_the_whole(pairs: list[tuple[int, int]]) -> None:
    start = [a for a, _ in pairs]
    end = [a + length for a, length in pairs]
    truth = len({t for a, b in zip(start, end, strict=True) for t in range(a, b)})

    found = unite(np.array(start), np.array(end))

    assert found.length == truth
    assert found.gaps(min(start), max(end)).length == max(end) - min(start) - truth


LOOP = "while = f32[] while(), body=%region_0"
DOT, SIN = (f'{name} = f32[] dot(), metadata={{op_name="jit(f)/{name}"}}' for name in ("dot", "sin"))


@pytest.mark.parametrize(
    ("held", "lines", "own_us"),
    [
        (
            program(LOOP, "sort = f32[] sort()", region_0=[DOT]),
            {
                "a": [op("while", 0, US, _p=5)],
                "b": [
                    op("dot", 2 * US, 4 * US),
                    op("sort", 7 * US, 2 * US),
                    Event("end: while", 10 * US, 1, {"_c": 5}),
                ],
            },
            {"while": 6, "dot": 4, "sort": 2},
        ),
        (
            program(LOOP, region_0=[DOT, SIN]),
            {"a": [op("while", 0, 10 * US), op("dot", US, 4 * US)], "b": [op("sin", 3 * US, 4 * US)]},
            {"while": 4, "dot": 4, "sin": 4},
        ),
    ],
    ids=["a body on another thread, and a neighbour", "two at once are taken off it once"],
)
def test_what_is_inside_a_loop_is_known_from_the_program(
    held: bytes, lines: dict[str, list[Event]], own_us: dict[str, float]
) -> None:
    p = profile_of(space(held, plane("/host:CPU", lines)))

    assert self_us(p) == own_us
    assert {one.name: one.total_s for one in p.ops}["while"] == pytest.approx(10e-6)
    assert {one.name: one.scope for one in p.ops}["dot"] == "jit(f)/dot"


def test_a_program_that_cannot_be_read_costs_only_the_scopes() -> None:
    broken = program("dot.1 = f32[] dot()").replace(b"HloModule", b"NoModule!")

    p = profile_of(space(broken, plane("/host:CPU", {"a": [op("dot.1", 0, US)]})))

    assert [(one.name, one.scope) for one in p.ops] == [("dot.1", None)]
    assert "scopes, lines and communication are not known" in remark(p, "no-programs")


# ---- operation work -------------------------------------------------------------------------------------------------


N, LAYERS, RUNS = 64, 5, 4


def layer(x: Any, w: Any) -> Any:
    with jax.named_scope("product"):
        y = x @ w
    with jax.named_scope("activation"):
        return jnp.maximum(y, 0)


@jax.jit
def network(ws: Any, x: Any) -> Any:
    return jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0]


@pytest.fixture(scope="module")
def profiled() -> Profile:
    return benchax.profile(network, jnp.ones((LAYERS, N, N)), jnp.ones((N, N)), runs=RUNS)


def of_scope(p: Profile, scope: str) -> list[Op]:
    return [op for op in p.ops if op.named_scope == scope]


def test_what_a_loop_does_is_counted_as_often_as_it_ran_and_the_loop_itself_has_no_work(profiled: Profile) -> None:
    products, elementwise = of_scope(profiled, "product"), of_scope(profiled, "activation")
    (loop,) = [op for op in profiled.ops if op.category == "while"]

    assert sum(op.flops or 0 for op in products) == 2 * N**3 * LAYERS * RUNS
    assert sum(op.calls for op in products) == LAYERS * RUNS
    assert sum(op.flops or 0 for op in elementwise) == N * N * LAYERS * RUNS
    assert sum(op.bytes_accessed or 0 for op in elementwise) >= 2 * 4 * N * N * LAYERS * RUNS
    assert (loop.flops, loop.bytes_accessed) == (0, 0)


def test_what_nobody_can_look_into_has_no_count() -> None:
    found = benchax.profile(jax.jit(lambda x: jnp.linalg.qr(x)[0] + 1), jnp.ones((N, N)), runs=1)

    calls = [op for op in found.ops if op.category == "custom-call"]
    assert calls
    assert {op.flops for op in calls} == {None}
    assert any(op.flops is not None for op in found.ops)


# ---- machine marks --------------------------------------------------------------------------------------------------


PEAKS = Peaks(2e10, 2**26, 8e10, 2**18, {"f32": 1e11})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if the rates of the machine 'here' had been measured."""
    monkeypatch.setattr(kept_peaks.platformdirs, "user_cache_dir", lambda _: str(tmp_path))
    kept_peaks.keep_peaks(kept_peaks.file_of("here"), PEAKS)


def machine_trace(*names: str) -> bytes:
    return space(plane("/host:CPU", {"python": [op("dot", 0, 10), *(Event(name, 20, 1) for name in names)]}))


@pytest.mark.usefixtures("measured")
def test_the_rates_are_those_of_the_machine_that_recorded() -> None:
    here, elsewhere = (
        profile_of(machine_trace("benchax machine: here")),
        profile_of(machine_trace("benchax machine: there")),
    )
    unknown = profile_of(machine_trace())

    assert here.peaks is not None
    assert (here.fingerprint, here.peaks.memory_bytes_per_s) == ("here", 2e10)
    assert (elsewhere.fingerprint, elsewhere.peaks) == ("there", None)
    assert (unknown.fingerprint, unknown.peaks) == (None, None)


@tells_runs
def test_a_recording_knows_its_machine_unless_it_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> str:
        raise OSError("no /proc")

    known = benchax.profile(jax.jit(jnp.sin), jnp.ones(8), runs=3)
    monkeypatch.setattr(profile, "fingerprint", fail)

    assert known.fingerprint == fingerprint()
    assert benchax.profile(jax.jit(jnp.sin), jnp.ones(8), runs=3).fingerprint is None


# ---- Device time of each run: against made traces, where every answer is known, and against real ones ---------------


def runs_of(*lines: list[Event]) -> list[ProgramRun]:
    trace = space(plane("/host:CPU", {f"thread {i}": line for i, line in enumerate(lines)}))
    return device_runs(read(trace, STATS))


def part(run: int, start: int, duration: int, flow: int) -> Event:
    return op("an operation", start, duration, run_id=run, _p=flow)


def end(flow: int, at: int) -> Event:
    return Event("end: an operation", at, 1, {"_c": flow})


def busy_ps(runs: list[ProgramRun]) -> list[int]:
    return [round(run.busy_s * 1e12) for run in runs]


def test_operations_of_a_run_are_united_whatever_thread_they_ran_on() -> None:
    one = [part(7, 0, 100, 1), part(7, 200, 100, 2), end(1, 100), end(2, 300)]

    (run,) = runs_of(one, [part(7, 50, 100, 3), end(3, 150)])

    assert (busy_ps([run]), run.start_ps, run.outer, run.inner) == ([250], 0, 2, 1)


def test_the_body_of_a_loop_counts_once() -> None:
    loop = [part(7, 0, 1000, 1), part(7, 100, 300, 2), part(7, 500, 300, 3)]

    (run,) = runs_of([*loop, end(1, 1000), end(2, 400), end(3, 800)])

    assert (busy_ps([run]), run.outer, run.inner) == ([1000], 1, 2)


def test_a_run_whose_last_marker_is_missing_is_not_whole() -> None:
    runs = runs_of([part(7, 0, 100, 1), part(8, 500, 100, 2)], [end(1, 100)])

    assert [run.is_whole for run in runs] == [True, False]


def test_runs_come_in_the_order_of_their_starts() -> None:
    """Numbers of runs wrap around to negative ones."""
    numbered = [part(2**31 - 1, 0, 1, 1), part(-(2**31), 10, 2, 2), part(-5, 20, 3, 3)]

    assert busy_ps(runs_of([*numbered, end(1, 1), end(2, 12), end(3, 23)])) == [1, 2, 3]


def test_operations_without_the_number_of_their_run_are_refused() -> None:
    """As jax 0.6.2 writes them."""
    with pytest.raises(NotMeasured, match="does not say which run an operation belongs to"):
        runs_of([Event("an operation", 0, 100, {"hlo_op": "an operation", "_p": 1}), end(1, 100)])
    assert runs_of([Event("PjitFunction(f)", 0, 100)]) == []


def test_a_tpu_tells_its_runs_itself() -> None:
    modules = [Event("jit_f(123)", 0, 9 * US, {"run_id": 1}), Event("jit_f(123)", 20 * US, 8 * US, {"run_id": 2})]
    lines = {"XLA Modules": modules, "XLA Ops": [Event("%fusion.1", US, 3 * US)]}
    trace = space(plane("/device:TPU:0", lines))

    timed, p = device_runs(read(trace, STATS)), profile_of(trace)

    assert busy_ps(timed) == [9 * US, 8 * US]
    assert all(run.is_whole for run in timed)
    assert [(run.module, run.device, run.device_s) for run in p.runs] == [
        ("jit_f", "tpu:0", 9e-6),
        ("jit_f", "tpu:0", 8e-6),
    ]
    assert [op.name for op in p.ops] == ["%fusion.1"]


def test_the_timer_and_the_profile_agree() -> None:
    first = [op("while.1", 0, 2 * US, _p=5), op("dot.2", 7 * US, 4 * US, _p=6, run_id=2)]
    second = [op("sin.3", 8 * US, US, _p=7, run_id=2), Event("end: while.1", 6 * US, 1, {"_c": 5})]
    trace = space(plane("/host:CPU", {"a": first, "b": second}))

    timed, profiled = device_runs(read(trace, STATS)), profile_of(trace).runs

    assert [run.busy_s for run in timed] == [run.device_s for run in profiled] == [6e-6, 4e-6]
    assert [run.start_ps / 1e12 for run in timed] == [run.start_s for run in profiled]


def test_an_operation_without_a_marker_is_not_known_to_have_ended_and_not_called_open() -> None:
    """The timer asks for markers; a profile of a JAX that writes none is told as it is."""
    trace = space(plane("/host:CPU", {"a": [op("dot.1", 0, 2 * US)]}))

    assert [run.is_whole for run in device_runs(read(trace, STATS))] == [False]
    assert "open-calls" not in {remark.code for remark in profile_of(trace).remarks}


def recorded(fn: Any, *args: jax.Array, times: int = 20) -> tuple[list[ProgramRun], list[float]]:
    """(runs, seconds of each call with its wait)."""
    fn = jax.jit(fn)
    jax.block_until_ready(fn(*args))
    calls_s = []
    with session() as recording:
        for _ in range(times):
            start = perf_counter_ns()
            jax.block_until_ready(fn(*args))
            calls_s.append((perf_counter_ns() - start) / 1e9)
    return device_runs(read(recording.xspace, STATS)), calls_s


@pytest.mark.serial
@tells_runs
def test_a_real_run_of_known_duration_is_read_as_such() -> None:
    runs, calls_s = recorded(lambda x: handlers.spin(tier(), x * 2, 200_000), jnp.ones(4))

    assert len(runs) == 20
    assert 200e-6 <= min(run.busy_s for run in runs) < 210e-6  # the least of many: whatever disturbs, lengthens
    assert all(run.busy_s < call_s for run, call_s in zip(runs, calls_s, strict=True))
    assert {run.outer + run.inner for run in runs} == {2}


@pytest.mark.serial
@tells_runs
def test_a_real_product_that_is_handed_over_is_not_taken_for_its_handing_over() -> None:
    """On several threads it ends after its own event: without markers it would be a third of what it is."""
    a = jax.random.normal(jax.random.key(0), (512, 512))

    runs, calls_s = recorded(lambda a: a.T @ a, a)

    shares = sorted(run.busy_s / call_s for run, call_s in zip(runs, calls_s, strict=True))
    assert shares[-5] > 0.6  # a neighbour lengthens some calls, not all


# ---- events of a trace ----------------------------------------------------------------------------------------------


ONE = space(plane("/host:CPU", {"pool": [op("dot.1", 10, 5), op("sin.2", 20, 7, run_id=-3), Event("other", 30, 1)]}))


def test_events_and_their_stats_are_columns_that_say_which_events_have_none() -> None:
    found = read(ONE)

    assert [found.texts[i] for i in found.name.tolist()] == ["dot.1", "sin.2", "other"]
    assert (found.start_ps.tolist(), found.duration_ps.tolist()) == ([10, 20, 30], [5, 7, 1])
    names, (runs, has_run) = found.text("hlo_op"), found.number("run_id")

    assert [found.texts[i] for i in names] == ["dot.1", "sin.2", ""]
    assert runs[has_run].tolist() == [1, -3]
    assert has_run.tolist() == [True, True, False]


def test_only_the_stats_that_are_wanted_are_kept() -> None:
    found = read(ONE, keep=["run_id"])

    assert found.number("run_id")[1].any()
    assert not found.text("hlo_op").any()


def test_texts_that_are_written_out_are_read_as_those_that_are_references() -> None:
    stat = number(1, 1) + block(5, "dot.1")
    names = block(5, number(1, 1) + block(2, number(1, 1) + block(2, "hlo_op")))
    body = block(2, "/host:CPU") + block(3, block(4, number(1, 1) + block(4, stat))) + names

    found = read(block(1, body))

    assert found.texts[found.text("hlo_op")[0]] == "dot.1"


def test_times_of_lines_that_began_at_different_times_are_on_one_scale() -> None:
    early = plane("/host:CPU", {"a": [Event("x", 5, 1)]}, began_ns=1_795_312_703_000_000_000)
    late = plane("/device:GPU:0", {"b": [Event("x", 5, 1)]}, began_ns=1_795_312_703_000_000_002)

    assert read(early + late).start_ps.tolist() == [5, 2005]


def test_more_events_than_a_chunk_keep_their_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "CHUNK", 3)
    many = [op(f"op.{i}", 10 * i, 5, run_id=i) for i in range(10)]

    found = read(space(plane("/host:CPU", {"pool": many})))

    assert [found.texts[i] for i in found.text("hlo_op")] == [f"op.{i}" for i in range(10)]
    assert found.number("run_id")[0].tolist() == list(range(10))


def refused(data: bytes) -> str:
    """What the error says; empty where the bytes were read."""
    try:
        read(data)
    except FormatError as error:
        return str(error)
    return ""


def is_said_to_be_damaged(said: str) -> bool:
    """Where, or that nothing is in it; or it was read."""
    return said == "" or "at byte" in said or "hold no plane" in said


@pytest.mark.parametrize("cut", range(1, len(ONE), 7))
def test_a_trace_that_was_cut_is_an_error_or_shows_that_its_end_is_missing(cut: int) -> None:
    said = refused(ONE[:cut])

    # Cut between two messages it is a whole trace, which has lost the name of the host at its end.
    assert "at byte" in said or "no plane" in said or read(ONE[:cut]).hosts == ()


def test_an_error_says_where() -> None:
    with pytest.raises(FormatError, match=r"longer than what holds it at byte 0\n.*xplane\.pb"):
        read(ONE[:20])
    with pytest.raises(FormatError, match="0 bytes hold no plane"):
        read(b"")


@pytest.mark.parametrize("stat", [b"\x2a\x7fx", b"\x10\xff", b"\x11\x00", b"\x0b", b"\x00\x01"])
def test_a_stat_that_does_not_fit_into_its_event_is_refused(stat: bytes) -> None:
    """Too long a text, a number without an end, half a double, an unknown type, a field without a number."""
    assert "at byte" in refused(block(1, block(3, block(4, number(1, 1) + block(4, stat)))))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (b"\x22", "a number without an end at byte 9"),
        (b"\x22\x05\x08\x01", "field 4 is longer than what holds it at byte 8"),
        (b"\x22\x85\x01\x08\x01", "field 4 is longer than what holds it at byte 8"),
    ],
)
def test_an_event_that_does_not_fit_into_its_line_is_refused(event: bytes, said: str) -> None:
    """It comes after one that does, and the bytes that follow are of another line."""
    line = block(4, number(1, 1)) + event

    assert said in refused(block(1, block(3, line) + block(3, block(4, number(1, 2)))))


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_garbage_is_read_or_refused_and_nothing_else(data: bytes) -> None:
    for attempt in (data, block(1, data), block(1, block(3, data)), block(1, block(3, block(4, data)))):
        assert is_said_to_be_damaged(refused(attempt))  # which raises what is no FormatError


@given(position=st.integers(0, len(ONE) - 1), byte=st.integers(0, 255))
@settings(max_examples=300)
def test_a_damaged_byte_changes_what_is_read_or_is_refused(position: int, byte: int) -> None:
    assert is_said_to_be_damaged(refused(ONE[:position] + bytes([byte]) + ONE[position + 1 :]))


messages = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 5000), st.integers(0, 2**64 - 1)),
        st.tuples(st.integers(1, 5000), st.binary(max_size=20)),
    ),
    max_size=8,
)


@given(st.lists(messages, max_size=6))
def test_many_messages_at_once_are_read_as_one_after_the_other(many: list[list[tuple[int, int | bytes]]]) -> None:
    written = [b"".join(number(k, v) if isinstance(v, int) else block(k, v) for k, v in one) for one in many]
    data = b"".join(written)
    starts = [sum(map(len, written[:i])) for i in range(len(written))]
    ends = [start + len(one) for start, one in zip(starts, written, strict=True)]

    padded = np.frombuffer(data + bytes(wire.PADDING), "u1")
    found: list[list[tuple[int, int | bytes]]] = [[] for _ in many]
    for which, *columns in wire.together(padded, np.array(starts, int), np.array(ends, int)):
        for i, key, kind, value, at in zip(*(column.tolist() for column in (which, *columns)), strict=True):
            found[i].append((key, value % 2**64 if kind == wire.VARINT else data[at : at + value]))

    assert found == many


@given(st.integers(-(2**63), 2**64 - 1))
def test_a_number_is_read_as_it_was_written(value: int) -> None:
    written = varint(value)

    assert wire.varint(written, 0, len(written)) == (value % 2**64, len(written))


# ---- groups of rows: rows of equal values have one number ----------------------------------------------------------

ROWS = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([-(2**62), -1, 0, 7, 2**62]), st.integers(0, 2)))


@given(ROWS)
def test_groups_are_those_of_numpy_in_its_order(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3)

    first, group = group_rows(*columns.T)

    _, expected_first, expected = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    assert first.tolist() == expected_first.tolist()
    assert group.tolist() == expected.reshape(-1).tolist()


def test_a_few_values_are_counted_and_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events.np, "unique", None)

    assert number_rows(np.array([5, 3, 5]), np.array([-1, -1, 0])).tolist() == [1, 0, 2]
