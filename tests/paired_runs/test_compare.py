"""`benchax.compare` through real processes, and what it says to what cannot be compared."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refusal

import benchax
from benchax.comparing.ranking import Comparisons
from benchax.measuring.paired import PairedAnswer, SideFacts
from benchax.model import CaseId, Comparison, Numerics, Version
from benchax.options import resolve
from benchax.paired_runs.compare import _rank
from benchax.paired_runs.paired_run import Group, PairedRun, PairedSamples
from benchax.progress import ProgressEvent

pytestmark = pytest.mark.usefixtures("kept_pools")

X = "f32[128,128]"
OFTEN = 3


def plain(x: Any) -> Any:
    return jnp.sin(x) @ x


def broken(x: Any) -> Any:
    raise ValueError("it is broken")


def of(found: Comparisons, label: str) -> Comparison:
    (comparison,) = [c for c in found.of("run") if c.candidate.label == label]
    return comparison


# ---- several functions, one of them broken ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(kept_pools: None) -> Comparisons:
    """A function, what cannot run, the same once more, and three times the work; lambdas and closures among them."""
    often = OFTEN

    def much(x: Any) -> Any:
        for _ in range(often):
            x = plain(x)
        return x

    functions = {"plain": plain, "broken": broken, "again": lambda x: jnp.sin(x) @ x, "much": much}
    return benchax.compare(functions, X, max_time_s=12)


@pytest.mark.slow
@pytest.mark.serial
def test_equal_functions_are_not_told_apart_and_more_work_is_slower_by_two_measurements(several: Comparisons) -> None:
    again, much = of(several, "again"), of(several, "much")

    assert again.verdict in ("same", "unclear")
    assert (again.low or math.nan) < (again.ratio or math.nan) < (again.high or math.nan)
    assert again.numerics is not None
    assert again.numerics.agrees
    assert (much.verdict, much.confirmed) == ("slower", True)
    assert (much.ratio or 0.0) > 1.5
    assert much.processes >= 2
    assert much.environment is not None
    assert much.environment.backend == "cpu"
    counted = {c.candidate.label: c for c in several.of("flops")}
    assert counted["again"].verdict == "same"
    assert counted["much"].ratio == pytest.approx(OFTEN, rel=0.1)


@pytest.mark.slow
@pytest.mark.serial
def test_one_that_fails_is_a_comparison_with_its_reason_and_the_others_go_on(several: Comparisons) -> None:
    failed = of(several, "broken")

    assert failed.failure is not None
    assert (failed.verdict, failed.failure.kind, failed.failure.stage) == ("unclear", "error", "build")
    assert failed.why.startswith("error in build: ValueError: it is broken (at ")
    assert (failed.ratio, failed.blocks) == (None, ())
    assert several.verdicts.keys() == {"broken", "again", "much"}
    assert several.labels == ("plain", "broken", "again", "much")


@pytest.mark.slow
@pytest.mark.serial
def test_those_that_gave_the_same_result_have_places_and_the_others_are_told_why_not(several: Comparisons) -> None:
    assert {rank.label: rank.place for rank in several.ranking} == {"plain": 1, "again": 1}
    assert several.unranked.keys() == {"broken", "much"}
    assert several.unranked["broken"].startswith("failed: error in build: ValueError: it is broken")
    assert several.unranked["much"].startswith("its result differs from the result of plain: leaf [0] at [")
    assert [r.code for r in of(several, "again").remarks if r.severity == "error"] == ["outputs-differ"]
    said = " ".join(str(several).split())
    for part in (
        "Not ranked: much returns a different result from plain. Not ranked: broken failed.",
        "much returns a different result from plain",
        "result differs (slower)",
        "it is broken",
        "times the fastest",
    ):
        assert part in said
    assert "<table" in several._repr_html_()


# ---- two functions, and how it goes -----------------------------------------------------------------------------


def test_no_process_is_begun_after_the_time_limit() -> None:
    told: list[ProgressEvent] = []

    found = benchax.compare(
        [jax.jit(plain), wrapped(plain)], X, baseline="other", name="both", max_time_s="10ms", progress=told.append
    )

    run = of(found, "plain")
    assert run.baseline.label == "other"
    assert run.case.label == "both"
    assert run.processes == 1
    assert {"both · rounds", "both · build of other"} <= {event.doing for event in told}
    assert {event.item for event in told} == {"process 1: 1 of 1 undecided"}


def compiles_anew(x: Any) -> Any:
    return eqx.filter_jit(lambda y: jax.nn.softmax(y))(x)


def test_a_function_that_compiles_in_each_call_is_said_to_and_so_are_the_inputs() -> None:
    found = benchax.compare(
        {"kept": eqx.filter_jit(jax.nn.softmax), "fresh": compiles_anew}, X, jit=False, max_time_s=0.01
    )

    run = of(found, "fresh")
    assert [r.message.partition(":")[0].split(maxsplit=1)[1] for r in run.remarks if r.code == "recompiled"] == [
        "programs were compiled while fresh was being timed"
    ]
    assert run.signature == X
    assert "fresh was being timed: the times contain compiling" in " ".join(str(found).split())
    assert X in str(found).splitlines()


def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    def other(x: Any) -> Any:
        return fn(x)

    return other


def test_several_that_fail_are_told_apart() -> None:
    def also(x: Any) -> Any:
        raise KeyError("weights")

    found = benchax.compare({"plain": plain, "broken": broken, "also": also, "again": plain}, X, max_time_s=0.01)

    assert {c.candidate.label: c.failure.message.partition(" (")[0] for c in found if c.failure} == {
        "broken": "ValueError: it is broken",
        "also": "KeyError: 'weights'",
    }
    assert of(found, "again").ratio is not None


@pytest.mark.slow
def test_a_function_that_never_ends_is_stopped_and_named() -> None:
    def forever(x: Any) -> Any:
        while True:
            pass

    found = benchax.compare({"plain": plain, "forever": forever, "again": plain}, X, timeout_s=2, max_time_s=0.01)

    failure = of(found, "forever").failure
    assert failure is not None
    assert failure.kind == "timeout"
    assert of(found, "again").failure is None
    assert of(found, "again").ratio is not None


@pytest.mark.slow
def test_baselines_that_fail_leave_their_part_to_the_next_one() -> None:
    """One that cannot travel to another process, and says how to mend it, and one that cannot be built."""
    lock = threading.Lock()

    def locked(x: Any) -> Any:
        with lock:
            return plain(x)

    found = benchax.compare([locked, broken, plain, wrapped(plain)], X, max_time_s=0.01)

    assert found.labels == ("plain", "other", "locked", "broken")
    assert {rank.label for rank in found.ranking} == {"plain", "other"}
    assert "locked failed, so the baseline is plain" in str(found)
    failures = {c.candidate.label: c.failure for c in found if c.failure}
    assert failures["broken"].message.startswith("ValueError: it is broken")
    assert "cannot be sent to a worker process: TypeError: cannot pickle '_thread.lock'" in failures["locked"].message
    assert "open files, locks and connections inside the function" in failures["locked"].advice
    assert "locks and connections inside the function" in " ".join(str(found).split())


def test_one_that_is_left_over_has_nothing_to_be_compared_with() -> None:
    lock = threading.Lock()

    found = benchax.compare({name: lambda x: (lock, x)[1] for name in ("a", "b", "c")}, X)

    assert (found.labels, found.ranking) == (("c", "a", "b"), ())
    assert all("cannot be sent" in why for why in found.unranked.values())
    assert "not measured, because nothing else ran with it" in " ".join(str(found).split())


def test_a_crash_of_which_no_function_is_named_is_told_of_none() -> None:
    """What is at fault may be any of them."""
    found = benchax.compare({"plain": plain, "late": crashing_late, "again": plain}, X, max_time_s=0.01)

    assert found.ranking == ()
    assert found.unranked.keys() == {"late", "again"}
    for why in found.unranked.values():
        assert why.startswith(
            "not measured, because a failure stopped all, and any of them can be its cause: crashed in"
        )
    assert "failed" not in str(found)


def crashing_late(x: Any) -> Any:
    """In its 30th call: it is built and compared long before."""

    def called(v: Any) -> Any:
        calls.append(1)
        if len(calls) > 29:
            os.kill(os.getpid(), signal.SIGKILL)
        return v

    calls: list[int] = []
    return jax.pure_callback(called, jax.ShapeDtypeStruct(x.shape, x.dtype), plain(x))


# ---- by hand-made answers ---------------------------------------------------------------------------------------


def taken_of(us: dict[str, float], wrong: str = "") -> PairedSamples:
    """Two processes, in which each function took so many microseconds, and noise of 1 %."""
    dice = np.random.default_rng(0)
    labels = list(us)
    agreements = [Numerics("baseline", label != wrong, why="too short" * (label == wrong)) for label in us]
    facts = [SideFacts(builds=[{"trace": 0.1}], agreement=agreement) for agreement in agreements]
    ns = np.array(list(us.values())) * 1e3 * np.exp(0.01 * dice.standard_normal((2, 3, 25, len(us))))
    answers = [PairedAnswer(facts, 1, each.astype(np.int64)) for each in ns]
    groups = [Group(process, range(len(us)), answer) for process, answer in enumerate(answers)]
    return PairedSamples(PairedRun(CaseId("f"), (), tuple(map(Version, labels)), resolve({})), groups=groups)


def places(taken: PairedSamples, second: PairedSamples | None = None, **unconfirmed: bool) -> dict[str, int]:
    found = [replace(c, confirmed=False) if unconfirmed.get(c.candidate.label) else c for c in taken.comparisons()]
    return {rank.label: rank.place for rank in _rank(taken, second, found)}


def test_places_go_by_what_is_told_apart_and_confirmed_and_the_fastest_wins_nothing_with_a_wrong_result() -> None:
    wrong, taken = taken_of({"a": 20, "b": 10, "c": 5}, wrong="c"), taken_of({"a": 20, "b": 10})
    (b,) = [c for c in taken.comparisons() if c.metric == "run"]

    assert places(taken_of({"a": 20, "b": 10, "c": 10, "d": 40})) == {"b": 1, "c": 1, "a": 3, "d": 4}
    assert places(wrong) == places(wrong, c=True) == {"b": 1, "a": 2}
    assert places(taken, b=True) == {"b": 1, "a": 1}  # not confirmed
    # The time of a rank is the baseline's times the ratio of the pairs, whatever its own median is.
    times = {rank.label: rank.time_s for rank in _rank(taken, None, taken.comparisons())}
    assert times == {"a": b.baseline_value, "b": (b.baseline_value or 0) * (b.ratio or 0)}


def test_two_that_are_not_the_baseline_are_told_apart_where_both_measurements_say_so() -> None:
    us = {"a": 20, "b": 10, "c": 11}
    once, again, not_again = taken_of(us), taken_of(us), taken_of(us | {"c": 10})

    assert places(once, again) == {"b": 1, "c": 2, "a": 3}
    assert places(once, not_again) == {"b": 1, "c": 1, "a": 3}
    assert [(c.baseline.label, c.candidate.label, c.verdict) for c in rivals(once)] == [("b", "c", "slower")]


def rivals(taken: PairedSamples) -> list[Comparison]:
    return replace(taken, paired_run=replace(taken.paired_run, ranks=True)).rivals()


# ---- what cannot be compared ------------------------------------------------------------------------------------

NOT_COMPARED: tuple[Any, ...] = (
    len, [], {"a": len}, "ab", None, [len, len], {"a": len, "b": 3}, {"a": len, 2: len}, [len, "sin"],
)  # fmt: skip


def test_what_cannot_be_compared_is_quoted(snapshot: Any) -> None:
    assert {repr(functions): refusal(benchax.compare, functions, X) for functions in NOT_COMPARED} == snapshot
    assert refusal(benchax.compare, [plain, broken], X, baseline="c") == (
        "baseline='c' isn't one of the functions\nexpected one of: plain, broken"
    )
