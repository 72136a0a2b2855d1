"""From blocks and counts to verdicts: by hand-made blocks, without JAX."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from comparisons_by_hand import HOST, compared
from hypothesis import given
from hypothesis import strategies as st

from benchax.comparing.judging import (
    ComparisonEvidence,
    blind_spot,
    confirm,
    judge,
    judge_counts,
    judge_cpu_time,
    judge_times,
    resolution_of,
)
from benchax.errors import UsageError
from benchax.model import Block, CaseId, Comparison, Environment, Failure, Metric, Remark, Version
from benchax.stats.verdicts import ALPHA, CONFIRMING_ALPHA, LEAST_CHANGE, SAME_WITHIN, Ratio, least_change

MATTER = Comparison(
    CaseId("f", (("n", 8),)),
    "run",
    Version("old", "c0ffee"),
    Version("new"),
    "unclear",
    remarks=(Remark("x", "info", "so it was"),),
)


def blocks(ratio: float, count: int = 9, scatter: float = 0.02, per_block: float = 0.0, seed: int = 1) -> list[Block]:
    """Three blocks in each process; the candidate takes `ratio` times 100 µs, give or take `scatter`."""
    dice = random.Random(seed)
    found: list[Block] = []
    for b in range(count):
        factor = ratio * math.exp(per_block * dice.gauss(0, 1))
        old = tuple(1e-4 * math.exp(0.3 * dice.gauss(0, 1)) for _ in range(25))
        found.append(Block(b // 3, old, tuple(s * factor * math.exp(scatter * dice.gauss(0, 1)) for s in old)))
    return found


# ---- times ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.0, "same"), (1.01, "same"), (1.1, "slower"), (2.0, "slower"), (0.9, "faster")]
)
def test_run_times_get_a_verdict_by_their_ratio(ratio: float, verdict: str) -> None:
    data = blocks(ratio)
    found = judge_times(MATTER, "run", data)

    assert (found.verdict, found.blocks) == (verdict, tuple(data))
    assert found.ratio == pytest.approx(ratio, rel=0.01)
    assert (found.low or math.nan) < ratio < (found.high or math.nan)
    assert 0 < (found.smallest_effect or math.nan) < 0.05
    assert (found.pairs, found.processes, found.method) == (225, 3, "one process")
    assert replace(found, **{f: getattr(MATTER, f) for f in DERIVED}) == MATTER


DERIVED = (
    "verdict", "why", "ratio", "low", "high", "smallest_effect", "baseline_value", "candidate_value", "blocks",
)  # fmt: skip


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "nothing was timed"),
        ([Block(0, (1.0,), (9.0,))], "too few samples for an interval"),
        # Readings without any spread are those of a clock that moves in coarse steps.
        ([Block(p, (1.0,) * 9, (1.0 + p,) * 9) for p in range(2)], "a change below "),
        (blocks(1.0, per_block=0.15), "a change below "),
    ],
)
def test_what_says_too_little_is_unclear_and_says_why(data: list[Block], why: str) -> None:
    found = judge_times(MATTER, "run", data)

    assert (found.verdict, found.why.startswith(why)) == ("unclear", True)
    assert why != "a change below " or found.why.endswith(" % could have been missed")
    assert data or (found.ratio, found.baseline_value, found.smallest_effect) == (None, None, None)


def test_the_candidates_time_is_the_baselines_times_the_ratio_whatever_its_own_median() -> None:
    """In most pairs it takes 2 % longer; its median is that of a slower moment of the machine."""
    old = (1.0,) * 12 + (3.0,) * 13 + (1.0,) * 2
    new = (*(1.02 * s for s in old[:25]), 3.5, 3.5)
    found = judge_times(MATTER, "run", [Block(p, old, new) for p in range(3)])

    assert found.ratio == pytest.approx(1.02)
    assert found.candidate_value == pytest.approx(1.02 * (found.baseline_value or 0))


@pytest.mark.parametrize(
    ("resolution", "ratio", "verdict", "why"),
    [(0.05, 1.015, "same", "within 5.0 %"), (0.01, 1.015, "slower", ""), (0.01, 1.0, "same", "within 1.0 %")],
)
def test_a_finer_resolution_calls_a_smaller_change_by_its_name(
    resolution: float, ratio: float, verdict: str, why: str
) -> None:
    found = judge_times(replace(MATTER, resolution=resolution), "run", blocks(ratio, 60))

    assert (found.verdict, found.why, found.resolution) == (verdict, why, resolution)


def test_compiling_may_differ_more_before_it_has_a_name() -> None:
    data = blocks(1.04)

    assert judge_times(MATTER, "run", data).verdict == "slower"
    assert judge_times(MATTER, "compile", data).verdict == "same"
    assert judge_times(MATTER, "compile", blocks(1.0)).why == "within 20 %"


def test_a_lower_level_is_less_strict() -> None:
    data = blocks(1.05, scatter=0.09, count=6)

    strict, loose = judge_times(MATTER, "run", data, 0.001), judge_times(MATTER, "run", data, CONFIRMING_ALPHA)

    assert (loose.high or 0) - (loose.low or 0) < (strict.high or 0) - (strict.low or 0)


@given(st.lists(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=8), min_size=1, max_size=6), st.randoms())
def test_no_readings_make_a_number_that_is_none(readings: list[list[float]], dice: random.Random) -> None:
    data = [Block(i, tuple(r), tuple(dice.sample(r, len(r)))) for i, r in enumerate(readings)]

    found = judge_times(MATTER, "run", data)

    numbers = (found.ratio, found.low, found.high, found.smallest_effect, found.baseline_value)
    assert all(n is None or math.isfinite(n) for n in numbers)
    assert "nan" not in found.why
    assert "inf" not in found.why


# ---- counts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "verdict", "ratio"),
    [
        (100, 100, "same", 1.0),
        (100, 101, "slower", 1.01),
        (100, 50, "faster", 0.5),
        (0, 0, "same", None),
        (0, 8, "slower", None),
        (8, 0, "faster", 0.0),
    ],
)
def test_counts_are_compared_exactly(before: float, after: float, verdict: str, ratio: float | None) -> None:
    found = judge_counts(MATTER, "peak", before, after)

    assert (found.verdict, found.ratio, found.method) == (verdict, ratio, "counted")
    assert (found.baseline_value, found.candidate_value) == (before, after)
    assert (found.low, found.high, found.why) == (None, None, "")


@pytest.mark.parametrize(("before", "after", "who"), [(None, 3, "old"), (3, None, "new"), (None, None, "old")])
@pytest.mark.parametrize(
    ("metric", "why"),
    [("peak", "the compiler doesn't report it for"), ("flops", "some operations can't be counted in")],
)
def test_what_is_not_counted_is_not_compared(
    metric: Metric, why: str, before: float | None, after: float | None, who: str
) -> None:
    found = judge_counts(MATTER, metric, before, after)

    assert found.verdict == "unclear"
    assert found.why == f"not measured, because {why} {who}"
    assert (found.ratio, found.baseline_value, found.candidate_value) == (None, None, None)


# ---- all together -----------------------------------------------------------------------------------------------


def test_there_is_one_comparison_for_each_metric_of_which_something_is_known() -> None:
    known = (blocks(1.0), blocks(1.5), {"peak": (8, 9), "flops": (None, None)})
    failure = Failure("out_of_memory", "build", "no 3 TiB here", "buy memory")

    found = {c.metric: c.verdict for c in judge(MATTER, ComparisonEvidence(*known))}
    (same,) = judge(MATTER, ComparisonEvidence(is_same_program=True))
    (failed,) = judge(MATTER, ComparisonEvidence(*known, failure))

    assert found == {"run": "same", "compile": "slower", "peak": "slower", "flops": "unclear"}
    assert same == replace(
        MATTER, verdict="same", method="same program", why="the same program: nothing was timed"
    )  # fmt: skip
    assert failed == replace(MATTER, failure=failure, why="out of memory in build: no 3 TiB here")
    assert confirm(named(1.1), failed).why.endswith("not confirmed (no ratio)")


# ---- confirmed --------------------------------------------------------------------------------------------------


def named(ratio: float, seed: int = 1) -> Comparison:
    return judge_times(MATTER, "run", blocks(ratio, seed=seed))


@pytest.mark.parametrize(("again", "said"), [(1.0, "+0"), (0.8, "-20 %")])
def test_a_change_that_new_data_do_not_show_loses_its_name(again: float, said: str) -> None:
    first = named(1.1)

    found = confirm(first, replace(named(again), ratio=again))

    assert (found.verdict, found.confirmed) == ("unclear", False)
    assert found.why.startswith("slower at first (+1")
    assert "not confirmed (" + said in found.why
    # With its own numbers where they do.
    assert confirm(first, named(1.2, seed=2)) == replace(first, confirmed=True)


# ---- processor time ------------------------------------------------------------------------------------------------


CPU = replace(HOST, backend="cpu", cores=2)
CALL_S = 5e-3


def waiting_blocks(
    wall: float,
    cpu: float,
    *,
    seed: int = 0,
    noise: float = 0.4,
    call_s: float = CALL_S,
    busy: tuple[float, float] = (1.0, 1.0),
) -> list[Block]:
    """Two processes of three blocks; the candidate takes `wall` times as long and `cpu` times the processor time.

    The wall time of each sample is about `noise` longer by chance, its processor time by 1 %. `busy` cores at work.
    """
    dice = np.random.default_rng(seed)
    found: list[Block] = []
    for b in range(6):
        waits = np.exp(np.abs(noise * dice.standard_normal((2, 25))))
        cpus = np.exp(0.01 * dice.standard_normal((2, 25)))
        base_cpu = call_s * busy[0] * cpus[0]
        new_cpu = call_s * busy[0] * cpu * cpus[1]
        base, new = call_s * waits[0], call_s * wall * waits[1] * busy[0] / busy[1]
        found.append(Block(b // 3, *(tuple(map(float, each)) for each in (base, new, base_cpu, new_cpu))))
    return found


def judge_in(found: list[Block], environment: Environment | None = CPU, resolution: float = 0.05) -> Comparison:
    context = Comparison(
        CaseId("f"), "run", Version("old"), Version("new"), "unclear", environment=environment, resolution=resolution
    )
    return judge_times(context, "run", found)


@pytest.mark.parametrize(("ratio", "verdict", "seed"), [(1.0, "same", 4), (1.1, "slower", 4), (0.9, "faster", 2)])
def test_what_the_wall_time_leaves_open_is_decided_by_the_processor_time(ratio: float, verdict: str, seed: int) -> None:
    data = waiting_blocks(ratio, ratio, seed=seed)

    alone, heard = judge_in([Block(b.process, b.baseline_s, b.candidate_s) for b in data]), judge_in(data)

    assert (alone.verdict, alone.cpu_ratio) == ("unclear", None)
    assert (heard.verdict, heard.is_by_cpu_time) == (verdict, True)
    assert heard.cpu_ratio == pytest.approx(ratio, rel=0.01)
    assert "by CPU time, " in heard.why
    assert (heard.ratio, heard.low, heard.high) == (alone.ratio, alone.low, alone.high)
    # A change that is not confirmed is decided by nothing.
    assert not confirm(heard, alone).is_by_cpu_time


def test_a_wall_time_that_is_clear_is_not_put_to_the_witness() -> None:
    found = judge_in(waiting_blocks(1.2, 1.0, noise=0.01))

    assert (found.verdict, found.is_by_cpu_time, found.cpu_ratio) == ("slower", False, None)


@pytest.mark.parametrize(
    ("data", "ratio"),
    [
        # A fifth of the cores less for the same processor time; what the wall loses by it is hidden by noise.
        (waiting_blocks(1.0, 1.0, seed=30, noise=1.5, busy=(1.25, 1.0)), 1.0),
        # Waiting for something that is no processor is in the wall time alone.
        (waiting_blocks(1.08, 1.0, seed=4), 1.1),
    ],
    ids=["lost parallelism", "waiting"],
)
def test_where_the_walls_estimate_says_something_else_nothing_is_decided(data: list[Block], ratio: float) -> None:
    found = judge_in(data)

    assert found.ratio == pytest.approx(ratio, rel=0.05)
    assert (found.verdict, found.is_by_cpu_time) == ("unclear", False)
    assert found.why.endswith("does not decide")


@pytest.mark.parametrize(
    ("wall", "high", "busy", "word"),
    [
        (1.2, 1.7, (1.0, 1.0), "slower"),
        (1.2, 1.4, (1.0, 1.0), "unclear"),
        (1.2, 1.7, (1.25, 1.0), "unclear"),
        (1.01, 1.7, (1.0, 1.0), "unclear"),
    ],
    ids=["agreed", "beyond the wall's interval", "fewer cores busy", "the wall's estimate is no change"],
)
def test_each_condition_of_the_witness_keeps_it_from_deciding(
    wall: float, high: float, busy: tuple[float, float], word: str
) -> None:
    blocks, by_wall = waiting_blocks(1.5, 1.5, busy=busy), Ratio(wall, 0.98, high, 1.0, 0.01)

    found = judge_cpu_time(blocks, by_wall, ALPHA, SAME_WITHIN, CPU)

    assert found is not None
    assert (round(found[0].ratio, 1), found[1]) == (1.5, word)


@pytest.mark.parametrize(
    ("environment", "call_s", "busy"),
    [
        (replace(CPU, backend="gpu"), CALL_S, (1.0, 1.0)),
        (None, CALL_S, (1.0, 1.0)),
        (CPU, 2e-4, (1.0, 1.0)),  # short, on one of two cores
    ],
)
def test_the_witness_is_asked_on_the_cpu_of_long_calls_or_of_busy_cores(environment, call_s, busy) -> None:
    found = judge_in(waiting_blocks(1.0, 1.0, seed=4, call_s=call_s, busy=busy), environment)
    short = judge_in(waiting_blocks(1.0, 1.0, seed=4, call_s=2e-4, busy=(2.0, 2.0)))

    assert (found.verdict, found.cpu_ratio) == ("unclear", None)
    assert (short.verdict, short.is_by_cpu_time) == ("same", True)


# ---- resolution ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "share"),
    [(None, 0.05), ("1%", 0.01), ("0.5 %", 0.005), (0.02, 0.02), ("0.02", 0.02), ("20%", 0.2), (" 2.5% ", 0.025)],
)
def test_a_resolution_is_a_share(given: float | str | None, share: float) -> None:
    assert resolution_of(given) == pytest.approx(share)


@pytest.mark.parametrize("given", ["1", "0.4%", "21%", "fine", "", "-1%", 0, 1.0, "1%%", "nan"])
def test_what_is_no_resolution_is_quoted_with_what_is_one(given: float | str) -> None:
    with pytest.raises(UsageError) as error:
        resolution_of(given)

    assert error.value.problem == f"invalid resolution {given!r}"
    assert error.value.expected == "a share between 0.5 % and 20 %: 1%, or 0.01"


def test_the_least_change_with_a_name_is_in_proportion() -> None:
    assert least_change(SAME_WITHIN) == LEAST_CHANGE
    assert least_change(0.01) == pytest.approx(0.004)


def test_what_the_usual_resolution_does_not_see_is_said_where_something_is_called_the_same() -> None:
    same, slower = compared(0, 1.001), compared(0, 1.2)
    said = "a slowdown of up to 2 % counts as same (within 5 %); --resolution 1% finds it"

    assert blind_spot([same, slower]) == said
    assert blind_spot([slower]) == ""
    assert blind_spot([replace(same, resolution=0.01)]) == ""
    assert blind_spot([replace(same, ratio=None, method="same program")]) == ""
