"""Functions that never end or that end their process: audited, they do so in a worker, and the audit says so."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import psutil
import pytest

import benchax
from benchax.auditing.checklist import ITEMS, walk_checklist
from benchax.auditing.evidence import Evidence, try_case
from benchax.case import make_case
from benchax.errors import NotMeasured, UsageError
from benchax.results.audit import Audit, Checked
from benchax.workers.pool import shared_pool

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


def double(x):
    return x * 2


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
    assert {reason in checked.why for checked in found.checked if checked.rule != "vmap-of-jit"} == {True}
    assert below_the_keeper() == []


def test_what_the_source_tells_is_told_all_the_same() -> None:
    found = benchax.audit(jits_and_never_ends, "f32[8]", rules=RULES, timeout_s=SHORT_S)

    assert [finding.rule for finding in found.findings] == ["jit-in-loop"]
    assert answers(found)["vmap-of-jit"].outcome == "not applicable"
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
