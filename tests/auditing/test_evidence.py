"""Evidence of one function: its parts, the trial in a worker process, and values that are computed again."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from evidence_by_hand import judged

import benchax
from benchax.auditing import evidence as module
from benchax.auditing.audit import ask
from benchax.auditing.checklist import ITEMS, walk_checklist
from benchax.auditing.evidence import Evidence, try_case
from benchax.auditing.rule import NotApplicable, compute_values
from benchax.auditing.rules import rules as every_rule
from benchax.auditing.rules.loops import unrolled_loop
from benchax.auditing.rules.tracing import impure_function
from benchax.case import make_case
from benchax.comparing.sequential import Effort
from benchax.errors import NotMeasured, UsageError
from benchax.experiments.lab import WorkerLab
from benchax.measuring import program as programs
from benchax.model import Comparison, Version
from benchax.program.index import index
from benchax.reporting.audit import quote_source
from benchax.results.audit import Audit, Checked
from benchax.watching.watch import watch
from benchax.workers.pool import shared_pool


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


# ---- trial -----------------------------------------------------------------------------------------------------------

SHORT_S = 1.0
RULES = ["captured-constants", "jit-in-loop", "leaked-tracer", "not-jitted", "vmap-of-jit"]


def computed_for_ever(x):
    return jax.lax.while_loop(lambda x: x.sum() > -1e30, lambda x: x * 0.5, x)


def debugged_for_ever(x):
    """In Python that compiled code calls."""

    def host(_):
        while True:
            pass

    jax.debug.callback(host, x)
    return x


def killed(x):
    os.kill(os.getpid(), signal.SIGKILL)


def aborted(x):
    return jax.pure_callback(lambda _: os.abort(), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def exited(x):
    sys.exit(3)


def decides_for_ever(x):
    while x > -1:
        x = x * 0
    return x


def jits_and_never_ends(x):
    for i in range(3):
        x = jax.jit(lambda a, i=i: a * i)(x)
    while True:
        pass


def answers(found: Audit) -> dict[str, Checked]:
    return {checked.rule: checked for checked in found.checked}


def below_the_keeper() -> list[psutil.Process]:
    """Workers; the process that keeps them stays for the next ones."""
    keeper = shared_pool(warm=False)._keeper
    return psutil.Process(keeper.process.pid).children(recursive=True) if keeper else []


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (computed_for_ever, "first run took longer than 1.00 s; the process was killed"),
        (debugged_for_ever, "first run took longer than 1.00 s; the process was killed"),
        (killed, "the process was killed by SIGKILL in trace"),
        (aborted, "the process was killed by SIGABRT in first run"),
        (exited, "it raised SystemExit: 3"),
    ],
)
def test_what_does_not_end_well_is_not_called_here_and_leaves_no_process(fn: Callable[..., Any], reason: str) -> None:
    found = benchax.audit(fn, "f32[8]", rules=RULES, timeout_s=SHORT_S)

    (remark,) = found.remarks
    assert (remark.code, remark.severity) == ("not-called", "error")
    assert f"it was tried compiled in a worker process, and {reason}" in remark.message
    assert found.signature == "f32[8]"
    assert {reason in checked.why for checked in found.checked} == {True}
    assert below_the_keeper() == []


def test_what_the_source_tells_is_told_all_the_same() -> None:
    found = benchax.audit(jits_and_never_ends, "f32[8]", rules=RULES, timeout_s=SHORT_S)

    assert [finding.rule for finding in found.findings] == ["jit-in-loop"]
    assert answers(found)["vmap-of-jit"].outcome == "not checked"
    assert answers(found)["captured-constants"].outcome == "not checked"


def test_inputs_that_are_never_made_are_not_made_here() -> None:
    def inputs():
        while True:
            pass

    case = replace(make_case(double), inputs=inputs)

    evidence = Evidence(case, timeout_s=SHORT_S)

    assert evidence.signature == ""
    with pytest.raises(NotMeasured, match="inputs took longer than 1"):
        _ = evidence.given


def test_a_function_that_only_ends_compiled_is_still_explained() -> None:
    """It does not trace, which is a finding; eagerly it would never return."""
    found = benchax.audit(decides_for_ever, jnp.float32(1), rules=["branch-on-value", "not-jitted"], timeout_s=SHORT_S)

    assert [finding.rule for finding in found.findings] == ["branch-on-value"]
    assert "eager call took longer than 1.00 s" in answers(found)["not-jitted"].why
    assert "not-called-unjitted" in {remark.code for remark in found.remarks}


def test_what_cannot_be_sent_is_called_here_and_a_remark_says_so() -> None:
    lock = threading.Lock()

    def locked(x):
        with lock:
            return x + 1

    found = benchax.audit(locked, 1.0, rules=["captured-constants"])

    assert answers(found)["captured-constants"].outcome == "fine"
    warning = next(remark for remark in found.remarks if remark.code == "without-limit")
    assert "without a limit of time, because case " in warning.message
    assert "cannot be sent to a worker process: TypeError: cannot pickle '_thread.lock'" in warning.message


def test_without_a_limit_there_is_no_trial() -> None:
    found = benchax.audit(double, 1.0, rules=["captured-constants"], timeout_s=None)

    assert [remark.message for remark in found.remarks] == ["To find this out, the function was traced, compiled."]


def test_only_the_ways_of_calling_it_that_rules_need_are_tried() -> None:
    evidence = Evidence(make_case(double, (1.0,)), timeout_s=60.0)

    _ = evidence.inspection
    assert [trial.way for trial in evidence.trials] == ["compiled"]

    _ = evidence.watch
    assert [trial.way for trial in evidence.trials] == ["compiled", "eager"]


def test_a_python_exception_is_no_obstacle() -> None:
    def failing(x):
        raise ValueError("no")

    trial = try_case(make_case(failing, (1.0,)), 0, 60.0, lambda doing: None)

    assert trial.obstacle is None
    assert trial.error is not None
    assert (trial.error.stage, "ValueError: no" in trial.error.message) == ("trace", True)


def test_a_trial_leaves_the_persistent_cache_as_it_was(tmp_path: Path) -> None:
    """Else the cache would hold what a rule then finds in it."""
    settings = {"jax_compilation_cache_dir": str(tmp_path), "jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        try_case(make_case(double, ("f32[8]",)), 0, 60.0, lambda doing: None)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [0, -1.0, "0ms"])
def test_a_limit_that_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=r"option .timeout_s. in the call cannot be .*\nexpected a time above 0"):
        benchax.audit(double, 1.0, timeout_s=given)


def test_every_line_of_a_checklist_says_why_it_was_not_checked() -> None:
    found = walk_checklist(make_case(killed, ("f32[8]",)), timeout_s=60.0)[0]

    ticks = {tick.text: tick for tick in found.ticks}
    assert len(ticks) == len({item.text for item in ITEMS})
    for text in ("JIT expensive functions", "Compute in bf16 or fp16", "Profile memory", "Test numerical stability"):
        assert ticks[text].answer == "not checked"
        assert "killed by SIGKILL in trace" in ticks[text].why


# ---- kept values -----------------------------------------------------------------------------------------------------


def both(x: Any, y: Any, key: Any) -> Any:
    drawn = jax.random.normal(key, y.shape)
    return x * 2, y + drawn


def asked(data: list[Any], output: int) -> np.ndarray:
    closed = jax.make_jaxpr(both)(jnp.ones(2), jnp.ones(3), jax.random.key(0))
    evidence: Any = SimpleNamespace(program=index(closed), data=data)
    return compute_values(evidence, [index(closed).outputs[output]])[0]


def test_only_what_a_value_is_made_of_has_to_be_kept() -> None:
    np.testing.assert_array_equal(asked([np.full(2, 3.0), None, None], 0), [6.0, 6.0])

    with pytest.raises(NotMeasured, match="an array that it depends on was too large to be kept"):
        asked([None, np.ones(3), jax.random.key(1)], 0)


def test_random_keys_are_given_as_they_are() -> None:
    key = jax.random.key(7)

    expected = 1 + jax.random.normal(key, (3,))
    np.testing.assert_allclose(asked([None, np.ones(3), key], 1), expected, rtol=1e-6)


# ---- Functions that were typed: IPython keeps the text of cells, Python that of its prompt not -----------------------

CELL = """\
import jax, jax.numpy as jnp

seen = []

def f(x):
    seen.append(x.shape)
    for _ in range(100):
        x = jnp.sin(x) * 1.1 + jnp.cos(x)
    return x
"""


@pytest.fixture
def of_a_cell() -> Iterator[Callable[..., Any]]:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    assert shell.run_cell(CELL).success
    yield shell.user_ns["f"]
    shell.history_manager.end_session()


@pytest.fixture
def of_a_prompt() -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(compile(CELL, "<stdin>", "exec"), space)
    return space["f"]


def test_a_function_of_a_cell_is_the_users_and_its_lines_are_quoted(of_a_cell: Callable[..., Any]) -> None:
    evidence = Evidence(make_case(of_a_cell, ("f32[4]",)))
    (impure,), _ = ask(impure_function, evidence)
    (unrolled,), _ = ask(unrolled_loop, evidence)

    assert (impure.where, unrolled.where) == ((of_a_cell.__code__.co_filename, 6), (of_a_cell.__code__.co_filename, 7))
    assert impure.where is not None
    (quoted,) = quote_source(impure.where)
    assert "> " in quoted.text
    assert "seen.append(x.shape)" in quoted.text


def test_of_a_function_without_text_nothing_is_called_fine_that_could_not_be_read(
    of_a_prompt: Callable[..., Any],
) -> None:
    evidence = Evidence(make_case(of_a_prompt, ("f32[4]",)))
    _, unrolled = ask(unrolled_loop, evidence)
    found, _ = ask(impure_function, evidence)

    assert unrolled.outcome == "not checked"
    assert unrolled.why == "the source of the function cannot be read: it was typed at a prompt of Python"
    assert len(found) == 1  # what was seen while it ran needs no source
