"""The protocol of `benchax doctor --aa`: what is planted, when it ends, what it keeps. Judges are made up."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np
import pytest

from benchax.case import make_case
from benchax.comparing.error_rates import Trial
from benchax.comparing.sequential import Effort
from benchax.measuring.inputs import make_inputs
from benchax.model import Comparison
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


def test_settings_of_a_project_do_not_reach_it_and_functions_travel_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker has to find them by name; a plain pickle could not send them at all."""
    monkeypatch.setenv("BENCHAX_TIMEOUT_S", "0.001")
    judge = Judge()

    last(judge, 1.0)
    sides = judge.paired_runs[0].sides

    assert {paired_run.options.timeout_s for paired_run in judge.paired_runs} == {None}
    assert [side.label for side in pickling.loads(pickling.dumps(sides))] == ["as it is", "unchanged"]
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(sides)


@pytest.mark.parametrize("kernel", KERNELS, ids=[kernel.name for kernel in KERNELS])
def test_a_plant_is_exactly_so_many_turns_more_and_every_turn_is_computed(kernel: Kernel) -> None:
    """The compiler has not removed the loop: fewer turns give another result, which is finite."""
    turns: list[int] = []
    counted = replace(kernel, make=lambda n: turns.append(n) or kernel.make(n))
    args = make_inputs(make_case(kernel.make(1), kernel.specs), 0).args

    for share in protocol.PLANTED:
        counted.slower(share)
    one, two = (jax.jit(kernel.make(n))(*args) for n in (1, 2))

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
