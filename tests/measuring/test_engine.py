"""One case in, one row out: complete where all is well, with reasons where a part cannot be measured, failed but kept
where the function fails."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions_by_hand import slow_at_first

from benchax.case import make_case
from benchax.measuring.engine import measure
from benchax.measuring.jax_settings import with_settings
from benchax.measuring.memory import MOST_EAGER_READINGS
from benchax.measuring.sampling import Warmup

# `serial` are those that expect certain numbers: a neighbour may make one unmeasurable.


@pytest.mark.serial
def test_a_row_holds_every_part(bench):
    m = bench(lambda x: jnp.tanh(x @ x), "f32[512,512]", name="tanh", tag="t")

    s = m.stages
    assert m.failure is None
    assert (m.case.name, m.case.tag, m.signature) == ("tanh", "t", "f32[512,512]")
    assert min(s.trace_s, s.lower_s, s.compile_s, s.first_run_s, s.dispatch_s, s.transfer_in_s, s.transfer_out_s) > 0
    assert s.cache == "off"
    assert s.cold in ("operations", "function")  # of this process, in which others have run
    assert [samples.timer for samples in m.samples] == ["in_graph", "wall", "pipelined"]
    assert m.headline.clock_tier
    assert m.summary().median_s > 0
    assert m.memory.argument_bytes == m.memory.output_bytes == 2**20
    assert m.cost.flops >= 2 * 512**3
    assert m.numerics.agrees
    assert m.environment.jax == jax.__version__
    assert m.started_at.endswith("+00:00")


@pytest.mark.serial
def test_what_the_clock_cannot_read_is_said_and_the_loop_answers(bench):
    m = bench(lambda x: x + 1, "f32[8]")

    assert m.why_absent("samples.in_graph").startswith("it takes less than reading the clock does")
    # On a very busy machine a difference of two readings may not be told from zero; then there is a reason.
    unread = [a.what.removeprefix("samples.") for a in m.not_measured if a.what == "samples.loop"]
    assert [s.timer for s in m.samples] + unread == ["wall", "pipelined", "loop"]


@pytest.mark.serial
def test_which_timers_there_are_does_not_rest_on_preempted_calls(bench, monkeypatch):
    """A warm-up of which all calls were preempted once left `wall` alone, without a word."""
    slow = Warmup(2, True, 0, 0.027, (0.027, 0.027), least_s=0.027, timed=2)
    monkeypatch.setattr("benchax.measuring.engine.warm_up", lambda *_, **__: slow)

    m = bench(jnp.tanh, "f32[10000]")

    assert [s.timer for s in m.samples][:2] == ["in_graph", "wall"]


@pytest.mark.parametrize("stages", ["samples", "all"])
def test_a_slow_first_call_does_not_choose_the_timers(stages, bench):
    """Of an eager function on CPU, "samples" has its first calls under observation of memory."""
    m = bench(slow_at_first(), np.ones((24, 24)), jit=False, options={"max_warmup_s": 0.02, "stages": stages})

    assert m.failure is None
    assert not any("a call takes" in absent.why for absent in m.not_measured), m.not_measured
    assert m.samples_of("wall") is not None


@pytest.mark.parametrize(
    ("fn", "spec", "stage", "kind", "message"),
    [
        (lambda x: x, "f33[4]", "inputs", "error", "unknown dtype 'f33'"),
        (lambda x: 1 / 0, "f32[4]", "trace", "error", "ZeroDivisionError"),
        (lambda x: sys.exit(7), "f32[4]", "trace", "error", "SystemExit: 7"),
        (lambda x: "text", "f32[4]", "trace", "wrong_output", "<class 'str'>"),
        (lambda x: x if x[0] > 0 else -x, "f32[4]", "trace", "error", "TracerBoolConversionError"),
        (lambda x: jnp.zeros(1 << 42) + x[0], "f32[4]", "first run", "out_of_memory", "RESOURCE_EXHAUSTED"),
    ],
)
def test_a_failing_function_gives_a_failed_row_that_names_the_stage(fn, spec, stage, kind, message, bench):
    m = bench(fn, spec)

    assert (m.status, m.failure.kind, m.failure.stage) == ("failed", kind, stage)
    assert message in m.failure.message
    assert m.samples == ()
    # What was measured before is kept.
    assert (m.signature, bool(m.stages.compile_s)) == ("" if stage == "inputs" else spec, stage == "first run")


def test_an_interrupt_passes_through(short):
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(make_case(interrupted, (jnp.ones(3),)), short, run_id="test")


def test_every_number_that_is_missing_has_a_reason(bench):
    """For every kind of function, each field that is None is explained, but for those that do not apply."""
    functions = {
        "plain": (lambda x: x * 2, {}),
        "jit": (jax.jit(lambda x: x * 2), {}),
        "compiled": (jax.jit(lambda x: x * 2).lower(jnp.ones(8)).compile(), {}),
        "eager": (lambda x: x * 2, {"jit": False}),
        "donating": (lambda x: x * 2, {"donate": [0]}),
        "calling back": (lambda x: jax.pure_callback(lambda y: y, x, x), {}),
    }
    for kind, (fn, of_the_case) in functions.items():
        m = bench(fn, jnp.ones(8), **of_the_case)

        for path, value in {
            "stages.trace_s": m.stages.trace_s,
            "stages.lower_s": m.stages.lower_s,
            "stages.compile_s": m.stages.compile_s,
            "stages.first_run_s": m.stages.first_run_s,
            "stages.transfer_in": m.stages.transfer_in,
            "stages.transfer_out": m.stages.transfer_out,
            "samples.wall": m.samples_of("wall"),
            "samples.in_graph": m.samples_of("in_graph"),
            "samples.pipelined": m.samples_of("pipelined"),
            "samples.loop": m.samples_of("loop"),
            "memory.plan": m.memory.predicted_peak_bytes,
            "memory.eager_rise_bytes": m.memory.eager_rise_bytes,
            "cost": m.cost,
            "numerics": m.numerics,
        }.items():
            assert value is not None or m.why_absent(path), (kind, path)


def test_a_donating_function_leaves_the_callers_array_alone_also_inside_an_unjitted_one(bench):
    x, donating = jnp.ones(64), jax.jit(lambda x: x + 1, donate_argnums=0)

    m, unjitted = bench(donating, x), bench(lambda x: donating(x), x, jit=False)

    assert (m.failure, unjitted.failure) == (None, None)
    assert x.sum() == 64
    assert m.memory.alias_bytes == 256


@pytest.mark.parametrize(
    ("stages", "calls", "absent"),
    [
        ("build", 0, {"samples", "stages.first_run_s", "stages.dispatch_s", "numerics", "memory.compiled_rise_bytes"}),
        ("first_run", 1, {"samples", "stages.dispatch_s", "stages.transfer_in"}),
        ("samples", 2, {"stages.dispatch_s", "stages.transfer_in", "stages.transfer_out"}),
    ],
)
def test_what_was_not_asked_for_is_not_called_and_says_so(stages, calls, absent, bench):
    jitted = jax.jit(lambda x: x * 2)

    m = bench(jitted, "f32[64]", options={"stages": stages, "memory": False, "verify": "off"})

    assert m.failure is None
    assert m.stages.compile_s > 0
    for what in absent:
        assert m.why_absent(what) == f"only stages={stages!r} was requested"
    if calls:
        assert m.why_absent("numerics") == "verification is switched off"
        assert m.why_absent("memory.compiled_rise_bytes") == "switched off"
    assert (m.stages.first_run_s is not None, bool(m.samples)) == (calls > 0, calls > 1)


def test_a_listener_is_told_what_is_no_part_of_the_row_and_the_error_itself(bench_case):
    heard, of_failed = {}, {}
    m = bench_case(lambda x: x * 2, jnp.ones(3), listen=heard.__setitem__)
    bench_case(lambda x: 1 / 0, jnp.ones(3), listen=of_failed.__setitem__)

    assert m.failure is None
    assert heard["outputs"].tolist() == [2, 2, 2]
    assert heard["hlo"].startswith("HloModule")
    assert "stablehlo" in heard["lowered"].as_text()
    assert "error" not in heard
    assert isinstance(of_failed["error"], ZeroDivisionError)


def test_a_row_says_its_own_settings_also_where_an_earlier_case_of_the_run_has_changed_them(bench):
    def precisions():
        m = bench(jnp.sin, "f32[8]", options={"stages": "build"})
        return m.environment.config["jax_default_matmul_precision"]

    before = precisions()
    with with_settings({"jax_default_matmul_precision": "float32"}):
        assert (precisions(), before) == ("float32", None)


def test_a_reference_that_is_known_is_not_computed_again(bench_case):
    calls = []

    def f(x):
        calls.append(type(x))
        return x * 2

    m = bench_case(f, jnp.ones(3), reference=lambda: jnp.ones(3) * 3)

    assert not m.numerics.agrees
    assert [kind for kind in calls if issubclass(kind, jax.Array) and "Tracer" not in kind.__name__] == []


def test_memory_of_an_unjitted_function_is_read_with_few_calls(bench):
    calls = []

    def f(x):
        calls.append(1)
        return jnp.concatenate([x] * 4)

    m = bench(f, jnp.ones(2**20), jit=False, options={"stages": "first_run"})

    assert len(calls) <= 2 + MOST_EAGER_READINGS
    if m.why_absent("memory.eager_rise_bytes") is None:
        assert 15 <= m.memory.eager_rise_bytes / 2**20 < 20
