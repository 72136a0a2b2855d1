"""One sequential test for blocks and for pairs of processes: held against its rule written out, on recorded times of
unchanged code and of more work; and what else may become of a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from benchax.comparing.judging import ComparisonEvidence, confirm, judge, judge_times
from benchax.comparing.sequential import CONFIRMING_PAIRS, PAIRS, TIMES, Effort, SequentialTest, confirming, effort_for
from benchax.model import Block, CaseId, Comparison, Failure, Method, Version
from benchax.stats.verdicts import SAME_WITHIN

CONTEXT = Comparison(CaseId("f"), "run", Version("a"), Version("b"), "unclear")
KERNELS = ("k2", "k20", "k200", "k2m", "kal", "k20m")
Group = list[Block]


@dataclass
class GivenSamples:
    """Groups that are known beforehand, of both stages."""

    first: Sequence[Group]
    second: Sequence[Group] = ()
    compiling: float | None = None
    """How many times as long compiling takes."""
    method: Method = "one process"
    resolution: float = SAME_WITHIN
    evidence: ComparisonEvidence = field(default_factory=ComparisonEvidence)

    def take(self, n: int) -> None:
        self.evidence.run += self.first[n]
        if self.compiling is not None:
            self.evidence.build.append(Block(n, (0.1,), (0.1 * self.compiling * (1 + n % 3 / 1000),)))

    def comparisons(self, alpha: float) -> list[Comparison]:
        return judge(replace(CONTEXT, method=self.method, resolution=self.resolution), self.evidence, alpha)

    def rivals(self, alpha: float) -> list[Comparison]:
        return []

    def start_again(self) -> GivenSamples:
        return replace(self, first=self.second, second=(), evidence=ComparisonEvidence())


def run(test: SequentialTest[GivenSamples], gone: Sequence[float] = (0.0,) * 999) -> int:
    """How many groups were taken in both stages, where these shares of the time are gone before each."""
    groups = 0
    for share in gone:
        if (stage := test.due(share)) is None:
            break
        stage.samples.take(stage.groups)
        stage.groups += 1
        groups += 1
    return groups


def steady(ratio: float, count: int = 30, scatter: float = 0.01) -> list[Group]:
    rng = np.random.default_rng(3)
    logs = scatter * rng.standard_normal((count, 25))
    return [[Block(n, (1e-4,) * 25, tuple((1e-4 * ratio * np.exp(log)).tolist()))] for n, log in enumerate(logs)]


def run_of(test: SequentialTest[GivenSamples], metric: str = "run") -> Comparison:
    return next(c for c in test.comparisons() if c.metric == metric)


# ---- the rule, written out ---------------------------------------------------------------------------------------


def look(groups: Sequence[Group], effort: Effort) -> tuple[Comparison, int]:
    """The first clear verdict at a look, or the last one, and after how many groups it came."""
    for n in effort.looks:
        found = judge_times(
            replace(CONTEXT, resolution=effort.resolution), "run", [b for g in groups[:n] for b in g], effort.alpha
        )
        if found.verdict != "unclear":
            break
    return found, n


def judge_by_hand(first: Sequence[Group], again: Sequence[Group], effort: Effort, second: Effort) -> tuple[object, ...]:
    found, groups = look(first, effort)
    if found.verdict in ("slower", "faster"):
        other, more = look(again, second)
        found, groups = confirm(found, other), groups + more
    return found.verdict, found.confirmed, found.why, found.ratio, groups


@pytest.fixture(scope="module")
def recordings() -> dict[str, np.ndarray]:
    """By kernel, wall times: [process, block, round, side]."""
    with np.load(Path(__file__).parents[1] / "data" / "pairs.npz") as file:
        return {name: file[name][:, 0].astype(float) / 1e5 for name in KERNELS}


def drawn_groups(recording: np.ndarray, effort: Effort, factor: float, rng: np.random.Generator) -> list[Group]:
    """Processes of the recording in random order, and which side is the candidate; it takes `factor` times as long."""
    found: list[Group] = []
    for n, process in enumerate(recording[rng.integers(0, len(recording), effort.looks[-1])]):
        one, other = rng.permutation(2)
        known = process[: effort.blocks, ~np.isnan(process[0, :, 0])]
        found.append([Block(n, tuple(b[:, one].tolist()), tuple((factor * b[:, other]).tolist())) for b in known])
    return found


@pytest.mark.parametrize("factor", [1.0, 1.02, 1.05])
@pytest.mark.parametrize(
    ("effort", "second"),
    [
        (Effort(), confirming(Effort())),
        (effort_for(0.01), confirming(effort_for(0.01))),
        (replace(PAIRS, blocks=1), replace(CONFIRMING_PAIRS, blocks=1)),
    ],
    ids=["blocks", "fine blocks", "pairs of processes"],
)
def test_a_verdict_is_that_of_the_rule_written_out(recordings, effort: Effort, second: Effort, factor: float) -> None:
    rng = np.random.default_rng(1)
    for recording in recordings.values():
        for _ in range(3):
            first, again = (drawn_groups(recording, each, factor, rng) for each in (effort, second))
            test = SequentialTest(GivenSamples(first, again, resolution=effort.resolution), effort, second)

            groups = run(test)
            found = run_of(test)

            expected = judge_by_hand(first, again, effort, second)
            assert (found.verdict, found.confirmed, found.why, found.ratio, groups) == expected


# ---- what else may become of it ----------------------------------------------------------------------------------

EVERY = Effort(metrics=TIMES)


def test_a_clear_verdict_between_two_looks_ends_nothing() -> None:
    """After five groups it would be clear, and the next look comes after six."""
    groups = [*steady(1.0, 4, scatter=0.6), *steady(1.0, 4, scatter=0.001)]

    assert run(SequentialTest(GivenSamples(groups), Effort((4, 7)), Effort())) in (4, 7)


NO_TIME = "slower at first (+20 %); no time was left to measure it again (--max-time)"


@pytest.mark.parametrize(
    ("ratio", "gone", "groups", "expected"),
    [
        (1.2, [0.0, 0.2, 0.4, 0.6, 0.8, 0.9], 3 + 2, ("slower", True, "")),
        (1.2, [0.0, 0.4, 1.1], 2, ("unclear", False, NO_TIME)),
        (1.2, [0.0, 0.4, 0.6, 1.1], 3, ("unclear", False, NO_TIME)),
        (1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0], 6, ("same", None, "within 5.0 %")),
    ],
    ids=["confirmed in the other half", "no second stage", "one group of it", "no change has all of the time"],
)
def test_a_change_that_is_seen_when_half_of_the_time_is_gone_has_the_other_half(ratio, gone, groups, expected) -> None:
    test = SequentialTest(GivenSamples(steady(ratio), steady(ratio)), Effort((8,)), Effort((2,)))

    assert run(test, gone) == groups
    assert (run_of(test).verdict, run_of(test).confirmed, run_of(test).why) == expected


@pytest.mark.parametrize(
    ("effort", "expected"), [(Effort(), ("unclear", None)), (PAIRS, ("slower", True)), (EVERY, ("slower", True))]
)
def test_longer_compilation_has_a_name_only_where_it_is_confirmed(effort: Effort, expected: tuple[str, bool]) -> None:
    """Pairs of processes go on for run times alone, and confirm both."""
    test = SequentialTest(GivenSamples(steady(1.0), steady(1.0), compiling=2.0), effort, effort)

    run(test)

    found = run_of(test, "compile")
    assert (found.verdict, found.confirmed) == expected


def test_a_side_that_fails_in_the_second_stage_confirms_nothing() -> None:
    test = SequentialTest(GivenSamples(steady(1.2), steady(1.2), compiling=2.0), EVERY, EVERY)
    while test.second is None and (stage := test.due()) is not None:
        stage.samples.take(stage.groups)
        stage.groups += 1
    assert test.second is not None

    test.second.samples.evidence.failure = Failure("crashed", "rounds of b", "gone")
    test.second.groups = 1

    assert test.due() is None
    assert [(c.metric, c.verdict, c.confirmed) for c in test.comparisons()] == [
        ("run", "unclear", False),
        ("compile", "unclear", False),
    ]


@pytest.mark.parametrize(
    "evidence",
    [
        ComparisonEvidence(failure=Failure("error", "build of b", "no")),
        ComparisonEvidence(is_same_program=True, counts={"flops": (1.0, 2.0)}),
    ],
    ids=["a failure", "one program"],
)
def test_what_cannot_be_timed_ends_after_one_group(evidence: ComparisonEvidence) -> None:
    test = SequentialTest(GivenSamples([[]], evidence=evidence), Effort(), Effort())

    assert run(test) == 1
    assert test.second is None


def test_what_is_counted_is_open_to_no_further_group() -> None:
    evidence = ComparisonEvidence(counts={"peak": (None, 1.0)})
    test = SequentialTest(GivenSamples(steady(1.0), evidence=evidence), Effort(metrics=TIMES))

    assert run(test) == Effort().looks[0]
    assert [c.verdict for c in test.comparisons()] == ["same", "unclear"]


def test_rivals_that_are_unclear_keep_it_going_and_a_change_between_them_is_confirmed() -> None:
    @dataclass
    class Ranked(GivenSamples):
        def rivals(self, alpha: float) -> list[Comparison]:
            word = "slower" if len(self.evidence.run) >= 4 else "unclear"
            return [replace(CONTEXT, verdict=word)]

    test = SequentialTest(Ranked(steady(1.0), steady(1.0)), Effort(), Effort((4,)))

    assert run(test) == 4 + 4
