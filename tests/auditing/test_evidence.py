from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from evidence_by_hand import judged

import benchax
from benchax.auditing import evidence as module
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable
from benchax.auditing.rules import rules as every_rule
from benchax.case import make_case
from benchax.comparing.sequential import Effort
from benchax.errors import NotMeasured
from benchax.experiments.lab import WorkerLab
from benchax.measuring import program as programs
from benchax.model import Comparison, Version
from benchax.watching.watch import watch


def double(x):
    return x * 2


def branch(x):
    return x if x > 0 else -x


def of(fn, *args, **options) -> Evidence:
    return Evidence(make_case(fn, args, **options))


def test_a_function_that_does_not_trace_has_a_failure_with_the_remedies() -> None:
    e = of(branch, jnp.float32(1))

    assert e.failure is not None
    assert e.failure.stage == "trace"
    assert "jax.lax.cond" in e.failure.advice
    assert isinstance(e.error, jax.errors.TracerBoolConversionError)


def test_what_needs_the_program_of_such_a_function_does_not_apply() -> None:
    e = of(branch, jnp.float32(1))

    for part in ("inspection", "measurement"):
        with pytest.raises(NotApplicable, match="it does not trace: TracerBoolConversionError"):
            getattr(e, part)


def test_what_does_not_trace_still_runs_eager() -> None:
    assert of(branch, jnp.float32(1)).eager.headline is not None


def test_each_part_is_worked_out_once() -> None:
    e = of(double, jnp.arange(3.0))

    assert e.inspection is e.inspection


def test_a_part_that_cannot_be_had_is_not_tried_again() -> None:
    calls: list[int] = []

    def failing(x):
        calls.append(1)
        raise ValueError("no")

    e = of(failing, 1.0)
    for _ in range(2):
        with pytest.raises(NotMeasured, match="it fails eagerly, in first run: ValueError: no"):
            _ = e.eager

    assert len(calls) == 1


@pytest.mark.parametrize(("fn", "is_jitted"), [(double, False), (jax.jit(double), True)])
def test_it_knows_whether_the_function_was_given_jitted(fn, is_jitted: bool) -> None:
    assert of(fn, jnp.arange(3.0)).is_jitted == is_jitted


def test_the_eager_case_of_a_jitted_function_is_the_function_under_it() -> None:
    case = of(jax.jit(double), jnp.arange(3.0)).eager_case

    assert (case.fn, case.jit) == (double, False)


def test_a_watch_calls_the_function_as_it_was_given_and_survives_donation() -> None:
    e = of(jax.jit(double, donate_argnums=0), jnp.arange(7.0))

    assert [c.function for c in e.watch.compiles if not c.is_eager] == ["double"]


def test_no_comparison_is_begun_when_the_time_is_used_up() -> None:
    e = Evidence(make_case(double, (1.0,)), max_time_s=0.0)

    with pytest.raises(NotMeasured, match="the 0 s for comparisons were used up"):
        e.compare("itself", e.case)


def test_no_comparison_is_begun_that_would_take_longer_than_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.0, 0.0, 0.0, 9.0])
    monkeypatch.setattr(module, "perf_counter", lambda: next(now, 9.0))
    e = Evidence(make_case(double, (1.0,)), max_time_s=16.0)
    made = Comparison(e.case.id, "run", Version("a"), Version("b"), "same")
    monkeypatch.setattr(WorkerLab, "time_pairs", lambda lab, pairs: {pairs[0].name: made})

    assert e.compare("first", e.case, e.eager_case) is made
    with pytest.raises(NotMeasured, match="used up"):
        e.compare("second", e.case, e.eager_case)


def test_the_first_comparison_is_not_begun_where_its_processes_would_take_longer_than_what_is_left() -> None:
    e = Evidence(make_case(double, (1.0,)), max_time_s=60.0)
    e.process_s = 31.0

    with pytest.raises(NotMeasured, match="used up"):
        e.compare("itself", e.case)


def test_a_trial_says_how_long_a_process_takes() -> None:
    e = Evidence(make_case(double, (1.0,)), timeout_s=60.0)

    e.trial("compiled")

    assert e.process_s > 0


def test_the_same_comparison_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    e = of(double, 1.0)

    def timed(lab, pairs):
        asked.append(pairs[0].name)
        made = Comparison(e.case.id, "run", Version("a"), Version("b"), "same")
        return {pairs[0].name: made}

    monkeypatch.setattr(WorkerLab, "time_pairs", timed)
    first = e.compare("jit", e.case, e.eager_case)

    assert e.compare("jit", e.case, e.eager_case) is first
    e.compare("jit", e.eager_case, e.case)
    assert asked == ["jit", "jit"]


@pytest.mark.parametrize("jitted", [False, True])
def test_a_function_is_built_once_for_all_rules(jitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inspected, measured, profiled and called by rules; that which donates its arguments is another program."""
    built: list[str] = []
    build = programs.lower

    def count(program, *rest):
        built.append(program.kind)
        return build(program, *rest)

    monkeypatch.setattr(programs, "lower", count)

    def layer(x, w):
        return jnp.tanh(x @ w) @ w.T

    with watch() as seen:
        rules = [name for name in every_rule() if name != "donation-possible"]
        fn = jax.jit(layer) if jitted else layer
        found = benchax.audit(fn, "f32[64,64]", "f32[64,64]", rules=rules, max_time_s=0.01, timeout_s=None)

    assert [kind for kind in built if kind != "eager"] == ["jit" if jitted else "plain"]
    assert [c.function for c in seen.compiles if c.function == "layer" and not c.is_nested] == ["layer"]
    assert {"measured compiled", "measured eagerly"} <= set(found.remarks[0].message.rstrip(".").split(", "))


def test_what_is_measured_of_a_built_function_is_what_building_took() -> None:
    e = of(double, jnp.arange(3.0))

    inspected, seconds = e.inspection, e.prepared.built.seconds

    assert inspected.hlo
    assert e.measurement.stages.compile_s == seconds["compile"]


def test_a_comparison_of_a_large_effect_that_is_unclear_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is 24 times as slow is not to stay undecided, because others make the machine busy for a few seconds."""
    efforts: list[Effort] = []
    answers = [judged(0.04, verdict="unclear"), judged(0.04)]

    def time(self: Evidence, pair: object, effort: Effort) -> Comparison:
        efforts.append(effort)
        return answers[len(efforts) - 1]

    monkeypatch.setattr(Evidence, "_time", time)
    e = of(double, "f32[8]")

    found = e.compare("jax.jit", e.case, e.case)

    assert (found.verdict, len(efforts)) == ("faster", 2)
    assert efforts[1].looks[-1] > efforts[0].looks[-1]


def test_a_comparison_of_a_small_effect_that_is_unclear_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Effort] = []
    unclear = judged(1.1, verdict="unclear")
    monkeypatch.setattr(Evidence, "_time", lambda self, pair, effort: asked.append(effort) or unclear)
    e = of(double, "f32[8]")

    assert e.compare("jax.jit", e.case, e.case).verdict == "unclear"
    assert len(asked) == 1
