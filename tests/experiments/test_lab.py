"""The lab that measures in worker processes, and what a side is compared with."""

from __future__ import annotations

import math
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparisons_by_hand import compared
from hypothesis import given, settings
from hypothesis import strategies as st

from benchax.case import Case, make_case
from benchax.checkouts.partners import Partner, give_outputs, prepare_case
from benchax.comparing.sequential import Effort
from benchax.errors import NotMeasured
from benchax.experiments import lab
from benchax.experiments.lab import (
    LEAST_LEFT_S,
    ChangedCase,
    Condition,
    Pair,
    WorkerLab,
    look_at_all,
    measure_errors,
    to_host,
)
from benchax.options import DEFAULTS, resolve
from benchax.progress import ProgressEvent


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What comparisons are given, in place of making them; 10 s after the lab was made."""
    given: list[Any] = []

    def compare_runs(runs: Any, effort: Any, report: Any, start: Any) -> Any:
        given.append(effort)
        return [[compared(1, 1.0)] for _ in runs]

    monkeypatch.setattr(lab, "monotonic", lambda: 10.0)
    monkeypatch.setattr(lab.session, "fresh_processes", lambda settings: nullcontext())
    monkeypatch.setattr(lab.session, "compare_runs", compare_runs)
    return given


CASE = make_case(abs, (1.0,))
PAIR = Pair("half", "baseline", CASE, "half", CASE)


def test_a_comparison_has_what_is_left_of_the_limit(limits: list[Any]) -> None:
    WorkerLab(DEFAULTS, Effort(max_time_s=15.0), begun_s=0.0).time_pairs([PAIR])
    WorkerLab(DEFAULTS, Effort(), begun_s=0.0).time_pairs([PAIR], (2,))

    assert [effort.max_time_s for effort in limits] == [5.0, None]


def test_where_no_comparison_begins_late_none_has_any_time_then(limits: list[Any]) -> None:
    WorkerLab(DEFAULTS, Effort(max_time_s=5.0), begun_s=0.0, begins_late=False).time_pairs([PAIR])

    assert [effort.max_time_s for effort in limits] == [0.0]


def test_what_has_begun_ends_and_what_would_be_another_one_is_refused(limits: list[Any]) -> None:
    late = WorkerLab(DEFAULTS, Effort(max_time_s=5.0), begun_s=0.0)

    late.time_pairs([PAIR])

    assert [effort.max_time_s for effort in limits] == [LEAST_LEFT_S]
    with pytest.raises(NotMeasured, match="the 5 s were used up"):
        late.time_pairs([PAIR], (2, 3))
    with pytest.raises(NotMeasured, match="the 5 s were used up"):
        late.time_processes(CASE, ({}, {}))  # type: ignore[arg-type]


@pytest.mark.parametrize(("limit_s", "left_s"), [(15.0, 5.0), (None, None)])
def test_who_waits_is_told_what_is_left_of_the_limit_and_nothing_where_there_is_none(
    limit_s: float | None, left_s: float | None, limits: list[Any]
) -> None:
    told: list[ProgressEvent] = []

    WorkerLab(DEFAULTS, Effort(max_time_s=limit_s), told.append, begun_s=0.0).tell("check of donate")

    assert told == [ProgressEvent("check of donate", left_s=left_s, is_most=True)]


def test_nothing_to_compare_starts_nothing() -> None:
    assert WorkerLab(DEFAULTS).time_pairs([]) == {}


# ---- Pairs of processes that are born under different conditions. Real processes; nothing is timed ----


SETTING = "jax_cpu_enable_async_dispatch"


@pytest.mark.slow
def test_both_find_the_case_each_under_its_own_condition(tmp_path: Path, monkeypatch) -> None:
    """A function that no other process can import, arguments by name, a path relative to where the user is."""
    monkeypatch.chdir(tmp_path)
    Path("factor").write_text("3")
    seen: list[Any] = []

    def scaled(x, power, *, shift):
        return (x * float(Path("factor").read_text())) ** power + shift

    def look(sides, chosen, max_time_s, progress):
        for side in sides:
            with closing(Partner(side, chosen, None)) as partner:
                seen.append(partner.listing())
                ((number, _),) = seen[-1].cases.values()
                partner.ask(prepare_case, (partner.source, number))
                outputs.append(partner.ask(give_outputs, None)[0].tobytes())
        return [compared(1, 1.0)]

    outputs: list[bytes] = []
    case = make_case(scaled, ("f32[4]", 2), {"shift": "f32[4]"}, static=("power",), name="é scaled")
    flag = "--xla_cpu_enable_fast_math=true"
    conditions = Condition("one", {SETTING: False}), Condition("other", {SETTING: True}, {"XLA_FLAGS": flag})

    monkeypatch.setattr(lab, "compare_launches", look)
    WorkerLab(resolve({"seed": 7})).time_processes(case, conditions)

    one, other = (listing.environment for listing in seen)
    assert [list(listing.cases) for listing in seen] == [[case.id], [case.id]]
    assert (one.config[SETTING], other.config[SETTING]) == (False, True)
    assert other.flags["XLA_FLAGS"] == flag
    assert flag not in one.flags.get("XLA_FLAGS", "")
    assert len(outputs[0]) == 16
    assert outputs[0] == outputs[1]


# ---- study -----------------------------------------------------------------------------------------------------------

KEY = jax.random.key(0)


def noisy(x: Any) -> Any:
    return x + jax.random.normal(KEY, x.shape, x.dtype)


def looked_at(**cases: Case) -> Any:
    return look_at_all(({name: ChangedCase(case) for name, case in cases.items()}, 0, ""), lambda text, **facts: None)


def test_of_random_numbers_that_float64_has_others_of_the_baseline_is_the_reference() -> None:
    case = make_case(noisy, (jnp.ones(100),))
    same = make_case(lambda x: noisy(x) + 1e-3, (jnp.ones(100),))

    found = looked_at(baseline=case, same=same)

    (absent,) = [one for one in found.seen["baseline"].absent if one.what == "errors"]
    assert absent.why == "in float64 it draws different random numbers"
    assert found.seen["same"].errors.reference == "baseline"
    assert found.seen["same"].errors.max_rel < 0.01


def test_a_look_without_a_run_in_float64_announces_none() -> None:
    """A worker that died at this stage was taken to have died of that run, again and again."""
    stages: list[str] = []
    sides = {"baseline": ChangedCase(make_case(noisy, (jnp.ones(100),)))}

    look_at_all((sides, 0, "the run in float64 failed before"), lambda text, **facts: stages.append(text))

    assert set(stages) == {"check of baseline"}


def test_a_side_that_draws_other_numbers_is_compared_with_nothing() -> None:
    case = make_case(noisy, (jnp.ones(100),))
    half = make_case(lambda x: noisy(x.astype(jnp.bfloat16)).astype(x.dtype), (jnp.ones(100),))

    found = looked_at(baseline=case, half=half)

    (absent,) = [one for one in found.seen["half"].absent if one.what == "errors"]
    assert absent.why == "it draws different random numbers than its baseline"


def test_a_side_that_draws_other_numbers_leaves_the_others_their_reference() -> None:
    def draw(x: Any, dtype: Any) -> Any:
        return x + jax.random.normal(KEY, x.shape, dtype).astype(x.dtype)

    case, half = (make_case(lambda x, t=t: draw(x, t), (jnp.ones(100),)) for t in (jnp.float32, jnp.bfloat16))

    found = looked_at(baseline=case, half=half, same=case)

    assert found.seen["half"].errors is None
    assert found.seen["same"].errors.reference == "float64"


def test_a_function_that_is_another_one_in_each_trace_has_no_errors() -> None:
    drawn = iter(range(100))

    found = looked_at(baseline=make_case(lambda x: x + next(drawn), (jnp.ones(100),)))

    (absent,) = [one for one in found.seen["baseline"].absent if one.what == "errors"]
    assert absent.why.startswith("two traces of the function differ: the constant ")
    assert found.seen["baseline"].errors is None


@pytest.mark.parametrize("returned", [3.0, True, None])
def test_a_side_can_return_numbers_of_python_or_nothing(returned: Any) -> None:
    case = make_case(lambda x: (x * 2, returned) if returned else None, ("f32[8]",))
    in_bf16 = ChangedCase(case, rounds_to="bfloat16")

    found = look_at_all(
        ({"jitted": ChangedCase(case), "eager": ChangedCase(case.eager()), "bf16": in_bf16}, 0, ""),
        lambda text, **facts: None,
    )

    assert not found.failures
    assert len({seen.bound for seen in found.seen.values()}) == 1


def test_what_draws_nothing_is_compared_with_a_run_in_float64() -> None:
    found = looked_at(baseline=make_case(jnp.sin, (jnp.ones(100),)))

    assert found.seen["baseline"].errors.reference == "float64"


# ---- Errors of outputs against a reference: what is counted, and that no number is made up ----


ANY_FLOAT = st.floats(width=32)


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("ours", "theirs", "max_rel", "median_rel", "overflows", "nans"),
    [
        ([100.0, 1.5, 2.0], [100.0, 1.0, 2.0], 0.005, 0.0, 0, 0),  # by the largest value, and by each value
        ([1.0, 1.1, 0.5, 0.5], [1.0, 1.0, 0.0, 0.0], 0.5, 0.05, 0, 0),  # a median of elements that are not zero
        ([INF, NAN, 3.0], [1e9, 2.0, 3.0], 0.0, 0.0, 1, 1),
        ([INF, 3.0], [INF, 3.0], 0.0, 0.0, 0, 0),  # an infinity that the reference has too
        ([NAN], [1.0], None, None, 0, 1),
        ([0.0, 1e-3], [0.0, 0.0], 1.0, None, 0, 0),  # of a reference of zeros all of the output is error
    ],
)
def test_errors_are_relative_and_what_is_not_finite_is_counted(
    ours, theirs, max_rel, median_rel, overflows, nans
) -> None:
    found = measure_errors(jnp.array(ours), [np.array(theirs)], "float64")

    for value, expected in ((found.max_rel, max_rel), (found.median_rel, median_rel)):
        assert value == (None if expected is None else pytest.approx(expected, rel=1e-5))
    assert (found.overflows, found.nans) == (overflows, nans)


def test_functions_among_outputs_are_no_numbers() -> None:
    outputs = {"activation": jax.nn.relu, "weights": jnp.ones(3)}

    assert measure_errors(outputs, to_host(outputs), "baseline").max_rel == 0.0


def test_the_worst_leaf_is_named_and_one_that_is_not_finite_is_worse_than_all() -> None:
    ours = {"a": jnp.array([1.0]), "b": jnp.array([2.0])}

    assert measure_errors(ours, [np.array([1.0]), np.array([4.0])], "float64").worst == "['b']"
    with_nan = ours | {"a": jnp.array([jnp.nan])}
    assert measure_errors(with_nan, [np.array([1.0]), np.array([4.0])], "float64").worst == "['a']"


@pytest.mark.parametrize(("outputs", "reference"), [(jnp.ones(3), [np.ones(2)]), ((), [])])
def test_what_cannot_be_compared_says_why(outputs, reference) -> None:
    with pytest.raises(NotMeasured):
        measure_errors(outputs, reference, "float64")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ANY_FLOAT, ANY_FLOAT), min_size=1, max_size=20))
def test_no_input_gives_a_number_that_is_none(pairs) -> None:
    ours, theirs = (np.array(column, np.float32) for column in zip(*pairs, strict=True))

    found = measure_errors(jnp.asarray(ours), [theirs.astype(np.float64)], "float64")

    for value in (found.max_rel, found.median_rel):
        assert value is None or (math.isfinite(value) and value >= 0)
