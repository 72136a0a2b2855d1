"""Histories: one series for each machine, changes named by commit, counts without statistics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparisons_by_hand import BASELINE, HOST, compared, counted, series, stepping

from benchax.comparing.history import Break, Change, history
from benchax.model import Comparison, Environment

ELSEWHERE = replace(HOST, host="node-18")
NEW_JAX = replace(HOST, jax="0.11.0", jaxlib="0.11.0")


def on(environment: Environment | None, listed: list[Comparison]) -> list[Comparison]:
    return [replace(c, environment=environment) for c in listed]


# ---- changes ----------------------------------------------------------------------------------------------------


def test_a_change_is_named_by_its_first_comparison_and_the_last_before_it() -> None:
    found = history(series(stepping([(20, 1.0), (20, 1.12)])))

    (change,) = found.changes
    assert (change.at, change.last) == (20, 19)
    assert change.factor == pytest.approx(1.12, abs=0.01)
    assert change.p is not None
    assert change.p < 0.001
    assert [len(stretch.places) for stretch in found.stretches] == [20, 20]
    assert found.stretches[0].level == pytest.approx(1.0, abs=0.01)


def test_where_nothing_changes_there_is_one_stretch() -> None:
    listed = series(stepping([(60, 1.04)]))
    # Commit and version of benchax are no break.
    listed[30:] = on(replace(HOST, commit="abc", branch="x", is_dirty=True, benchax="9"), listed[30:])

    found, failures = history(listed), history(series([None, None]))
    small = history(series(stepping([(30, 1.0), (30, 1.02)], sd=0.001)))

    assert (found.changes, found.breaks, found.jump) == ((), (), None)
    assert [stretch.places for stretch in found.stretches] == [tuple(range(60))]
    assert all(c.blocks == () for c in found.points)  # samples are left behind
    assert (failures.stretches, failures.changes, failures.breaks, failures.jump) == ((), (), (), None)
    assert small.changes == ()  # a steady change below 3 % has no name


def test_a_comparison_without_a_ratio_is_kept_and_in_no_stretch() -> None:
    listed = series(stepping([(10, 1.0), (10, 1.2)]))
    listed[12] = compared(12, None, why="timeout in compile")

    found = history(listed)

    assert found.values[12] is None
    assert found.points[12].why == "timeout in compile"
    assert [change.at for change in found.changes] == [10]
    assert 12 not in {place for stretch in found.stretches for place in stretch.places}


# ---- breaks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"environment": ELSEWHERE}, "host node-17, then node-18"),
        ({"environment": NEW_JAX}, "jax 0.10.2, then 0.11.0; jaxlib 0.10.2, then 0.11.0"),
        (
            {"environment": replace(ELSEWHERE, cores=64, processor=None)},
            "host node-17, then node-18; processor AMD EPYC 9654, then unknown; and 1 more",
        ),
        ({"environment": replace(HOST, flags={"XLA_FLAGS": "-x"})}, "XLA_FLAGS unknown, then -x"),
        ({"environment": replace(HOST, memory_bytes=2**33)}, "memory 16.0 GiB, then 8.00 GiB"),
        ({"environment": None}, "where one of the two ran is not known"),
        ({"baseline": replace(BASELINE, commit="b" * 40)}, "baseline v1.2 aaaaaaaa, then bbbbbbbb"),
        ({"method": "process pairs"}, "compared in one process, then process pairs"),
        ({"candidate": replace(compared(0, 1.0).candidate, jax="0.9.2")}, "jax 0.10.2, then 0.9.2"),
    ],
)
def test_other_circumstances_are_a_break_and_no_change(changed: dict[str, object], why: str) -> None:
    """A step of 20 % that comes with another machine tells nothing of the code."""
    listed = series(stepping([(20, 1.0), (20, 1.2)]))
    listed[20:] = [replace(c, **changed) for c in listed[20:]]  # type: ignore[arg-type]

    found = history(listed)

    assert found.changes == ()
    assert found.breaks[0] == Break(20, why)
    assert [len(stretch.places) for stretch in found.stretches[:1]] == [20]


def test_a_name_that_was_given_to_another_run_of_the_same_program_is_the_same_baseline() -> None:
    listed = series(stepping([(5, 1.0)]))
    dirty = replace(BASELINE, is_dirty=True)
    listed = [replace(c, baseline=replace(dirty, commit=str(i))) for i, c in enumerate(listed)]

    assert history(listed).breaks == ()
    assert [b.at for b in history([*listed[:2], replace(listed[2], baseline=replace(dirty, program="0"))]).breaks] == [
        2
    ]


def test_machines_that_take_turns_have_a_series_each() -> None:
    """Else nobody who compares on a laptop and in CI would ever see a change."""
    ratios = stepping([(20, 1.0), (20, 1.12)])
    listed = [replace(c, environment=(HOST, ELSEWHERE)[n % 2]) for n, c in enumerate(series(ratios))]

    found = history(listed)

    assert [(change.at, change.last) for change in found.changes] == [(20, 18), (21, 19)]
    assert len(found.breaks) == 39


def test_places_that_are_not_known_are_not_taken_for_one() -> None:
    found = history(on(None, series(stepping([(10, 1.0), (10, 1.5)]))))

    assert found.changes == ()
    assert len(found.stretches) == 20


# ---- the newest -------------------------------------------------------------------------------------------------


def test_a_newest_comparison_that_stands_out_is_a_jump_and_not_yet_a_change() -> None:
    found, known = history(series([*stepping([(30, 1.0)]), 1.1])), history(series(stepping([(30, 1.0), (5, 1.1)])))
    elsewhere = series([*stepping([(30, 1.0)]), 1.1, 1.0])
    elsewhere[-1:] = on(ELSEWHERE, elsewhere[-1:])

    assert (found.changes, found.jump) == ((), pytest.approx(0.1, abs=0.01))
    assert ([change.at for change in known.changes], known.jump) == ([30], None)
    assert history(elsewhere).jump is None


# ---- counts -----------------------------------------------------------------------------------------------------


def test_every_difference_of_a_count_is_a_change() -> None:
    found = history([counted(n, size) for n, size in enumerate([0.0, 0.0, 8.0, 8.0, 9.0, None, 9.0])])

    assert found.changes == (Change(2, 1, 0.0, 8.0, None), Change(4, 3, 8.0, 9.0, None))
    assert [change.factor for change in found.changes] == [None, 1.125]
    assert [stretch.places for stretch in found.stretches] == [(0, 1), (2, 3), (4, 6)]
    assert found.jump is None
