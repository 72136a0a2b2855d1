"""`benchax.compare` through real processes, and what it says to what cannot be compared."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import benchax
from benchax.comparing.ranking import Comparisons
from benchax.errors import UsageError
from benchax.model import CaseId, Comparison, Version
from benchax.options import resolve
from benchax.pairing.contest import Contest, Taken
from benchax.pairing.session import Step

pytestmark = pytest.mark.serial

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
def several() -> Comparisons:
    """A function, what cannot run, the same once more, and three times the work; lambdas and closures among them."""
    often = OFTEN

    def much(x: Any) -> Any:
        for _ in range(often):
            x = plain(x)
        return x

    return benchax.compare(
        {"plain": plain, "broken": broken, "again": lambda x: jnp.sin(x) @ x, "much": much}, X, max_time_s=5
    )


def test_equal_functions_are_not_told_apart(several: Comparisons) -> None:
    again = of(several, "again")

    assert again.verdict in ("same", "unclear")
    assert again.ratio is not None
    assert again.low is not None
    assert again.high is not None
    assert again.low < again.ratio < again.high
    assert again.numerics is not None
    assert again.numerics.agrees


def test_more_work_is_slower_and_a_second_measurement_says_so_too(several: Comparisons) -> None:
    much = of(several, "much")

    assert (much.verdict, much.confirmed) == ("slower", True)
    assert much.ratio is not None
    assert much.ratio > 1.5
    assert much.processes >= 2
    assert much.environment is not None
    assert much.environment.backend == "cpu"


def test_one_that_fails_is_a_comparison_with_its_reason_and_the_others_go_on(several: Comparisons) -> None:
    failed = of(several, "broken")

    assert failed.failure is not None
    assert (failed.verdict, failed.failure.kind, failed.failure.stage) == ("unclear", "error", "build")
    assert failed.why.startswith("error in build: ValueError: it is broken (at ")
    assert (failed.ratio, failed.blocks) == (None, ())
    assert several.verdicts.keys() == {"broken", "again", "much"}


def test_those_that_ran_have_their_places(several: Comparisons) -> None:
    places = {rank.label: rank.place for rank in several.ranking}

    assert places == {"plain": 1, "again": 1, "much": 3}


def test_outputs_that_differ_are_told(several: Comparisons) -> None:
    assert [r.code for r in of(several, "again").remarks if r.severity == "error"] == ["outputs-differ"]
    assert "much gives another result than plain" in str(several)


def test_operations_are_counted_too(several: Comparisons) -> None:
    counted = {c.candidate.label: c for c in several.of("flops")}

    assert counted["again"].verdict == "same"
    assert counted["much"].ratio == pytest.approx(OFTEN, rel=0.1)


def test_all_of_it_can_be_read(several: Comparisons) -> None:
    shown = str(several)

    for part in ("plain", "again", "much", "slower, confirmed", "it is broken", "times as"):
        assert part in shown
    assert "<table" in several._repr_html_()


# ---- two functions, and how it goes -----------------------------------------------------------------------------


def test_no_process_is_begun_after_the_time_limit() -> None:
    told: list[Step] = []

    found = benchax.compare(
        [jax.jit(plain), wrapped(plain)], X, baseline="other", name="both", max_time_s=0.01, progress=told.append
    )

    run = of(found, "plain")
    assert run.baseline.label == "other"
    assert run.case.label == "both"
    assert run.processes == 1
    assert {"rounds", "build of other"} <= {step.stage for step in told}
    assert {step.process for step in told} == {0}


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


def test_a_baseline_that_fails_leaves_nothing_to_compare_with() -> None:
    found = benchax.compare({"broken": broken, "plain": plain, "again": plain}, X)

    assert [c.failure.message.partition(" (")[0] for c in found if c.failure] == ["ValueError: it is broken"] * 2
    assert (len(found), found.ranking) == (2, ())
    assert "it is broken" in str(found)


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


def test_what_cannot_travel_to_another_process_says_how_to_mend_it() -> None:
    lock = threading.Lock()

    def locked(x: Any) -> Any:
        with lock:
            return plain(x)

    found = benchax.compare([plain, locked], X)

    failure = of(found, "locked").failure
    assert failure is not None
    assert "cannot be sent to a worker process: TypeError: cannot pickle '_thread.lock' object" in failure.message
    assert "open files, locks and connections inside the function" in failure.advice
    assert "locks and connections inside the function" in " ".join(str(found).split())


def test_whose_fault_a_crash_was_is_not_guessed() -> None:
    """A stage that names no side spoils all comparisons; one that does spoils its own."""
    versions = tuple(Version(label) for label in ("a", "b", "b of a"))
    taken = Taken(Contest(CaseId("f"), (), versions, resolve({})))

    assert [taken._side_in(stage) for stage in ("rounds", "build of a", "build of b", "build of b of a")] == [
        0,
        0,
        1,
        2,
    ]


# ---- what cannot be compared ------------------------------------------------------------------------------------

EXPECTED = "at least two functions: compare({'a': f, 'b': g}, x) or compare([f, g], x)"


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        ([], "there is nothing to compare here with"),
        ({}, "there is nothing to compare here with"),
        ([plain], "there is nothing to compare 'plain' with"),
        ({"a": plain}, "there is nothing to compare 'a' with"),
        ("ab", "cannot compare 'ab'"),
        (3, "cannot compare 3"),
        (None, "cannot compare None"),
    ],
)
def test_at_least_two_functions_are_asked_for(functions: Any, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        benchax.compare(functions, X)

    assert (error.value.problem, error.value.expected) == (problem, EXPECTED)


def test_a_function_in_place_of_functions_is_told_how_to_call() -> None:
    with pytest.raises(UsageError) as error:
        benchax.compare(plain, X)  # type: ignore[arg-type]

    assert error.value.expected == EXPECTED


def test_two_functions_of_one_name_need_labels() -> None:
    with pytest.raises(UsageError) as error:
        benchax.compare([lambda x: x, lambda x: x + 1], X)

    assert str(error.value) == (
        "two functions are called '<lambda>'\nexpected labels that differ\n\nhint: compare({'a': f, 'b': g}, x)"
    )


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        ({"a": plain, "b": 3}, "cannot compare 'b': 3"),
        ({"a": plain, 2: plain}, "cannot compare 2: <function plain"),
        ([plain, "sin"], "cannot compare 'str': 'sin'"),
    ],
)
def test_what_is_no_function_is_quoted(functions: Any, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        benchax.compare(functions, X)

    assert error.value.problem.startswith(problem)
    assert error.value.expected == "texts as labels, and functions"


def test_an_unknown_baseline_is_told_which_there_are() -> None:
    with pytest.raises(UsageError) as error:
        benchax.compare({"a": plain, "b": plain}, X, baseline="c")

    assert str(error.value) == "baseline='c' is none of the functions\nexpected one of: a, b"


@pytest.mark.parametrize("limit", [{"timeout_s": "soon"}, {"memory_limit_bytes": -1}, {"seed": "x"}])
def test_limits_that_cannot_be_read_are_refused(limit: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"option '{next(iter(limit))}' in the call cannot be"):
        benchax.compare([plain, broken], X, **limit)
