"""The protocol of `benchax doctor --aa`: what is planted, when it ends, what it keeps, and what counts as
an error. Judges are made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from comparisons_by_hand import compared

from benchax.case import make_case
from benchax.comparing.error_rates import ErrorRates, Trial
from benchax.comparing.sequential import Effort
from benchax.measuring.inputs import make_inputs
from benchax.model import Block, Comparison, Failure
from benchax.paired_runs import protocol
from benchax.paired_runs.paired_run import PairedRun
from benchax.paired_runs.protocol import KERNELS, Kernel
from benchax.progress import Listener
from benchax.workers import pickling


class Judge:
    """Gives every paired run a verdict, by the label of the candidate, and takes 10 s for it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.paired_runs: list[PairedRun] = []

    def clock(self) -> float:
        return self.now_s

    def __call__(self, paired_runs: Sequence[PairedRun], effort: Effort, progress: Listener) -> list[list[Comparison]]:
        self.now_s += 10.0
        self.paired_runs += paired_runs
        return [self.judged(paired_run) for paired_run in paired_runs]

    def judged(self, paired_run: PairedRun) -> list[Comparison]:
        verdict = "same" if paired_run.versions[1].label == "unchanged" else "slower"
        run = Comparison(paired_run.case, "run", *paired_run.versions, verdict)
        return [run, replace(run, metric="compile")]


def last(judge: Judge, max_time_s: float) -> Sequence[Trial]:
    return list(protocol.measure_rounds(max_time_s, judge=judge, clock=judge.clock))[-1].trials


def test_kernels_take_turns_each_with_two_unchanged_copies_and_two_slower_ones() -> None:
    judge = Judge()

    found = list(protocol.measure_rounds(10.0 * (len(KERNELS) + 1), judge=judge, clock=judge.clock))

    trials = found[-1].trials
    assert [(len(f.trials), f.elapsed_s) for f in found[:3]] == [(4, 10.0), (8, 20.0), (12, 30.0)]
    assert found[0].per_verdict_s == 2.5
    said = [(t.planted, t.comparison.verdict, t.comparison.metric) for t in trials[:4]]
    assert said == [(0.0, "same", "run"), (0.0, "same", "run"), (0.05, "slower", "run"), (0.1, "slower", "run")]
    names = [kernel.name for kernel in KERNELS]
    assert [t.kernel for t in trials][::4] == [*names, names[0]]


@pytest.mark.parametrize(("max_time_s", "rounds"), [(0.001, 1), (19.9, 1), (20.0, 2), (95.0, 9)])
def test_a_round_is_begun_only_if_it_can_end_in_time_but_one_is_always_made(max_time_s: float, rounds: int) -> None:
    judge = Judge()

    last(judge, max_time_s)

    assert judge.now_s == 10.0 * rounds


def test_settings_of_a_project_do_not_reach_it_and_functions_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHAX_TIMEOUT_S", "0.001")
    judge = Judge()

    last(judge, 1.0)
    sides = judge.paired_runs[0].sides

    assert {paired_run.options.timeout_s for paired_run in judge.paired_runs} == {None}
    assert [side.label for side in pickling.loads(pickling.dumps(sides))] == ["as it is", "unchanged"]


@pytest.mark.parametrize("kernel", KERNELS, ids=[kernel.name for kernel in KERNELS])
def test_a_plant_is_exactly_so_many_turns_more_and_every_turn_is_computed(kernel: Kernel) -> None:
    """The compiler has not removed the loop: fewer turns give another result, which is finite."""
    args = make_inputs(make_case(kernel.slower(0.0), kernel.specs), 0).args

    turns = [kernel.slower(share).args[0] for share in protocol.PLANTED]
    one, two = (jax.jit(partial(kernel.function, n))(*args) for n in (1, 2))

    assert turns == [kernel.turns, kernel.turns, kernel.turns * 21 // 20, kernel.turns * 11 // 10]
    assert kernel.turns % 20 == 0
    assert np.isfinite(one).all()
    assert not np.array_equal(one, two)


@pytest.mark.slow
@pytest.mark.serial
def test_a_real_round_judges_all_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """In real processes, with so much planted that no machine can miss it."""
    monkeypatch.setattr(protocol, "PLANTED", (0.0, 3.0))

    (found,) = protocol.measure_rounds(0.001, kernels=KERNELS[:1])

    unchanged, slower = found.tallies()
    assert (unchanged.judged, unchanged.failed, slower.failed) == (1, 0, 0)
    assert dict(slower.verdicts) == {"slower": 1}
    effect = found.effect("steps", 3.0)
    assert effect is not None
    assert effect.ratio > 1.5


# ---- what is counted as an error -----------------------------------------------------------------------------------


BROKEN = replace(compared(0, None), baseline_value=None, failure=Failure("timeout", "rounds", "too slow"))
FOUND = ErrorRates(
    (
        Trial("sum", 0.0, compared(0, 1.0)),
        Trial("sum", 0.0, compared(1, 1.05)),
        Trial("sum", 0.05, compared(2, 1.05)),
        Trial("sum", 0.05, BROKEN),
    ),
    elapsed_s=6.0,
)


def test_verdicts_are_counted_by_what_was_planted_and_what_could_not_be_run_is_none() -> None:
    unchanged, slower = FOUND.tallies()

    assert (unchanged.planted, dict(unchanged.verdicts)) == (0.0, {"same": 1, "slower": 1})
    assert (slower.planted, dict(slower.verdicts)) == (0.05, {"slower": 1})
    assert (slower.judged, slower.failed) == (1, 1)
    assert FOUND.per_verdict_s == 2.0


def test_without_a_verdict_nothing_is_claimed() -> None:
    found = ErrorRates((Trial("sum", 0.0, BROKEN),), elapsed_s=6.0)

    assert found.per_verdict_s is None
    assert found.effect("sum", 0.0) is None
    assert found.baseline_s("sum") is None
    assert found.tally(0.0).at_most("slower") == 1.0


def test_the_real_effect_is_that_of_all_trials_together() -> None:
    times = [1.04, 1.05, 1.06, 1.07] * 5
    trials = [
        Trial("sum", 0.05, compared(0, 1.05, blocks=(Block(0, (1.0,) * 20, tuple(t + shift for t in times)),)))
        for shift in (-0.001, 0.001)
    ]

    effect = ErrorRates(tuple(trials)).effect("sum", 0.05)

    assert effect is not None
    assert effect.ratio == pytest.approx(1.055, abs=0.0004)  # of one trial: 1.054 or 1.056
