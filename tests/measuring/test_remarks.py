"""Each remark: when it is made, what it says, and that it is not made otherwise. Real measurements where one is
enough."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evidence_by_hand import measured
from jax import lax
from jax.experimental import io_callback

import benchax
from benchax.case import make_case
from benchax.measuring.inputs import make_inputs
from benchax.measuring.prepare import prepare
from benchax.measuring.record import Record, quiet
from benchax.measuring.remarks import CODES, folded, remarks, renew
from benchax.measuring.sampling import Warmup
from benchax.model import CallFloor, Cost, Memory, Noise, Remark, Samples, Stages, Transfer
from benchax.program.compiled import cost
from benchax.units import seconds

MIB = 2**20


@pytest.fixture
def evidence():
    """That of a quiet, jitted, well-behaved function of 100 µs: nothing to remark."""
    inputs = make_inputs(make_case(jax.jit(lambda x: x), (jnp.ones(3),)), 0)
    program = SimpleNamespace(kind="jit", was_jitted=True)
    record = Record(
        quiet,
        samples=[samples("wall", 300e-6), samples("loop", 250e-6)],
        warmup=Warmup(10, True, 0, 300e-6, (3e-4, 3e-4)),
        memory=Memory(temp_bytes=0),
        cost=Cost(flops=500.0),
        noise=Noise(load_1m=0.5, others_share=0.01, steal_share=0.0),
    )
    prepared = SimpleNamespace(traced=None, lowered=None, donated=(), hlo="", inline_flops=500.0)
    subject = SimpleNamespace(program=program, inputs=inputs, dynamic_leaves=[inputs], outputs=None, output_bytes=12)
    return record, prepared, subject


def but(evidence, **changes):
    """`evidence` with other fields, wherever they belong."""
    record, *others = evidence
    for other in others:
        known = vars(other)
        other_changes = {name: changes.pop(name) for name in known if name in changes}
        others[others.index(other)] = SimpleNamespace(**(known | other_changes))
    return replace(record, **changes), *others


def samples(timer, per_call_s, resolution_s=4e-8):
    return Samples(timer, 1, (per_call_s,) * 10, resolution_s=resolution_s)


def said(evidence):
    return {r.code: r.message for r in remarks(*evidence)}


@pytest.fixture
def bench(bench):
    """By one timer unless a test asks for others: each of them compiles a program of its own."""

    def run(fn, *args, options=None, **of_the_case):
        return bench(fn, *args, options={"timer": "wall"} | (options or {}), **of_the_case)

    return run


def codes(measurement):
    return {r.code for r in measurement.remarks}


def test_nothing_to_remark_is_no_remark(evidence):
    assert said(evidence) == {}


def test_compiling_while_being_timed(bench):
    sizes = iter(range(3, 10_000))

    def grows(x):
        return jax.jit(lambda y: y + 1)(jnp.ones(next(sizes)))

    measurement = bench(grows, jnp.ones(3), jit=False)

    (found,) = [r for r in measurement.remarks if r.code == "recompiled"]
    assert found.severity == "error"
    assert "compiled while the function was being timed" in found.message


def test_a_warm_function_is_not_said_to_recompile_though_the_timers_compile_their_own(bench):
    assert "recompiled" not in codes(bench(lambda k: jax.random.split(k, 3), "key", options={"timer": "auto"}))


def test_numpy_inputs_are_named_with_their_bytes(bench):
    measurement = bench(lambda x: x + 1, np.ones((64, 64), np.float32))

    (message,) = [r.message for r in measurement.remarks if r.code == "numpy-inputs"]
    assert message.startswith("inputs of 16.0 KiB came as NumPy arrays and were put on the device once, before timing")
    assert "numpy-inputs" not in codes(bench(lambda x: x + 1, jnp.ones(64)))


@pytest.mark.parametrize(
    ("is_zero_copy", "text"),
    [(True, "hands them over without a copy, 2.00 µs here"), (False, "transfers them, 2.00 µs")],
)
def test_numpy_inputs_that_are_not_copied_are_not_said_to_be(is_zero_copy, text, evidence):
    inputs = replace(evidence[2].inputs, numpy_bytes=2**14)
    stages = Stages(transfer_in=Transfer(2**14, (2e-6,), is_zero_copy))

    assert text in said(but(evidence, inputs=inputs, stages=stages))["numpy-inputs"]


def test_a_function_that_returns_nothing(bench):
    def nothing(x):
        jnp.sin(x)

    m = bench(nothing, "f32[8]", options={"stages": "samples"})

    assert "no-outputs" in codes(m)
    assert "folded" not in codes(m)
    assert "because it returns nothing, so there is nothing to check" in " ".join(str(m).split())
    assert "no-outputs" not in codes(bench(lambda x: x, "f32[8]", options={"stages": "samples"}))


@pytest.mark.parametrize(
    ("fn", "counted"),
    [(lambda x: jnp.log(-1 - x * x), "8 NaN of 8"), (lambda x: x.at[2].set(jnp.inf), "1 infinite of 8")],
)
def test_a_result_that_is_not_finite(fn, counted, bench):
    m = bench(fn, "f32[8]", options={"stages": "samples"})

    (remark,) = [remark for remark in m.remarks if remark.code == "nonfinite-result"]
    assert remark.severity == "warning"
    assert counted in remark.message
    assert "to the eager result; not all values are finite" in " ".join(str(m).split())
    assert "nonfinite-result" not in codes(bench(lambda x: x, "f32[8]", options={"stages": "samples"}))


def ignore(*values):
    """What a callback calls."""


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: jax.debug.print("{}", x[:0]), "jax.debug."),
        (lambda x: jax.debug.callback(ignore, x), "jax.debug.callback"),
        (lambda x: jax.pure_callback(np.asarray, x, x), "jax.pure_callback"),
        (lambda x: io_callback(ignore, None, x), "io_callback"),
    ],
)
def test_callbacks_are_named_with_their_lines(call, name, bench):
    @jax.jit
    def inner(x):
        called = call(x)
        return x + 1 if called is None else called + 1

    m = bench(lambda x: inner(x) * 2, "f32[8]", options={"stages": "first_run"})

    (remark,) = [remark for remark in m.remarks if remark.code == "host-callbacks"]
    assert remark.severity == "warning"
    assert f"Each call runs Python on the host, and its time includes that: {name}" in remark.message
    assert f"at {__file__}:{call.__code__.co_firstlineno}" in remark.message


def test_a_callback_in_a_branch_is_not_in_each_call(bench):
    """As in a check that raises an error: the call that was timed did not run it."""

    def checked(x):
        return jax.lax.cond(x[0] > 1e9, lambda x: jax.pure_callback(np.asarray, x, x), lambda x: x + 1, x)

    m = bench(checked, "f32[8]", options={"stages": "first_run"})

    (remark,) = [remark for remark in m.remarks if remark.code == "host-callbacks"]
    assert remark.message.startswith("A call that takes a certain branch or loop runs Python on the host")


def test_loops_are_not_taken_for_folded_work(evidence):
    """Their bodies are counted once after, and differently before."""
    constant = but(evidence, hlo=jax.jit(lambda x: jnp.ones(3)).lower(jnp.ones(3)).compile().as_text())

    assert "folded" in said(constant)
    assert "folded" not in said(but(constant, cost=Cost(10.0, has_loops=True)))


def with_floor(evidence, floor_s, call_s):
    return but(evidence, stages=Stages(call_floor=CallFloor(tuple(floor_s), tuple(call_s))))


def shows(evidence, floor_s=None, call_s=None, **medians_s):
    """`evidence` with these times; by default calls take in turns with the floor what wall says."""
    readings = tuple(samples(timer, median_s) for timer, median_s in medians_s.items())
    evidence = but(evidence, samples=readings)
    return evidence if floor_s is None else with_floor(evidence, floor_s, call_s or [medians_s["wall"]] * 3)


TIMES = {
    # Seen: "takes 18 µs here; that is 66 % of your shortest, 27 µs", next to call floor 47.8 µs and wall 53.0 µs.
    "bound by dispatch": ([18e-6, 47.8e-6, 60e-6], [27e-6, 52e-6, 90e-6], {"wall": 53e-6}),
    "far above the floor": ([8e-6] * 3, [20e-6] * 3, {"wall": 20e-6}),
    # The least of both and the medians have to agree.
    "a floor that load made slow": ([8e-6, 90e-6, 95e-6], [80e-6, 81e-6, 100e-6], {"wall": 80e-6}),
    "calls that load made slow": ([8e-6, 8e-6, 8e-6], [9e-6, 90e-6, 95e-6], {"wall": 9e-6}),
    "other processes were slower": ([8e-6] * 3, [9e-6] * 3, {"wall": 30e-6}),
    # A timer that measures a part of the function only is no evidence of dispatch.
    "a part, no floor": (None, None, {"wall": 534e-6, "in_graph": 14e-6}),
    "a part, a floor": ([60e-6] * 3, None, {"wall": 534e-6, "in_graph": 14e-6}),
    "a long call": (None, None, {"wall": 38e-3, "loop": 3e-3}),
    # A convolution that XLA:CPU runs by Eigen: 18 µs in a loop, 136 µs as a call.
    "far beyond its parts": ([25e-6] * 3, None, {"wall": 137e-6, "in_graph": 18e-6}),
    "beyond its parts": ([60e-6] * 3, None, {"wall": 137e-6, "in_graph": 18e-6}),
    "its parts, no floor": (None, None, {"wall": 137e-6, "in_graph": 48e-6}),
    "its parts": ([82e-6] * 3, None, {"wall": 137e-6, "in_graph": 48e-6}),
    "its parts, by the median of the floor": ([20e-6, 82e-6, 82e-6], None, {"wall": 137e-6, "in_graph": 48e-6}),
    "device longer than the call": (None, None, {"wall": 260e-6, "device": 490e-6}),
    "loop longer than the call": (None, None, {"wall": 260e-6, "loop": 490e-6}),
    "in_graph about the call": (None, None, {"wall": 260e-6, "in_graph": 262e-6}),
    "one at a time": (None, None, {"in_graph": 6e-6, "device": 8.9e-6}),
    "nearly the same": (None, None, {"in_graph": 6e-6, "device": 6.2e-6}),
    "one at a time, and longer than the call": (None, None, {"wall": 5e-6, "in_graph": 6e-6, "device": 8.9e-6}),
    "device apart": (None, None, {"device": 155e-6, "in_graph": 235e-6}),
    "loop above": (None, None, {"in_graph": 59e-6, "loop": 80e-6}),
    "loop below": (None, None, {"in_graph": 80e-6, "loop": 59e-6}),
}


@pytest.mark.parametrize("name", TIMES)
def test_what_is_said_of_the_times_that_a_row_shows(name, evidence, snapshot):
    floor_s, call_s, medians_s = TIMES[name]

    found = remarks(*shows(evidence, floor_s, call_s, **medians_s))

    assert [(remark.code, remark.severity, remark.message) for remark in found] == snapshot


@pytest.mark.parametrize("wall_s", [60e-6, 120e-6, 400e-6])
@pytest.mark.parametrize("floor_s", [None, [20e-6] * 3, [55e-6] * 3])
def test_one_remark_at_most_speaks_of_what_a_call_costs(evidence, floor_s, wall_s):
    found = said(but(shows(evidence, floor_s, wall=wall_s, in_graph=12e-6), inline_flops=5e3))

    assert len({"dispatch-bound", "resident-far-below-wall", "inline-limit"} & found.keys()) <= 1


def test_crossing_the_inline_limit(evidence, monkeypatch):
    above = but(shows(evidence, [21e-6] * 3, wall=90e-6), inline_flops=1000.0)

    assert said(above)["inline-limit"] == (
        "XLA:CPU runs this program in its thread pool: it has 1.00 kFLOP. Below 1000 FLOP, it runs on the calling "
        "thread, and a call costs less."
    )
    assert "inline-limit" not in said(but(above, inline_flops=999.0))
    assert "inline-limit" not in said(but(above, samples=(samples("wall", 5e-3),)))
    with monkeypatch.context() as on_a_gpu:
        on_a_gpu.setattr(jax, "default_backend", lambda: "gpu")
        assert "inline-limit" not in said(above)
    monkeypatch.setattr("benchax.measuring.remarks.jax_config", lambda _: {"jax_cpu_enable_async_dispatch": False})
    assert "inline-limit" not in said(above)


def row(floor_s, remarks, *readings):
    floor = CallFloor((floor_s,) * 3, (60e-6,) * 3)
    return replace(measured(1e-3), stages=Stages(call_floor=floor), samples=readings, remarks=remarks)


def test_further_processes_change_the_numbers_in_remarks_as_in_the_row():
    by_process = [replace(samples("wall", each_s), process=i) for i, each_s in enumerate((60e-6, 70e-6, 80e-6))]
    before = (Remark("dispatch-bound", "warning", "yours 60.0 µs"), Remark("busy", "warning", "busy"))

    after = renew(row(48e-6, before, *by_process))

    assert [remark.code for remark in after.remarks] == ["busy", "dispatch-bound"]
    shown = seconds(after.summary("wall").median_s)
    assert shown != "60.0 µs"
    assert f"48.0 µs here (call floor), yours {shown}." in after.remarks[1].message


def test_a_remark_that_the_row_no_longer_shows_is_taken_back():
    by_process = [replace(samples("wall", each_s), process=i) for i, each_s in enumerate((60e-6, 140e-6, 150e-6))]
    before = (Remark("dispatch-bound", "warning", "yours 60.0 µs"),)

    assert renew(row(48e-6, before, *by_process)).remarks == ()


def test_remarks_of_several_processes_have_the_numbers_of_the_row():
    """Of three measurements, because a busy machine may leave one without such a remark."""
    rows = (
        benchax.bench(lambda x: x + 1, "f32[8]", timer="in_graph,wall", processes=2, store="off", max_time_s=0.05)
        for _ in range(3)
    )
    m, remark = next((m, remark) for m in rows for remark in m.remarks if remark.code in CODES)

    shown = [m.stages.call_floor_s, *(m.summary(s.timer).median_s for s in m.samples)]
    numbers = re.findall(r"[\d.]+ [nµm]s", remark.message)
    assert len(numbers) >= 2
    assert set(numbers) <= set(map(seconds, shown))


@pytest.mark.parametrize(
    ("output", "temp", "what"), [(32 * MIB, 0, "outputs of 32.0 MiB"), (4, 64 * MIB, "temporaries of 64.0 MiB")]
)
def test_big_arrays_page_fault_on_cpu(evidence, output, temp, what, monkeypatch):
    big = but(evidence, output_bytes=output, memory=Memory(temp_bytes=temp))

    assert said(big)["page-faults"].startswith(what)
    assert ("donating" in said(big)["page-faults"]) is what.startswith("outputs")
    assert "page-faults" not in said(but(evidence, output_bytes=31 * MIB))
    with monkeypatch.context() as on_a_gpu:
        on_a_gpu.setattr(jax, "default_backend", lambda: "gpu")
        assert "page-faults" not in said(big)
    monkeypatch.setattr("platform.libc_ver", lambda: ("musl", ""))
    assert "page-faults" not in said(big)


def scanned(x):
    return jax.lax.scan(lambda c, _: (jnp.sin(c @ c), None), x, None, length=10)[0]


def add(x, n=1):
    return x + n


@pytest.mark.parametrize(
    ("code", "said", "unsaid", "of_the_case"),
    [
        ("narrowed", (add, "f64[8]"), (add, "f32[8]"), {}),
        ("no-inputs", (lambda: jnp.ones(8) @ jnp.ones(8),), (add, 1.5), {}),
        ("folded", (lambda x: jnp.arange(8.0).sum(), "f32[8]"), (add, "f32[8]"), {}),
        ("not-jitted", (add, "f32[8]"), (jax.jit(add), "f32[8]"), {}),
        ("not-jitted", (functools.partial(add, n=2), "f32[8]"), (jax.jit(add), "f32[8]"), {}),
        ("donation-unused", (jnp.sum, "f32[64]"), (add, "f32[64]"), {"donate": [0]}),
        ("loop-counted-once", (scanned, "f32[32,32]"), (lambda x: x @ x, "f32[32,32]"), {}),
    ],
)
def test_what_is_known_once_a_function_is_built(code, said, unsaid, of_the_case, bench):
    assert code in codes(bench(*said, options={"stages": "build"}, **of_the_case))
    assert code not in codes(bench(*unsaid, options={"stages": "build"}, **of_the_case))


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"noise": Noise(others_share=0.4)}, "busy", "other processes used 40 % of the CPU. "),
        ({"noise": Noise(steal_share=0.05)}, "busy", "the hypervisor took 5.0 %. "),
        ({"noise": Noise(0.5, 0.4, 0.05)}, "busy", "40 % of the CPU and the hypervisor took 5.0 %"),
        ({"noise": Noise()}, "busy", None),
        (
            {"samples": (samples("wall", 300e-6, resolution_s=16e-6),)},
            "coarse-clock",
            "the clock steps by 16.0 µs, more than 1 % of a sample of wall (300 µs)",
        ),
        (
            {"warmup": Warmup(40, False, 3, 1e-4, (4e-4, 2e-4, 1e-4))},
            "not-steady",
            "still changing after 40 warm-up calls (3 of them compiled)",
        ),
        ({"samples": (Samples("wall", 1, (30e-6,) * 5),)}, "no-interval", "The median of wall has no interval"),
        ({"samples": (samples("wall", 30e-6),)}, "no-interval", None),
        (
            {"samples": [Samples(t, 1, (a, b) * 10) for t, a, b in (("in_graph", 58, 80), ("loop", 79, 81))]},
            "timers-apart",
            None,  # their intervals meet
        ),
    ],
)
def test_what_disturbed_the_times(evidence, changes, code, text):
    found = said(but(evidence, **changes))

    assert code not in found if text is None else text in found[code]


def test_errors_come_first(evidence):
    both = but(evidence, compiles=2, inline_flops=5e3, samples=(samples("wall", 30e-6),))

    assert [r.severity for r in remarks(*both)] == ["error", "info"]


def test_calls_of_two_lengths_are_told_from_their_mean(evidence):
    uneven = but(
        evidence, samples=(samples("wall", 30e-6),), inline_flops=1e4, warmup=Warmup(9, True, 0, 2e-5, least_s=14e-6)
    )

    assert said(uneven)["uneven-calls"].startswith("The shortest call took 14.0 µs, wall (30.0 µs) is a mean of calls")
    assert "uneven-calls" not in said(but(uneven, warmup=Warmup(9, True, 0, 2e-5, least_s=25e-6)))
    assert "uneven-calls" not in said(but(uneven, inline_flops=10.0))


# ---- folded -----------------------------------------------------------------------------------------------------
#
# The remark `folded` over many functions: of none that does its work, and of each that does not.

TABLE = np.random.default_rng(0).random((64, 64)).astype(np.float32)
X = jnp.asarray(TABLE)
V = jnp.asarray(np.random.default_rng(1).random(4096), jnp.float32)
IMAGE, KERNEL = jnp.asarray(TABLE[None, None]), jnp.asarray(TABLE[None, None, :3, :3])
DEFINITE = jnp.asarray(TABLE @ TABLE.T + np.eye(64, dtype=np.float32))

DONE = {
    "cumsum": (jnp.cumsum, V),
    "sort": (jnp.sort, V),
    "histogram": (lambda x: jnp.histogram(x)[0], V),
    "fft": (jnp.fft.fft, V),
    "svd": (jnp.linalg.svd, X),
    "solve": (lambda a: jnp.linalg.solve(a, a), DEFINITE),
    "matmul": (lambda a: a @ a, X),
    "conv": (lambda x: lax.conv(x, KERNEL, (1, 1), "SAME"), IMAGE),
    "max pool": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (8, 8), (1, 1), "SAME"), X),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c.sum()), x[0], x)[1], X),
    "layer norm": (lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6), X),
    "gradient": (jax.grad(lambda x: jnp.tanh(x @ x).sum()), X),
    "scatter": (lambda x: x.at[jnp.arange(100)].add(1.0), V),
    "random": (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), V),
}
NOT_DONE = {
    "constants multiplied": lambda x: x[0, 0] + (jnp.asarray(TABLE) @ jnp.asarray(TABLE)).sum(),
    "sine of constants": lambda x: x[0, 0] + jnp.sin(jnp.tanh(TABLE) * 2 + 1).sum(),
    "results not used": lambda x: jnp.where(jnp.arange(64) < 0, x @ x, x),
    "one element of a product": lambda x: (jnp.asarray(TABLE) @ jnp.asarray(TABLE))[0, 0] * x[0, 0],
    "constants sorted": lambda x: x[:2, :2] + jnp.sort(jnp.asarray(TABLE))[:2, :2],
    "constants summed up": lambda x: x[0, 0] + jnp.cumsum(TABLE.ravel())[-1],
    "inputs ignored": lambda x: jnp.asarray(TABLE) @ jnp.asarray(TABLE),
}


def evidence_of(function, *args):
    prepared = prepare(make_case(jax.jit(function), args))
    return Record(quiet, cost=cost(prepared.built.compiled, prepared.hlo)), prepared, prepared.subject


@pytest.mark.slow
@pytest.mark.parametrize("name", DONE)
def test_a_function_that_does_its_work_is_not_called_folded(name: str):
    record, *others = evidence_of(*DONE[name])

    # Nor by our own count alone, whatever XLA's says.
    assert [folded(each, *others, examines=True) for each in (record, replace(record, cost=None))] == [None, None]


@pytest.mark.parametrize("name", NOT_DONE)
def test_work_that_is_left_out_is_said(name: str):
    remark = folded(*evidence_of(NOT_DONE[name], X), examines=True)

    assert remark is not None
    assert "written" in remark.message or "does not depend on its inputs" in remark.message
    if name == "results not used":  # what was written and what is left are counted alike
        assert remark.message == (
            "of 528 kFLOP written, 0 FLOP are left in the compiled program: the rest was computed when it was "
            "compiled, or its results are not used"
        )
